"""The coarse replay of one admission: the walk of `admission.admit` on the counts of `amounts`.

Steps of a merge, as in `scopes` and `policies`:
1. Each resource with an opinion says on which single NUMA nodes it fits, if the hardware can serve it from one. Each of
   these masks is preferred. If all resources have some in common, the best of them is the affinity. If they have none
   in common, and no resource prefers a wider mask, there is no preferred affinity.
2. Where step 1 does not decide (requests larger than a NUMA node, align-by-socket, best-effort without a preferred
   mask), the hints are computed in full and merged by `policies.decide`.

Mirrors: `extender.kubelet.admission`, `scopes`, `cpu_manager`.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from extender.kubelet import cpu_manager
from extender.kubelet.budget import Budget
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.families import at_least, universe
from extender.kubelet.hints import Hints, TopologyHint
from extender.kubelet.pod import ContainerRequest, PodRequest
from extender.kubelet.policies import decide
from extender.kubelet.scopes import ANY_NODE
from extender.kubelet.sets import bits_of, iter_bits
from extender.kubelet.verdict import Provider, Reason
from extender.replay.coarse import cpus
from extender.replay.coarse.amounts import FreeAmounts
from extender.replay.coarse.cpus import CPUPool
from extender.replay.coarse.devices import DeviceWalk
from extender.replay.coarse.layout import Layout
from extender.replay.coarse.memory import MemoryWalk
from extender.replay.coarse.verdict import (
    CoarseAdmitted,
    CoarsePlacement,
    CoarseRefusalError,
    IdsDecideError,
    Taken,
)

STEPS_OF_A_CONTAINER: Final = 10
"""Steps of a budget for its key and its walk, before what its hints take."""


class _Opinion(NamedTuple):
    """What one resource says in a merge.

    `able`: the single NUMA nodes that it prefers now, as a raw mask. `only_single`: it never prefers wider masks.
    """

    provider: Provider
    resource: str
    wanted: int
    only_single: bool
    able: int


class CoarseWalk:
    """One admission: what is left of each manager's amounts.

    The pod is new: the node holds nothing for its UID.
    """

    __slots__ = (
        "_amounts",
        "_budget",
        "_devices",
        "_kubelet",
        "_layout",
        "_left_by_init",
        "_memory",
        "_physical",
        "_physical_floor",
        "_placements",
        "_pod",
        "_pool",
        "container",
    )

    def __init__(self, amounts: FreeAmounts, pod: PodRequest, budget: Budget) -> None:
        self._amounts = amounts
        self._kubelet = amounts.kubelet
        self._layout = amounts.layout
        self._pod = pod
        self._budget = budget
        self._memory = MemoryWalk(amounts, pod)
        self._devices = DeviceWalk(amounts.devices)
        self._pool = CPUPool(list(amounts.cpus.free), list(amounts.cpus.whole_cores))
        """What a container may take: free CPUs, and those that earlier init containers left."""
        self._left_by_init: dict[int, int] = {}
        """By position: how many CPUs of init containers are surely still left there."""
        is_counted = amounts.kubelet.cpu_options.full_pcpus_only
        self._physical: list[int] | None = list(amounts.cpus.physical) if is_counted else None
        self._physical_floor = sum(amounts.cpus.physical)
        self._placements: dict[str, CoarsePlacement] = {}
        self.container: str | None = None

    def run(self) -> CoarseAdmitted:
        """Run the configured scope. Source: `scopes.admit_by_scope`.

        Raises:
            CoarseRefusalError: a manager refuses `container`, or the whole pod where that is None.
            IdsDecideError: only the full replay has the answer.
            BudgetError: the budget is used up, or its time is over.
        """
        kubelet, pod = self._kubelet, self._pod
        self._budget.spend(STEPS_OF_A_CONTAINER * len(pod.containers))
        if kubelet.policy is TopologyPolicy.NONE:
            for container in pod.containers:
                self._allocate(container, ANY_NODE)
        elif kubelet.scope is Scope.POD:
            memory = pod.total_memory_bytes if pod.guaranteed else {}
            hint = self._merge(list(self._opinions(pod.total_cpus, memory, pod.total_devices)), memory)
            for container in pod.containers:
                self._allocate(container, hint)
        else:
            for container in pod.containers:
                self.container = container.name
                memory = container.memory_bytes or {}
                hint = self._merge(list(self._opinions(container.cpus, memory, container.devices)), memory)
                self._allocate(container, hint)
        return self._admitted()

    # -- hints and merge

    def _opinions(self, count: int, memory: Mapping[str, int], devices: Mapping[str, int]) -> Iterator[_Opinion]:
        """The opinions of all resources, in the order in which the kubelet's providers are asked."""
        for resource, wanted in devices.items():
            if (device := self._devices.opinion(resource, wanted)) is not None:
                yield _Opinion(Provider.DEVICE, resource, wanted, *device)
        if self._kubelet.cpu_static and count:
            yield _Opinion(Provider.CPU, "cpu", count, *self._cpu_opinion(count))
        if self._kubelet.memory_static and memory:
            found = self._memory.opinion(memory, self._budget)
            if found is not None:
                for resource, wanted in memory.items():
                    yield _Opinion(Provider.MEMORY, resource, wanted, *found)

    def _cpu_opinion(self, count: int) -> tuple[bool, int]:
        """Source: `cpu_manager.generate_hints`."""
        layout = self._layout
        if not layout.counts_suffice:
            raise IdsDecideError
        able = 0
        for numa, free in zip(layout.cpu_numa_ids, self._pool.free, strict=True):
            if free >= count:
                able |= 1 << numa
        if self._left_by_init:
            left = self._numa_left_by_init()
            able = able if not left else able & left if left & (left - 1) == 0 else 0
        return not layout.widens and (layout.largest >= count or len(layout.sizes) == 1), able

    def _numa_left_by_init(self) -> int:
        """The NUMA nodes with CPUs that init containers left, as a raw mask: hints must hold all of them."""
        mask = 0
        for position, floor in self._left_by_init.items():
            if floor > 0:
                mask |= 1 << self._layout.cpu_numa_ids[position]
            elif self._pool.free[position]:
                raise IdsDecideError  # a later container may have taken just these CPUs, or others
        return mask

    def _merge(self, opinions: list[_Opinion], memory: Mapping[str, int]) -> TopologyHint:
        """Source: `scopes._merge`, `policies.decide`, `hints.merge`."""
        kubelet = self._kubelet
        single = kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE
        if not opinions:
            return TopologyHint(None if single else kubelet.default_mask, preferred=True)
        only_single, common = True, -1
        for each in opinions:
            only_single = only_single and each.only_single
            common &= each.able
        if common:
            return self._smallest(common, single=single)
        if single or (only_single and kubelet.policy is TopologyPolicy.RESTRICTED):
            for each in opinions:
                if not each.able:
                    raise CoarseRefusalError(Reason.TOPOLOGY_AFFINITY, each.provider, each.resource)
            raise CoarseRefusalError(Reason.TOPOLOGY_AFFINITY, Provider.TOPOLOGY, None)
        return self._merge_in_full(opinions, memory)

    def _smallest(self, common: int, *, single: bool) -> TopologyHint:
        """The best of several single NUMA nodes that all resources prefer."""
        kubelet = self._kubelet
        affinity = common & -common
        if common != affinity and kubelet.distances is not None:
            affinity = kubelet.distances.closest(tuple(1 << i for i in iter_bits(common)))
        return TopologyHint(None if single and affinity == kubelet.default_mask else affinity, preferred=True)

    def _merge_in_full(self, opinions: list[_Opinion], memory: Mapping[str, int]) -> TopologyHint:
        kubelet, budget = self._kubelet, self._budget
        memory_hints = None
        lists: list[tuple[_Opinion, Hints]] = []
        for each in opinions:
            if each.provider is Provider.DEVICE:
                hints = self._devices.hints(each.resource, each.wanted, budget)
            elif each.provider is Provider.CPU:
                hints = self._cpu_hints(each.wanted)
            else:
                memory_hints = memory_hints or self._memory.hints(memory, budget)
                assert memory_hints is not None
                hints = memory_hints
            lists.append((each, hints))
        every = [hints for _, hints in lists]
        decision = decide(kubelet.policy, every, kubelet.default_mask, kubelet.distances, budget)
        if not decision.admitted:
            for each, hints in lists:
                if not hints.preferred:
                    raise CoarseRefusalError(Reason.TOPOLOGY_AFFINITY, each.provider, each.resource)
            raise CoarseRefusalError(Reason.TOPOLOGY_AFFINITY, Provider.TOPOLOGY, None)
        return decision.hint

    def _cpu_hints(self, count: int) -> Hints:
        space = universe(self._layout.cpu_numa_ids)
        self._budget.spend(space.size >> 6)
        feasible = at_least(tuple(self._pool.free), count)
        if self._left_by_init:
            feasible &= space.containing(self._numa_left_by_init())
        width = cpu_manager.minimum_width(self._kubelet, count)
        also = cpu_manager.preferred_by_socket(self._kubelet, space, width, self._budget)
        return Hints.preferring_width(space, feasible, width, also=also)

    # -- allocation

    def _allocate(self, container: ContainerRequest, hint: TopologyHint) -> None:
        """Device, then CPU, then memory manager. Source: `scopes._allocate`."""
        self.container = container.name
        affinity = hint.affinity
        devices = self._devices.allocate(
            container.devices, container.dra_resources, affinity, reusable=container.reusable
        )
        on_cpus = self._allocate_cpus(container, affinity) if self._kubelet.cpu_static and container.cpus else 0
        on_memory = self._memory.allocate(container, affinity, self._budget, preferred=hint.preferred)
        self._placements[container.name] = CoarsePlacement(affinity, hint.preferred, on_cpus, on_memory, devices)

    def _allocate_cpus(self, container: ContainerRequest, affinity: int | None) -> int:
        """Take exclusive CPUs; returns the raw mask of their NUMA nodes. Source: `cpu_manager.allocate`."""
        layout, pool, count = self._layout, self._pool, container.cpus
        if not layout.counts_suffice:
            raise IdsDecideError
        self._check_whole_cores(count)
        if sum(pool.free) < count:
            raise CoarseRefusalError(Reason.UNEXPECTED_ADMISSION, Provider.CPU, "cpu")
        ids = layout.cpu_numa_ids
        inside = [i for i, numa in enumerate(ids) if affinity is None or affinity >> numa & 1]
        if layout.widens:
            inside = [i for socket in layout.sockets if not set(inside).isdisjoint(socket) for i in socket]
        pool = CPUPool(list(pool.free), list(pool.whole_cores))
        if len(inside) == 1 and pool.free[inside[0]] >= count:
            taken = _take_from_one(layout, pool, inside[0], count)
        elif layout.packs:
            taken = cpus.take_first_inside(layout, pool, inside, count)
        else:
            raise IdsDecideError
        self._count_physical(taken, pool.whole_cores)
        if container.reusable:
            for position, number in enumerate(taken):
                if number:
                    self._left_by_init[position] = max(self._left_by_init.get(position, 0), number)
        else:
            for position in self._left_by_init:
                self._left_by_init[position] -= taken[position]
            self._pool = pool
        return bits_of(ids[i] for i, number in enumerate(taken) if number)

    def _check_whole_cores(self, count: int) -> None:
        """Source: `cpu_manager.check_smt_alignment`."""
        if not self._kubelet.cpu_options.full_pcpus_only:
            return
        is_short = self._physical is not None and sum(self._physical) < count
        if count % self._layout.cpus_per_core or is_short:
            raise CoarseRefusalError(Reason.SMT_ALIGNMENT, Provider.CPU, "cpu")
        if self._physical_floor < count:
            raise IdsDecideError  # the number is known only from below

    def _count_physical(self, taken: list[int], whole_after: list[int]) -> None:
        """Keep count of free CPUs on cores without a reserved CPU, as long as only whole cores are taken."""
        self._physical_floor -= sum(taken)
        per_core = self._layout.cpus_per_core
        whole = [(was - now) * per_core for was, now in zip(self._pool.whole_cores, whole_after, strict=True)]
        if self._physical is None or self._left_by_init or taken != whole:
            self._physical = None
        else:
            self._physical = [free - number for free, number in zip(self._physical, taken, strict=True)]

    # -- the result

    def _admitted(self) -> CoarseAdmitted:
        before, now = self._amounts.bytes.grouped, self._memory.grouped
        physical = None
        if self._physical is not None:
            physical = _less(self._amounts.cpus.physical, self._physical)
        taken = Taken(
            cpus=_less(self._amounts.cpus.free, self._pool.free),
            physical=physical,
            bytes=self._memory.taken(),
            joined=now & ~before,
            left=before & ~now,
            devices=self._devices.taken(),
        )
        if any(c.reusable and c.cpus for c in self._pod.containers):
            taken = taken._replace(cpus=None, physical=None)
        return CoarseAdmitted(self._placements, taken)


def _less(before: Sequence[int], after: Sequence[int]) -> tuple[int, ...]:
    return tuple(was - left for was, left in zip(before, after, strict=True))


def _take_from_one(layout: Layout, pool: CPUPool, position: int, count: int) -> list[int]:
    """Take from one NUMA node: whole cores first, under every option but distribute-cpus-across-cores."""
    cores = min(pool.whole_cores[position], count // layout.cpus_per_core)
    pool.whole_cores[position] -= cores
    pool.free[position] -= cores * layout.cpus_per_core
    cpus.take_singles(layout, pool, position, count - cores * layout.cpus_per_core)
    return [count if i == position else 0 for i in range(len(pool.free))]
