"""Models of GET /v1/map: the whole cluster in one small reply.

What many nodes share is sent once, as a shape. The rest is sent in columns: entry *i* of each column is about the same
node.
"""

from typing import Annotated

from extender.kubelet.verdict import Certainty
from extender.wire.replies import ReplyBody, about


class ShapeNUMA(ReplyBody):
    """One NUMA node of a shape."""

    id: Annotated[int, about("The kernel's id.")]
    socket: Annotated[int | None, about("The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: Annotated[int, about("Online CPUs.")]
    reserved_cpus: Annotated[int, about("Reserved CPUs.")]
    memory_mib: Annotated[int, about("Allocatable memory in MiB; the total if no manager counts memory.")]


class NodeShape(ReplyBody):
    """Hardware, kubelet settings and labels that several nodes share."""

    pool: Annotated[str | None, about("The node pool, from a well-known label; null: unknown.")]
    instance_type: Annotated[str | None, about("`node.kubernetes.io/instance-type`; null: unknown.")]
    kubelet_version: Annotated[str | None, about("Null: unknown.")]
    topology_policy: Annotated[str | None, about("`topologyManagerPolicy`; null: unknown.")]
    topology_scope: Annotated[str | None, about("`topologyManagerScope`; null: unknown.")]
    cpu_policy: Annotated[str | None, about("`cpuManagerPolicy`; null: unknown.")]
    memory_policy: Annotated[str | None, about("`memoryManagerPolicy`; null: unknown.")]
    resource_policy: Annotated[str | None, about("As in `GET /v1/nodes`; null: no such plugin is known.")]
    numa: Annotated[list[ShapeNUMA], about("Ascending by id; empty: unknown.")]
    devices: Annotated[dict[str, int], about("Healthy devices by resource.")]


class MapColumns(ReplyBody):
    """The nodes of this page by name. All columns have the same length."""

    name: Annotated[list[str], about("Name of the Node object.")]
    shape: Annotated[list[int], about("Index in `shapes`.")]
    certainty: Annotated[list[Certainty], about("Certainty of verdicts.")]
    problems: Annotated[list[int], about("Number of warnings and errors.")]
    report: Annotated[list[int], about("A number that changes with every report of the node.")]
    free_cpus: Annotated[
        list[list[int]], about("Free exclusive CPUs by NUMA node, in the order of the shape's `numa`.")
    ]
    free_memory_mib: Annotated[
        list[list[int] | None], about("Free memory by NUMA node, MiB; null: no manager counts memory.")
    ]
    free_devices: Annotated[list[list[int]], about("Free healthy devices, in the order of the shape's `devices`.")]


class ClusterMap(ReplyBody):
    """A page of the map."""

    total: Annotated[int, about("Nodes on all pages.")]
    shapes: Annotated[list[NodeShape], about("Shapes of the nodes on this page.")]
    nodes: Annotated[MapColumns, about("The nodes on this page.")]
    root_pools: Annotated[
        dict[str, tuple[int, int, int, int]],
        about(
            "By name, where the NRI topology-aware policy runs and its pools are known: of the root pool, CPU left and "
            "all but reserved CPU, in mCPU, free memory and all memory, in MiB."
        ),
    ]
    next: Annotated[str | None, about("`after` of the next page; null: this is the last one.")]
