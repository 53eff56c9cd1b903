"""Chooses the CPUs for a request of whole CPUs out of a set.

Mirrors: `pkg/cpuallocator/allocator.go` (AllocateCpus, allocate, takeIdlePackages, takeIdleClusters). Idle cores and
single threads are in `cpu_taking`, cache groups in `cache_groups`.
"""

from functools import cmp_to_key

from extender.kubelet.budget import UNLIMITED, Budget
from extender.nri.cache_groups import take_cache_groups
from extender.nri.cpu_groups import CPUGroup
from extender.nri.cpu_taking import CPUTopology, Taking, finish
from extender.nri.machine import LOW, NO_PRIORITY


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
    _take_idle_packages(taking)
    if taking.wanted > 0 and topology.machine.is_hybrid:
        _take_idle_clusters(taking)
    if taking.wanted > 0:
        take_cache_groups(taking)
    return finish(taking)


def _take_idle_packages(taking: Taking) -> None:
    topology = taking.topology
    wanted_class = topology.classes[taking.prefer] if taking.prefer < NO_PRIORITY else -1
    idle = [id_ for id_, cpus in topology.packages.items() if not cpus & wanted_class & ~taking.free]
    taking.budget.spend(len(topology.packages))

    def order(a: int, b: int) -> int:
        return -taking.compare(topology.packages[a], topology.packages[b], -1) or a - b

    for id_ in sorted(idle, key=cmp_to_key(order)):
        cpus = topology.packages[id_] & wanted_class
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
