"""Taking whole cache groups, and splitting the last one.

Mirrors: `pkg/cpuallocator/allocator.go` (takeCacheGroups, sortCacheGroups).
"""

from functools import cmp_to_key

from extender.nri.cpu_groups import CPUGroup
from extender.nri.cpu_taking import Taking, finish
from extender.nri.machine import LOW


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


def take_cache_groups(taking: Taking) -> None:
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
        cpus = finish(Taking(trial.topology, cpus, trial.wanted, trial.prefer, trial.budget))
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
