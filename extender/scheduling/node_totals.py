"""Whether the totals of a node suffice for a pod, as its kubelet counts them.

kube-scheduler stops counting a pod when the API server has it as finished. A kubelet can count it a little longer, and
then refuses the next pod as `OutOfcpu` or the like.
"""

from collections.abc import Callable, Collection, Mapping
from enum import Enum
from typing import Protocol

from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.replay.pod import Pod
from extender.scheduling.totals import exceeds, pod_requests


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
    """Also if the kubelet counts every finished pod. Or it is not known."""
    WITHOUT_FINISHED = "enough without finished pods"
    TOO_LITTLE = "too little"


class NodeTotals:
    """Compares pods with the totals of nodes. *amounts_of*: what is known of a node, by name."""

    def __init__(
        self,
        cluster: NodeStore,
        pods: PodRegistry,
        amounts_of: Callable[[str], NodeAmounts],
        finished: FinishedRequests,
    ) -> None:
        self._cluster, self._pods, self._amounts_of, self._finished = cluster, pods, amounts_of, finished

    def fit(self, pod: Pod, node_name: str, now: float) -> TotalsFit:
        """How the pod fits beside all pods of the node, those included whose bindings the watch has not shown yet."""
        amounts = self._amounts_of(node_name)
        allocatable, requested = amounts.allocatable_milli, amounts.requested_milli
        if allocatable is None or requested is None:
            return TotalsFit.ENOUGH
        wanted = pod_requests(pod, {})
        unseen = [pod_requests(each, {}) for each in self._pods.unseen_on(node_name) if each.uid != pod.uid]
        finished = self._finished(node_name, self._cluster.may_be_gone(node_name, now))
        if not exceeds(wanted, allocatable, [requested, finished, *unseen]):
            return TotalsFit.ENOUGH
        return (
            TotalsFit.TOO_LITTLE if exceeds(wanted, allocatable, [requested, *unseen]) else TotalsFit.WITHOUT_FINISHED
        )
