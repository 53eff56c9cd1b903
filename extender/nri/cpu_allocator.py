"""Chooses the CPUs for a request of whole CPUs out of a set.

Mirrors: `pkg/cpuallocator/allocator.go` (AllocateCpus, allocate, takeIdlePackages, takeIdleClusters, takeCacheGroups,
sortCacheGroups, takeIdleCores, takeIdleThreads).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cmp_to_key

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.sets import iter_bits
from extender.nri.cpu_groups import (
    Classes,
    CPUGroup,
    compare,
    discover_cache_groups,
    discover_classes,
    discover_clusters,
)
from extender.nri.machine import LOW, NO_PRIORITY, NriMachine


@dataclass(frozen=True)
class CPUTopology:
    """The allocator's data about a machine. `cores`: the CPUs of each core, by the core's lowest CPU."""

    machine: NriMachine
    packages: dict[int, int]
    cores: dict[int, int]
    classes: Classes
    clusters: tuple[CPUGroup, ...]
    cache_groups: tuple[CPUGroup, ...]


def discover(machine: NriMachine) -> CPUTopology:
    """The allocator's view of *machine*."""
    cores: dict[int, int] = {}
    for cpu in machine.cpus:
        threads = cpu.threads & machine.online
        cores.setdefault((threads & -threads).bit_length() - 1, threads)
    return CPUTopology(
        machine=machine,
        packages={id_: package.cpus for id_, package in machine.packages.items()},
        cores=cores,
        classes=discover_classes(machine),
        clusters=discover_clusters(machine),
        cache_groups=discover_cache_groups(machine),
    )


class Taking:
    """One allocation in progress: free CPUs, taken CPUs, and the number of CPUs still needed."""

    __slots__ = ("budget", "free", "prefer", "taken", "topology", "wanted")

    def __init__(self, topology: CPUTopology, free: int, wanted: int, prefer: int, budget: Budget) -> None:
        self.topology = topology
        self.free = free
        self.wanted = wanted
        self.prefer = prefer
        self.taken = 0
        self.budget = budget

    def take(self, cpus: int) -> None:
        """Take *cpus*, which are free."""
        self.taken |= cpus
        self.free &= ~cpus
        self.wanted -= cpus.bit_count()

    def compare(self, a: int, b: int, count: int) -> int:
        """How *a* and *b* compare by priority class, see `cpu_groups.compare`."""
        return compare(self.topology.classes, a, b, self.prefer, count)


def take_cpus(
    topology: CPUTopology, free: int, count: int, prefer: int = NO_PRIORITY, budget: Budget = UNLIMITED
) -> int | None:
    """*count* CPUs of *free*, or None if there are fewer."""
    size = free.bit_count()
    if size < count:
        return None
    if size == count:
        return free
    if count <= 0:
        return 0
    taking = Taking(topology, free, count, prefer, budget)
    _take_whole(taking, topology.packages, topology.classes[prefer] if prefer < NO_PRIORITY else -1)
    if taking.wanted > 0 and topology.machine.is_hybrid:
        _take_idle_clusters(taking)
    if taking.wanted > 0:
        _take_cache_groups(taking)
    return _finish(taking)


def _finish(taking: Taking) -> int:
    """Take idle cores, then single threads, until the request is met. Returns all taken CPUs."""
    if taking.wanted > 0:
        _take_whole(taking, taking.topology.cores)
    if taking.wanted > 0:
        _take_idle_threads(taking)
    return taking.taken if taking.wanted == 0 else 0


def _take_whole(taking: Taking, sets: Mapping[int, int], counted: int = -1) -> None:
    """Take the *counted* CPUs of idle packages or cores, by id, while a whole set fits in the request."""
    not_free = counted & ~taking.free
    idle = sorted([id_ for id_, cpus in sets.items() if not cpus & not_free])
    taking.budget.spend(len(sets))

    def order(a: int, b: int) -> int:
        return -taking.compare(sets[a], sets[b], -1)

    if taking.prefer != NO_PRIORITY:
        idle.sort(key=cmp_to_key(order))
    for id_ in idle:
        cpus = sets[id_] & counted
        if taking.wanted >= cpus.bit_count():
            taking.take(cpus)
            if taking.wanted == 0:
                return


