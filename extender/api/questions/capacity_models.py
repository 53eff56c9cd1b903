"""POST /v1/capacity and POST /v1/plan: the answers. The questions are in `extender.answers.requests`."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import AlignedNUMA, AlignmentCertain, AlignmentName, Answer, ContainerPlacement
from extender.replay.verdict import Certainty


class Limit(Answer):
    """Why not one more."""

    by: Annotated[
        Literal["topology", "scheduler", "max_copies", "unknown"],
        Field(description="`topology`: the kubelet's managers. `scheduler`: the node's totals, selectors or taints."),
    ]
    why: Annotated[str, Field(description="A reason of the closed set, without names or amounts.")]
    detail: Annotated[str, Field(description="One sentence with the amounts.")]
    resource: Annotated[str | None, Field(description="What ran out; null: not one resource.")]


class NodeCapacity(Answer):
    """What one node takes."""

    node: Annotated[str, Field(description="Its name.")]
    hypothetical: Annotated[bool, Field(description="Whether it was made up for the question.")]
    copies: Annotated[int, Field(description="Pods in all that are certain to fit, one after another.")]
    per_pod: Annotated[list[int], Field(description="The same by entry of `pods`.")]
    aligned: Annotated[int, Field(description="Of these, pods on one NUMA node.")]
    split: Annotated[int, Field(description="Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, Field(description="Of these, pods that no manager places on NUMA nodes.")]
    certainty: Annotated[Certainty, Field(description="How sure the count is.")]
    totals_known: Annotated[
        bool,
        Field(
            description="Whether what the node's other pods request is known. If not, its totals are taken as if "
            "nothing else ran there, which counts too many where the kubelet aligns nothing."
        ),
    ]
    limited_by: Annotated[Limit, Field(description="Why not one more.")]


class RunsOut(Answer):
    """What ends it, over all nodes."""

    why: Annotated[str, Field(description="A reason of the closed set.")]
    resource: Annotated[str | None, Field(description="What ran out; null: not one resource.")]
    nodes: Annotated[int, Field(description="On how many nodes.")]


class CapacitySummary(Answer):
    """Over all nodes asked."""

    copies: Annotated[int, Field(description="Pods in all.")]
    per_pod: Annotated[list[int], Field(description="The same by entry of `pods`.")]
    aligned: Annotated[int, Field(description="Of these, pods on one NUMA node.")]
    split: Annotated[int, Field(description="Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, Field(description="Of these, pods that no manager places on NUMA nodes.")]
    nodes: Annotated[int, Field(description="Nodes asked.")]
    full_nodes: Annotated[int, Field(description="Nodes that take none.")]
    unknown_nodes: Annotated[int, Field(description="Nodes of which too little is known; they count as 0.")]
    bounded: Annotated[bool, Field(description="Whether `max_copies` ended the count on any node.")]
    notes: Annotated[list[str], Field(description="What the count takes for granted, and what was not checked.")]
    runs_out: Annotated[list[RunsOut], Field(description="The most frequent first.")]
    replays: Annotated[int, Field(description="Admissions replayed; equal nodes are counted once.")]


class CapacityReply(Answer):
    """The answer; with `Accept: application/x-ndjson` one line a node and then one with `summary`."""

    summary: Annotated[CapacitySummary, Field(description="Over all nodes.")]
    nodes: Annotated[list[NodeCapacity], Field(description="In the order asked; all nodes: by name.")]


class PlannedPod(Answer):
    """One line of the stream: where one pod goes."""

    pod: Annotated[int, Field(description="Number in the plan, from 0.")]
    entry: Annotated[int, Field(description="Index in `pods` of the question.")]
    name: Annotated[str, Field(description="Of the workload, with the number of the pod.")]
    node: Annotated[str | None, Field(description="Null: no node takes it.")]
    score: Annotated[int | None, Field(description="0 to 10 among the nodes that pass; null: no node.")]
    certainty: Annotated[Certainty | None, Field(description="How sure the placement is; null: no node.")]
    alignment: Annotated[AlignmentName | None, Field(description="What it gets; null: no node, or not known.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    containers: Annotated[dict[str, ContainerPlacement], Field(description="Empty: no node.")]
    reasons: Annotated[
        dict[str, int],
        Field(
            description="Nodes that do not take it, by reason; of a pod that found a node, only those that the "
            "kubelets' managers rule out."
        ),
    ]


class PlanSummary(Answer):
    """The end of a plan."""

    pods: Annotated[int, Field(description="Pods of the plan.")]
    placed: Annotated[int, Field(description="Those that found a node.")]
    aligned: Annotated[int, Field(description="Of these, pods on one NUMA node.")]
    split: Annotated[int, Field(description="Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, Field(description="Of these, pods that no manager places on NUMA nodes.")]
    unplaced: Annotated[int, Field(description="Those that found none, and those that are held back.")]
    held_back: Annotated[
        int, Field(description="With `all_or_nothing`: pods that would have a node while another one has none.")
    ]
    notes: Annotated[list[str], Field(description="What the plan takes for granted, and what was not checked.")]
    per_node: Annotated[dict[str, int], Field(description="Pods placed by node; nodes without any are left out.")]


class PlanEnd(Answer):
    """The last line of the stream."""

    summary: Annotated[PlanSummary, Field(description="Over all pods.")]
