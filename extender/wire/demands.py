"""The annotations of a pod, and labels of its namespace, that demand alignment.

A value that is not understood is no error of the document: kube-scheduler would try the pod again at once and show no
reason. It becomes `Demand.fault`, for which every node is refused.
"""

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from extender.replay.demand import NO_DEMAND, AlignmentDemand, Demand, DemandScope, MemoryDemand
from extender.wire.errors import shown

PREFIX: Final = "numa-extender.io/"
ALIGNMENT: Final = f"{PREFIX}alignment"
SCOPE: Final = f"{PREFIX}alignment-scope"
MEMORY: Final = f"{PREFIX}memory"
_VALUES: Final[Mapping[str, type[StrEnum]]] = {ALIGNMENT: AlignmentDemand, SCOPE: DemandScope, MEMORY: MemoryDemand}
E = TypeVar("E", bound=StrEnum)


def demand_from_json(texts: object, where: str = "annotation") -> Demand:
    """The demand in a mapping of annotations or labels; *where* names them in a fault. Other keys are ignored."""
    if not isinstance(texts, dict) or not any(key in texts for key in _VALUES):
        return NO_DEMAND
    return Demand(
        _value(AlignmentDemand, texts.get(ALIGNMENT)),
        _value(DemandScope, texts.get(SCOPE)),
        _value(MemoryDemand, texts.get(MEMORY)),
        next(_faults(texts, where), ""),
    )


def unknown_keys(texts: object) -> list[str]:
    """The keys with our prefix that have no meaning, such as misspelled ones."""
    if not isinstance(texts, dict):
        return []
    return [key for key in texts if isinstance(key, str) and key.startswith(PREFIX) and key not in _VALUES]


def _value(kind: type[E], text: object) -> E | None:
    return kind(text) if isinstance(text, str) and text in tuple(kind) else None


def _faults(texts: Mapping[str, object], where: str) -> Iterator[str]:
    for key, kind in _VALUES.items():
        if key in texts and texts[key] not in tuple(kind):
            yield f"{where} {key} has the unknown value {shown(texts[key])}; use {', '.join(kind)}"
