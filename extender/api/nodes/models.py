"""GET /v1/nodes and /v1/nodes/NAME: a node as people see it."""

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import Answer, CPUList, MemoryBlock, NUMAIds
from extender.replay.verdict import Certainty, Provider


class ProblemView(Answer):
    """Something that is missing, unreadable or contradictory."""

    source: Annotated[str, Field(description="Who noticed: a part of the exporter, or `extender`.")]
    path: Annotated[str, Field(description="Where.")]
    reason: Annotated[str, Field(description="What, and why it matters.")]
    severity: Annotated[
        Literal["info", "warning", "error"], Field(description="`info` says nothing against verdicts.")
    ] = "warning"


class NUMASummary(Answer):
    """One NUMA node in a few numbers."""

    id: Annotated[int, Field(description="As the kernel numbers it; -1: the kernel gives the package no number.")]
    socket: Annotated[int | None, Field(description="The lowest socket of its CPUs; null: it has no CPUs.")]
    cpus: Annotated[int, Field(description="Online CPUs.")]
    reserved_cpus: Annotated[int, Field(description="CPUs kept for the system.")]
    free_cpus: Annotated[int, Field(description="CPUs that a container could get exclusively now.")]
    memory_bytes: Annotated[int, Field(description="What pods may have in all; where nothing is counted: the total.")]
    free_memory_bytes: Annotated[int | None, Field(description="Not given away; null: nothing counts it.")]


class DeviceCount(Answer):
    """Devices of one resource."""

    total: Annotated[int, Field(description="Healthy ones.")]
    free: Annotated[int, Field(description="Healthy and held by nobody.")]


class NodeSummary(Answer):
    """One node in a list."""

    name: Annotated[str, Field(description="Its name in the cluster.")]
    certainty: Annotated[
        Certainty,
        Field(
            description="How sure verdicts are: `exact`; `assumed`: the kubelet is newer than the newest known; "
            "`stale`: the last report is old; `unknown`: no verdict."
        ),
    ]
    hidden: Annotated[
        list[Provider],
        Field(description="Managers whose state is not known; pods that need none of them still get a verdict."),
    ]
    heard_seconds_ago: Annotated[float, Field(description="Since the last report or heartbeat.")]
    boot_id: Annotated[str, Field(description="Of the boot that reported.")]
    sequence: Annotated[int, Field(description="Of the report held; higher is newer within one boot.")]
    observed_at: Annotated[float, Field(description="Unix seconds, by the node's clock.")]
    kubelet_version: Annotated[str | None, Field(description="Null: not known.")] = None
    topology_policy: Annotated[str | None, Field(description="`topologyManagerPolicy`; null: not known.")] = None
    topology_scope: Annotated[str | None, Field(description="`topologyManagerScope`; null: not known.")] = None
    cpu_policy: Annotated[str | None, Field(description="`cpuManagerPolicy`; null: not known.")] = None
    memory_policy: Annotated[str | None, Field(description="`memoryManagerPolicy`; null: not known.")] = None
    numa_nodes: Annotated[int, Field(description="0: not known.")] = 0
    cpus: Annotated[int, Field(description="Online CPUs; 0: not known.")] = 0
    free_cpus: Annotated[int, Field(description="CPUs that a container could get exclusively now.")] = 0
    pods: Annotated[int | None, Field(description="Pods that the kubelet lists; null: it did not.")] = None
    problems: Annotated[int, Field(description="How many warnings and errors there are.")] = 0
    numa: Annotated[list[NUMASummary], Field(description="Ascending by id; empty: not known.")] = []
    devices: Annotated[dict[str, DeviceCount], Field(description="By resource.")] = {}


class NodeIndex(Answer):
    """A page of nodes, by name."""

    total: Annotated[int, Field(description="Nodes that the filters leave, on all pages.")]
    nodes: Annotated[list[NodeSummary], Field(description="Of this page.")]
    next: Annotated[str | None, Field(description="`after` of the next page; null: this is the last one.")] = None


class MemoryView(Answer):
    """One type of memory on one NUMA node, in bytes."""

    total: Annotated[int, Field(description="What the node has.")]
    allocatable: Annotated[int, Field(description="What pods may have in all.")]
    free: Annotated[int, Field(description="What the memory manager has not given away.")]


class FreeRoom(Answer):
    """The largest request of each kind that this NUMA node alone could serve now."""

    cpus: Annotated[int, Field(description="Exclusive CPUs; whole cores only where the kubelet gives no others.")]
    memory: Annotated[dict[str, int], Field(description="Bytes by type; empty where nothing counts it.")]
    devices: Annotated[dict[str, int], Field(description="Healthy free devices that belong to the node, by resource.")]


