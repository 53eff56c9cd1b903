"""Whether the totals of a node suffice for a pod, as its kubelet counts them.

kube-scheduler stops counting a pod when the API server has it as finished. A kubelet can count it a little longer, and
then refuses the next pod as `OutOfcpu` or the like.

Rules of this file
- Amounts are thousandths of the base unit, by resource name.
- A pod's request is its peak over time: init containers run one by one, beside the sidecars started before them.
- Without a Node object, allocatable follows from machine and configuration. Resources that do not follow from them
  (pods, ephemeral storage) are left out, and so are not checked.

Mirrors: `component-helpers/resource` (PodRequests), kubelet `cm/node_container_manager` (allocatable).
"""

from collections.abc import Callable, Collection, Iterator, Mapping
from enum import Enum
from typing import Final, NamedTuple, Protocol, Self

from extender.bounded import BoundedMap
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import HUGEPAGES_PREFIX, ContainerKind
from extender.kubelet.startup import format_bytes
from extender.kubelet.state import DeviceState
from extender.replay.pod import Pod

Milli = Mapping[str, int]
ALIGNED: Final = "numa-extender/aligned"
"""A resource that marks pods which must not be bound without the extender (`managedResources` of kube-scheduler).

No node has this resource. kube-scheduler does not count it (`ignoredByScheduler`), and before admission the kubelet
removes extended resources that the node lacks from the pod (`lifecycle/predicate.go` removeMissingExtendedResources).
"""


def pod_requests(pod: Pod, overhead_milli: Milli) -> dict[str, int]:
    """The pod's request as the scheduler counts it, without zero amounts and without `ALIGNED`."""
    running: dict[str, int] = {}
    peak: dict[str, int] = {}
    for c in pod.containers:
        if c.kind is ContainerKind.INIT:
            for name, amount in c.requests_milli.items():
                peak[name] = max(peak.get(name, 0), running.get(name, 0) + amount)
        else:
            for name, amount in c.requests_milli.items():
                running[name] = running.get(name, 0) + amount
    total = {name: max(peak.get(name, 0), running.get(name, 0)) for name in {**peak, **running}}
    pod_level = (pod.pod_requests_milli or {}).items()
    total |= {name: v for name, v in pod_level if name in ("cpu", "memory") or name.startswith(HUGEPAGES_PREFIX)}
    for name, amount in overhead_milli.items():
        total[name] = total.get(name, 0) + amount
    return {name: amount for name, amount in sorted(total.items()) if amount and name != ALIGNED}


def node_allocatable(kubelet: Kubelet, devices: DeviceState) -> dict[str, int]:
    """Allocatable as the kubelet publishes it, for the resources that follow from its machine and configuration."""
    machine, config = kubelet.machine, kubelet.config
    reserved = config.reservation_bytes
    huge: dict[str, int] = {}
    for node in machine.numa_nodes:
        for page_bytes, pages in node.hugepages.items():
            name = f"{HUGEPAGES_PREFIX}{format_bytes(page_bytes)}"
            huge[name] = huge.get(name, 0) + page_bytes * pages
    memory = sum(node.memory_bytes for node in machine.numa_nodes) - sum(huge.values()) - reserved.get("memory", 0)
    return {
        "cpu": machine.num_cpus * 1000 - config.reservation_cpu_milli,
        "memory": max(0, memory) * 1000,
        **{name: max(0, total - reserved.get(name, 0)) * 1000 for name, total in huge.items()},
        **{r: 1000 * sum(d.healthy for d in each.values()) for r, each in devices.devices.items()},
    }


def shortages(wanted: Milli, allocatable: Milli, requested: Milli) -> Iterator[tuple[str, int, int]]:
    """(resource, wanted, left) for each resource with too little left.

    Extended resources that the node does not name do not exist there. Other resources without a total are skipped.
    """
    for name, amount in wanted.items():
        if name in allocatable or "/" in name:
            left = allocatable.get(name, 0) - requested.get(name, 0)
            if amount > left:
                yield name, amount, left


def exceeds(wanted: Milli, allocatable: Milli, counted: Collection[Milli]) -> bool:
    """Whether a kubelet that counts the requests *counted* beside *wanted* refuses the pod, for example as `OutOfcpu`.

    Extended resources that the node does not name are dropped from the request, as the kubelet does. The number of pods
    is not checked. Mirrors kubelet `lifecycle/predicate.go` and scheduler `noderesources/fit.go` (fitsRequest).
    """
    known = [(amount, name) for name, amount in wanted.items() if name in allocatable]
    return any(amount > allocatable[name] - sum(each.get(name, 0) for each in counted) for amount, name in known)


def add(one: Milli, other: Milli) -> dict[str, int]:
    """The sum by resource."""
    return {name: one.get(name, 0) + other.get(name, 0) for name in {**one, **other}}


def format_milli(resource: str, milli: int) -> str:
    """An amount for people: `8`, `500m`, `16Gi`."""
    if resource == "memory" or resource.startswith(HUGEPAGES_PREFIX) or resource == "ephemeral-storage":
        return format_bytes(-(-milli // 1000))
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


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


class TotalsFit(Enum):
    """Whether the totals suffice."""

    ENOUGH = "enough"
    """The totals suffice even if the kubelet counts every finished pod, or are not known."""
    WITHOUT_FINISHED = "enough without finished pods"
    TOO_LITTLE = "too little"


class _Shortage(NamedTuple):
    """Totals that were too small for a pod. `since`: when that was noticed first, in seconds of the caller's clock."""

    allocatable: Mapping[str, int]
    requested: Mapping[str, int]
    unseen: tuple[str, ...]
    since: float

    def has_same_totals(self, other: Self) -> bool:
        """Whether the node's totals are the same as then, and the pods on it as well.

        Equal sums do not show this: another pod can request as much as one that ended.
        """
        is_same = self.requested is other.requested and self.unseen == other.unseen
        return is_same and self.allocatable == other.allocatable


class NodeTotals:
    """Compares pods with the totals of nodes. *amounts_of*: what is known of a node, by name.

    `requested_milli` of a node must be the same object as long as none of its pods changes. *finished* returns,
    for a node and some of its pods, the requests of those that have finished, by UID; its kubelet may still count them.
    """

    def __init__(
        self,
        cluster: NodeStore,
        pods: PodRegistry,
        amounts_of: Callable[[str], NodeAmounts],
        finished: Callable[[str, Collection[str]], Mapping[str, int]],
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
