"""A small catalogue of machine shapes for hypothetical nodes, in `machines.toml`. The demo uses the same shapes.

A machine of the catalogue has a kubelet that aligns pods (`DEFAULT_KUBELET`), two reserved CPUs, 1 GiB of reserved
memory on each NUMA node, and no pods.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

import msgspec

from extender.kubelet.machine import CPUFacts, Machine, NUMANodeFacts
from extender.kubelet.rules import NEWEST_MINOR
from extender.kubelet.state import Device

LOCAL_DISTANCE: Final = 10
NEWEST_VERSION: Final = f"v1.{NEWEST_MINOR}.0"
GPU, RDMA = "vendor.example/gpu", "vendor.example/rdma"
DEFAULT_KUBELET: Final[Mapping[str, Any]] = {
    "cpuManagerPolicy": "static",
    "memoryManagerPolicy": "Static",
    "topologyManagerPolicy": "single-numa-node",
    "topologyManagerScope": "container",
}
RESERVED_CPUS: Final = 2
RESERVED_GIB_PER_NUMA: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """A regular machine. `distances`: to another NUMA node of the same socket, and of another socket (sysfs units).

    `hugepages_1gi`: number of 1 GiB pages on each NUMA node, which are part of `memory_gib`.
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
        """Numbered as in Linux: first one thread of every core, then the siblings. Core ids are unique in a socket."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """One entry of the catalogue. `devices`: the NUMA node of each, by resource."""

    about: str
    hardware: Hardware
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)

    def kubelet_document(self, overrides: Mapping[str, Any]) -> dict[str, Any]:
        """The default configuration with *overrides*, and matching reservations unless *overrides* has some."""
        numa_ids = self.hardware.numa_ids
        document: dict[str, Any] = {**DEFAULT_KUBELET, **overrides}
        document.setdefault(
            "reservation", {"cpu": str(RESERVED_CPUS), "memory": f"{len(numa_ids) * RESERVED_GIB_PER_NUMA}Gi"}
        )
        if document.get("memoryManagerPolicy") == "Static":
            limits = {"memory": f"{RESERVED_GIB_PER_NUMA}Gi"}
            document.setdefault("reservedMemory", [{"numaNode": numa, "limits": limits} for numa in numa_ids])
        return document


def devices_on(numa_nodes: Mapping[str, Sequence[int]]) -> dict[str, dict[str, Device]]:
    """Devices on these NUMA nodes, by resource, numbered from 0."""
    return {
        resource: {
            f"{resource.rpartition('/')[2]}-{i}": Device(1 << numa, healthy=True) for i, numa in enumerate(numas)
        }
        for resource, numas in numa_nodes.items()
    }


CATALOGUE: Final[Mapping[str, Shape]] = msgspec.toml.decode(
    files("extender.samples").joinpath("machines.toml").read_bytes(), type=dict[str, Shape]
)
