"""What one state of a node leaves free, as integers by NUMA node, and the constants of its hardware.

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

from extender.kubelet.budget import Shared, remembered
from extender.kubelet.config import CPUOptions, Scope, TopologyPolicy
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.sets import MAX_NUMA_ID, MAX_NUMA_NODES, iter_bits
from extender.kubelet.state import CPUState, Device, DeviceState, ManagerState, NUMANodeMemory

ANYWHERE: Final = -1
"""The mask of rows and affinities where the NUMA node does not matter."""


@dataclass(frozen=True, slots=True, kw_only=True, weakref_slot=True)
class Layout:
    """Constants of one kubelet.

    - `sizes`: the CPUs at each position.
    - `cores`: the cores by the distances of their CPU ids from the first one: (distances, raw bits of the first CPUs).
      Only cores with as many CPUs as the machine's average; usually there is one pattern.
    - `self_distances`: the distance of each NUMA node to itself; empty without prefer-closest-numa-nodes.
    - `is_sound`: no merge panics the kubelet, and none has too many NUMA nodes to walk.
    - `counts_suffice`: the machine is regular, so that one NUMA node with n free CPUs gives n CPUs.
    - `widens`: align-by-socket takes CPUs of all NUMA nodes of a socket.
    """

    cpu_numa_ids: tuple[int, ...]
    sizes: tuple[int, ...]
    cores: tuple[tuple[tuple[int, ...], int], ...]
    cpus_per_core: int
    cpu_static: bool
    memory_static: bool
    policy: TopologyPolicy
    scope: Scope
    options: CPUOptions
    numa_ids: tuple[int, ...]
    self_distances: tuple[int, ...]
    is_sound: bool
    counts_suffice: bool
    widens: bool

    def __hash__(self) -> int:
        return hash((self.cpu_numa_ids, self.sizes))  # short: computed for each state of a node

    @property
    def largest(self) -> int:
        """CPUs of the largest NUMA node."""
        return max(self.sizes, default=0)


_LAYOUTS: Final = Shared[Layout, Layout]()
"""Shared, so that equal values compare by identity."""
_KNOWN: Final[dict[int, tuple[ref[Kubelet], Layout]]] = {}
"""The layout of each kubelet that is still in use, by its `id()`, because comparing two machines takes long."""


def layout_of(kubelet: Kubelet) -> Layout:
    """The layout of a kubelet's machine under its CPU manager options; one object for equal ones."""
    key = id(kubelet)
    known = _KNOWN.get(key)
    if known is None:
        layout = _computed(kubelet)
        known = _KNOWN[key] = ref(kubelet, lambda _: _KNOWN.pop(key, None)), layout
    return known[1]


def _computed(kubelet: Kubelet) -> Layout:
    machine, options = kubelet.machine, kubelet.cpu_options
    one_to_one = sorted(machine.socket_cpus.values()) == sorted(machine.numa_cpus.values())
    layout = Layout(
        cpu_numa_ids=machine.cpu_numa_ids,
        sizes=tuple(cpus.bit_count() for cpus in machine.numa_cpus.values()),
        cores=_cores(machine),
        cpus_per_core=machine.cpus_per_core,
        cpu_static=kubelet.cpu_static,
        memory_static=kubelet.memory_static,
        policy=kubelet.policy,
        scope=kubelet.scope,
        options=options,
        numa_ids=machine.numa_ids,
        self_distances=_self_distances(kubelet),
        is_sound=_is_sound(kubelet),
        counts_suffice=_is_regular(machine),
        widens=options.align_by_socket and not one_to_one,
    )
    return _LAYOUTS.of(layout, lambda: layout)


def _cores(machine: Machine) -> tuple[tuple[tuple[int, ...], int], ...]:
    patterns: dict[tuple[int, ...], int] = {}
    for first, core in machine.core_cpus.items():
        if core.bit_count() == machine.cpus_per_core:
            offsets = tuple(cpu - first for cpu in iter_bits(core))
            patterns[offsets] = patterns.get(offsets, 0) | 1 << first
    return tuple(patterns.items())


