"""The hardware of one node, as the kubelet's managers discover it.

Rules of this file
- A machine is built and checked once (`Machine.build`), and never changed.
- Conversions between CPUs, cores, sockets, uncore caches and NUMA nodes are named methods, never `&` across kinds.
- NUMA ids may be sparse; nodes may lack CPUs or memory.
- The kubelet's counts may exceed the rows: cadvisor counts a CPU once for each NUMA node that lists it.

Mirrors: kubelet `cm/cpumanager/topology/topology.go` (Discover) and cadvisor's machine info.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, TypeVar

from extender.kubelet.errors import MachineError, TooLargeError
from extender.kubelet.sets import MAX_CPU_ID, bits_of, iter_bits

K = TypeVar("K", bound=Hashable)
MAX_CPUS: Final = 8192
"""Limit on logical CPUs of a machine in input (Linux's own NR_CPUS limit)."""

MAX_NUMA_NODES: Final = 64
"""NUMA nodes of a machine in input; machines with more are not replayed."""

MAX_NUMA_NODE_ID: Final = 1023
"""Limit on NUMA ids in input: the largest id in Linux (MAX_NUMNODES is 1024)."""


UNNUMBERED_NUMA_NODE: Final = MAX_NUMA_NODE_ID + 1
"""The replay's id of the NUMA node that cadvisor calls -1, and that -1 becomes in `Machine.build`.

Without NUMA directories in sysfs each package is a node, and some kernels (s390x) give -1 as the package. The kubelet's
bit mask holds neither -1 nor this id, so both behave alike.
"""


def shown_numa_id(numa: int) -> int:
    """A NUMA id as the kubelet writes it: -1 for `UNNUMBERED_NUMA_NODE`."""
    return -1 if numa == UNNUMBERED_NUMA_NODE else numa


class CPUFacts(NamedTuple):
    """One logical CPU, with the kernel's ids. `uncore_cache` None: the kubelet counts none for the core."""

    cpu: int
    core_id: int
    socket: int
    numa: int
    uncore_cache: int | None


@dataclass(frozen=True, slots=True)
class NUMANodeFacts:
    """One NUMA node: `memory_bytes` is MemTotal, `hugepages` page size in bytes -> number of pages.

    `distances` is the row of sysfs, indexed by position. Empty if the kernel has none.
    """

    id: int
    memory_bytes: int
    hugepages: Mapping[int, int] = field(default_factory=dict)
    distances: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Machine:
    """Topology with all conversions precomputed as masks. Created by `build`."""

    cpus: tuple[CPUFacts, ...]
    numa_nodes: tuple[NUMANodeFacts, ...]
    num_sockets: int
    """The kubelet's count (distinct physical ids of /proc/cpuinfo); 0 is possible and disables whole-socket steps."""
    all_cpus: int
    num_cpus: int
    """The kubelet's count of logical CPUs; more than `cpus` where sysfs lists a CPU under several NUMA nodes."""
    num_cores: int
    """The kubelet's count of cores; more than there are where `num_cpus` is more than `cpus`."""
    num_uncore: int
    numa_ids: tuple[int, ...]
    """Every NUMA node, also those without CPUs, ascending: the nodes of the topology and memory managers."""
    cpu_numa_ids: tuple[int, ...]
    """The NUMA nodes that have CPUs, ascending: the nodes of the CPU manager."""
    numa_cpus: Mapping[int, int]
    socket_cpus: Mapping[int, int]
    core_cpus: Mapping[int, int]
    """Key: the lowest CPU id of the core, which is the kubelet's machine-unique core id."""
    uncore_cpus: Mapping[int, int]
    numa_sockets: Mapping[int, int]
    """NUMA id -> bits of the sockets its CPUs are on."""
    identity: tuple[object, ...]
    """Equal for equal machines. Hashable: part of the key of a node class."""

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Machine) and self.identity == other.identity

    def __hash__(self) -> int:
        return hash(self.identity)

    @property
    def cpus_per_core(self) -> int:
        """Integer division of machine totals, as the kubelet does it: 1 on some hybrid machines with SMT cores."""
        return self.num_cpus // self.num_cores if self.num_cores else 0

    @property
    def cpus_per_socket(self) -> int:
        """Integer division of machine totals; 0 when the socket count is unknown."""
        return self.num_cpus // self.num_sockets if self.num_sockets else 0

    @property
    def cpus_per_uncore(self) -> int:
        """Integer division of machine totals."""
        return self.num_cpus // self.num_uncore if self.num_uncore else 0

    def cpu_bits_in_numa(self, mask: int) -> int:
        """All CPUs of the NUMA nodes in *mask*, raw."""
        bits = 0
        for numa in iter_bits(mask):
            bits |= self.numa_cpus.get(numa, 0)
        return bits

    def numa_bits_of_cpus(self, cpus: int) -> int:
        """The NUMA nodes that hold any of *cpus*, raw."""
        return bits_of(numa for numa, bits in self.numa_cpus.items() if bits & cpus)

    def socket_bits_in_numa(self, mask: int) -> int:
        """The sockets of all CPUs of the NUMA nodes in *mask*, raw bits."""
        bits = 0
        for numa in iter_bits(mask):
            bits |= self.numa_sockets.get(numa, 0)
        return bits

    def cpu_bits_in_sockets(self, sockets: int) -> int:
        """All CPUs of the sockets in the raw set *sockets* (bits by position in ascending socket id order)."""
        bits = 0
        for position, socket in enumerate(sorted(self.socket_cpus)):
            if sockets >> position & 1:
                bits |= self.socket_cpus[socket]
        return bits

    @classmethod
    def build(
        cls,
        cpus: Iterable[CPUFacts],
        numa_nodes: Iterable[NUMANodeFacts],
        num_sockets: int | None = None,
        *,
        num_cpus: int | None = None,
        num_cores: int | None = None,
    ) -> "Machine":
        """Check the facts and compute everything else.

        Threads with equal (core_id, socket) inside a NUMA node form a core. A core without an uncore cache counts
        under its socket id, which may coincide with a real cache's id, as in the kubelet. NUMA id -1 becomes
        `UNNUMBERED_NUMA_NODE`. *num_cpus* and *num_cores* None: as many as there are.

        Raises:
            MachineError: a duplicate CPU or NUMA node, a CPU on an unknown node, an id or amount out of range.
        """
        cpus = tuple(sorted(cpus, key=lambda c: c.cpu))
        nodes = tuple(sorted(numa_nodes, key=lambda n: n.id))
        _check(cpus, nodes, num_sockets)
        if nodes and nodes[0].id < 0:
            cpus = tuple(c._replace(numa=UNNUMBERED_NUMA_NODE) if c.numa < 0 else c for c in cpus)
            nodes = (*nodes[1:], replace(nodes[0], id=UNNUMBERED_NUMA_NODE))
        core_cpus = _cpus_of_cores(cpus)
        uncore_cpus = _cpus_of_uncore_caches(cpus, core_cpus)
        numa_cpus = _grouped((c.numa, c.cpu) for c in cpus)
        socket_cpus = _grouped((c.socket, c.cpu) for c in cpus)
        sockets = sorted(socket_cpus)
        numa_sockets = {
            numa: bits_of(i for i, s in enumerate(sockets) if socket_cpus[s] & bits) for numa, bits in numa_cpus.items()
        }
        count = len(sockets) if num_sockets is None else num_sockets
        num_cpus = len(cpus) if num_cpus is None else num_cpus
        num_cores = len(core_cpus) if num_cores is None else num_cores
        _check_counts(num_cpus, num_cores, len(cpus))
        node_facts = tuple((n.id, n.memory_bytes, tuple(sorted(n.hugepages.items())), n.distances) for n in nodes)
        return cls(
            cpus=cpus,
            numa_nodes=nodes,
            num_sockets=count,
            all_cpus=bits_of(c.cpu for c in cpus),
            num_cpus=num_cpus,
            num_cores=num_cores,
            num_uncore=len(uncore_cpus),
            numa_ids=tuple(n.id for n in nodes),
            cpu_numa_ids=tuple(sorted(numa_cpus)),
            numa_cpus=dict(sorted(numa_cpus.items())),
            socket_cpus=dict(sorted(socket_cpus.items())),
            core_cpus=dict(sorted(core_cpus.items())),
            uncore_cpus=dict(sorted(uncore_cpus.items())),
            numa_sockets=numa_sockets,
            identity=(cpus, node_facts, count, num_cpus, num_cores),
        )


