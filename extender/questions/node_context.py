"""What is known of a node beside its kubelet's managers: what kube-scheduler's own filters look at.

None always means "not known", and what is not known is said to be not checked.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol


class TaintView(Protocol):
    """One taint; `value` may be empty."""

    @property
    def key(self) -> str: ...  # noqa: D102 - see the class
    @property
    def value(self) -> str: ...  # noqa: D102
    @property
    def effect(self) -> str: ...  # noqa: D102


class NodeObject(Protocol):
    """A Node of the API server, as far as it is read here; `kube.nodes.NodeRecord` is one."""

    @property
    def labels(self) -> Mapping[str, str]: ...  # noqa: D102 - see the class
    @property
    def allocatable(self) -> Mapping[str, str]:
        """Quantities as the API writes them."""
        ...

    @property
    def taints(self) -> Sequence[TaintView]: ...  # noqa: D102
    @property
    def unschedulable(self) -> bool: ...  # noqa: D102


@dataclass(frozen=True, slots=True, kw_only=True)
class Taint:
    """A taint of a node that is made up."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """`allocatable_milli` as `totals`; `requested_milli`: what all pods of the node request together."""

    labels: Mapping[str, str] | None = None
    taints: Sequence[TaintView] | None = None
    unschedulable: bool | None = None
    allocatable_milli: Mapping[str, int] | None = None
    requested_milli: Mapping[str, int] | None = None


class FinishedRequests(Protocol):
    """Knows the requests of finished pods, which a kubelet may still count."""

    def __call__(self, name: str, uids: Collection[str], /) -> Mapping[str, int]:
        """The sum over those of *uids* that have finished on the node, thousandths."""
        ...


def none_finished(_name: str, _uids: Collection[str], /) -> Mapping[str, int]:
    """For a service without a pod watch."""
    return {}


NOTHING_KNOWN: Final = Surroundings()
LookUp = Callable[[str], Surroundings]
"""What is known of a live node, by name. Cheap: it is called for each node of a question."""


def nothing_known(_name: str) -> Surroundings:
    """For a service without a node watch."""
    return NOTHING_KNOWN
