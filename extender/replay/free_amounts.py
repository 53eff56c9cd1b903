"""What one state of a node leaves free, as integers by NUMA node, and the constants of its kubelet for that.

Rules of this file
- Constants are computed once for each `Kubelet` object, free amounts once for each state. Nothing here is mutated.
- A position is an index into `Machine.cpu_numa_ids`, in ascending order of NUMA ids.
- On a regular machine an exclusive request for n CPUs gets exactly n free CPUs. Hybrid machines are not regular: there
  the kubelet gives out CPUs that are not free (see `cpu_assignment`).
- No CPU id and no device id: where one NUMA node has room for a request, equal amounts give equal verdicts.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple
from weakref import ref

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.sets import MAX_NUMA_ID, MAX_NUMA_NODES, iter_bits
from extender.kubelet.state import CPUState, Device, ManagerState, NUMANodeMemory

ANYWHERE: Final = -1
"""The mask of rows and affinities where the NUMA node does not matter."""


class Layout(NamedTuple):
    """Constants of one kubelet.

    - `cores`: the cores by the distances of their CPU ids from the first one: (distances, raw bits of the first CPUs).
      Only cores with as many CPUs as the machine's average; usually there is one pattern.
    - `self_distances`: the distance of each NUMA node to itself; empty without prefer-closest-numa-nodes.
    - `is_sound`: no merge panics the kubelet, and none has too many NUMA nodes to walk.
    - `counts_suffice`: the machine is regular, so that one NUMA node with n free CPUs gives n CPUs.
    - `widens`: align-by-socket takes CPUs of all NUMA nodes of a socket.
    """

    cores: tuple[tuple[tuple[int, ...], int], ...]
    self_distances: tuple[int, ...]
    is_sound: bool
    counts_suffice: bool
    widens: bool


_KNOWN: Final[dict[int, tuple[ref[Kubelet], Layout]]] = {}
"""The layout of each kubelet that is still in use, by its `id()`, because comparing two machines takes long."""


def layout_of(kubelet: Kubelet) -> Layout:
    """The layout of a kubelet's machine under its CPU manager options."""
    key = id(kubelet)
    known = _KNOWN.get(key)
    if known is None:
        known = _KNOWN[key] = ref(kubelet, lambda _: _KNOWN.pop(key, None)), _computed(kubelet)
    return known[1]


def _computed(kubelet: Kubelet) -> Layout:
    machine = kubelet.machine
    ids, rows = machine.numa_ids, machine.numa_nodes
    rows_reach = kubelet.distances is None or all(len(node.distances) > ids[-1] for node in rows)
    is_sound = len(ids) <= MAX_NUMA_NODES and ids[-1] <= MAX_NUMA_ID and rows_reach
    one_to_one = sorted(machine.socket_cpus.values()) == sorted(machine.numa_cpus.values())
    has_distances = kubelet.distances is not None and is_sound
    return Layout(
        cores=_cores(machine),
        self_distances=tuple(node.distances[node.id] for node in rows) if has_distances else (),
        is_sound=is_sound,
        counts_suffice=_is_regular(machine),
        widens=kubelet.cpu_options.align_by_socket and not one_to_one,
    )


def _cores(machine: Machine) -> tuple[tuple[tuple[int, ...], int], ...]:
    patterns: dict[tuple[int, ...], int] = {}
    for first, core in machine.core_cpus.items():
        if core.bit_count() == machine.cpus_per_core:
            offsets = tuple(cpu - first for cpu in iter_bits(core))
            patterns[offsets] = patterns.get(offsets, 0) | 1 << first
    return tuple(patterns.items())


def _is_regular(machine: Machine) -> bool:
    """Whether a core or socket that counts as full has free CPUs only: none is larger than the machine's average."""
    per_core, per_socket = machine.cpus_per_core, machine.cpus_per_socket
    return all(cpus.bit_count() <= per_core for cpus in machine.core_cpus.values()) and (
        not per_socket or all(cpus.bit_count() <= per_socket for cpus in machine.socket_cpus.values())
    )


NO_TOPOLOGY: Final = -1
"""The kind of a device whose plugin reported no topology."""

Kinds = tuple[tuple[int, int], ...]
"""How many devices there are of each kind: (raw NUMA mask or `NO_TOPOLOGY`, devices), sorted."""


class DeviceInventory(NamedTuple):
    """The devices of one resource, held or not.

    `kinds`: how many of each kind. `healthy`: how many of each kind are healthy. `largest`: the most devices that are
    local to one of the NUMA nodes of hints; as many as wanted if there is only one such node.
    """

    resource: str
    kinds: Kinds
    healthy: Kinds
    largest: int


Rows = tuple[tuple[int, int], ...]
"""What each NUMA node alone can serve: (raw mask, amount); mask -1 where the NUMA node does not matter."""


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
    """One state of one kubelet. `devices`: of each resource, by name."""

    cpus: CPUAmounts
    bytes: ByteAmounts
    devices: tuple[DeviceInventory, ...]
    single: Mapping[str, Rows | None]
    """What one NUMA node alone can serve of each resource; None where that does not follow from counts."""

    @classmethod
    def of(cls, kubelet: Kubelet, state: ManagerState) -> "FreeAmounts":
        """The amounts of a state."""
        layout = layout_of(kubelet)
        cpus, memory = _cpu_amounts(kubelet, layout, state.cpu), memory_amounts(state.memory.nodes)
        single = dict(_single(kubelet, layout, cpus, memory))
        inventories, known, held = [], state.devices.devices, state.devices.held
        for resource in sorted({*known, *held}):
            inventory, single[resource] = _device_amounts(
                kubelet, resource, known.get(resource, {}), held.get(resource, frozenset())
            )
            inventories.append(inventory)
        return cls(cpus, memory, tuple(inventories), single)


def _single(
    kubelet: Kubelet, layout: Layout, cpus: CPUAmounts, memory: ByteAmounts
) -> Iterator[tuple[str, Rows | None]]:
    """What one NUMA node alone can serve of CPUs and memory."""
    machine = kubelet.machine
    if kubelet.cpu_static:
        bits = [1 << numa for numa in machine.cpu_numa_ids]
        is_known = layout.counts_suffice and not layout.widens
        yield "cpu", tuple(zip(bits, cpus.free, strict=True)) if is_known else None
    for name, free in memory.free.items():
        rows = zip(machine.numa_ids, free, strict=True)
        yield name, tuple([(1 << numa, size) for numa, size in rows if not memory.grouped >> numa & 1])


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


def _device_amounts(
    kubelet: Kubelet, resource: str, devices: Mapping[str, Device], held: frozenset[str]
) -> tuple[DeviceInventory, Rows | None]:
    """The devices of one resource, and what one NUMA node alone can serve of it."""
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
    largest = max(_touching(every, ids)) if len(ids) > 1 else 1 << 62
    rows: Rows | None = None
    if present and all(kind <= 0 or kind & (kind - 1) == 0 for kind in every):
        rows = tuple([(1 << i, n) for i, n in zip(ids, _touching(free, ids), strict=True)])
    elif len(every) == 1 and not present:
        rows = ((ANYWHERE, sum(free.values())),)
    return DeviceInventory(resource, tuple(sorted(every.items())), tuple(sorted(healthy.items())), largest), rows


def _touching(kinds: Mapping[int, int], numa_ids: tuple[int, ...]) -> tuple[int, ...]:
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
