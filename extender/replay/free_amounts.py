"""What one state of a node leaves free, as integers by NUMA node.

Rules of this file
- Computed once for each state, when the state changes. Nothing here is mutated.
- No CPU id and no device id: where one NUMA node has room for a request, equal amounts give equal verdicts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.sets import iter_bits
from extender.kubelet.state import CPUState, Device, DeviceState, ManagerState, NUMANodeMemory
from extender.replay.layout import DeviceInventory, Layout, NodeHardware, hardware_of

NO_TOPOLOGY: Final = -1
"""The kind of a device whose plugin reported no topology."""

Kinds = tuple[tuple[int, int], ...]
"""How many devices there are of each kind: (raw NUMA mask or `NO_TOPOLOGY`, devices), sorted."""


Rows = tuple[tuple[int, int], ...]
"""What each NUMA node alone can serve: (raw mask, amount); mask -1 where the NUMA node does not matter."""


class DeviceAmounts(NamedTuple):
    """The devices of one resource.

    `numa_ids`: the NUMA nodes over which hints are enumerated, ascending. `free_at` and `all_at`: devices that touch
    each of them, free ones and all that the plugin reported. `all` and `healthy` count devices by
    kind. `is_simple`: no device belongs to several NUMA nodes.
    """

    numa_ids: tuple[int, ...]
    free_at: tuple[int, ...]
    all_at: tuple[int, ...]
    all: Kinds
    free_count: int
    healthy: Kinds
    has_topology: bool
    is_simple: bool


class CPUAmounts(NamedTuple):
    """Exclusive CPUs by position: free ones, and whole cores among them.

    `physical`: free CPUs on cores without a reserved CPU, by position; what full-pcpus-only counts.
    """

    free: tuple[int, ...]
    whole_cores: tuple[int, ...]
    physical: tuple[int, ...]


class ByteAmounts(NamedTuple):
    """Bytes by memory type, for each NUMA node in ascending order of ids; only types that every NUMA node has.

    `grouped` and `in_use` are raw NUMA masks: nodes in a group of several, and nodes with assignments.
    """

    free: Mapping[str, tuple[int, ...]]
    allocatable: Mapping[str, tuple[int, ...]]
    grouped: int
    in_use: int


@dataclass(frozen=True, slots=True, eq=False)
class FreeAmounts:
    """One state of one kubelet."""

    layout: Layout
    cpus: CPUAmounts
    bytes: ByteAmounts
    hardware: NodeHardware
    single: Mapping[str, Rows | None]
    """What one NUMA node alone can serve of each resource; None where that does not follow from counts."""

    @classmethod
    def of(cls, kubelet: Kubelet, layout: Layout, state: ManagerState) -> "FreeAmounts":
        """The amounts of a state. *layout*: the kubelet's."""
        cpus = _cpu_amounts(kubelet, layout, state.cpu)
        memory = memory_amounts(state.memory.nodes)
        devices = _all_device_amounts(kubelet, state.devices)
        return cls(
            layout=layout,
            cpus=cpus,
            bytes=memory,
            hardware=hardware_of(layout, tuple(_inventory(name, each) for name, each in sorted(devices.items()))),
            single=dict(_single(layout, cpus, memory, devices)),
        )


def _inventory(resource: str, amounts: DeviceAmounts) -> DeviceInventory:
    return DeviceInventory(
        resource=resource,
        kinds=amounts.all,
        healthy=amounts.healthy,
        largest=max(amounts.all_at) if len(amounts.numa_ids) > 1 else 1 << 62,
    )


def _single(
    layout: Layout, cpus: CPUAmounts, memory: ByteAmounts, devices: Mapping[str, DeviceAmounts]
) -> Iterator[tuple[str, Rows | None]]:
    if layout.cpu_static:
        bits = [1 << numa for numa in layout.cpu_numa_ids]
        is_known = layout.counts_suffice and not layout.widens
        yield "cpu", tuple(zip(bits, cpus.free, strict=True)) if is_known else None
    for name, free in memory.free.items():
        rows = zip(layout.numa_ids, free, strict=True)
        yield name, tuple([(1 << numa, size) for numa, size in rows if not memory.grouped >> numa & 1])
    for resource, amounts in devices.items():
        if amounts.has_topology and amounts.is_simple:
            yield resource, tuple([(1 << i, n) for i, n in zip(amounts.numa_ids, amounts.free_at, strict=True)])
        elif len(amounts.all) == 1 and not amounts.has_topology:
            yield resource, ((-1, amounts.free_count),)
        else:
            yield resource, None