def _grouped(cpus: Iterable[tuple[K, int]]) -> dict[K, int]:
    """The CPUs of each group as bits. *cpus*: pairs (group, CPU)."""
    groups: dict[K, int] = {}
    for group, cpu in cpus:
        groups[group] = groups.get(group, 0) | 1 << cpu
    return groups


def _cpus_of_cores(cpus: Sequence[CPUFacts]) -> dict[int, int]:
    """The CPUs of each core as bits, by the lowest CPU of the core."""
    cores = _grouped(((c.numa, c.socket, c.core_id), c.cpu) for c in cpus)
    return {(bits & -bits).bit_length() - 1: bits for bits in cores.values()}


def _cpus_of_uncore_caches(cpus: Sequence[CPUFacts], core_cpus: Mapping[int, int]) -> dict[int, int]:
    """The CPUs of each uncore cache as bits, by the cache's id. A core has the cache of its lowest CPU."""
    core_of = {cpu: core for core, bits in core_cpus.items() for cpu in iter_bits(bits)}
    cache_of = {core_of[c.cpu]: c.socket if c.uncore_cache is None else c.uncore_cache for c in reversed(cpus)}
    return _grouped((cache_of[core_of[c.cpu]], c.cpu) for c in cpus)


def _check(cpus: tuple[CPUFacts, ...], nodes: tuple[NUMANodeFacts, ...], num_sockets: int | None) -> None:
    if not cpus:
        raise MachineError("cpus", "a machine has at least one CPU")
    if len(cpus) > MAX_CPUS:
        raise TooLargeError("cpus", f"{len(cpus)} CPUs, more than {MAX_CPUS}")
    if len(nodes) > MAX_NUMA_NODES:
        raise TooLargeError("numa", f"{len(nodes)} NUMA nodes, more than {MAX_NUMA_NODES}")
    if num_sockets is not None and num_sockets < 0:
        raise MachineError("num_sockets", f"{num_sockets} is negative")
    _check_numa(nodes)
    ids = {n.id for n in nodes}
    for i, c in enumerate(cpus):
        if not 0 <= c.cpu <= MAX_CPU_ID:
            raise TooLargeError(f"cpus[{i}]", f"CPU id {c.cpu} is outside 0..{MAX_CPU_ID}")
        if i and cpus[i - 1].cpu == c.cpu:
            raise MachineError(f"cpus[{i}]", f"CPU {c.cpu} is listed twice")
        if c.numa not in ids:
            raise MachineError(f"cpus[{i}]", f"CPU {c.cpu} is on NUMA node {c.numa}, which is not listed under numa")


