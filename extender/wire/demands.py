"""The annotations of a pod, and labels of its namespace, that demand alignment.

A value that is not understood is not an error of the document: kube-scheduler would try the pod again at once and show
no reason. It becomes `Demand.fault`, for which every node is refused.
"""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

from extender.replay.demand import NO_DEMAND, AlignmentDemand, Demand, DemandScope, MemoryDemand
from extender.wire.errors import shown
from extender.wire.groups import ANNOTATIONS, PREFIX

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
        next(
            (f"{where} {key} {fault}" for key in _VALUES if key in texts and (fault := fault_of(key, texts[key]))), ""
        ),
    )


def understood(texts: Mapping[str, object]) -> list[str]:
    """Our keys whose values are understood."""
    return [key for key in _VALUES if key in texts and not fault_of(key, texts[key])]


def fault_of(key: str, text: object) -> str:
    """What is wrong with the value of one of our keys. Empty: nothing, or the key has no meaning."""
    kind = _VALUES.get(key)
    if kind is None or text in tuple(kind):
        return ""
    return f"has the unknown value {shown(text)}; use {', '.join(kind)}"


def unknown_keys(texts: object) -> list[str]:
    """The keys with our prefix that have no meaning, such as misspelled ones."""
    if not isinstance(texts, dict):
        return []
    known = (*_VALUES, *ANNOTATIONS)
    return [key for key in texts if isinstance(key, str) and key.startswith(PREFIX) and key not in known]


def _value(kind: type[E], text: object) -> E | None:
    return kind(text) if isinstance(text, str) and text in tuple(kind) else None