class NUMANodeView(Answer):
    """One NUMA node."""

    id: Annotated[int, Field(description="As the kernel numbers it; -1: the kernel gives the package no number.")]
    socket: Annotated[int | None, Field(description="The lowest socket of its CPUs; null: it has no CPUs.")]
    cpus: CPUList
    cores: Annotated[
        list[list[int]],
        Field(description="CPU ids of each core, threads together, ascending.", examples=[[[0, 16], [1, 17]]]),
    ]
    reserved_cpus: CPUList
    free_cpus: Annotated[str, Field(description="CPUs that a container could get exclusively now, as a Linux list.")]
    memory: Annotated[dict[str, MemoryView], Field(description="By type; empty where no memory manager counts.")]
    memory_bytes: Annotated[int, Field(description="MemTotal.")]
    memory_group: Annotated[
        list[int], Field(description="NUMA nodes whose memory is given away only together with this one's.")
    ]
    distances: Annotated[list[int], Field(description="To every NUMA node, ascending by id; sysfs units, 10 is local.")]
    l3_caches: Annotated[
        list[str], Field(description="CPUs of each L3 (uncore) cache of the node, as Linux lists; empty: not known.")
    ]
    free_room: Annotated[FreeRoom, Field(description="What fits there alone.")]


class SocketView(Answer):
    """One socket."""

    id: Annotated[int, Field(description="As the kernel numbers it.")]
    numa: NUMAIds


class DeviceView(Answer):
    """One device of a device plugin."""

    id: Annotated[str, Field(description="As its plugin names it.")]
    numa: Annotated[list[int] | None, Field(description="NUMA nodes it belongs to; null: the plugin told none.")]
    healthy: Annotated[bool, Field(description="Whether its plugin says so.")]
    held_by: Annotated[str | None, Field(description="UID of the pod that holds it; null: nobody.")] = None


class HolderView(Answer):
    """What one container holds for itself."""

    pod_uid: Annotated[str, Field(description="UID under which the kubelet knows the pod.")]
    namespace: Annotated[str | None, Field(description="Null: the node does not list a pod of this UID.")] = None
    pod: Annotated[str | None, Field(description="The pod's name; null as `namespace`.")] = None
    container: Annotated[str, Field(description="Empty: the pod as a whole (pod-level resources).")]
    cpus: Annotated[str, Field(description="Exclusive CPUs, as a Linux list; empty: the shared pool.")] = ""
    memory: Annotated[list[MemoryBlock], Field(description="Pinned to NUMA nodes; empty: none.")] = []
    devices: Annotated[dict[str, list[str]], Field(description="Ids by resource.")] = {}


class NodeDetail(NodeSummary):
    """Everything that is known of one node."""

    sockets: Annotated[list[SocketView], Field(description="Ascending by id.")] = []
    topology: Annotated[list[NUMANodeView], Field(description="The NUMA nodes in full, ascending.")] = []
    shared_cpus: Annotated[str, Field(description="The shared pool as a Linux list, reserved CPUs included.")] = ""
    reserved_cpus: Annotated[str, Field(description="CPUs kept for the system, as a Linux list.")] = ""
    cpu_options: Annotated[dict[str, str], Field(description="`cpuManagerPolicyOptions`.")] = {}
    topology_options: Annotated[dict[str, str], Field(description="`topologyManagerPolicyOptions`.")] = {}
    device_list: Annotated[dict[str, list[DeviceView]], Field(description="Every device, by resource.")] = {}
    holders: Annotated[
        list[HolderView], Field(description="Containers that hold anything for themselves, by pod UID.")
    ] = []
    behaves_as: Annotated[
        list[str],
        Field(
            description="Rules of the replay that the node's kubelet has, or lacks (`NAME=false`), against what its "
            "minor does, as far as failed predictions tell. See `GET /v1/audit`.",
            examples=[["distribute_inside_hint"]],
        ),
    ] = []
    problem_list: Annotated[list[ProblemView], Field(description="Everything that is wrong, in words.")] = []
    pod_list: Annotated[
        list[Mapping[str, object]] | None, Field(description="Pods that the node's kubelet lists; null: it did not.")
    ] = None
    zones: Annotated[list[Mapping[str, object]], Field(description="Amounts per NUMA node, as the node reports.")] = []