def _take_idle_clusters(taking: Taking) -> None:
    if len(taking.topology.clusters) <= 1:
        return
    idle = [
        c for c in taking.topology.clusters if c.is_efficient == (taking.prefer == LOW) and not c.cpus & ~taking.free
    ]
    per_package: dict[int, int] = {}
    per_die: dict[tuple[int, int], int] = {}
    for cluster in idle:
        size = cluster.cpus.bit_count()
        per_package[cluster.package] = per_package.get(cluster.package, 0) + size
        per_die[cluster.package, cluster.die] = per_die.get((cluster.package, cluster.die), 0) + size
    taking.budget.spend(len(taking.topology.clusters))

    def order(a: CPUGroup, b: CPUGroup) -> int:
        sizes = (
            (a.cpus.bit_count(), b.cpus.bit_count()),
            (per_die[a.package, a.die], per_die[b.package, b.die]),
            (per_package[a.package], per_package[b.package]),
        )
        for size_a, size_b in sizes:
            if (size_a >= taking.wanted) != (size_b >= taking.wanted):
                return -1 if size_a >= taking.wanted else 1
            if size_a >= taking.wanted:
                return size_a - size_b or a.package - b.package or a.die - b.die or a.id - b.id
        return 0

    idle.sort(key=cmp_to_key(order))
    for cluster in idle:
        if taking.wanted < cluster.cpus.bit_count():
            return
        taking.take(cluster.cpus)
        if taking.wanted == 0:
            return


class _Groups:
    """The groups that an allocation may use: `idle` ones are wholly free, `used` ones in part."""

    __slots__ = ("free", "full", "idle", "idle_per", "part", "used", "used_per")

    def __init__(self, taking: Taking) -> None:
        groups = taking.topology.cache_groups
        self.part = taking.wanted % groups[0].cpus.bit_count()
        self.full = taking.wanted - self.part
        self.free: dict[int, int] = {}
        self.idle: list[CPUGroup] = []
        self.used: list[CPUGroup] = []
        self.idle_per: dict[object, int] = {}
        self.used_per: dict[object, int] = {}
        is_hybrid = taking.topology.machine.is_hybrid
        for group in groups:
            free = group.cpus & taking.free
            if not free or (is_hybrid and group.is_efficient != (taking.prefer == LOW)):
                continue
            self.free[group.id] = free
            chosen, per = (self.idle, self.idle_per) if free == group.cpus else (self.used, self.used_per)
            chosen.append(group)
            for key in (group.package, (group.package, group.die)):
                per[key] = per.get(key, 0) + free.bit_count()
        self.idle.sort(key=cmp_to_key(self._compare_idle))
        self.used.sort(key=cmp_to_key(self._compare_used))

    def _compare_idle(self, a: CPUGroup, b: CPUGroup) -> int:
        for key_a, key_b in (((a.package, a.die), (b.package, b.die)), (a.package, b.package)):
            full_a, full_b = self.idle_per.get(key_a, 0), self.idle_per.get(key_b, 0)
            part_a, part_b = self.used_per.get(key_a, 0), self.used_per.get(key_b, 0)
            fits_a, fits_b = part_a >= self.part, part_b >= self.part
            if full_a >= self.full and full_b < self.full and fits_a:
                return -1
            if full_a < self.full and full_b >= self.full and fits_b:
                return 1
            if full_a >= self.full and full_b >= self.full:
                if fits_a != fits_b:
                    return -1 if fits_a else 1
                if fits_a:
                    return full_a - full_b or part_a - part_b or _compare_ids(a, b)
        return a.id - b.id

    def _compare_used(self, a: CPUGroup, b: CPUGroup) -> int:
        size_a, size_b = self.free[a.id].bit_count(), self.free[b.id].bit_count()
        if self.full > 0 and self.idle:
            # The plugin compares ids with numbers of CPUs here, so this order is seldom effective.
            first = self.idle[0]
            package, die = self.idle_per[first.package], self.idle_per[first.package, first.die]
            if (a.package == package) != (b.package == package):
                return -1 if a.package == package else 1
            if a.package != package or die not in (a.die, b.die):
                return 0
            if (a.die == die) != (b.die == die):
                return -1 if a.die == die else 1
            return size_b - size_a or a.id - b.id
        part_a = self.used_per.get((a.package, a.die), 0)
        part_b = self.used_per.get((b.package, b.die), 0)
        total = self.full + self.part
        if (part_a >= total) != (part_b >= total):
            return -1 if part_a >= total else 1
        if part_a >= total:
            return part_a - part_b or size_b - size_a or _compare_ids(a, b)
        return 0


