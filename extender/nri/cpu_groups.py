"""Groups of CPUs that the allocator prefers to take whole, and CPU priority classes.

Mirrors: `pkg/cpuallocator/allocator.go` (discoverCPUClusters, pickCacheLevelForGrouping, discoverCacheGroups,
discoverCPUPriorities, discoverCpufreqPriority, cmpCPUSet). Intel Speed Select states are not part of a machine's facts,
so the classes come from base frequency, energy preference and core kind.
"""

from dataclasses import dataclass
from typing import TypeAlias

from extender.kubelet.sets import iter_bits
from extender.nri.machine import CPU, EPP_ORDER, HIGH, LOW, NO_PRIORITY, NORMAL, NriMachine, Package


@dataclass(frozen=True, slots=True)
class CPUGroup:
    """A cluster or a cache group. `id`: the cluster's id, or the position of the cache group."""

    id: int
    package: int
    die: int
    cpus: int
    is_efficient: bool


def discover_clusters(machine: NriMachine) -> tuple[CPUGroup, ...]:
    """Clusters of the packages that have more than one."""
    result: list[CPUGroup] = []
    for package in machine.packages.values():
        clusters = [
            CPUGroup(cluster, package.id, die, cpus, bool(machine.efficient & cpus & -cpus))
            for die, of_die in package.logical_clusters.items()
            for cluster, cpus in of_die.items()
            if cpus
        ]
        if len(clusters) > 1:
            result += clusters
    return tuple(result)


def discover_cache_groups(machine: NriMachine) -> tuple[CPUGroup, ...]:
    """CPUs that share a cache of more than one core and less than a die or package; in the plugin's order."""
    level = _grouping_level(machine)
    if level is None:
        return ()
    found: list[tuple[CPU, int]] = []
    for package in machine.packages.values():
        groups: list[tuple[CPU, int]] = []
        assigned = 0
        for i in iter_bits(package.cpus):
            cpu = machine.cpu[i]
            shared = (_sharing(cpu).get(level, 0) if cpu.caches else cpu.threads) & machine.online
            if assigned >> i & 1 or not _is_group(machine, cpu, shared):
                continue
            groups.append((cpu, shared))
            assigned |= shared
        if len(groups) > 1:
            found += groups
    members = [[machine.cpu[i] for i in iter_bits(cpus)] for _, cpus in found]
    if any(cpu.package != first.package for (first, _), of in zip(found, members, strict=True) for cpu in of):
        return ()
    crosses_dies = [any(cpu.die != first.die for cpu in of) for (first, _), of in zip(found, members, strict=True)]
    for (first, _), of, crosses in zip(found, members, crosses_dies, strict=True):
        if not crosses and any(cpu.node != first.node for cpu in of):
            return ()
    by_die = not any(crosses_dies)
    found.sort(key=lambda g: (g[0].package, g[0].die if by_die else 0, g[0].node, g[1] & -g[1]))
    return tuple(
        CPUGroup(position, cpu.package, cpu.die, cpus, bool(machine.efficient >> cpu.id & 1))
        for position, (cpu, cpus) in enumerate(found)
    )


def _grouping_level(machine: NriMachine) -> int | None:
    for cpu in machine.cpus:
        sharing = _sharing(cpu)
        for level in range(len(cpu.caches) - 1, 0, -1):
            if _is_group(machine, cpu, sharing.get(level, 0)):
                return level
    return None


def _sharing(cpu: CPU) -> dict[int, int]:
    """The CPUs that share a cache of *cpu*, by level. A cache listed after one of a higher level does not count."""
    found: dict[int, int] = {}
    highest = 0
    for cache in cpu.caches:
        if cache.level >= highest:
            highest = cache.level
            found[highest] = found.get(highest, 0) | cache.cpus
    return found


def _is_group(machine: NriMachine, cpu: CPU, cpus: int) -> bool:
    package = machine.packages[cpu.package]
    return cpus.bit_count() > 1 and cpus not in (
        cpu.threads & machine.online,
        package.die_cpus[cpu.die] & machine.online,
        package.cpus & machine.online,
    )


Classes: TypeAlias = tuple[int, int, int]
"""The CPUs of priority high, normal and low."""


def discover_classes(machine: NriMachine) -> Classes:
    """The priority class of every CPU."""
    classes = [0, 0, 0]
    for package in machine.packages.values():
        for priority, cpus in enumerate(_of_package(machine, package)):
            # The plugin takes E-cores out of every other class, unless all CPUs are E-cores.
            keep = machine.online & ~machine.efficient
            classes[priority] |= cpus & ~machine.efficient if priority != LOW and keep else cpus
    return classes[HIGH], classes[NORMAL], classes[LOW]


def _of_package(machine: NriMachine, package: Package) -> list[int]:
    cpus = [machine.cpu[i] for i in iter_bits(package.cpus)]
    frequencies = sorted({cpu.base_khz for cpu in cpus} - {0})
    preferences = sorted({EPP_ORDER[cpu.epp] for cpu in cpus if cpu.epp in EPP_ORDER})
    classes = [0, 0, 0]
    for cpu in cpus:
        priority = NORMAL
        if len(frequencies) > 1:
            priority = HIGH if cpu.base_khz > frequencies[0] else LOW
        if machine.efficient >> cpu.id & 1:
            priority = LOW
        elif len(preferences) > 1:
            priority = HIGH if EPP_ORDER.get(cpu.epp, len(EPP_ORDER)) < preferences[-1] else LOW
        classes[priority] |= 1 << cpu.id
    return classes


def compare(classes: Classes, a: int, b: int, prefer: int, count: int) -> int:
    """Above 0 if *a* is better than *b* for *prefer*, below 0 if it is worse, 0 if nothing tells them apart.

    With *count* above 0, a smaller set that still has this many CPUs of the class is better.
    """
    if prefer == NO_PRIORITY:
        return 0
    if count > 0 and prefer in (LOW, HIGH):
        in_a, in_b = (a & classes[prefer]).bit_count(), (b & classes[prefer]).bit_count()
        if prefer == HIGH and not in_a and not in_b:
            in_a, in_b = (a & classes[NORMAL]).bit_count(), (b & classes[NORMAL]).bit_count()
        if in_a >= count and in_b >= count:
            return in_b - in_a
        if in_a >= count or in_b >= count:
            return in_a - in_b
    for priority in range(prefer, NO_PRIORITY):
        in_a, in_b = (a & classes[priority]).bit_count(), (b & classes[priority]).bit_count()
        if count > 0 and priority == prefer and in_a >= count and in_b >= count:
            return in_b - in_a
        if in_a != in_b:
            return in_a - in_b
    for priority in range(prefer):
        in_a, in_b = (a & classes[priority]).bit_count(), (b & classes[priority]).bit_count()
        if in_a != in_b:
            return in_b - in_a
    return 0
