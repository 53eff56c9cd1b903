"""A node as people see it: models of the OpenAPI document, and how a record becomes one."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from extender.cluster.node import NodeRecord
from extender.replay.sets import format_list, iter_bits
from extender.replay.state import ManagerState
from extender.replay.verdict import Certainty, Provider


class _View(BaseModel):
    model_config = ConfigDict(frozen=True)


class ProblemView(_View):
    """Something that is missing, unreadable or contradictory."""

    source: Annotated[str, Field(description="Who noticed: a part of the exporter, or `extender`.")]
    path: Annotated[str, Field(description="Where.")]
    reason: Annotated[str, Field(description="What, and why it matters.")]
    severity: Literal["info", "warning", "error"] = "warning"


class NodeSummary(_View):
    """One node in a list."""

    name: str
    certainty: Annotated[
        Certainty,
        Field(description="How sure verdicts are: `exact`; `stale`: the last word is old; `unknown`: no verdict."),
    ]
    hidden: Annotated[
        list[Provider],
        Field(description="Managers whose state is not known; pods that need none of them still get a verdict."),
    ]
    heard_seconds_ago: Annotated[float, Field(description="Since the last report or heartbeat.")]
    boot_id: str
    sequence: Annotated[int, Field(description="Of the report held; higher is newer within one boot.")]
    observed_at: Annotated[float, Field(description="Unix seconds, by the node's clock.")]
    kubelet_version: str | None = None
    topology_policy: str | None = None
    topology_scope: str | None = None
    cpu_policy: str | None = None
    memory_policy: str | None = None
    numa_nodes: Annotated[int, Field(description="0: not known.")] = 0
    cpus: Annotated[int, Field(description="Online CPUs; 0: not known.")] = 0
    free_cpus: Annotated[int, Field(description="CPUs that a container could get exclusively now.")] = 0
    problems: Annotated[int, Field(description="How many warnings and errors there are.")] = 0


class MemoryView(_View):
    """One type of memory on one NUMA node, in bytes."""

    total: int
    allocatable: Annotated[int, Field(description="What pods may have in all.")]
    free: Annotated[int, Field(description="What the memory manager has not given away.")]


class NUMANodeView(_View):
    """One NUMA node."""

    id: int
    cpus: Annotated[str, Field(description="Online CPUs, as a Linux list.")]
    free_cpus: Annotated[str, Field(description="CPUs that a container could get exclusively now, as a Linux list.")]
    memory: Annotated[
        dict[str, MemoryView], Field(description="By type; only total is told where no memory manager counts.")
    ]


class DeviceView(_View):
    """One device of a device plugin."""

    id: str
    numa: Annotated[list[int] | None, Field(description="NUMA nodes it belongs to; null: the plugin told none.")]
    healthy: bool
    held_by: Annotated[str | None, Field(description="UID of the pod that holds it; null: nobody.")] = None


class HolderView(_View):
    """What one container holds for itself."""

    pod_uid: str
    container: str
    cpus: Annotated[str, Field(description="Exclusive CPUs, as a Linux list; empty: the shared pool.")] = ""


class NodeDetail(NodeSummary):
    """Everything that is known of one node."""

    numa: list[NUMANodeView] = []
    devices: dict[str, list[DeviceView]] = {}
    holders: Annotated[list[HolderView], Field(description="Containers with exclusive CPUs.")] = []
    problem_list: list[ProblemView] = []
    pods: Annotated[
        list[Mapping[str, object]] | None, Field(description="Pods that the node's kubelet lists; null: it did not.")
    ] = None
    zones: Annotated[list[Mapping[str, object]], Field(description="Amounts per NUMA node, as the node reports.")] = []


def summarize(record: NodeRecord, now: float) -> NodeSummary:
    """The record as one line of a list."""
    return NodeSummary.model_validate(_summary(record, now))


def describe(record: NodeRecord, now: float) -> NodeDetail:
    """The record in full."""
    state, kubelet = record.state, record.kubelet
    facts = record.observation.facts
    detail: dict[str, object] = {
        "problem_list": facts.get("problems", []),
        "pods": facts.get("pods"),
        "zones": facts.get("zones", []),
    }
    if state is not None and kubelet is not None:
        detail["numa"] = _numa(record, state)
        detail["devices"] = _devices(state)
        detail["holders"] = [
            HolderView(pod_uid=uid, container=name, cpus=format_list(bits))
            for uid, containers in sorted(state.cpu.entries.items())
            for name, bits in containers.items()
        ]
    return NodeDetail.model_validate({**_summary(record, now), **detail})


def certainty_of(record: NodeRecord) -> Certainty:
    """How sure verdicts on this node are, pods with random device choices aside."""
    if record.node_class.kubelet is None:
        return Certainty.UNKNOWN
    return Certainty.STALE if record.node_class.stale else Certainty.EXACT


def _summary(record: NodeRecord, now: float) -> dict[str, object]:
    observation, kubelet = record.observation, record.kubelet
    problems = observation.facts.get("problems", [])
    summary: dict[str, object] = {
        "name": record.name,
        "certainty": certainty_of(record),
        "hidden": sorted(observation.hidden),
        "heard_seconds_ago": round(max(0.0, now - record.heard_at), 3),
        "boot_id": observation.boot_id,
        "sequence": observation.sequence,
        "observed_at": observation.observed_at,
        "kubelet_version": observation.facts.get("kubelet_version"),
        "problems": sum(p["severity"] != "info" for p in problems) if isinstance(problems, list) else 0,
    }
    if kubelet is not None and record.state is not None:
        summary |= {
            "topology_policy": kubelet.policy.value,
            "topology_scope": kubelet.scope.value,
            "cpu_policy": kubelet.config.cpu_manager_policy,
            "memory_policy": kubelet.config.memory_manager_policy,
            "numa_nodes": len(kubelet.machine.numa_ids),
            "cpus": kubelet.machine.num_cpus,
            "free_cpus": _free_cpus(record, record.state).bit_count(),
        }
    return summary


def _free_cpus(record: NodeRecord, state: ManagerState) -> int:
    kubelet = record.kubelet
    return state.cpu.default & ~kubelet.reserved_cpus if kubelet is not None else 0


def _numa(record: NodeRecord, state: ManagerState) -> list[NUMANodeView]:
    kubelet = record.kubelet
    if kubelet is None:
        return []
    free = _free_cpus(record, state)
    counted = {node.id: dict(node.amounts) for node in state.memory.nodes}
    views = []
    for node in kubelet.machine.numa_nodes:
        memory = {
            name: MemoryView(total=a.total, allocatable=a.allocatable, free=a.free)
            for name, a in counted.get(node.id, {}).items()
        }
        cpus = kubelet.machine.numa_cpus.get(node.id, 0)
        views.append(
            NUMANodeView(id=node.id, cpus=format_list(cpus), free_cpus=format_list(cpus & free), memory=memory)
        )
    return views


def _devices(state: ManagerState) -> dict[str, list[DeviceView]]:
    holder = {
        (resource, device_id): uid
        for uid, containers in state.devices.entries.items()
        for resources in containers.values()
        for resource, ids in resources.items()
        for device_id in ids
    }
    return {
        resource: [
            DeviceView(
                id=device_id,
                numa=None if device.numa is None else list(iter_bits(device.numa)),
                healthy=device.healthy,
                held_by=holder.get((resource, device_id)),
            )
            for device_id, device in sorted(devices.items())
        ]
        for resource, devices in sorted(state.devices.devices.items())
    }
