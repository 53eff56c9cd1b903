"""What is free on a NUMA node, and in the pools of the NRI topology-aware policy, as replies."""

from typing import Annotated, Literal

from msgspec import UNSET, UnsetType

from extender.nri.pools import PoolKind
from extender.nri.requests import CPUType
from extender.wire.replies import ReplyBody, about

MemoryType = Literal["DRAM", "PMEM", "HBM", ""]


class PoolMemoryView(ReplyBody):
    """Memory of one type in a pool."""

    type: Annotated[MemoryType, about("Empty: all types together.")]
    numa: Annotated[list[int], about("NUMA nodes of this memory.")]
    total_bytes: Annotated[int, about("MemTotal of these NUMA nodes.")]
    free_bytes: Annotated[
        int, about("Not booked, as the policy counts it: bookings that span other NUMA nodes do not count.")
    ]
    left_bytes: Annotated[int, about("The same, and at most what the pools around it have left.")]


class PoolGrantView(ReplyBody):
    """What a container holds at a pool."""

    pod_uid: Annotated[str, about("Empty: the plugin no longer knows the pod.")]
    namespace: Annotated[str, about("Of the pod.")]
    pod: Annotated[str, about("Name of the pod.")]
    container: Annotated[str, about("Name of the container.")]
    cpu_type: Annotated[CPUType, about("Kind of CPUs. `preserve`: the policy does not manage its CPUs.")]
    cpus: Annotated[str, about("Exclusive CPUs, as a Linux list; empty: none.")]
    millicpu: Annotated[int, about("Its part of shared or reserved CPUs, in mCPU.")]
    memory_numa: Annotated[list[int], about("NUMA nodes of its memory.")]
    memory_bytes: Annotated[int, about("Memory booked for it.")]


class PoolView(ReplyBody):
    """A pool of the NRI topology-aware policy. CPUs are Linux lists."""

    name: Annotated[str, about("The policy's name of the pool.", "NUMA node #1")]
    kind: Annotated[PoolKind, about("`virtual node`: the root of a machine with several sockets.")]
    parent: Annotated[str | None, about("The pool around it; null: it is the root.")]
    depth: Annotated[int, about("Levels below the root.")]
    cpus: Annotated[str | None, about("All CPUs of the pool that the policy manages; null: unknown.")]
    capacity_millicpu: Annotated[int, about("Shared and reserved CPUs if nothing were granted, in mCPU.")]
    free_millicpu: Annotated[
        int,
        about(
            "Shared CPU that one more container could get here, in mCPU. -1: none, and a container without a CPU "
            "request is here, so that every further container is refused."
        ),
    ]
    shared_cpus: Annotated[str, about("CPUs that containers share at present, reserved ones not included.")]
    shared_used_millicpu: Annotated[
        int | None, about("Granted shares of them, here and in the pools below; null: unknown.")
    ]
    exclusive_cpus: Annotated[str | None, about("CPUs that a container has alone; null: unknown.")]
    exclusive_count: Annotated[int, about("Number of these CPUs. If `exclusive_cpus` is null: without isolated CPUs.")]
    reserved_cpus: Annotated[str, about("CPUs for reserved containers, such as those of `kube-system`.")]
    isolated_cpus: Annotated[str, about("CPUs that the kernel isolates, free or not.")]
    free_isolated: Annotated[int | None, about("How many of them are free; null: unknown.")]
    memory: Annotated[
        list[PoolMemoryView],
        about("By type. If there are several types, all together come first, because bookings may span types."),
    ]
    containers: Annotated[
        list[PoolGrantView] | UnsetType | None,
        about(
            "Those whose grant is at this pool itself, and not at a pool inside it, by name; null: unknown. Only in "
            "the details of one node."
        ),
    ] = UNSET


class FreeRoom(ReplyBody):
    """The largest request of each kind that this NUMA node alone could serve now."""

    cpus: Annotated[int, about("Exclusive CPUs. Only whole cores count if the kubelet allocates only whole cores.")]
    memory: Annotated[dict[str, int], about("Bytes by type; empty if no manager counts memory.")]
    devices: Annotated[dict[str, int], about("Free healthy devices of the NUMA node, by resource.")]
