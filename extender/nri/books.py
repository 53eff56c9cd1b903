"""The grants on a node, and the free resources of each pool.

Mirrors: `policy/resources.go` (supply, grant, AllocatableSharedCPU, AllocatableReservedCPU, SliceableCPUs,
AccountAllocateCPU, ReleaseCPU) and `policy/pools.go` (hasZeroCpuReqContainer).
"""

from dataclasses import dataclass, replace
from typing import Final

from extender.kubelet.budget import Budget
from extender.nri.config import CPUShare, PolicyConfig
from extender.nri.cpu_allocator import CPUTopology, take_cpus
from extender.nri.memory import MemoryBooks, Offer
from extender.nri.objects import NriContainer, NriPod, QoS
from extender.nri.pools import Pool, PoolTree
from extender.nri.requests import CPUType


@dataclass(frozen=True, slots=True)
class Grant:
    """What a container holds. `pool`: id of the pool; `portion` in mCPU, of the shared or the reserved CPUs.

    `memory_nodes`: its memory zone. `memory_types`: the requested types that the machine has.
    """

    container: str
    pool: int
    cpu_type: CPUType
    exclusive: int
    portion: int
    memory_nodes: int
    memory_types: int
    memory_bytes: int

    @property
    def shared_portion(self) -> int:
        """Granted thousandths of shared CPUs."""
        return self.portion if self.cpu_type is CPUType.NORMAL else 0

    @property
    def reserved_portion(self) -> int:
        """Granted thousandths of reserved CPUs."""
        return self.portion if self.cpu_type is CPUType.RESERVED else 0


@dataclass(frozen=True, slots=True)
class Setup:
    """A machine with a configuration: values that only a new configuration changes.

    `unlimited_burstable`: the topology level of unlimited Burstable containers. `cold_start_off`: a PMEM node
    has no memory that the kernel may use.
    """

    config: PolicyConfig
    topology: CPUTopology
    share: CPUShare
    tree: PoolTree
    unlimited_burstable: int
    cold_start_off: bool


