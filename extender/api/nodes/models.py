"""Models of GET /v1/nodes and /v1/nodes/NAME."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import Answer, CPUList, MemoryBlock, NUMAIds
from extender.replay.verdict import Certainty, Provider


class ProblemView(Answer):
    """Something that is missing, unreadable or contradictory."""

    source: Annotated[str, Field(description="The part of the exporter that found it, or `extender`.")]
    path: Annotated[str, Field(description="The field or file.")]
    reason: Annotated[str, Field(description="What is wrong, and its consequence.")]
    severity: Annotated[Literal["info", "warning", "error"], Field(description="`info` does not affect verdicts.")] = (
        "warning"
    )


class NUMASummary(Answer):
    """A summary of one NUMA node."""

    id: Annotated[int, Field(description="The kernel's id; -1: the kernel gives the package no id.")]
    socket: Annotated[int | None, Field(description="The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: Annotated[int, Field(description="Online CPUs.")]
    reserved_cpus: Annotated[int, Field(description="Reserved CPUs.")]
    free_cpus: Annotated[int, Field(description="CPUs that are free for exclusive allocation.")]
    memory_bytes: Annotated[int, Field(description="Allocatable memory; the total if no manager counts memory.")]
    free_memory_bytes: Annotated[int | None, Field(description="Free memory; null: no manager counts memory.")]


class DeviceCount(Answer):
    """Devices of one resource."""

    total: Annotated[int, Field(description="Healthy devices.")]
    free: Annotated[int, Field(description="Healthy devices that no pod has.")]


class NodeSummary(Answer):
    """One node in a list."""

    name: Annotated[str, Field(description="Name of the Node object.")]
    certainty: Annotated[
        Certainty,
        Field(
            description="Certainty of verdicts: `exact`; `assumed`: the kubelet is newer than the newest known; "
            "`stale`: the last report is old; `unknown`: no verdict."
        ),
    ]
    hidden: Annotated[
        list[Provider],
        Field(description="Managers whose state is unknown. Pods that need none of them still get a verdict."),
    ]
    heard_seconds_ago: Annotated[float, Field(description="Seconds since the last report or heartbeat.")]
    boot_id: Annotated[str, Field(description="Boot id of the node at its last report.")]
    sequence: Annotated[int, Field(description="Sequence of the current report. Within one boot, higher is newer.")]
    observed_at: Annotated[float, Field(description="Time of the report in Unix seconds, by the node's clock.")]
    kubelet_version: Annotated[str | None, Field(description="Null: unknown.")] = None
    topology_policy: Annotated[str | None, Field(description="`topologyManagerPolicy`; null: unknown.")] = None
    topology_scope: Annotated[str | None, Field(description="`topologyManagerScope`; null: unknown.")] = None
    cpu_policy: Annotated[str | None, Field(description="`cpuManagerPolicy`; null: unknown.")] = None
    memory_policy: Annotated[str | None, Field(description="`memoryManagerPolicy`; null: unknown.")] = None
    numa_nodes: Annotated[int, Field(description="Number of NUMA nodes; 0: unknown.")] = 0
    cpus: Annotated[int, Field(description="Online CPUs; 0: unknown.")] = 0
    free_cpus: Annotated[int, Field(description="CPUs that are free for exclusive allocation.")] = 0
    pods: Annotated[int | None, Field(description="Number of pods that the kubelet lists; null: unknown.")] = None
    problems: Annotated[int, Field(description="Number of warnings and errors.")] = 0
    numa: Annotated[list[NUMASummary], Field(description="Ascending by id; empty: unknown.")] = []
    devices: Annotated[dict[str, DeviceCount], Field(description="By resource.")] = {}


class NodeIndex(Answer):
    """A page of nodes, by name."""

    total: Annotated[int, Field(description="Nodes that match the filters, on all pages.")]
    nodes: Annotated[list[NodeSummary], Field(description="The nodes of this page.")]
    next: Annotated[str | None, Field(description="`after` of the next page; null: this is the last one.")] = None


class MemoryView(Answer):
    """One type of memory on one NUMA node, in bytes."""

    total: Annotated[int, Field(description="Total.")]
    allocatable: Annotated[int, Field(description="Allocatable to pods.")]
    free: Annotated[int, Field(description="Not allocated.")]


class FreeRoom(Answer):
    """The largest request of each kind that this NUMA node alone could serve now."""

    cpus: Annotated[
        int, Field(description="Exclusive CPUs. Only whole cores count if the kubelet allocates only whole cores.")
    ]
    memory: Annotated[dict[str, int], Field(description="Bytes by type; empty if no manager counts memory.")]
    devices: Annotated[dict[str, int], Field(description="Free healthy devices of the NUMA node, by resource.")]


class NUMANodeView(Answer):
    """One NUMA node."""

    id: Annotated[int, Field(description="The kernel's id; -1: the kernel gives the package no id.")]
    socket: Annotated[int | None, Field(description="The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: CPUList
    cores: Annotated[
        list[list[int]],
        Field(description="CPU ids of each core, ascending.", examples=[[[0, 16], [1, 17]]]),
    ]
    reserved_cpus: CPUList
    free_cpus: Annotated[str, Field(description="CPUs that are free for exclusive allocation, as a Linux list.")]
    memory: Annotated[dict[str, MemoryView], Field(description="By type; empty if no manager counts memory.")]
    memory_bytes: Annotated[int, Field(description="MemTotal, in bytes.")]
    memory_group: Annotated[
        list[int], Field(description="NUMA nodes of its memory group: their memory is allocated only together.")
    ]
    distances: Annotated[
        list[int],
        Field(description="Distance to every NUMA node, ascending by id, in the units of sysfs (10 is local)."),
    ]
    l3_caches: Annotated[
        list[str], Field(description="CPUs of each L3 (uncore) cache of the node, as Linux lists; empty: unknown.")
    ]
    free_room: Annotated[FreeRoom, Field(description="The largest requests that fit here.")]


class SocketView(Answer):
    """One socket."""

    id: Annotated[int, Field(description="The kernel's id.")]
    numa: NUMAIds


class DeviceView(Answer):
    """One device of a device plugin."""

    id: Annotated[str, Field(description="The device plugin's id.")]
    numa: Annotated[list[int] | None, Field(description="NUMA nodes of the device; null: the plugin reported none.")]
    healthy: Annotated[bool, Field(description="Whether the device plugin reports it as healthy.")]
    held_by: Annotated[str | None, Field(description="UID of its pod; null: none.")] = None


class HolderView(Answer):
    """The exclusive resources of one container."""

    pod_uid: Annotated[str, Field(description="The pod's UID in the kubelet.")]
    namespace: Annotated[str | None, Field(description="Null: the node lists no pod with this UID.")] = None
    pod: Annotated[str | None, Field(description="The pod's name; null if `namespace` is null.")] = None
    container: Annotated[
        str, Field(description="Name of the container; empty: the pod as a whole (pod-level resources).")
    ]
    cpus: Annotated[str, Field(description="Exclusive CPUs, as a Linux list; empty: the shared pool.")] = ""
    memory: Annotated[list[MemoryBlock], Field(description="Memory pinned to NUMA nodes; empty: none.")] = []
    devices: Annotated[dict[str, list[str]], Field(description="Device ids by resource.")] = {}


class NodeDetail(NodeSummary):
    """Everything that is known of one node."""

    sockets: Annotated[list[SocketView], Field(description="Ascending by id.")] = []
    topology: Annotated[list[NUMANodeView], Field(description="The NUMA nodes, ascending by id.")] = []
    shared_cpus: Annotated[str, Field(description="The shared pool as a Linux list, reserved CPUs included.")] = ""
    reserved_cpus: Annotated[str, Field(description="Reserved CPUs, as a Linux list.")] = ""
    cpu_options: Annotated[dict[str, str], Field(description="`cpuManagerPolicyOptions`.")] = {}
    topology_options: Annotated[dict[str, str], Field(description="`topologyManagerPolicyOptions`.")] = {}
    device_list: Annotated[dict[str, list[DeviceView]], Field(description="Every device, by resource.")] = {}
    holders: Annotated[list[HolderView], Field(description="Containers with exclusive resources, by pod UID.")] = []
    behaves_as: Annotated[
        list[str],
        Field(
            description="Rules of the replay in which the node's kubelet differs from its minor, by failed "
            "predictions: rules that it has, or lacks (`NAME=false`). See `GET /v1/audit`.",
            examples=[["distribute_inside_hint"]],
        ),
    ] = []
    problem_list: Annotated[list[ProblemView], Field(description="All problems of the node.")] = []
    pod_list: Annotated[
        list[Mapping[str, object]] | None, Field(description="Pods that the node's kubelet lists; null: unknown.")
    ] = None
    zones: Annotated[list[Mapping[str, object]], Field(description="Amounts for each NUMA node, from the report.")] = []
