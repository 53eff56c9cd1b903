"""POST /v1/capacity and POST /v1/plan: the answers. The questions are in `extender.answers.requests`."""

from typing import Annotated, Literal

from extender.api.questions.models import (
    AlignedNUMA,
    AlignmentCertain,
    AlignmentName,
    Answer,
    ContainerPlacement,
    PolicyPlacement,
)
from extender.kubelet.verdict import Certainty
from extender.wire.validation import doc


class Limit(Answer):
    """Why no further pod fits."""

    by: Annotated[
        Literal["topology", "scheduler", "max_copies", "unknown"],
        doc("`topology`: the kubelet's managers. `scheduler`: the node's totals, selectors or taints."),
    ]
    why: Annotated[str, doc("A fixed text, without names and amounts.")]
    detail: Annotated[str, doc("One sentence with the amounts.")]
    resource: Annotated[str | None, doc("What ran out; null: no single resource.")]


class NodeCapacity(Answer):
    """How many pods one node admits."""

    node: Annotated[str, doc("Its name.")]
    hypothetical: Annotated[bool, doc("Whether the node is hypothetical.")]
    copies: Annotated[int, doc("Number of pods that certainly fit, one after another.")]
    per_pod: Annotated[list[int], doc("The same for each entry of `pods`.")]
    aligned: Annotated[int, doc("Of these, pods on one NUMA node.")]
    split: Annotated[int, doc("Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, doc("Of these, pods to which no manager assigns NUMA nodes.")]
    certainty: Annotated[Certainty, doc("Certainty of the count.")]
    totals_known: Annotated[
        bool,
        doc(
            "Whether the requests of the node's other pods are known. If not, the node's totals are used as if it were "
            "empty, which gives too many pods where the kubelet aligns nothing."
        ),
    ]
    limited_by: Annotated[Limit, doc("Why no further pod fits.")]


class RunsOut(Answer):
    """A reason why no further pod fits, and on how many nodes."""

    why: Annotated[str, doc("A fixed text.")]
    resource: Annotated[str | None, doc("What ran out; null: no single resource.")]
    nodes: Annotated[int, doc("Number of nodes.")]


class CapacitySummary(Answer):
    """Totals over all nodes of the question."""

    copies: Annotated[int, doc("Number of pods.")]
    group: Annotated[int, doc("Pods that must run together, as in the question.")]
    groups: Annotated[int, doc("Whole groups of so many pods. At least so many, if `bounded` or a mix.")]
    per_pod: Annotated[list[int], doc("The same for each entry of `pods`.")]
    aligned: Annotated[int, doc("Of these, pods on one NUMA node.")]
    split: Annotated[int, doc("Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, doc("Of these, pods to which no manager assigns NUMA nodes.")]
    nodes: Annotated[int, doc("Nodes of the question.")]
    full_nodes: Annotated[int, doc("Nodes that admit no further pod.")]
    unknown_nodes: Annotated[int, doc("Nodes for which no verdict is possible. They count as 0.")]
    bounded: Annotated[bool, doc("Whether `max_copies` ended the count on any node.")]
    notes: Annotated[list[str], doc("Assumptions of the count, and what was not checked.")]
    runs_out: Annotated[list[RunsOut], doc("The most frequent first.")]
    replays: Annotated[int, doc("Admissions replayed; equal nodes are counted once.")]


class CapacityReply(Answer):
    """The answer. With `Accept: application/x-ndjson` it is a line for each node, and then one with `summary`."""

    summary: Annotated[CapacitySummary, doc("Totals over all nodes.")]
    nodes: Annotated[list[NodeCapacity], doc("In the order of the question; by name if it names none.")]


class PlannedPod(Answer):
    """One line of the stream: the node of one pod."""

    pod: Annotated[int, doc("Number in the plan, from 0.")]
    entry: Annotated[int, doc("Index in `pods` of the question.")]
    name: Annotated[str, doc("Name of the workload, with the number of the pod.")]
    node: Annotated[str | None, doc("Null: it fits on no node.")]
    score: Annotated[int | None, doc("0 to 10 among the nodes that pass; null: no node.")]
    certainty: Annotated[Certainty | None, doc("Certainty of the placement; null: no node.")]
    alignment: Annotated[AlignmentName | None, doc("Alignment of the pod; null: no node, or unknown.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    containers: Annotated[dict[str, ContainerPlacement], doc("Empty: no node.")]
    nri: Annotated[
        list[PolicyPlacement],
        doc("Where the NRI topology-aware policy puts the containers, in the order of their creation."),
    ] = []
    reasons: Annotated[
        dict[str, int],
        doc(
            "Nodes on which it does not fit, by reason. For a pod that has a node: only nodes whose kubelet refuses it."
        ),
    ]


class PlanSummary(Answer):
    """The end of a plan."""

    pods: Annotated[int, doc("Pods of the plan.")]
    placed: Annotated[int, doc("Pods that have a node.")]
    aligned: Annotated[int, doc("Of these, pods on one NUMA node.")]
    split: Annotated[int, doc("Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, doc("Of these, pods to which no manager assigns NUMA nodes.")]
    unplaced: Annotated[int, doc("Pods that have no node, and pods that are held back.")]
    held_back: Annotated[int, doc("With `all_or_nothing`: pods that would have a node, although another pod has none.")]
    notes: Annotated[list[str], doc("Assumptions of the plan, and what was not checked.")]
    per_node: Annotated[dict[str, int], doc("Placed pods by node. Nodes without one are left out.")]


class PlanEnd(Answer):
    """The last line of the stream."""

    summary: Annotated[PlanSummary, doc("Totals over all pods.")]
