"""Models of GET /v1/nodes and /v1/nodes/NAME."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import Answer, CPUList, MemoryBlock, NUMAIds
from extender.kubelet.verdict import Certainty, Provider
from extender.wire.validation import doc


class ProblemView(Answer):
    """Something that is missing, unreadable or contradictory."""

    source: Annotated[str, doc("The part of the exporter that found it, or `extender`.")]
    path: Annotated[str, doc("The field or file.")]
    reason: Annotated[str, doc("What is wrong, and its consequence.")]
    severity: Annotated[Literal["info", "warning", "error"], doc("`info` does not affect verdicts.")] = "warning"


class NUMASummary(Answer):
    """A summary of one NUMA node."""

    id: Annotated[int, doc("The kernel's id; -1: the kernel gives the package no id.")]
    socket: Annotated[int | None, doc("The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: Annotated[int, doc("Online CPUs.")]
    reserved_cpus: Annotated[int, doc("Reserved CPUs.")]
    free_cpus: Annotated[int, doc("CPUs that are free for exclusive allocation.")]
    memory_bytes: Annotated[int, doc("Allocatable memory; the total if no manager counts memory.")]
    free_memory_bytes: Annotated[int | None, doc("Free memory; null: no manager counts memory.")]


class DeviceCount(Answer):
    """Devices of one resource."""

    total: Annotated[int, doc("Healthy devices.")]
    free: Annotated[int, doc("Healthy devices that no pod has.")]


class PoolMemoryView(Answer):
    """Memory of one type in a pool."""

    type: Annotated[Literal["DRAM", "PMEM", "HBM", ""], doc("Empty: all types together.")]
    numa: Annotated[list[int], doc("NUMA nodes of this memory.")]
    total_bytes: Annotated[int, doc("MemTotal of these NUMA nodes.")]
    free_bytes: Annotated[
        int, doc("Not booked, as the policy counts it: bookings that span other NUMA nodes do not count.")
    ]
    left_bytes: Annotated[int, doc("The same, and at most what the pools around it have left.")]


class PoolSummary(Answer):
    """A pool of the NRI topology-aware policy. CPUs are Linux lists."""

    name: Annotated[str, Field(description="The policy's name of the pool.", examples=["NUMA node #1"])]
    kind: Annotated[
        Literal["virtual node", "socket", "die", "numa node", "L3 cache"],
        doc("`virtual node`: the root of a machine with several sockets."),
    ]
    parent: Annotated[str | None, doc("The pool around it; null: it is the root.")]
    depth: Annotated[int, doc("Levels below the root.")]
    cpus: Annotated[str | None, doc("All CPUs of the pool that the policy manages; null: unknown.")]
    capacity_millicpu: Annotated[int, doc("Shared and reserved CPUs if nothing were granted, in mCPU.")]
    free_millicpu: Annotated[
        int,
        doc(
            "Shared CPU that one more container could get here, in mCPU. -1: none, and a container without a CPU "
            "request is here, so that every further container is refused."
        ),
    ]
    shared_cpus: Annotated[str, doc("CPUs that containers share at present, reserved ones not included.")]
    shared_used_millicpu: Annotated[
        int | None, doc("Granted shares of them, here and in the pools below; null: unknown.")
    ]
    exclusive_cpus: Annotated[str | None, doc("CPUs that a container has alone; null: unknown.")]
    exclusive_count: Annotated[int, doc("Number of these CPUs. If `exclusive_cpus` is null: without isolated CPUs.")]
    reserved_cpus: Annotated[str, doc("CPUs for reserved containers, such as those of `kube-system`.")]
    isolated_cpus: Annotated[str, doc("CPUs that the kernel isolates, free or not.")]
    free_isolated: Annotated[int | None, doc("How many of them are free; null: unknown.")]
    memory: Annotated[
        list[PoolMemoryView],
        doc("By type. Where there are several types, all together are first: bookings may span types."),
    ]


class PoolGrantView(Answer):
    """What a container holds at a pool."""

    pod_uid: Annotated[str, doc("Empty: the plugin no longer knows the pod.")]
    namespace: Annotated[str, doc("Of the pod.")]
    pod: Annotated[str, doc("Name of the pod.")]
    container: Annotated[str, doc("Name of the container.")]
    cpu_type: Annotated[
        Literal["normal", "reserved", "preserve"], doc("Kind of CPUs. `preserve`: the policy does not manage its CPUs.")
    ]
    cpus: Annotated[str, doc("Exclusive CPUs, as a Linux list; empty: none.")]
    millicpu: Annotated[int, doc("Its part of shared or reserved CPUs, in mCPU.")]
    memory_numa: Annotated[list[int], doc("NUMA nodes of its memory.")]
    memory_bytes: Annotated[int, doc("Memory booked for it.")]


class PoolView(PoolSummary):
    """A pool with the containers whose grant is at this pool itself, and not at a pool inside it."""

    containers: Annotated[list[PoolGrantView] | None, doc("By name; null: unknown.")]


class NodeSummary(Answer):
    """One node in a list."""

    name: Annotated[str, doc("Name of the Node object.")]
    certainty: Annotated[
        Certainty,
        doc(
            "Certainty of verdicts: `exact`; `assumed`: the kubelet is newer than the newest known; `stale`: the last "
            "report is old; `degraded`: only published amounts are known; `unknown`: no verdict."
        ),
    ]
    hidden: Annotated[
        list[Provider], doc("Managers whose state is unknown. Pods that need none of them still get a verdict.")
    ]
    heard_seconds_ago: Annotated[float, doc("Seconds since the last report or heartbeat.")]
    boot_id: Annotated[str, doc("Boot id of the node at its last report.")]
    sequence: Annotated[int, doc("Sequence of the current report. Within one boot, higher is newer.")]
    observed_at: Annotated[float, doc("Time of the report in Unix seconds, by the node's clock.")]
    kubelet_version: Annotated[str | None, doc("Null: unknown.")] = None
    topology_policy: Annotated[str | None, doc("`topologyManagerPolicy`; null: unknown.")] = None
    topology_scope: Annotated[str | None, doc("`topologyManagerScope`; null: unknown.")] = None
    cpu_policy: Annotated[str | None, doc("`cpuManagerPolicy`; null: unknown.")] = None
    memory_policy: Annotated[str | None, doc("`memoryManagerPolicy`; null: unknown.")] = None
    numa_nodes: Annotated[int, doc("Number of NUMA nodes; 0: unknown.")] = 0
    cpus: Annotated[int, doc("Online CPUs; 0: unknown.")] = 0
    free_cpus: Annotated[int, doc("CPUs that are free for exclusive allocation.")] = 0
    pods: Annotated[int | None, doc("Number of pods that the kubelet lists; null: unknown.")] = None
    problems: Annotated[int, doc("Number of warnings and errors.")] = 0
    numa: Annotated[list[NUMASummary], doc("Ascending by id; empty: unknown.")] = []
    devices: Annotated[dict[str, DeviceCount], doc("By resource.")] = {}
    resource_policy: Annotated[
        str | None,
        doc(
            "The NRI policy, a plugin of the container runtime that places containers when they are created. "
            "`topology-aware` is replayed: free CPUs and memory are then those that it counts. Of any other policy "
            "only the name is known. Null: none is known to run."
        ),
    ] = None
    pools: Annotated[
        Sequence[PoolSummary],
        doc("Pools of that policy, each before those inside it; empty: none, or they are not known."),
    ] = []


class NodeIndex(Answer):
    """A page of nodes, by name."""

    total: Annotated[int, doc("Nodes that match the filters, on all pages.")]
    nodes: Annotated[list[NodeSummary], doc("The nodes of this page.")]
    next: Annotated[str | None, doc("`after` of the next page; null: this is the last one.")] = None


class MemoryView(Answer):
    """One type of memory on one NUMA node, in bytes."""

    total: Annotated[int, doc("Total.")]
    allocatable: Annotated[int, doc("Allocatable to pods.")]
    free: Annotated[int, doc("Not allocated.")]


class FreeRoom(Answer):
    """The largest request of each kind that this NUMA node alone could serve now."""

    cpus: Annotated[int, doc("Exclusive CPUs. Only whole cores count if the kubelet allocates only whole cores.")]
    memory: Annotated[dict[str, int], doc("Bytes by type; empty if no manager counts memory.")]
    devices: Annotated[dict[str, int], doc("Free healthy devices of the NUMA node, by resource.")]


class NUMANodeView(Answer):
    """One NUMA node."""

    id: Annotated[int, doc("The kernel's id; -1: the kernel gives the package no id.")]
    socket: Annotated[int | None, doc("The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: CPUList
    cores: Annotated[
        list[list[int]], Field(description="CPU ids of each core, ascending.", examples=[[[0, 16], [1, 17]]])
    ]
    reserved_cpus: CPUList
    free_cpus: Annotated[str, doc("CPUs that are free for exclusive allocation, as a Linux list.")]
    memory: Annotated[dict[str, MemoryView], doc("By type; empty if no manager counts memory.")]
    memory_bytes: Annotated[int, doc("MemTotal, in bytes.")]
    memory_group: Annotated[list[int], doc("NUMA nodes of its memory group: their memory is allocated only together.")]
    distances: Annotated[
        list[int], doc("Distance to every NUMA node, ascending by id, in the units of sysfs (10 is local).")
    ]
    l3_caches: Annotated[list[str], doc("CPUs of each L3 (uncore) cache of the node, as Linux lists; empty: unknown.")]
    free_room: Annotated[FreeRoom, doc("The largest requests that fit here.")]


class SocketView(Answer):
    """One socket."""

    id: Annotated[int, doc("The kernel's id.")]
    numa: NUMAIds


class DeviceView(Answer):
    """One device of a device plugin."""

    id: Annotated[str, doc("The device plugin's id.")]
    numa: Annotated[list[int] | None, doc("NUMA nodes of the device; null: the plugin reported none.")]
    healthy: Annotated[bool, doc("Whether the device plugin reports it as healthy.")]
    held_by: Annotated[str | None, doc("UID of its pod; null: none.")] = None


class HolderView(Answer):
    """The exclusive resources of one container."""

    pod_uid: Annotated[str, doc("The pod's UID in the kubelet.")]
    namespace: Annotated[str | None, doc("Null: the node lists no pod with this UID.")] = None
    pod: Annotated[str | None, doc("The pod's name; null if `namespace` is null.")] = None
    container: Annotated[str, doc("Name of the container; empty: the pod as a whole (pod-level resources).")]
    cpus: Annotated[str, doc("Exclusive CPUs, as a Linux list; empty: the shared pool.")] = ""
    memory: Annotated[list[MemoryBlock], doc("Memory pinned to NUMA nodes; empty: none.")] = []
    devices: Annotated[dict[str, list[str]], doc("Device ids by resource.")] = {}


class NodeDetail(NodeSummary):
    """Everything that is known of one node."""

    pools: Annotated[Sequence[PoolView], doc("Pools of `resource_policy`, each before those inside it.")] = []
    sockets: Annotated[list[SocketView], doc("Ascending by id.")] = []
    topology: Annotated[list[NUMANodeView], doc("The NUMA nodes, ascending by id.")] = []
    shared_cpus: Annotated[str, doc("The shared pool as a Linux list, reserved CPUs included.")] = ""
    reserved_cpus: Annotated[str, doc("Reserved CPUs, as a Linux list.")] = ""
    cpu_options: Annotated[dict[str, str], doc("`cpuManagerPolicyOptions`.")] = {}
    topology_options: Annotated[dict[str, str], doc("`topologyManagerPolicyOptions`.")] = {}
    device_list: Annotated[dict[str, list[DeviceView]], doc("Every device, by resource.")] = {}
    holders: Annotated[list[HolderView], doc("Containers with exclusive resources, by pod UID.")] = []
    behaves_as: Annotated[
        list[str],
        Field(
            description="Rules of the replay in which the node's kubelet differs from its minor, by failed "
            "predictions: rules that it has, or lacks (`NAME=false`). See `GET /v1/audit`.",
            examples=[["distribute_inside_hint"]],
        ),
    ] = []
    problem_list: Annotated[list[ProblemView], doc("All problems of the node.")] = []
    pod_list: Annotated[
        list[Mapping[str, object]] | None, doc("Pods that the node's kubelet lists; null: unknown.")
    ] = None
    zones: Annotated[list[Mapping[str, object]], doc("Amounts for each NUMA node, from the report.")] = []
