"""A quick proof that a kubelet refuses a pod: too few CPUs would be free, counted by NUMA node.

Rules of this file
- It only excludes, and only what a replay would refuse. That saves most replays of a search, because most sets of
  victims free too few CPUs.
- It does not assume that more free CPUs are better: what is not excluded is replayed.
"""

from collections.abc import Collection, Sequence

from extender.kubelet import cpu_manager
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import CPUState, ManagerState


class CPUBound:
    """The CPUs that must be free for one pod on one node, which can be in any of *states*.

    Containers that give CPUs back, pod-level budgets and hybrid machines are left to the replay.
    """

    def __init__(self, kubelet: Kubelet, states: Sequence[ManagerState], request: PodRequest) -> None:
        self._kubelet = kubelet
        self._states = [state.cpu for state in states]
        self._applies = (
            kubelet.cpu_static
            and request.pod_level is None
            and not any(c.reusable for c in request.containers)
            and not _is_hybrid(kubelet)
        )
        self._total = request.total_cpus
        self._largest = max((c.cpus for c in request.containers), default=0)
        self._span = _span(kubelet, self._total if kubelet.scope is Scope.POD else self._largest)

    def excludes(self, gone: Collection[str]) -> bool:
        """Whether the pod is refused in every state once the pods *gone* have left."""
        return self._applies and all(self._lacks(state, gone) for state in self._states)

    def _lacks(self, state: CPUState, gone: Collection[str]) -> bool:
        free = state.default
        for uid in gone:
            free |= state.pod_entries.get(uid, 0)
            for cpus in state.entries.get(uid, {}).values():
                free |= cpus
        free &= ~self._kubelet.reserved_cpus
        if free.bit_count() < self._total:
            return True
        by_numa = sorted(((cpus & free).bit_count() for cpus in self._kubelet.machine.numa_cpus.values()), reverse=True)
        return sum(by_numa[: self._span]) < self._largest


def _is_hybrid(kubelet: Kubelet) -> bool:
    """Whether cores have different numbers of threads: the kubelet can then give CPUs that are not free."""
    machine = kubelet.machine
    return any(core.bit_count() != machine.cpus_per_core for core in machine.core_cpus.values())


def _span(kubelet: Kubelet, cpus: int) -> int:
    """The most NUMA nodes that a hint for *cpus* CPUs may span under the node's policy."""
    if kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return 1
    if kubelet.policy is not TopologyPolicy.RESTRICTED or kubelet.cpu_options.align_by_socket:
        return len(kubelet.machine.cpu_numa_ids)
    return cpu_manager.minimum_width(kubelet, cpus)
