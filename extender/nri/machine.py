"""The machine as the plugin discovers it.

Mirrors: `pkg/sysfs/system.go` (discoverCPU, discoverPackages, discoverNodes, checkCoreKinds) and
`pkg/resmgr/lib/memory/{nodes,mask-cache}.go` (NewNode, NewDistance, addNode).

Sets of CPUs and of NUMA nodes are raw ints here (bit i = id i): this code mostly combines them.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from extender.kubelet.sets import iter_bits

DRAM: Final = 1
PMEM: Final = 2
HBM: Final = 4
MEMORY_TYPES: Final = (DRAM, PMEM, HBM)
ALL_MEMORY: Final = DRAM | PMEM | HBM
PRESERVE_MEMORY: Final = 8
"""A special value for a set of memory types: the container's memory is not managed (`policy/pod-preferences.go`)."""

HIGH, NORMAL, LOW, NO_PRIORITY = range(4)
"""CPU priorities in the allocator's order. NO_PRIORITY: they are not compared (`pkg/cpuallocator/allocator.go`)."""

EPP_ORDER: Final = {"performance": 0, "balance_performance": 1, "balance_power": 2, "power": 3}
"""Known energy performance preferences, best first (`pkg/sysfs/system.go` EPP)."""


@dataclass(frozen=True, slots=True)
class Cache:
    """One cache of a CPU. `cpus`: the CPUs that share it."""

    level: int
    id: int
    cpus: int


@dataclass(frozen=True, slots=True)
class CPU:
    """One online logical CPU. `threads`: all CPUs of its core, itself included. `base_khz`: 0 if not known."""

    id: int
    package: int
    die: int
    cluster: int
    node: int
    threads: int
    base_khz: int
    epp: str
    caches: tuple[Cache, ...]


@dataclass(frozen=True, slots=True)
class MemoryNode:
    """One NUMA node. `cpus` may be empty. `memory_bytes` is MemTotal. `is_normal`: the kernel may use its memory."""

    id: int
    cpus: int
    memory_bytes: int
    type: int
    is_normal: bool
    distances: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class NriDevice:
    """A device with a sysfs entry. `numa_node`: None if the file is absent; `local_cpus`: the file's text."""

    type: str
    major: int
    minor: int
    path: str
    numa_node: int | None
    local_cpus: str | None


@dataclass(frozen=True, slots=True)
class Package:
    """A CPU package with online CPUs. Dictionaries are keyed by die id, clusters by cluster id within it."""

    id: int
    cpus: int
    node_ids: tuple[int, ...]
    die_cpus: Mapping[int, int]
    die_nodes: Mapping[int, tuple[int, ...]]
    die_clusters: Mapping[int, Mapping[int, int]]
    logical_clusters: Mapping[int, Mapping[int, int]]
    l3_cpus: Mapping[int, int]