def _cpu_amounts(kubelet: Kubelet, layout: Layout, state: CPUState) -> CPUAmounts:
    if not kubelet.cpu_static:
        return CPUAmounts((), (), ())
    free = state.default & ~kubelet.reserved_cpus
    physical = state.default & ~kubelet.reserved_physical_cpus
    whole = 0
    for offsets, firsts in layout.cores:
        full = firsts
        for offset in offsets:
            full &= free >> offset
        whole |= full
    numa = kubelet.machine.numa_cpus.values()
    return CPUAmounts(
        free=tuple([(cpus & free).bit_count() for cpus in numa]),
        whole_cores=tuple([(cpus & whole).bit_count() for cpus in numa]),
        physical=tuple([(cpus & physical).bit_count() for cpus in numa]),
    )


def memory_amounts(nodes: tuple[NUMANodeMemory, ...]) -> ByteAmounts:
    """The bytes of a memory manager's machine state."""
    free: dict[str, tuple[int, ...]] = {}
    allocatable: dict[str, tuple[int, ...]] = {}
    rows = [dict(node.amounts) for node in nodes]
    for name in rows[0] if rows else ():
        found = [row[name] for row in rows if name in row]
        if len(found) == len(nodes):
            free[name] = tuple([each.free for each in found])
            allocatable[name] = tuple([each.allocatable for each in found])
    grouped = in_use = 0
    for node in nodes:
        bit = 1 << node.id
        grouped |= bit if node.cells != bit else 0
        in_use |= bit if node.assignments > 0 else 0
    return ByteAmounts(free, allocatable, grouped, in_use)


def _all_device_amounts(kubelet: Kubelet, state: DeviceState) -> dict[str, DeviceAmounts]:
    return {
        resource: _device_amounts(kubelet, state.devices.get(resource, {}), state.held.get(resource, frozenset()))
        for resource in {**state.devices, **state.held}
    }


def _device_amounts(kubelet: Kubelet, devices: Mapping[str, Device], held: frozenset[str]) -> DeviceAmounts:
    every: dict[int, int] = {}
    free: dict[int, int] = {}
    healthy: dict[int, int] = {}
    for device_id, (numa, is_healthy) in devices.items():
        kind = NO_TOPOLOGY if numa is None else numa
        every[kind] = every.get(kind, 0) + 1
        if is_healthy:
            healthy[kind] = healthy.get(kind, 0) + 1
            if device_id not in held:
                free[kind] = free.get(kind, 0) + 1
    present = 0
    for kind in every:
        present |= max(0, kind)
    ids = kubelet.machine.numa_ids
    if kubelet.rules.device_numa_narrowing:
        ids = tuple([i for i in ids if present >> i & 1]) or ids
    return DeviceAmounts(
        numa_ids=ids,
        free_at=touching(free, ids),
        all_at=touching(every, ids),
        all=tuple(sorted(every.items())),
        free_count=sum(free.values()),
        healthy=tuple(sorted(healthy.items())),
        has_topology=present != 0,
        is_simple=all(kind <= 0 or kind & (kind - 1) == 0 for kind in every),
    )


def touching(kinds: Mapping[int, int], numa_ids: tuple[int, ...]) -> tuple[int, ...]:
    """How many of the devices belong to each of the NUMA nodes."""
    counts = {1 << numa: 0 for numa in numa_ids}
    for kind, count in kinds.items():
        if kind in counts:
            counts[kind] += count
        elif kind > 0:
            for numa in iter_bits(kind):
                if 1 << numa in counts:
                    counts[1 << numa] += count
    return tuple(counts.values())
