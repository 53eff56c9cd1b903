"""POST /v1/capacity and POST /v1/plan: the answers. The questions are in `extender.answers.requests`."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import (
    AlignedNUMA,
    AlignmentCertain,
    AlignmentName,
    Answer,
    ContainerPlacement,
    PolicyPlacement,
)
from extender.replay.verdict import Certainty


class Limit(Answer):
    """Why no further pod fits."""

    by: Annotated[
        Literal["topology", "scheduler", "max_copies", "unknown"],
        Field(description="`topology`: the kubelet's managers. `scheduler`: the node's totals, selectors or taints."),
    ]
    why: Annotated[str, Field(description="A fixed text, without names and amounts.")]
    detail: Annotated[str, Field(description="One sentence with the amounts.")]
    resource: Annotated[str | None, Field(description="What ran out; null: no single resource.")]


class NodeCapacity(Answer):
    """How many pods one node admits."""

    node: Annotated[str, Field(description="Its name.")]
    hypothetical: Annotated[bool, Field(description="Whether the node is hypothetical.")]
    copies: Annotated[int, Field(description="Number of pods that certainly fit, one after another.")]
    per_pod: Annotated[list[int], Field(description="The same for each entry of `pods`.")]
    aligned: Annotated[int, Field(description="Of these, pods on one NUMA node.")]
    split: Annotated[int, Field(description="Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, Field(description="Of these, pods to which no manager assigns NUMA nodes.")]
    certainty: Annotated[Certainty, Field(description="Certainty of the count.")]
    totals_known: Annotated[
        bool,
        Field(
            description="Whether the requests of the node's other pods are known. If not, the node's totals are used "
            "as if it were empty, which gives too many pods where the kubelet aligns nothing."
        ),
    ]
    limited_by: Annotated[Limit, Field(description="Why no further pod fits.")]


class RunsOut(Answer):
    """A reason why no further pod fits, and on how many nodes."""

    why: Annotated[str, Field(description="A fixed text.")]
    resource: Annotated[str | None, Field(description="What ran out; null: no single resource.")]
    nodes: Annotated[int, Field(description="Number of nodes.")]


class CapacitySummary(Answer):
    """Totals over all nodes of the question."""

    copies: Annotated[int, Field(description="Number of pods.")]
    group: Annotated[int, Field(description="Pods that must run together, as in the question.")]
    groups: Annotated[int, Field(description="Whole groups of so many pods. At least so many, if `bounded` or a mix.")]
    per_pod: Annotated[list[int], Field(description="The same for each entry of `pods`.")]
    aligned: Annotated[int, Field(description="Of these, pods on one NUMA node.")]
    split: Annotated[int, Field(description="Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, Field(description="Of these, pods to which no manager assigns NUMA nodes.")]
    nodes: Annotated[int, Field(description="Nodes of the question.")]
    full_nodes: Annotated[int, Field(description="Nodes that admit no further pod.")]
    unknown_nodes: Annotated[int, Field(description="Nodes for which no verdict is possible. They count as 0.")]
    bounded: Annotated[bool, Field(description="Whether `max_copies` ended the count on any node.")]
    notes: Annotated[list[str], Field(description="Assumptions of the count, and what was not checked.")]
    runs_out: Annotated[list[RunsOut], Field(description="The most frequent first.")]
    replays: Annotated[int, Field(description="Admissions replayed; equal nodes are counted once.")]


class CapacityReply(Answer):
    """The answer. With `Accept: application/x-ndjson` it is a line for each node, and then one with `summary`."""

    summary: Annotated[CapacitySummary, Field(description="Totals over all nodes.")]
    nodes: Annotated[list[NodeCapacity], Field(description="In the order of the question; by name if it names none.")]


class PlannedPod(Answer):
    """One line of the stream: the node of one pod."""

    pod: Annotated[int, Field(description="Number in the plan, from 0.")]
    entry: Annotated[int, Field(description="Index in `pods` of the question.")]
    name: Annotated[str, Field(description="Name of the workload, with the number of the pod.")]
    node: Annotated[str | None, Field(description="Null: it fits on no node.")]
    score: Annotated[int | None, Field(description="0 to 10 among the nodes that pass; null: no node.")]
    certainty: Annotated[Certainty | None, Field(description="Certainty of the placement; null: no node.")]
    alignment: Annotated[AlignmentName | None, Field(description="Alignment of the pod; null: no node, or unknown.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    containers: Annotated[dict[str, ContainerPlacement], Field(description="Empty: no node.")]
    nri: Annotated[
        list[PolicyPlacement],
        Field(description="Where the NRI topology-aware policy puts the containers, in the order of their creation."),
    ] = []
    reasons: Annotated[
        dict[str, int],
        Field(
            description="Nodes on which it does not fit, by reason. For a pod that has a node: only nodes whose "
            "kubelet refuses it."
        ),
    ]


class PlanSummary(Answer):
    """The end of a plan."""

    pods: Annotated[int, Field(description="Pods of the plan.")]
    placed: Annotated[int, Field(description="Pods that have a node.")]
    aligned: Annotated[int, Field(description="Of these, pods on one NUMA node.")]
    split: Annotated[int, Field(description="Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, Field(description="Of these, pods to which no manager assigns NUMA nodes.")]
    unplaced: Annotated[int, Field(description="Pods that have no node, and pods that are held back.")]
    held_back: Annotated[
        int, Field(description="With `all_or_nothing`: pods that would have a node, although another pod has none.")
    ]
    notes: Annotated[list[str], Field(description="Assumptions of the plan, and what was not checked.")]
    per_node: Annotated[dict[str, int], Field(description="Placed pods by node. Nodes without one are left out.")]


class PlanEnd(Answer):
    """The last line of the stream."""

    summary: Annotated[PlanSummary, Field(description="Totals over all pods.")]
