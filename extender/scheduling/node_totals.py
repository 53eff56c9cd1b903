"""Whether the totals of a node suffice for a pod, as its kubelet counts them.

kube-scheduler stops counting a pod when the API server has it as finished. A kubelet can count it a little longer, and
then refuses the next pod as `OutOfcpu` or the like.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol, Self

from extender.bounded import BoundedMap
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.replay.pod import Pod
from extender.scheduling.totals import add, exceeds, pod_requests

MAX_SHORTAGES: Final = 10_000
"""Shortages are kept for at most this many nodes."""


class NodeAmounts(Protocol):
    """What is known of a node's totals, thousandths by resource; None if it is not known."""

    @property
    def allocatable_milli(self) -> Mapping[str, int] | None:
        """What the Node object offers to pods."""

    @property
    def requested_milli(self) -> Mapping[str, int] | None:
        """What all pods of the node that are not finished request together."""


class FinishedRequests(Protocol):
    """Knows the requests of finished pods, which a kubelet may still count."""

    def __call__(self, name: str, uids: Collection[str], /) -> Mapping[str, int]:
        """The sum over those of *uids* that have finished on the node, thousandths."""


class TotalsFit(Enum):
    """Whether the totals suffice."""

    ENOUGH = "enough"
    """They suffice even if the kubelet counts every finished pod, or nothing is known of them."""
    WITHOUT_FINISHED = "enough without finished pods"
    TOO_LITTLE = "too little"


class _Shortage(NamedTuple):
    """Totals that were too small for a pod. `since`: when that was noticed first, in seconds of the caller's clock."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    unseen: tuple[str, ...]
    since: float

    def has_same_totals(self, other: Self) -> bool:
        """Whether nothing has become known of the node since then.

        Equal sums do not show this: another pod can request as much as one that ended.
        """
        is_same = self.requested is other.requested and self.unseen == other.unseen
        return is_same and self.allocatable == other.allocatable


class NodeTotals:
    """Compares pods with the totals of nodes. *amounts_of*: what is known of a node, by name.

    `requested_milli` of a node must be the same object as long as none of its pods changes.
    """

    def __init__(
        self,
        cluster: NodeStore,
        pods: PodRegistry,
        amounts_of: Callable[[str], NodeAmounts],
        finished: FinishedRequests,
    ) -> None:
        self._cluster, self._pods, self._amounts_of, self._finished = cluster, pods, amounts_of, finished
        self._shortages: Final = BoundedMap[str, _Shortage](MAX_SHORTAGES)

    def left(self, node_name: str) -> Mapping[str, int] | None:
        """What all pods of the node leave of its totals; None if it is not known."""
        amounts = self._amounts_of(node_name)
        allocatable, requested = amounts.allocatable_milli, amounts.requested_milli
        if allocatable is None or requested is None:
            return None
        total = requested
        for pod in self._pods.unseen_on(node_name):
            total = add(total, pod_requests(pod, {}))
        return {name: amount - total.get(name, 0) for name, amount in allocatable.items()}

    def fit(self, pod: Pod, node_name: str, now: float) -> tuple[TotalsFit, float]:
        """Whether the pod fits beside all pods of the node, including those whose bindings the watch has not shown yet.

        If it does not fit, the second value counts the seconds since this began or the totals last changed.
        """
        amounts = self._amounts_of(node_name)
        allocatable, requested = amounts.allocatable_milli, amounts.requested_milli
        if allocatable is None or requested is None:
            return TotalsFit.ENOUGH, 0.0
        wanted = pod_requests(pod, {})
        unseen_pods = [other for other in self._pods.unseen_on(node_name) if other.uid != pod.uid]
        unseen = [pod_requests(other, {}) for other in unseen_pods]
        finished = self._finished(node_name, self._cluster.pods_of(node_name).may_be_gone(now))
        if not exceeds(wanted, allocatable, [requested, finished, *unseen]):
            return TotalsFit.ENOUGH, 0.0
        if not exceeds(wanted, allocatable, [requested, *unseen]):
            return TotalsFit.WITHOUT_FINISHED, 0.0
        shortage = _Shortage(allocatable, requested, tuple(other.uid for other in unseen_pods), now)
        before = self._shortages.get(node_name)
        if before is None or not before.has_same_totals(shortage):
            before = self._shortages[node_name] = shortage
        return TotalsFit.TOO_LITTLE, now - before.since