def _self_distances(kubelet: Kubelet) -> tuple[int, ...]:
    rows = kubelet.machine.numa_nodes if kubelet.distances is not None and _is_sound(kubelet) else ()
    return tuple(node.distances[node.id] for node in rows)


def _is_sound(kubelet: Kubelet) -> bool:
    ids = kubelet.machine.numa_ids
    rows_reach = all(len(node.distances) > ids[-1] for node in kubelet.machine.numa_nodes)
    return len(ids) <= MAX_NUMA_NODES and ids[-1] <= MAX_NUMA_ID and (kubelet.distances is None or rows_reach)


def _is_regular(machine: Machine) -> bool:
    """Whether a core or socket that counts as full has free CPUs only: none is larger than the machine's average."""
    per_core, per_socket = machine.cpus_per_core, machine.cpus_per_socket
    return all(cpus.bit_count() <= per_core for cpus in machine.core_cpus.values()) and (
        not per_socket or all(cpus.bit_count() <= per_socket for cpus in machine.socket_cpus.values())
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceInventory:
    """The devices of one resource, held or not.

    `kinds`: how many of each kind. `healthy`: how many of each kind are healthy. `largest`: the most that touch one of
    the NUMA nodes over which hints are enumerated; as many as wanted where there is only one such node.
    """

    resource: str
    kinds: tuple[tuple[int, int], ...]
    healthy: tuple[tuple[int, int], ...]
    largest: int


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NodeHardware:
    """What nodes of one layout with equal devices have in common, whatever is free, without memory sizes.

    Compared by identity: equal hardware is one object as long as something refers to it, or `hardware_of` has it.
    """

    layout: Layout
    devices: tuple[DeviceInventory, ...]
    is_plain: bool
    by_pod: bool
    whole_cores: bool
    largest: Mapping[str, int]
    """The largest request of CPUs and devices that one NUMA node can serve when it is empty, by resource."""

    def closest(self, able: int) -> int:
        """The NUMA node of *able* that becomes the affinity. With distances: the one closest to itself.

        *able*: a raw mask; 0 and `ANYWHERE` are returned unchanged.
        """
        layout = self.layout
        if able & (able - 1) == 0 or able == ANYWHERE:
            return able
        if not layout.self_distances:
            return able & -able
        rivals = [
            (distance, numa)
            for numa, distance in zip(layout.numa_ids, layout.self_distances, strict=True)
            if able >> numa & 1
        ]
        return 1 << min(rivals)[1]


_MANY_KINDS: Final = 64
"""Hardware with fewer kinds of cores and devices than this is cached, for amounts computed one after another."""
_HARDWARE: Final = Shared[tuple[Layout, tuple[DeviceInventory, ...]], NodeHardware]()


def _is_large(layout: Layout, devices: tuple[DeviceInventory, ...]) -> bool:
    return len(layout.cores) + sum(len(each.kinds) for each in devices) > _MANY_KINDS


@remembered(256, 0, _is_large)
def hardware_of(layout: Layout, devices: tuple[DeviceInventory, ...]) -> NodeHardware:
    """The one object for this hardware."""
    return _HARDWARE.of((layout, devices), lambda: _hardware(layout, devices))


def _hardware(layout: Layout, devices: tuple[DeviceInventory, ...]) -> NodeHardware:
    largest = {each.resource: each.largest for each in devices}
    if layout.cpu_static:
        largest["cpu"] = layout.largest if len(layout.sizes) > 1 else sum(layout.sizes) + (1 << 62)
    return NodeHardware(
        layout=layout,
        devices=devices,
        is_plain=layout.is_sound and layout.policy is not TopologyPolicy.NONE,
        by_pod=layout.scope is Scope.POD,
        whole_cores=layout.options.full_pcpus_only,
        largest=largest,
    )


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
