"""One allocation of CPUs in progress, and its last steps: idle cores and single threads.

Mirrors: `pkg/cpuallocator/allocator.go` (allocatorHelper, takeIdleCores, takeIdleThreads).
"""

from dataclasses import dataclass
from functools import cmp_to_key

from extender.kubelet.budget import Budget
from extender.kubelet.sets import iter_bits
from extender.nri.cpu_groups import (
    Classes,
    CPUGroup,
    compare,
    discover_cache_groups,
    discover_classes,
    discover_clusters,
)
from extender.nri.machine import NO_PRIORITY, NriMachine


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


def finish(taking: Taking) -> int:
    """Take idle cores, then single threads, until the request is met. Returns all taken CPUs."""
    if taking.wanted > 0:
        _take_idle_cores(taking)
    if taking.wanted > 0:
        _take_idle_threads(taking)
    return taking.taken if taking.wanted == 0 else 0


def _take_idle_cores(taking: Taking) -> None:
    topology = taking.topology
    idle = [first for first, cpus in topology.cores.items() if not cpus & ~taking.free]
    taking.budget.spend(len(topology.cores))

    def order(a: int, b: int) -> int:
        return -taking.compare(topology.cores[a], topology.cores[b], -1) or a - b

    if taking.prefer == NO_PRIORITY:
        idle.sort()
    else:
        idle.sort(key=cmp_to_key(order))
    for first in idle:
        cpus = topology.cores[first]
        if taking.wanted >= cpus.bit_count():
            taking.take(cpus)
            if taking.wanted == 0:
                return


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
