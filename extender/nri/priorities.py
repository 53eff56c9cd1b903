"""CPU priority classes and how two sets of CPUs compare by them.

Mirrors: `pkg/cpuallocator/allocator.go` (discoverCPUPriorities, discoverCpufreqPriority, cmpCPUSet). Intel Speed Select
states are not part of a machine's facts, so the classes come from base frequency, energy preference and core kind.
"""

from typing import TypeAlias

from extender.kubelet.sets import iter_bits
from extender.nri.machine import EPP_ORDER, HIGH, LOW, NO_PRIORITY, NORMAL, NriMachine, Package

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
