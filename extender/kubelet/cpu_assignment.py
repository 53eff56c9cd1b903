"""Which CPUs a request gets: the kubelet's takeByTopology.

Rules of this file
- Sets are raw CPU bits. Only the accumulator of one call is mutated.
- An element (core, socket, NUMA node) is taken with *all* CPUs that the topology lists for it, and its size is compared
  with integer divisions of machine totals, as the kubelet does. So the kubelet hands out CPUs on hybrid machines that
  are not free, and the replay does the same.

Mirrors: kubelet `cm/cpumanager/cpu_assignment.go`.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import zip_longest
from typing import NamedTuple

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.config import CPUOptions
from extender.kubelet.cpu_distribution import NO_WHOLE_GROUP, distribute
from extender.kubelet.errors import DistributionHangError, NotEnoughCPUsError
from extender.kubelet.machine import Machine
from extender.kubelet.sets import iter_bits, lowest_bits


class Assignment(NamedTuple):
    """How to take CPUs on one machine: the policy options that matter here and the version rules.

    `inside_hint`, `whole_groups`, `spread_by_topology`: rules of `rules.FIXES`; the first two begin with `distribute_`.
    """

    machine: Machine
    options: CPUOptions
    error_counts: bool
    uncore_rounds_up: bool
    inside_hint: bool = False
    whole_groups: bool = False
    spread_by_topology: bool = False

    def take(self, available: int, count: int, budget: Budget = UNLIMITED, *, hint_nodes: int = 0) -> int:
        """*count* CPUs out of *available*, raw bits. On hybrid machines it may contain others, and more: see the rules.

        *hint_nodes*: the number of NUMA nodes in the hint whose CPUs *available* are; 0: there is no hint.

        Source: takeByTopologyNUMADistributed, takeByTopologyNUMAPacked; the choice is policy_static.go takeByTopology.

        Raises:
            NotEnoughCPUsError: fewer than *count* are available.
            DistributionHangError: the kubelet would never return.
            BudgetError: the replay may not go on.
        """
        if self.options.distribute_across_numa:
            return self._take_distributed(available, count, budget, hint_nodes if self.inside_hint else 0)
        return self._take_packed(available, count, budget, uncore=self.options.prefer_align_by_uncore_cache)

    def _take_packed(self, available: int, count: int, budget: Budget, *, uncore: bool) -> int:
        acc = _Accumulator(self.machine, available, count, budget)
        if acc.is_satisfied():
            return 0
        self._check_enough(available, count)
        spread = self.options.distribute_across_cores
        # 1. Whole NUMA nodes and sockets, so that large requests leave no fragments (takeFullFirstLevel,
        # takeFullSecondLevel).
        for take_whole in acc.whole_steps():
            take_whole()
            if acc.is_satisfied():
                return acc.taken
        # 2. With prefer-align-cpus-by-uncorecache: CPUs that share a cache (takeUncoreCache).
        if uncore and not spread:
            acc.take_uncore_caches(rounds_up=self.uncore_rounds_up)
            if acc.is_satisfied():
                return acc.taken
        # 3. Whole cores. distribute-cpus-across-cores skips them, because it wants threads of many cores
        # (takeFullCores).
        if not spread:
            acc.take_full_cores()
            if acc.is_satisfied():
                return acc.taken
        # 4. Single CPUs for the rest (takeRemainingCPUs).
        acc.take_single_cpus(spread=spread, by_topology=self.spread_by_topology)
        if acc.is_satisfied():
            return acc.taken
        raise NotEnoughCPUsError("failed to allocate cpus")

    def _check_enough(self, available: int, count: int) -> None:
        free = available.bit_count()
        if count > free:
            counts = f": requested={count}, available={free}" if self.error_counts else ""
            raise NotEnoughCPUsError(f"not enough cpus available to satisfy request{counts}")

    def _take_or_nothing(self, available: int, count: int, budget: Budget) -> int:
        """A packed allocation, 0 if it fails: the distribution only checks the sum at the end."""
        try:
            return self._take_packed(available, count, budget, uncore=False)
        except NotEnoughCPUsError:
            return 0

    def _take_distributed(self, available: int, count: int, budget: Budget, hint_nodes: int) -> int:
        group = self.machine.cpus_per_core if self.options.full_pcpus_only else 1
        # 1. A request that is not a multiple of a core's threads cannot be split into groups: pack it.
        if count % group:
            return self._take_packed(available, count, budget, uncore=False)
        acc = _Accumulator(self.machine, available, count, budget)
        if acc.is_satisfied():
            return 0
        self._check_enough(available, count)
        # 2. Choose the nodes and the share of each: the most even split over the fewest nodes.
        free = {numa: (self.machine.numa_cpus[numa] & available).bit_count() for numa in acc.numa_order()}
        plan = distribute(
            free,
            count,
            group,
            machine_cpus=self.machine.num_cpus,
            machine_numa_nodes=len(self.machine.cpu_numa_ids),
            hint_nodes=hint_nodes,
            whole_groups=self.whole_groups,
            budget=budget,
        )
        # 3. No balanced split exists: pack the request.
        if plan is None:
            return self._take_packed(available, count, budget, uncore=False)
        # 4. Take the equal share from each node. A share that cannot be taken counts as nothing here.
        for numa in plan.nodes:
            acc.claim(self._take_or_nothing(acc.free & self.machine.numa_cpus[numa], plan.each, budget))
        # 5. Take the remainder in groups, one node after the other. If no node has a whole group left, the kubelet
        # never leaves this loop.
        remainder = count - plan.each * len(plan.nodes)
        while remainder > 0:
            before = remainder
            for numa in plan.remainder_nodes:
                free_there = acc.free & self.machine.numa_cpus[numa]
                if remainder > 0 and free_there.bit_count() >= group:
                    acc.claim(self._take_or_nothing(free_there, group, budget))
                    remainder -= group
            if remainder == before:
                raise DistributionHangError(NO_WHOLE_GROUP)
        # 6. Only the total is checked at the end: shares that could not be taken show here.
        if acc.needed:
            short = "not enough" if acc.needed > 0 else "too many"
            message = f"accounting error, {short} CPUs allocated, remaining: {acc.needed}"
            raise NotEnoughCPUsError(message)
        return acc.taken


class _Accumulator:
    """One allocation in progress: free CPUs, CPUs taken, and CPUs still needed (may become negative)."""

    def __init__(self, machine: Machine, available: int, count: int, budget: Budget) -> None:
        self.machine = machine
        self.budget = budget
        self.free = available
        self.needed = count
        self.taken = 0
        self.sockets_first = machine.num_sockets < len(machine.cpu_numa_ids)

    def is_satisfied(self) -> bool:
        return self.needed < 1

    def claim(self, cpus: int) -> None:
        self.taken |= cpus
        self.free &= ~cpus
        self.needed -= cpus.bit_count()

    # -- order of elements: fewest free CPUs first, then the smaller id. Elements without free CPUs are left out

    def _by_free(self, elements: Mapping[int, int], within: int) -> list[int]:
        """Ids of elements that have a free CPU inside *within*, ordered by their free CPUs anywhere."""
        self.budget.spend(len(elements))
        free = self.free
        counted = [((bits & free).bit_count(), i) for i, bits in elements.items() if bits & free & within]
        counted.sort()
        return [i for _, i in counted]

    def numa_order(self) -> list[int]:
        m = self.machine
        if not self.sockets_first:
            return self._by_free(m.numa_cpus, -1)
        return [n for s in self._by_free(m.socket_cpus, -1) for n in self._by_free(m.numa_cpus, m.socket_cpus[s])]

    def _socket_order(self) -> list[int]:
        m = self.machine
        if self.sockets_first:
            return self._by_free(m.socket_cpus, -1)
        return [s for n in self._by_free(m.numa_cpus, -1) for s in self._by_free(m.socket_cpus, m.numa_cpus[n])]

    def _core_order(self) -> list[int]:
        m = self.machine
        if self.sockets_first:
            return [c for n in self.numa_order() for c in self._by_free(m.core_cpus, m.numa_cpus[n])]
        return [c for s in self._socket_order() for c in self._by_free(m.core_cpus, m.socket_cpus[s])]

    def _uncore_order(self) -> list[int]:
        m = self.machine
        return [u for n in self.numa_order() for u in self._by_free(m.uncore_cpus, m.numa_cpus[n])]

    # -- steps: each orders and filters its elements once, then takes from them

    def whole_steps(self) -> tuple[Callable[[], None], Callable[[], None]]:
        """Whole NUMA nodes and whole sockets; first whichever of the two is larger on this machine."""
        if self.sockets_first:
            return self.take_full_sockets, self.take_full_numa_nodes
        return self.take_full_numa_nodes, self.take_full_sockets

    def _may_take(self, cpus: int) -> bool:
        """Whether this many CPUs are needed. If not, they are not needed later either: no order has to be computed."""
        return self.needed >= cpus.bit_count()

    def _take_while_needed(self, elements: Iterable[int]) -> None:
        for cpus in elements:
            if self._may_take(cpus):
                self.claim(cpus)

    def take_full_numa_nodes(self) -> None:
        numa_cpus, busy = self.machine.numa_cpus, ~self.free
        whole = {n for n, cpus in numa_cpus.items() if self._may_take(cpus) and not cpus & busy}
        if whole:
            self._take_while_needed([numa_cpus[n] for n in self.numa_order() if n in whole])

    def take_full_sockets(self) -> None:
        sockets, free, full = self.machine.socket_cpus, self.free, self.machine.cpus_per_socket
        whole = {s for s, cpus in sockets.items() if self._may_take(cpus) and (cpus & free).bit_count() == full}
        if whole:
            self._take_while_needed([sockets[s] for s in self._socket_order() if s in whole])

    def take_full_cores(self) -> None:
        """In the order of `_core_order`. Whole cores have equally many free CPUs, so the smaller id comes first."""
        m, free, full = self.machine, self.free, self.machine.cpus_per_core
        if self.sockets_first:
            groups = [m.numa_cpus[n] for n in self.numa_order()]
        else:
            groups = [m.socket_cpus[s] for s in self._socket_order()]
        for group in groups:
            self.budget.spend(len(m.core_cpus))
            for cpus in m.core_cpus.values():
                if self.needed < full:  # no core that is whole has fewer CPUs
                    return
                free_there = cpus & free
                if free_there & group and free_there.bit_count() == full and self._may_take(cpus):
                    self.claim(cpus)

    def take_single_cpus(self, *, spread: bool, by_topology: bool) -> None:
        """Free CPUs one by one: core by core, or with *spread* socket by socket in ascending order.

        *by_topology*: take one CPU of each core of a socket, cores in their usual order, then the next CPU of each.
        """
        order = self._socket_order() if spread else self._core_order()
        elements = self.machine.socket_cpus if spread else self.machine.core_cpus
        cpus = [cpu for i in order for cpu in iter_bits(elements[i] & self.free)]
        if spread and by_topology:
            cpus = [cpu for i in order for cpu in self._in_turn(elements[i])]
        for cpu in cpus:
            self.claim(1 << cpu)
            if self.is_satisfied():
                return

    def _in_turn(self, socket: int) -> Iterator[int]:
        """The free CPUs of a socket: the first of each core, then the second of each, and so on."""
        core_cpus = self.machine.core_cpus
        cores = [iter_bits(core_cpus[core] & self.free) for core in self._by_free(core_cpus, socket)]
        return (cpu for turn in zip_longest(*cores) for cpu in turn if cpu is not None)

    def take_uncore_caches(self, *, rounds_up: bool) -> None:
        """Whole uncore caches while the request can fill one, then part of one that holds exactly the rest.

        Source: takeUncoreCache, takeFullUncore, takePartialUncore.
        """
        uncore_cpus = self.machine.uncore_cpus
        # The order is computed once for the outer loop, and anew for whole caches, as in the kubelet.
        for uncore in self._uncore_order():
            if self.needed >= self.machine.cpus_per_uncore:
                self._take_while_needed(
                    [uncore_cpus[u] for u in self._uncore_order() if not uncore_cpus[u] & ~self.free]
                )
            if self.is_satisfied():
                return
            self._take_partial_uncore(uncore_cpus[uncore], rounds_up=rounds_up)
            if self.is_satisfied():
                return

    def _take_partial_uncore(self, uncore: int, *, rounds_up: bool) -> None:
        self.budget.spend(len(self.machine.core_cpus))
        per_core = self.machine.cpus_per_core
        # 1. The cores to take: rounded up since the kubelet accepts an odd number of CPUs.
        wanted_cores = -(-self.needed // per_core) if rounds_up else self.needed // per_core
        inside = [bits & self.free for bits in self.machine.core_cpus.values() if bits & self.free & uncore]
        cpus = 0
        for bits in inside[:wanted_cores]:
            cpus |= bits
        # 2. An odd request takes all of these CPUs but the highest.
        if rounds_up and self.needed % 2 and per_core > 1 and cpus.bit_count() > self.needed:
            cpus = lowest_bits(cpus, cpus.bit_count() - 1)
        # 3. All or nothing: a cache that cannot hold the whole rest is skipped.
        if cpus.bit_count() == self.needed:
            self.claim(cpus)