class Books:
    """Grants and free CPUs of every pool. Mutable: call `copy` before a step that may be undone.

    Lists are indexed by pool id. `shared` and `reserved`: mCPU granted in the pool's subtree. `containers`: containers
    in the cache or with a grant. `uncached`: those with a grant that have left the cache.
    """

    __slots__ = (
        "budget", "containers", "grants", "isolated", "memory", "pods", "reserved", "setup", "sharable", "shared",
        "uncached",
    )  # fmt: skip

    def __init__(self, setup: Setup, budget: Budget) -> None:
        pools = setup.tree.pools
        self.setup: Final = setup
        self.budget: Final = budget
        self.isolated = [pool.isolated for pool in pools]
        self.sharable = [pool.sharable for pool in pools]
        self.shared = [0] * len(pools)
        self.reserved = [0] * len(pools)
        self.grants: dict[str, Grant] = {}
        self.memory = MemoryBooks(setup.topology.machine, budget)
        self.containers: dict[str, NriContainer] = {}
        self.pods: dict[str, NriPod] = {}
        self.uncached: set[str] = set()

    def copy(self, budget: Budget) -> "Books":
        """An independent copy that counts its steps in *budget*."""
        other = Books(self.setup, budget)
        other.isolated, other.sharable = list(self.isolated), list(self.sharable)
        other.shared, other.reserved = list(self.shared), list(self.reserved)
        other.adopt(self)
        other.grants, other.memory = dict(self.grants), self.memory.copy(budget)
        return other

    def adopt(self, other: "Books") -> None:
        """Copy the pods and containers of *other*."""
        self.containers, self.pods = dict(other.containers), dict(other.pods)
        self.uncached = set(other.uncached)

    def qos(self, container: NriContainer) -> QoS:
        """The container's QoS class; UNKNOWN once its pod was removed."""
        pod = self.pods.get(container.pod_id)
        return QoS.UNKNOWN if pod is None else pod.qos

    def zero_request_pools(self) -> list[bool]:
        """Per pool: whether its subtree holds a container without a CPU request."""
        pools = self.setup.tree.pools
        result = [False] * len(pools)
        for grant in self.grants.values():
            if not result[grant.pool] and self._has_zero_request(grant):
                for i in (grant.pool, *pools[grant.pool].ancestors):
                    result[i] = True
        return result

    def _has_zero_request(self, grant: Grant) -> bool:
        if grant.cpu_type is CPUType.RESERVED and self.setup.tree.pools[grant.pool].reserved:
            return False
        container = self.containers[grant.container]
        qos = self.qos(container)
        return qos is QoS.BEST_EFFORT or (qos is QoS.BURSTABLE and not container.resources.requests.get("cpu", 0))

    def allocatable(self, zero_request: list[bool]) -> list[int]:
        """Per pool: the mCPU that new shared or sliced grants may take, at least -1.

        *zero_request*: the result of `zero_request_pools` (`resources.go` AllocatableSharedCPU).
        """
        own = [1000 * s.bit_count() - g for s, g in zip(self.sharable, self.shared, strict=True)]
        capped = list(own)
        for pool in reversed(self.setup.tree.pools):
            if pool.parent >= 0 and capped[pool.parent] < capped[pool.id]:
                capped[pool.id] = capped[pool.parent]
        return [c - z for c, z in zip(capped, zero_request, strict=True)]

    def allocatable_now(self) -> list[int]:
        """As `allocatable`, with the zero-request pools that the books have now."""
        return self.allocatable(self.zero_request_pools())

    def allocatable_reserved(self, pool: Pool) -> int:
        """The mCPU that new reserved grants at *pool* may take, -1 without reserved CPUs."""
        if not pool.reserved:
            return -1
        pools = self.setup.tree.pools
        return min(1000 * pools[i].reserved.bit_count() - self.reserved[i] for i in (pool.id, *pool.ancestors))

    def sliceable(self, pool: Pool, allocatable: list[int]) -> int:
        """The shared CPUs that may become exclusive at *pool* (`resources.go` SliceableCPUs).

        Every pool of the subtree gives its spare whole CPUs, the pool itself only if it is a leaf.
        """
        result = 0
        for i in pool.subtree:
            if i == pool.id and not pool.is_leaf:
                continue
            count = allocatable[i] // 1000 if allocatable[i] > 0 else 0
            if count:
                result |= take_cpus(self.setup.topology, self.sharable[i], count, budget=self.budget) or 0
        return result

    def take_exclusive(self, pool: Pool, cpus: int) -> None:
        """Take *cpus* out of *pool*, the pools below it and those above it (`resources.go` AccountAllocateCPU).

        No other pool has these CPUs, unless a NUMA node is in several packages or dies. The plugin ignores that case.
        """
        for i in (*pool.subtree, *pool.ancestors) if cpus else ():
            self.isolated[i] &= ~cpus
            self.sharable[i] &= ~cpus

    def _put_back(self, pool: Pool, cpus: int) -> None:
        pools = self.setup.tree.pools
        for i in (*pool.subtree, *pool.ancestors) if cpus else ():
            self.isolated[i] |= pools[i].isolated & cpus
            self.sharable[i] |= pools[i].sharable & cpus
        self.sharable[pool.id] |= cpus & ~pool.isolated

    def book_portion(self, pool: Pool, cpu_type: CPUType, millicpu: int) -> None:
        """Add *millicpu* at *pool* and above. A negative number subtracts."""
        booked = {CPUType.NORMAL: self.shared, CPUType.RESERVED: self.reserved}.get(cpu_type)
        if booked is not None:
            for i in (pool.id, *pool.ancestors):
                booked[i] += millicpu

    def commit_memory(self, offer: Offer) -> dict[str, int]:
        """Book the memory of *offer*. Returns the containers whose memory moves for it, with their new nodes."""
        moves = self.memory.commit(offer)
        for id_, zone in moves.items():
            if id_ in self.grants:
                self.grants[id_] = replace(self.grants[id_], memory_nodes=zone)
        return moves

    def release_cpus(self, grant: Grant) -> None:
        """Return the CPUs of *grant*."""
        pool = self.setup.tree.pools[grant.pool]
        self._put_back(pool, grant.exclusive)
        self.book_portion(pool, grant.cpu_type, -grant.portion)

    def zones(self) -> dict[int, tuple[int, int, int, int]]:
        """The values of the NodeResourceTopology zone of each pool, by pool id.

        (available mCPU, shared CPUs, available bytes of memory, isolated CPUs); the last is empty once none is free.
        """
        machine = self.setup.topology.machine
        available = self.allocatable_now()
        return {
            pool.id: (
                available[pool.id],
                self.sharable[pool.id],
                self.memory.free_bytes((pool.dram | pool.pmem | pool.hbm) & machine.memory_nodes),
                pool.isolated if self.isolated[pool.id] else 0,
            )
            for pool in self.setup.tree.pools
        }