@dataclass(frozen=True)
class NriMachine:
    """A machine. `cpus` are the online ones, ascending; `nodes` have the ids 0..N-1.

    `performance` and `efficient`: the CPUs of each core kind; `efficient` is empty unless the machine is hybrid.
    `memory_total_bytes`: MemTotal of /proc/meminfo.
    """

    cpus: tuple[CPU, ...]
    nodes: tuple[MemoryNode, ...]
    devices: tuple[NriDevice, ...]
    present: int
    isolated: int
    performance: int
    efficient: int
    memory_total_bytes: int

    @cached_property
    def online(self) -> int:
        """All online CPUs."""
        return _union(1 << cpu.id for cpu in self.cpus)

    @cached_property
    def cpu(self) -> Mapping[int, CPU]:
        """Online CPUs by id."""
        return {cpu.id: cpu for cpu in self.cpus}

    @cached_property
    def is_hybrid(self) -> bool:
        """Whether there are CPUs of both core kinds."""
        return bool(self.performance) and bool(self.efficient)

    @cached_property
    def packages(self) -> Mapping[int, Package]:
        """Packages with online CPUs, ascending by id."""
        by_id: dict[int, list[CPU]] = {}
        for cpu in self.cpus:
            by_id.setdefault(cpu.package, []).append(cpu)
        return {id_: _package(id_, by_id[id_]) for id_ in sorted(by_id)}

    @cached_property
    def memory_nodes(self) -> int:
        """Nodes with memory."""
        return _union(1 << node.id for node in self.nodes if node.memory_bytes)

    @cached_property
    def normal_nodes(self) -> int:
        """Nodes with memory that the kernel may use."""
        return _union(1 << node.id for node in self.nodes if node.memory_bytes and node.is_normal)

    @cached_property
    def nodes_of_types(self) -> tuple[int, ...]:
        """Nodes with memory of any of the types, indexed by the set of types."""
        return tuple(
            _union(1 << node.id for node in self.nodes if node.memory_bytes and node.type & types)
            for types in range(ALL_MEMORY + 1)
        )

    @cached_property
    def memory_types(self) -> int:
        """The types of memory that the machine has."""
        return _union(node.type for node in self.nodes if node.memory_bytes)

    @cached_property
    def near_nodes(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """Per node: (distance, nodes at it), ascending, without the shortest distance."""
        return tuple(tuple(_by_distance(node.distances)[1:]) for node in self.nodes)

    def types_of(self, nodes: int) -> int:
        """The memory types of *nodes*; a node without memory counts (`lib/memory/zones.go` zoneType)."""
        return _union(self.nodes[i].type for i in iter_bits(nodes))

    def capacity_bytes(self, nodes: int) -> int:
        """MemTotal of *nodes* together (`lib/memory/zones.go` zoneCapacity)."""
        return sum(self.nodes[i].memory_bytes for i in iter_bits(nodes))

    def cpus_of_nodes(self, nodes: int) -> int:
        """The CPUs of *nodes*; ids without a node are ignored."""
        return _union(node.cpus for node in self.nodes if nodes >> node.id & 1)

    def one_thread_per_core(self, cpus: int) -> int:
        """The lowest CPU of each core in *cpus* (`pkg/sysfs/system.go` SingleThreadForCPUs)."""
        result, handled = 0, 0
        for i in iter_bits(cpus):
            if not handled >> i & 1:
                result |= 1 << i
                handled |= self.cpu[i].threads
        return result


def _union(values: Iterable[int]) -> int:
    bits = 0
    for value in values:
        bits |= value
    return bits


def _by_distance(distances: tuple[int, ...]) -> list[tuple[int, int]]:
    at: dict[int, int] = {}
    for id_, distance in enumerate(distances):
        at[distance] = at.get(distance, 0) | 1 << id_
    return sorted(at.items())


def _package(id_: int, cpus: list[CPU]) -> Package:
    die_cpus: dict[int, int] = {}
    die_nodes: dict[int, set[int]] = {}
    clusters: dict[int, dict[int, int]] = {}
    l3: dict[int, int] = {}
    for cpu in cpus:
        die_cpus[cpu.die] = die_cpus.get(cpu.die, 0) | 1 << cpu.id
        die_nodes.setdefault(cpu.die, set()).add(cpu.node)
        of_die = clusters.setdefault(cpu.die, {})
        of_die[cpu.cluster] = of_die.get(cpu.cluster, 0) | 1 << cpu.id
        first_l3 = next((cache for cache in cpu.caches if cache.level == 3), None)
        if first_l3 is not None:
            l3.setdefault(first_l3.id, first_l3.cpus)
    by_id = {cpu.id: cpu for cpu in cpus}
    return Package(
        id=id_,
        cpus=_union(die_cpus.values()),
        node_ids=tuple(sorted({cpu.node for cpu in cpus})),
        die_cpus=dict(sorted(die_cpus.items())),
        die_nodes={die: tuple(sorted(nodes)) for die, nodes in die_nodes.items()},
        die_clusters=clusters,
        logical_clusters={die: _logical_clusters(of_die, by_id) for die, of_die in sorted(clusters.items())},
        l3_cpus=dict(sorted(l3.items())),
    )


def _logical_clusters(clusters: Mapping[int, int], cpu: Mapping[int, CPU]) -> Mapping[int, int]:
    """Clusters of a die; those that are single cores are joined into one (`pkg/sysfs/system.go` discoverPackages)."""
    logical, single_cores = dict[int, int](), 0
    for cluster, cpus in clusters.items():
        first = cpu[next(iter_bits(cpus))]
        if cpus == first.threads:
            single_cores |= cpus
        else:
            logical[cluster] = cpus
    if single_cores:
        logical[cpu[next(iter_bits(single_cores))].cluster] = single_cores
    return dict(sorted(logical.items()))
