"""The hardware of a sample node, from a description of one line to facts and files as Linux shows them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from extender.replay.machine import CPUFacts, Machine, NUMANodeFacts

LOCAL_DISTANCE = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A regular machine. `distances`: to another NUMA node of the same socket, and of another one (sysfs units).

    `hugepages_1gi` are 1 GiB pages on each NUMA node, in `memory_gib` included.
    """

    sockets: int
    numa_per_socket: int
    cores_per_numa: int
    threads: int
    memory_gib: int
    hugepages_1gi: int = 0
    distances: tuple[int, int] = (12, 32)

    @property
    def numa_ids(self) -> range:
        """All NUMA nodes."""
        return range(self.sockets * self.numa_per_socket)

    @property
    def cpus(self) -> int:
        """Logical CPUs."""
        return len(self.numa_ids) * self.cores_per_numa * self.threads

    def machine(self) -> Machine:
        """The machine as the kubelet discovers it."""
        return Machine.build(self._cpu_facts(), [self._numa_facts(numa) for numa in self.numa_ids], self.sockets)

    def _cpu_facts(self) -> Iterator[CPUFacts]:
        """Numbered as Linux does: first one thread of every core, then their siblings; core ids restart by socket."""
        cores = len(self.numa_ids) * self.cores_per_numa
        for thread in range(self.threads):
            for core in range(cores):
                numa = core // self.cores_per_numa
                core_id = core % (self.numa_per_socket * self.cores_per_numa)
                yield CPUFacts(thread * cores + core, core_id, numa // self.numa_per_socket, numa, None)

    def _numa_facts(self, numa: int) -> NUMANodeFacts:
        return NUMANodeFacts(
            id=numa,
            memory_bytes=self.memory_gib << 30,
            hugepages={1 << 30: self.hugepages_1gi} if self.hugepages_1gi else {},
            distances=tuple(self._distance(numa, other) for other in self.numa_ids),
        )

    def _distance(self, numa: int, other: int) -> int:
        if numa == other:
            return LOCAL_DISTANCE
        same_socket = numa // self.numa_per_socket == other // self.numa_per_socket
        return self.distances[0 if same_socket else 1]


def write_machine(root: Path, machine: Machine) -> None:
    """Write /sys and /proc of the machine below *root*."""
    system = root / "sys/devices/system"
    write(system / "cpu/online", f"0-{machine.num_cpus - 1}")
    for cpu in machine.cpus:
        topology = system / f"cpu/cpu{cpu.cpu}/topology"
        write(topology / "core_id", str(cpu.core_id))
        write(topology / "physical_package_id", str(cpu.socket))
        link = system / f"node/node{cpu.numa}/cpu{cpu.cpu}"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(f"../../cpu/cpu{cpu.cpu}")
    for node in machine.numa_nodes:
        directory = system / f"node/node{node.id}"
        write(directory / "meminfo", f"Node {node.id} MemTotal: {node.memory_bytes >> 10} kB")
        write(directory / "distance", " ".join(map(str, node.distances)))
        for page_bytes, pages in node.hugepages.items():
            write(directory / f"hugepages/hugepages-{page_bytes >> 10}kB/nr_hugepages", str(pages))
    write(root / "proc/cpuinfo", "\n".join(f"processor\t: {c.cpu}\nphysical id\t: {c.socket}\n" for c in machine.cpus))
    total = sum(node.memory_bytes for node in machine.numa_nodes)
    write(root / "proc/meminfo", f"MemTotal: {total >> 10} kB")


def write(path: Path, text: str) -> None:
    """Write one file, with the directories above it and a line end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")
