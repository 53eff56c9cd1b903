"""GET /v1/map: the whole cluster in one small reply.

What many nodes have in common is sent once, as a shape. What differs is sent in columns: entry *i* of each column is
about the same node.
"""

from typing import Annotated

from pydantic import Field

from extender.api.questions.models import Answer
from extender.replay.verdict import Certainty


class ShapeNUMA(Answer):
    """One NUMA node of a shape."""

    id: Annotated[int, Field(description="As the kernel numbers it.")]
    socket: Annotated[int | None, Field(description="The lowest socket of its CPUs; null: it has no CPUs.")]
    cpus: Annotated[int, Field(description="Online CPUs.")]
    reserved_cpus: Annotated[int, Field(description="CPUs kept for the system.")]
    memory_mib: Annotated[int, Field(description="Memory that pods can use, MiB; if it is not counted: the total.")]


class NodeShape(Answer):
    """Hardware, kubelet settings and labels that several nodes share."""

    pool: Annotated[str | None, Field(description="The node pool, from a well-known label; null: not known.")]
    instance_type: Annotated[str | None, Field(description="`node.kubernetes.io/instance-type`; null: not known.")]
    kubelet_version: Annotated[str | None, Field(description="Null: not known.")]
    topology_policy: Annotated[str | None, Field(description="`topologyManagerPolicy`; null: not known.")]
    topology_scope: Annotated[str | None, Field(description="`topologyManagerScope`; null: not known.")]
    cpu_policy: Annotated[str | None, Field(description="`cpuManagerPolicy`; null: not known.")]
    memory_policy: Annotated[str | None, Field(description="`memoryManagerPolicy`; null: not known.")]
    numa: Annotated[list[ShapeNUMA], Field(description="Ascending by id; empty: not known.")]
    devices: Annotated[dict[str, int], Field(description="Healthy devices by resource.")]


class MapColumns(Answer):
    """The nodes of this page by name. All columns have the same length."""

    name: Annotated[list[str], Field(description="Name in the cluster.")]
    shape: Annotated[list[int], Field(description="Index in `shapes`.")]
    certainty: Annotated[list[Certainty], Field(description="How sure verdicts are.")]
    problems: Annotated[list[int], Field(description="Number of warnings and errors.")]
    report: Annotated[list[int], Field(description="A number that changes with every report of the node.")]
    free_cpus: Annotated[
        list[list[int]], Field(description="Free exclusive CPUs by NUMA node, in the order of the shape's `numa`.")
    ]
    free_memory_mib: Annotated[
        list[list[int] | None], Field(description="Free memory by NUMA node, MiB; null: it is not counted.")
    ]
    free_devices: Annotated[
        list[list[int]], Field(description="Free healthy devices, in the order of the shape's `devices`.")
    ]


class ClusterMap(Answer):
    """A page of the map."""

    total: Annotated[int, Field(description="Nodes on all pages.")]
    shapes: Annotated[list[NodeShape], Field(description="Shapes of the nodes on this page.")]
    nodes: Annotated[MapColumns, Field(description="The nodes on this page.")]
    next: Annotated[str | None, Field(description="`after` of the next page; null: this is the last one.")] = None
