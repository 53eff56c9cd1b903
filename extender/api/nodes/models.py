"""Replies of GET /v1/nodes and /v1/nodes/NAME."""

from typing import Annotated, Any, Literal

from extender.kubelet.verdict import Certainty, Provider
from extender.wire.pools import FreeRoom, PoolView
from extender.wire.replies import CPUList, NUMAIds, ReplyBody, about
from extender.wire.verdicts import MemoryBlock


class ProblemView(ReplyBody):
    """Something that is missing, unreadable or contradictory."""

    source: Annotated[str, about("The part of the exporter that found it, or `extender`.")]
    path: Annotated[str, about("The field or file.")]
    reason: Annotated[str, about("What is wrong, and its consequence.")]
    severity: Annotated[Literal["info", "warning", "error"], about("`info` does not affect verdicts.")]


class NUMASummary(ReplyBody):
    """A summary of one NUMA node."""

    id: Annotated[int, about("The kernel's id; -1: the kernel gives the package no id.")]
    socket: Annotated[int | None, about("The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: Annotated[int, about("Online CPUs.")]
    reserved_cpus: Annotated[int, about("Reserved CPUs.")]
    free_cpus: Annotated[int, about("CPUs that are free for exclusive allocation.")]
    memory_bytes: Annotated[int, about("Allocatable memory; the total if no manager counts memory.")]
    free_memory_bytes: Annotated[int | None, about("Free memory; null: no manager counts memory.")]


class DeviceCount(ReplyBody):
    """Devices of one resource."""

    total: Annotated[int, about("Healthy devices.")]
    free: Annotated[int, about("Healthy devices that no pod has.")]


class NodeSummary(ReplyBody):
    """One node in a list."""

    name: Annotated[str, about("Name of the Node object.")]
    certainty: Annotated[
        Certainty,
        about(
            "Certainty of verdicts: `exact`; `assumed`: the kubelet is newer than the newest known; `possible`: the "
            "state files contradict themselves; `stale`: the last report is old, or the kubelet does not answer; "
            "`degraded`: only published amounts are known; `unknown`: no verdict."
        ),
    ]
    hidden: Annotated[
        list[Provider], about("Managers whose state is unknown. Pods that need none of them still get a verdict.")
    ]
    heard_seconds_ago: Annotated[float, about("Seconds since the last report or heartbeat.")]
    boot_id: Annotated[str, about("Boot id of the node at its last report.")]
    sequence: Annotated[int, about("Sequence of the current report. Within one boot, higher is newer.")]
    observed_at: Annotated[float, about("Time of the report in Unix seconds, by the node's clock.")]
    kubelet_version: Annotated[str | None, about("Null: unknown.")] = None
    topology_policy: Annotated[str | None, about("`topologyManagerPolicy`; null: unknown.")] = None
    topology_scope: Annotated[str | None, about("`topologyManagerScope`; null: unknown.")] = None
    cpu_policy: Annotated[str | None, about("`cpuManagerPolicy`; null: unknown.")] = None
    memory_policy: Annotated[str | None, about("`memoryManagerPolicy`; null: unknown.")] = None
    numa_nodes: Annotated[int, about("Number of NUMA nodes; 0: unknown.")] = 0
    cpus: Annotated[int, about("Online CPUs; 0: unknown.")] = 0
    free_cpus: Annotated[int, about("CPUs free for exclusive allocation; 0 if `hidden` has the CPU manager.")] = 0
    pods: Annotated[int | None, about("Number of pods that the kubelet lists; null: unknown.")] = None
    problems: Annotated[int, about("Number of warnings and errors.")] = 0
    numa: Annotated[list[NUMASummary], about("Ascending by id; empty: unknown.")] = []
    devices: Annotated[dict[str, DeviceCount], about("By resource.")] = {}
    resource_policy: Annotated[
        str | None,
        about(
            "The NRI policy, a plugin of the container runtime that places containers when they are created. "
            "`topology-aware` is replayed: free CPUs and memory are then those that it counts. Of any other policy "
            "only the name is known. Null: none is known to run."
        ),
    ] = None
    pools: Annotated[
        list[PoolView], about("Pools of that policy, each before those inside it; empty: none, or they are not known.")
    ] = []


class NodeIndex(ReplyBody):
    """A page of nodes, by name."""

    total: Annotated[int, about("Nodes that match the filters, on all pages.")]
    nodes: Annotated[list[NodeSummary], about("The nodes of this page.")]
    next: Annotated[str | None, about("`after` of the next page; null: this is the last one.")]


class MemoryView(ReplyBody):
    """One type of memory on one NUMA node, in bytes."""

    total: Annotated[int, about("Total.")]
    allocatable: Annotated[int, about("Allocatable to pods.")]
    free: Annotated[int, about("Not allocated.")]


class NUMANodeView(ReplyBody):
    """One NUMA node."""

    id: Annotated[int, about("The kernel's id; -1: the kernel gives the package no id.")]
    socket: Annotated[int | None, about("The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: CPUList
    cores: Annotated[list[list[int]], about("CPU ids of each core, ascending.", [[0, 16], [1, 17]])]
    reserved_cpus: CPUList
    free_cpus: Annotated[str, about("CPUs that are free for exclusive allocation, as a Linux list.")]
    memory: Annotated[dict[str, MemoryView], about("By type; empty if no manager counts memory.")]
    memory_bytes: Annotated[int, about("MemTotal, in bytes.")]
    memory_group: Annotated[
        list[int], about("NUMA nodes of its memory group: their memory is allocated only together.")
    ]
    distances: Annotated[
        list[int], about("Distance to every NUMA node, ascending by id, in the units of sysfs (10 is local).")
    ]
    l3_caches: Annotated[
        list[str], about("CPUs of each L3 (uncore) cache of the node, as Linux lists; empty: unknown.")
    ]
    free_room: Annotated[FreeRoom, about("The largest requests that fit here.")]


class SocketView(ReplyBody):
    """One socket."""

    id: Annotated[int, about("The kernel's id.")]
    numa: NUMAIds


class DeviceView(ReplyBody):
    """One device of a device plugin."""

    id: Annotated[str, about("The device plugin's id.")]
    numa: Annotated[list[int] | None, about("NUMA nodes of the device; null: the plugin reported none.")]
    healthy: Annotated[bool, about("Whether the device plugin reports it as healthy.")]
    held_by: Annotated[str | None, about("UID of its pod; null: none.")] = None


class HolderView(ReplyBody):
    """The exclusive resources of one container."""

    pod_uid: Annotated[str, about("The pod's UID in the kubelet.")]
    namespace: Annotated[str | None, about("Null: the node lists no pod with this UID.")]
    pod: Annotated[str | None, about("The pod's name; null if `namespace` is null.")]
    container: Annotated[str, about("Name of the container; empty: the pod as a whole (pod-level resources).")]
    cpus: Annotated[str, about("Exclusive CPUs, as a Linux list; empty: the shared pool.")]
    memory: Annotated[list[MemoryBlock], about("Memory pinned to NUMA nodes; empty: none.")]
    devices: Annotated[dict[str, list[str]], about("Device ids by resource.")]


class NodeDetail(NodeSummary):
    """Everything that is known of one node."""

    sockets: Annotated[list[SocketView], about("Ascending by id.")] = []
    topology: Annotated[list[NUMANodeView], about("The NUMA nodes, ascending by id.")] = []
    shared_cpus: Annotated[str, about("The shared pool as a Linux list, reserved CPUs included.")] = ""
    reserved_cpus: Annotated[str, about("Reserved CPUs, as a Linux list.")] = ""
    cpu_options: Annotated[dict[str, str], about("`cpuManagerPolicyOptions`.")] = {}
    topology_options: Annotated[dict[str, str], about("`topologyManagerPolicyOptions`.")] = {}
    device_list: Annotated[dict[str, list[DeviceView]], about("Every device, by resource.")] = {}
    holders: Annotated[list[HolderView], about("Containers with exclusive resources, by pod UID.")] = []
    behaves_as: Annotated[
        list[str],
        about(
            "Rules of the replay in which the node's kubelet differs from its minor, by failed "
            "predictions: rules that it has, or lacks (`NAME=false`). See `GET /v1/audit`.",
            ["distribute_inside_hint"],
        ),
    ] = []
    problem_list: Annotated[list[ProblemView], about("All problems of the node.")] = []
    pod_list: Annotated[list[dict[str, Any]] | None, about("Pods that the node's kubelet lists; null: unknown.")] = None
    zones: Annotated[list[dict[str, Any]], about("Amounts for each NUMA node, from the report.")] = []