def _compare_ids(a: CPUGroup, b: CPUGroup) -> int:
    return a.package - b.package or a.die - b.die or a.id - b.id


def _take_cache_groups(taking: Taking) -> None:
    """Take cache groups for the request, or nothing if they do not suffice."""
    topology = taking.topology
    if len(topology.cache_groups) <= 1 or taking.wanted < 2:
        return
    taking.budget.spend(len(topology.cache_groups))
    groups = _Groups(taking)
    package = (groups.idle or groups.used)[0].package if groups.idle or groups.used else 0
    available = groups.used_per.get(package, 0) + (groups.idle_per.get(package, 0) if groups.idle else 0)
    if available < taking.wanted:
        return
    trial = Taking(topology, taking.free, taking.wanted, taking.prefer, taking.budget)
    for group in groups.idle:
        if trial.wanted <= 0:
            break
        _take_all_or_split(trial, groups.free[group.id])
    if trial.wanted > 0 and not _take_used(trial, groups, package):
        return
    taking.take(trial.taken)


def _take_all_or_split(trial: Taking, cpus: int) -> None:
    if trial.wanted < cpus.bit_count():
        cpus = _finish(Taking(trial.topology, cpus, trial.wanted, trial.prefer, trial.budget))
    trial.take(cpus)


def _take_used(trial: Taking, groups: _Groups, package: int) -> bool:
    """Take from the partly used groups of the chosen package. Returns whether they sufficed."""
    usable: list[int] = []
    for group in groups.used:
        if group.package != package:
            break
        usable.append(groups.free[group.id])
    exact = next((cpus for cpus in usable if cpus.bit_count() == trial.wanted), None)
    if exact is not None:
        trial.take(exact)
        return True
    if sum(cpus.bit_count() for cpus in usable) < trial.wanted:
        return False
    for cpus in usable:
        _take_all_or_split(trial, cpus)
        if trial.wanted == 0:
            return True
    return False


def _take_idle_threads(taking: Taking) -> None:
    topology, free, wanted = taking.topology, taking.free, taking.wanted
    cpu = topology.machine.cpu
    in_package = {id_: (cpus & taking.taken).bit_count() for id_, cpus in topology.packages.items()}
    taking.budget.spend(free.bit_count())

    def rank(i: int) -> tuple[int, int, int, int]:
        one = cpu[i]
        return (-in_package[one.package], one.package, (one.threads & free).bit_count(), i)

    def order(a: int, b: int) -> int:
        rank_a, rank_b = rank(a), rank(b)
        if rank_a[0] != rank_b[0]:
            return rank_a[0] - rank_b[0]
        if rank_a[1] != rank_b[1]:
            by_class = taking.compare(topology.packages[rank_a[1]] & free, topology.packages[rank_b[1]] & free, wanted)
            return -by_class or rank_a[1] - rank_b[1]
        by_class = taking.compare(1 << a, 1 << b, 0)
        return -by_class or rank_a[2] - rank_b[2] or a - b

    ids = list(iter_bits(free))
    if taking.prefer == NO_PRIORITY:
        ids.sort(key=rank)
    else:
        ids.sort(key=cmp_to_key(order))
    bits = 0
    for i in ids[:wanted]:
        bits |= 1 << i
    taking.take(bits)
