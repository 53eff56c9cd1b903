"""The properties of a node that kube-scheduler's own filters check.

None always means "not known", and an unknown property is reported as not checked.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """One taint of a node. `value` may be empty."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeContext:
    """`allocatable_milli` as `totals`; `requested_milli`: what all pods of the node request together."""

    labels: Mapping[str, str] | None = None
    taints: Sequence[Taint] | None = None
    unschedulable: bool | None = None
    allocatable_milli: Mapping[str, int] | None = None
    requested_milli: Mapping[str, int] | None = None


NOTHING_KNOWN: Final = NodeContext()
LookUp = Callable[[str], NodeContext]
"""Returns the context of a live node, by name. Cheap: it is called for each node of a question."""
