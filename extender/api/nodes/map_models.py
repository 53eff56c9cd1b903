"""Models of GET /v1/map: the whole cluster in one small reply.

What many nodes share is sent once, as a shape. The rest is sent in columns: entry *i* of each column is about the same
node.
"""

from typing import Annotated

from extender.api.questions.models import Answer
from extender.kubelet.verdict import Certainty
from extender.wire.validation import doc


class ShapeNUMA(Answer):
    """One NUMA node of a shape."""

    id: Annotated[int, doc("The kernel's id.")]
    socket: Annotated[int | None, doc("The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: Annotated[int, doc("Online CPUs.")]
    reserved_cpus: Annotated[int, doc("Reserved CPUs.")]
    memory_mib: Annotated[int, doc("Allocatable memory in MiB; the total if no manager counts memory.")]


class NodeShape(Answer):
    """Hardware, kubelet settings and labels that several nodes share."""

    pool: Annotated[str | None, doc("The node pool, from a well-known label; null: unknown.")]
    instance_type: Annotated[str | None, doc("`node.kubernetes.io/instance-type`; null: unknown.")]
    kubelet_version: Annotated[str | None, doc("Null: unknown.")]
    topology_policy: Annotated[str | None, doc("`topologyManagerPolicy`; null: unknown.")]
    topology_scope: Annotated[str | None, doc("`topologyManagerScope`; null: unknown.")]
    cpu_policy: Annotated[str | None, doc("`cpuManagerPolicy`; null: unknown.")]
    memory_policy: Annotated[str | None, doc("`memoryManagerPolicy`; null: unknown.")]
    resource_policy: Annotated[str | None, doc("As in `GET /v1/nodes`; null: no such plugin is known.")]
    numa: Annotated[list[ShapeNUMA], doc("Ascending by id; empty: unknown.")]
    devices: Annotated[dict[str, int], doc("Healthy devices by resource.")]


class MapColumns(Answer):
    """The nodes of this page by name. All columns have the same length."""

    name: Annotated[list[str], doc("Name of the Node object.")]
    shape: Annotated[list[int], doc("Index in `shapes`.")]
    certainty: Annotated[list[Certainty], doc("Certainty of verdicts.")]
    problems: Annotated[list[int], doc("Number of warnings and errors.")]
    report: Annotated[list[int], doc("A number that changes with every report of the node.")]
    free_cpus: Annotated[list[list[int]], doc("Free exclusive CPUs by NUMA node, in the order of the shape's `numa`.")]
    free_memory_mib: Annotated[
        list[list[int] | None], doc("Free memory by NUMA node, MiB; null: no manager counts memory.")
    ]
    free_devices: Annotated[list[list[int]], doc("Free healthy devices, in the order of the shape's `devices`.")]


class ClusterMap(Answer):
    """A page of the map."""

    total: Annotated[int, doc("Nodes on all pages.")]
    shapes: Annotated[list[NodeShape], doc("Shapes of the nodes on this page.")]
    nodes: Annotated[MapColumns, doc("The nodes on this page.")]
    root_pools: Annotated[
        dict[str, tuple[int, int, int, int]],
        doc(
            "By name, where the NRI topology-aware policy runs and its pools are known: of the root pool, CPU left and "
            "all but reserved CPU, in mCPU, free memory and all memory, in MiB."
        ),
    ]
    next: Annotated[str | None, doc("`after` of the next page; null: this is the last one.")] = None
