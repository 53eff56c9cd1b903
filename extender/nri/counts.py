"""What the zones of a NodeResourceTopology object alone prove about a pod.

The plugin publishes a zone for each pool (`policy/topology-aware-policy.go` GetTopologyZones). Without the grants it
is unknown where a container goes. Some refusals can still be proven:

- A container gets its CPUs from one pool, and no pool gives more than its zone shows. What earlier containers of the
  pod were given is no longer in the root, and no pool gives more than the root has. There is an exception of 1m: a
  container that requests no CPU counts only for the pools above it (`policy/pools.go` hasZeroCpuReqContainer).
- Whole CPUs come from the pools below, at most what each of them has left (`policy/resources.go` SliceableCPUs).
- Memory that is booked on all nodes together never exceeds what the nodes have.

Rules of this file
- A refusal is a proof. Isolated and reserved CPUs have no count of their own. So a container that may use them is
  refused only if it needs more than the most that there can be.
- Without a configuration each container counts with the least that any configuration would give it.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.nri.admission import NriContainerKind, NriReason, UnplacedContainer, in_order, new_container
from extender.nri.config import PolicyConfig
from extender.nri.events import cached
from extender.nri.machine import ALL_MEMORY
from extender.nri.objects import NriPod
from extender.nri.pools import PoolTree
from extender.nri.requests import CPUType, Request, new_request
from extender.nri.verdict import RefusalError

_MODEST = PolicyConfig(prefer_isolated=True)
_STEPS: Final = 5_000
"""Steps for the patterns of a configuration: some milliseconds. Beyond them nothing is proven."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolCounts:
    """A pool as its zone shows it: CPU in mCPU, memory in bytes of all types together.

    `parent`: the name of the pool above, "" for the root. `available_millicpu` is -1 if no CPU is left and a
    container requests none. `shared`: the shared CPUs at present. `isolated`: all isolated CPUs, none once no isolated
    CPU is free.
    """

    name: str
    parent: str
    kind: str
    capacity_millicpu: int
    available_millicpu: int
    capacity_memory_bytes: int
    available_memory_bytes: int
    memory_nodes: int = 0
    shared: int = 0
    reserved: int = 0
    isolated: int = 0


def are_pools_of(tree: PoolTree, published: Sequence[PoolCounts]) -> bool:
    """Whether the plugin publishes the pools of *tree*: the same names below the same parents, in the same order."""
    pools = tree.pools
    ours = [(pool.name, "" if pool.parent < 0 else pools[pool.parent].name) for pool in pools]
    return ours == [(each.name, each.parent) for each in published]


@dataclass(frozen=True, slots=True)
class NriCounts:
    """The pools of a node, children before parents, the root last. `config` None: not known.

    `memory_types`: those of the machine; all of them where they are not known.
    """

    pools: tuple[PoolCounts, ...]
    config: PolicyConfig | None = None
    memory_types: int = ALL_MEMORY

    @property
    def root(self) -> PoolCounts:
        """The pool that has all CPUs and all memory."""
        return self.pools[-1]

    def room(self) -> list[tuple[int, int]]:
        """Per pool: the shared mCPU and, at most, the whole CPUs that one container can get."""
        below: dict[str, int] = {}
        room = []
        for pool in self.pools:
            spare = max(0, pool.available_millicpu) // 1000
            most = below.get(pool.name, spare)
            given = min(pool.shared.bit_count(), spare + most) if pool.name in below else spare
            below[pool.parent] = below.get(pool.parent, 0) + given
            room.append((pool.available_millicpu, most))
        return room


def refusal_by_pools(
    counts: NriCounts, pod: NriPod, containers: Sequence[UnplacedContainer]
) -> tuple[NriReason, str] | None:
    """Why *pod* would not run, and the container that would be refused; None: nothing is proven."""
    budget = Budget(_STEPS)
    room, memory, at_root = counts.room(), counts.root.available_memory_bytes, counts.root.available_millicpu + 1
    for container in in_order(containers):
        try:
            request = _request(counts, pod, container, budget)
        except RefusalError:
            return NriReason.ANNOTATION, container.name
        except BudgetError:
            return None
        if request.memory_bytes > memory or not request.memory_types:
            return NriReason.NO_MEMORY, container.name
        millicpu, cpus = _shared_cpu(counts, request)
        if millicpu > at_root or not any(millicpu <= left and cpus <= whole for left, whole in room):
            return NriReason.NO_CPU, container.name
        if container.kind is not NriContainerKind.INIT:
            memory -= request.memory_bytes
            at_root -= max(0, millicpu)
    return None


def _request(counts: NriCounts, pod: NriPod, container: UnplacedContainer, budget: Budget) -> Request:
    """The request of *container* as the policy reads it. Raises RefusalError and BudgetError."""
    total = counts.root.capacity_memory_bytes
    created = cached(pod, new_container(pod, container, total), total)
    return new_request(pod, created, counts.config or _MODEST, counts.memory_types, budget, cold_start_off=True)


def _shared_cpu(counts: NriCounts, request: Request) -> tuple[int, int]:
    """The least shared mCPU that *request* takes, and the whole CPUs among them; (-1, 0): possibly no shared CPU."""
    millicpu, reserved = 1000 * request.full + request.fraction, 1000 * counts.root.reserved.bit_count()
    may_be_reserved = request.cpu_type is CPUType.RESERVED or counts.config is None
    if request.cpu_type is CPUType.PRESERVE or (may_be_reserved and millicpu <= reserved):
        return 0, 0
    if request.isolate and request.full <= counts.root.isolated.bit_count():
        return request.fraction or -1, 0
    return millicpu, 0 if counts.config is None else request.full
