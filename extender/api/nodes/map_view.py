"""Converts records of nodes to a page of the `ClusterMap`."""

from collections.abc import Mapping
from typing import Final
from zlib import crc32

from extender.api.nodes.map_models import MapColumns, NodeShape, ShapeNUMA
from extender.api.nodes.views import (
    certainty_of,
    free_by_numa,
    kubelet_version_of,
    numa_summaries,
    problem_count,
    resource_policy_of,
)
from extender.cluster.node import NodeRecord
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.questions.free_room import free_devices
from extender.questions.nri_pools import root_room
from extender.scheduling.records.unjudged import Note

INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "doks.digitalocean.com/node-pool",
)
"""Labels that name a node's pool. The first one that a node has counts."""
_MIB_SHIFT: Final = 20


class MapPage:
    """One page of the map, filled node by node."""

    def __init__(self) -> None:
        self.shapes: list[NodeShape] = []
        self.columns: Final = MapColumns(
            name=[], shape=[], certainty=[], problems=[], report=[], free_cpus=[], free_memory_mib=[], free_devices=[]
        )
        self.root_pools: dict[str, tuple[int, int, int, int]] = {}
        self._shape_ids: dict[object, int] = {}

    def add(self, record: NodeRecord, labels: Mapping[str, str] | None, note: Note | None) -> None:
        """Append *record*. *labels* None: unknown. *note*: why some pod could not be judged on the node's class."""
        observation, columns = record.observation, self.columns
        columns.name.append(record.name)
        columns.shape.append(self._shape(record, labels or {}))
        columns.certainty.append(certainty_of(record))
        columns.problems.append(problem_count(record, note))
        columns.report.append(crc32(f"{observation.boot_id} {observation.sequence}".encode()))
        cpus, memory, devices = _free(record.kubelet, record.state)
        columns.free_cpus.append(cpus)
        columns.free_memory_mib.append(memory)
        columns.free_devices.append(devices)
        if (room := root_room(record)) is not None:
            self.root_pools[record.name] = (room[0], room[1], room[2] >> _MIB_SHIFT, room[3] >> _MIB_SHIFT)

    def _shape(self, record: NodeRecord, labels: Mapping[str, str]) -> int:
        """Index of the shape that *record* has; a new one is appended."""
        kubelet, state = record.kubelet, record.state
        devices = _device_totals(state) if kubelet is not None and state is not None else {}
        pool = next((labels[key] for key in POOL_LABELS if labels.get(key)), None)
        instance_type = labels.get(INSTANCE_TYPE_LABEL) or None
        version = kubelet_version_of(record)
        # Equal kubelets are one object, so its id identifies machine and configuration while the page is built.
        policy = resource_policy_of(record)
        key = (id(kubelet), state is None, tuple(devices.items()), pool, instance_type, version, policy)
        found = self._shape_ids.get(key)
        if found is None:
            found = self._shape_ids[key] = len(self.shapes)
            known = kubelet if state is not None else None
            self.shapes.append(
                NodeShape(
                    pool=pool,
                    instance_type=instance_type,
                    kubelet_version=version,
                    topology_policy=None if known is None else known.policy.value,
                    topology_scope=None if known is None else known.scope.value,
                    cpu_policy=None if known is None else known.config.cpu_manager_policy,
                    memory_policy=None if known is None else known.config.memory_manager_policy,
                    resource_policy=policy,
                    numa=[] if kubelet is None or state is None else _numa(kubelet, state),
                    devices=devices,
                )
            )
        return found


def _device_totals(state: ManagerState) -> dict[str, int]:
    return {
        resource: sum(device.healthy for device in devices.values())
        for resource, devices in sorted(state.devices.devices.items())
    }


def _numa(kubelet: Kubelet, state: ManagerState) -> list[ShapeNUMA]:
    return [
        ShapeNUMA(
            id=each.id,
            socket=each.socket,
            cpus=each.cpus,
            reserved_cpus=each.reserved_cpus,
            memory_mib=each.memory_bytes >> _MIB_SHIFT,
        )
        for each in numa_summaries(kubelet, state)
    ]


def _free(kubelet: Kubelet | None, state: ManagerState | None) -> tuple[list[int], list[int] | None, list[int]]:
    """What is free: CPUs and memory by NUMA node, devices by resource."""
    if kubelet is None or state is None:
        return [], None, []
    rooms = free_by_numa(kubelet, state)
    memory = [(free_bytes or 0) >> _MIB_SHIFT for _, free_bytes in rooms]
    is_counted = any(free_bytes is not None for _, free_bytes in rooms)
    devices = [len(ids) for ids in free_devices(state.devices).values()]
    return [cpus for cpus, _ in rooms], memory if is_counted else None, devices
