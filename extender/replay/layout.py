"""Constants of a machine and a configuration, for free amounts; computed once for each `Kubelet` object.

Rules of this file
- A position is an index into `Machine.cpu_numa_ids`, in ascending order of NUMA ids.
- On a regular machine an exclusive request for n CPUs gets exactly n free CPUs. Hybrid machines are not regular: there
  the kubelet gives out CPUs that are not free (see `cpu_assignment`).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from weakref import ref

from extender.kubelet.caches import Shared, remembered
from extender.kubelet.config import CPUOptions, Scope, TopologyPolicy
from extender.kubelet.families import MAX_NUMA_NODES
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.sets import MAX_NUMA_ID, iter_bits

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
"""So that equal ones compare by identity."""
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
    """What is equal for nodes of one layout with equal devices, whatever is free; memory sizes are left aside.

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

        *able*: a raw mask; none and `ANYWHERE` stay what they are.
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
"""Kinds of cores and devices. Hardware of fewer is remembered, for amounts that are computed one after another."""
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