def _check_counts(num_cpus: int, num_cores: int, rows: int) -> None:
    if not rows <= num_cpus <= MAX_CPUS * MAX_NUMA_NODES:
        raise MachineError("num_cpus", f"{num_cpus} is outside {rows} (the CPUs listed) to {MAX_CPUS * MAX_NUMA_NODES}")
    if not 1 <= num_cores <= num_cpus:
        raise MachineError("num_cores", f"{num_cores} is outside 1 to {num_cpus} (num_cpus)")


def _check_numa(nodes: tuple[NUMANodeFacts, ...]) -> None:
    for i, node in enumerate(nodes):
        if node.id < -1:
            raise MachineError(f"numa[{i}].id", f"{node.id} is below -1")
        if node.id > MAX_NUMA_NODE_ID:
            raise TooLargeError(f"numa[{i}].id", f"{node.id} is above {MAX_NUMA_NODE_ID}")
        if i and nodes[i - 1].id == node.id:
            raise MachineError(f"numa[{i}].id", f"NUMA node {node.id} is listed twice")
        if node.memory_bytes < 0:
            raise MachineError(f"numa[{i}].memory", f"{node.memory_bytes} is negative")
        for size, pages in node.hugepages.items():
            if size <= 0 or pages < 0:
                raise MachineError(f"numa[{i}].hugepages", f"{pages} pages of {size} bytes")
