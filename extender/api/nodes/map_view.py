"""Converts records of nodes to a page of the `ClusterMap`."""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

from extender.api.nodes.views import certainty_of, numa_sockets, problem_count
from extender.cluster.node import NodeRecord
from extender.questions.free_room import free_cpus, free_devices
from extender.replay.kubelet import Kubelet
from extender.replay.state import ManagerState
from extender.scheduling.records.unjudged import Note

Json = dict[str, object]
INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "doks.digitalocean.com/node-pool",
)
"""Labels that name a node's pool. The first one that a node has counts."""
_COLUMNS: Final = (
    "name",
    "shape",
    "certainty",
    "problems",
    "report",
    "free_cpus",
    "free_memory_mib",
    "free_devices",
)
_MIB_SHIFT: Final = 20


class MapPage:
    """One page of the map, filled node by node."""

    def __init__(self) -> None:
        self.shapes: list[Json] = []
        self.columns: dict[str, list[object]] = {column: [] for column in _COLUMNS}
        self._shape_ids: dict[object, int] = {}
        self._numa: dict[int, list[Json]] = {}

    def add(self, record: NodeRecord, labels: Mapping[str, str] | None, note: Note | None) -> None:
        """Append *record*. *labels* None: unknown. *note*: why some pod could not be judged on the node's class."""
        observation = record.observation
        row = (
            record.name,
            self._shape(record, labels or {}),
            certainty_of(record).value,
            problem_count(observation.facts, note),
            crc32(f"{observation.boot_id} {observation.sequence}".encode()),
            *_free(record.kubelet, record.state),
        )
        for column, value in zip(self.columns.values(), row, strict=True):
            column.append(value)

    def _shape(self, record: NodeRecord, labels: Mapping[str, str]) -> int:
        """Index of the shape that *record* has; a new one is appended."""
        kubelet, state = record.kubelet, record.state
        devices = _device_totals(state) if kubelet is not None and state is not None else {}
        pool = next((labels[key] for key in POOL_LABELS if labels.get(key)), None)
        instance_type = labels.get(INSTANCE_TYPE_LABEL) or None
        version = record.observation.facts.get("kubelet_version")
        # Equal kubelets are one object, so its id identifies machine and configuration while the page is built.
        key = (id(kubelet), state is None, tuple(devices.items()), pool, instance_type, version)
        found = self._shape_ids.get(key)
        if found is None:
            found = self._shape_ids[key] = len(self.shapes)
            labelled: Json = {"pool": pool, "instance_type": instance_type, "kubelet_version": version}
            self.shapes.append({**labelled, **self._settings(kubelet, state), "devices": devices})
        return found

    def _settings(self, kubelet: Kubelet | None, state: ManagerState | None) -> Json:
        if kubelet is None or state is None:
            unknown = ("topology_policy", "topology_scope", "cpu_policy", "memory_policy")
            return {**dict.fromkeys(unknown), "numa": []}
        numa = self._numa.get(id(kubelet))
        if numa is None:
            numa = self._numa[id(kubelet)] = _numa(kubelet, state)
        return {
            "topology_policy": kubelet.policy.value,
            "topology_scope": kubelet.scope.value,
            "cpu_policy": kubelet.config.cpu_manager_policy,
            "memory_policy": kubelet.config.memory_manager_policy,
            "numa": numa,
        }


def _device_totals(state: ManagerState) -> dict[str, int]:
    return {
        resource: sum(device.healthy for device in devices.values())
        for resource, devices in sorted(state.devices.devices.items())
    }


def _numa(kubelet: Kubelet, state: ManagerState) -> list[Json]:
    counted = {node.id: node.get("memory") for node in state.memory.nodes}
    sockets = numa_sockets(kubelet)
    entries: list[Json] = []
    for node in kubelet.machine.numa_nodes:
        cpus, memory = kubelet.machine.numa_cpus.get(node.id, 0), counted.get(node.id)
        entries.append(
            {
                "id": node.id,
                "socket": sockets.get(node.id),
                "cpus": cpus.bit_count(),
                "reserved_cpus": (cpus & kubelet.reserved_cpus).bit_count(),
                "memory_mib": (node.memory_bytes if memory is None else memory.allocatable) >> _MIB_SHIFT,
            }
        )
    return entries


def _free(kubelet: Kubelet | None, state: ManagerState | None) -> tuple[list[int], list[int] | None, list[int]]:
    """What is free: CPUs and memory by NUMA node, devices by resource."""
    if kubelet is None or state is None:
        return [], None, []
    free, machine = free_cpus(kubelet, state), kubelet.machine
    cpus = [(machine.numa_cpus.get(node.id, 0) & free).bit_count() for node in machine.numa_nodes]
    devices = [len(ids) for ids in free_devices(state.devices).values()]
    return cpus, _free_memory(kubelet, state), devices


def _free_memory(kubelet: Kubelet, state: ManagerState) -> list[int] | None:
    counted = {node.id: node.get("memory") for node in state.memory.nodes}
    amounts = [counted.get(node.id) for node in kubelet.machine.numa_nodes]
    if all(amount is None for amount in amounts):
        return None
    return [0 if amount is None else amount.free >> _MIB_SHIFT for amount in amounts]
