"""The annotations of a pod, and labels of its namespace, that demand alignment.

A key with the name of a container, such as `numa-extender.io/alignment.app`, is for this container. A value that is not
understood is not an error of the document: kube-scheduler would try the pod again at once and show no reason. It
becomes `Demand.fault`, for which every node is refused.
"""

import re
from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final, TypeVar

from extender.replay.demand import (
    CPU,
    DEVICES,
    MEMORY,
    NO_DEMAND,
    AlignmentDemand,
    ContainerDemand,
    Demand,
    DemandScope,
    MemoryDemand,
)
from extender.wire.errors import shown
from extender.wire.group_conventions import PREFIX
from extender.wire.groups import ANNOTATIONS

ALIGNMENT: Final = f"{PREFIX}alignment"
RESOURCES: Final = f"{PREFIX}alignment-resources"
SCOPE: Final = f"{PREFIX}alignment-scope"
LOCAL_MEMORY: Final = f"{PREFIX}memory"
MAX_RESOURCES: Final = 16
_WORDS: Final[Mapping[str, type[StrEnum]]] = {
    ALIGNMENT: AlignmentDemand,
    SCOPE: DemandScope,
    LOCAL_MEMORY: MemoryDemand,
}
_OF_CONTAINERS: Final = (ALIGNMENT, RESOURCES, LOCAL_MEMORY)
_KEYS: Final = (*_WORDS, RESOURCES)
_RESOURCE: Final = re.compile(rf"{CPU}|{MEMORY}|{DEVICES}|[A-Za-z0-9.-]+/[A-Za-z0-9._-]+")
E = TypeVar("E", bound=StrEnum)


def demand_from_json(texts: object, where: str = "annotation", containers: Collection[str] | None = None) -> Demand:
    """The demand in a mapping of annotations or labels; *where* names them in a fault. Other keys are ignored.

    *containers*: those of the pod; None: of any pod.
    """
    if not isinstance(texts, dict):
        return NO_DEMAND
    ours = {key: parts for key in texts if (parts := _parts(key)) is not None}
    if not ours:
        return NO_DEMAND
    faults = (f"{where} {key} {fault}" for key in ours if (fault := fault_of(key, texts[key], containers)))
    names = sorted({container for _, container in ours.values() if container})
    whole = _demand(texts, "")
    return Demand(
        whole.alignment,
        _word(DemandScope, texts.get(SCOPE)),
        whole.memory,
        next(faults, ""),
        whole.resources,
        tuple((name, _demand(texts, f".{name}")) for name in names),
    )


def understood(texts: Mapping[str, object]) -> list[str]:
    """Our keys whose values are understood."""
    return [key for key in texts if _parts(key) is not None and not fault_of(key, texts[key])]


def fault_of(key: str, text: object, containers: Collection[str] | None = None) -> str:
    """What is wrong with one of our keys and its value. Empty: nothing, or the key has no meaning.

    *containers*: those of the pod; None: of any pod.
    """
    parts = _parts(key)
    if parts is None:
        return ""
    base, container = parts
    if container and containers is not None and container not in containers:
        return f"names no container of the pod: it has {', '.join(map(shown, containers))}"
    kind = _WORDS.get(base)
    if kind is None:
        return "" if _resources(text) else f"has the unknown value {shown(text)}; use resources, such as cpu,memory"
    return "" if text in tuple(kind) else f"has the unknown value {shown(text)}; use {', '.join(kind)}"


def unknown_keys(texts: object) -> list[str]:
    """The keys with our prefix that have no meaning, such as misspelled ones."""
    if not isinstance(texts, dict):
        return []
    keys = (key for key in texts if isinstance(key, str) and key.startswith(PREFIX))
    return [key for key in keys if _parts(key) is None and key not in ANNOTATIONS]


def _parts(key: object) -> tuple[str, str] | None:
    """The key without the name of a container, and that name, "" for a key of the pod; None: it is not one of ours."""
    if not isinstance(key, str) or not key.startswith(PREFIX):
        return None
    base, dot, container = key.removeprefix(PREFIX).partition(".")
    base = PREFIX + base
    is_ours = (base in _OF_CONTAINERS and container) if dot else base in _KEYS
    return (base, container) if is_ours else None


def _demand(texts: Mapping[str, object], suffix: str) -> ContainerDemand:
    return ContainerDemand(
        _word(AlignmentDemand, texts.get(ALIGNMENT + suffix)),
        _word(MemoryDemand, texts.get(LOCAL_MEMORY + suffix)),
        _resources(texts.get(RESOURCES + suffix)),
    )


def _word(kind: type[E], text: object) -> E | None:
    return kind(text) if isinstance(text, str) and text in tuple(kind) else None


def _resources(text: object) -> tuple[str, ...] | None:
    """The resources of a list, sorted; None: it is not understood. In the value of a label `_` separates words."""
    if not isinstance(text, str):
        return None
    names = {each.strip() for each in (text.split(",") if "/" in text or "," in text else text.split("_"))}
    return tuple(sorted(names)) if len(names) <= MAX_RESOURCES and all(map(_RESOURCE.fullmatch, names)) else None
