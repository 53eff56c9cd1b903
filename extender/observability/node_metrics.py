"""Metrics of single nodes and NUMA nodes, for dashboards: what is free, and how much of it aligned pods can use.

Rules of this file
- Unlike those of `metrics`, labels have names of nodes. So the families have a route of their own, and the number of
  nodes is limited by a setting: each node has about 20 series.
- Everything is computed from counts, without a replay. To learn what one pod can get on a node, ask what-if.
- Nothing is kept between two scrapes. A node without a usable report has no series. If its CPU manager allocates no
  exclusive CPUs, it has none about CPUs.
"""

from typing import Final

from prometheus_client import CollectorRegistry, Gauge, generate_latest

from extender.cluster.node import NodeRecord
from extender.observability.metrics import TEXTS
from extender.questions.free_room import numa_room, unusable_share

CONTAINER_CPUS: Final = (4, 8, 16)
"""The container sizes, in CPUs, for which the unusable share is shown."""


class NodeMetrics:
    """The families of one scrape."""

    def __init__(self) -> None:
        self._registry: Final = CollectorRegistry()
        self.left_out: Final = self._gauge("left_out")
        self._free_cpus = self._gauge("free_cpus", "node", "numa")
        self._largest = self._gauge("largest_aligned_cpus", "node")
        self._unusable = self._gauge("unusable_cpus_ratio", "node", "container_cpus")
        self._memory = self._gauge("free_memory_bytes", "node", "numa", "type")
        self._devices = self._gauge("free_devices", "node", "numa", "resource")

    def add(self, record: NodeRecord) -> None:
        """Show one node."""
        kubelet, state, name = record.kubelet, record.state, record.name
        if kubelet is None or state is None or kubelet.borrowed:
            return
        rooms = numa_room(kubelet, state)
        for numa, room in rooms.items():
            for memory_type, free in room.memory.items():
                self._memory.labels(name, numa, memory_type).set(free)
            for resource, count in room.devices.items():
                self._devices.labels(name, numa, resource).set(count)
        if not kubelet.cpu_static:
            return
        cpus = {numa: room.cpus for numa, room in rooms.items()}
        for numa, count in cpus.items():
            self._free_cpus.labels(name, numa).set(count)
        self._largest.labels(name).set(max(cpus.values(), default=0))
        for size in CONTAINER_CPUS:
            self._unusable.labels(name, size).set(unusable_share(cpus.values(), size))

    def exposition(self) -> bytes:
        """The Prometheus text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, *labels: str) -> Gauge:
        return Gauge(f"numa_extender_node_{name}", TEXTS[f"node_{name}"], labels, registry=self._registry)
