"""The replies about pods: what-if with its explanations, capacity, and plan."""

from typing import Annotated, Final, Literal

from msgspec import UNSET, UnsetType

from extender.kubelet.pod import ContainerKind, QOSClass
from extender.kubelet.verdict import Certainty, Provider
from extender.nri.pools import PoolRule
from extender.wire import verdicts
from extender.wire.replies import NUMAIds, ReplyBody, about


class PodContainer(ReplyBody):
    """The requests of one container, as the newest known kubelet reads them."""

    name: Annotated[str, about("Its name.")]
    kind: Annotated[ContainerKind, about("The kind of container. `sidecar`: an init container that keeps running.")]
    exclusive_cpus: Annotated[int, about("Exclusive CPUs; 0: it runs in the shared pool.")]
    memory_bytes: Annotated[dict[str, int], about("Memory pinned to NUMA nodes, in bytes by type; empty: none.")]
    devices: Annotated[dict[str, int], about("Devices by resource.")]


class PodSummary(ReplyBody):
    """The pod of the question, after defaulting."""

    kind: Annotated[str, about("Kind of the document: `Pod`, `Deployment`…")]
    namespace: Annotated[str, about("`default` if the document has none.")]
    name: Annotated[str, about("Name of the document.")]
    replicas: Annotated[int, about("Number of replicas in the document; 1 if it has none.")]
    qos: Annotated[QOSClass, about("QoS class.")]
    requests: Annotated[
        dict[str, str], about("Requests as the scheduler counts them, as quantities.", {"cpu": "8", "memory": "16Gi"})
    ]
    containers: Annotated[list[PodContainer], about("In the kubelet's order: init, sidecars, app.")]
    notes: Annotated[list[str], about("Remarks, such as why it gets no exclusive CPUs, and what is not checked.")]


CheckOutcome = Literal["ok", "fails", "not-checked"]


class SchedulerCheck(ReplyBody):
    """One check that kube-scheduler makes before it calls an extender."""

    check: Annotated[
        Literal["resources", "node-name", "node-selector", "node-affinity", "taints", "unschedulable", "other"],
        about("`other`: rules that are never checked here."),
    ]
    outcome: Annotated[CheckOutcome, about("`not-checked`: too little is known, or it is never checked here.")]
    detail: Annotated[str, about("One sentence; may be empty.")] = ""


class Scheduler(ReplyBody):
    """The results of kube-scheduler's own checks for the pod and the node, as far as they are known here."""

    outcome: Annotated[CheckOutcome, about("`fails` if any check fails; `ok` if all were made and none fails.")]
    checks: Annotated[tuple[SchedulerCheck, ...], about("All checks, also those that could not be made.")]

    @property
    def first_failure(self) -> SchedulerCheck | None:
        """The first check that fails; None if none does."""
        return next((check for check in self.checks if check.outcome == "fails"), None)


SuggestionKind = Literal[
    "fewer-cpus", "whole-cores", "fewer-devices", "less-memory", "smaller", "topology-policy", "topology-scope"
]


class NearestRequest(ReplyBody):
    """A request similar to the refused one that this node would admit now."""

    kind: Annotated[SuggestionKind, about("Kind of change.")]
    change: Annotated[str, about("The change as a sentence.", "12 CPUs instead of 16 in container app")]
    container: Annotated[str | None, about("Null: a change of the node, not of the pod.")]
    resource: Annotated[str | None, about("Null: a change of the node, or of several resources.")]
    wanted: Annotated[str, about("The value in the question: a quantity or a setting.")]
    instead: Annotated[str, about("The value with which it would be admitted.")]
    verdict: Annotated[verdicts.Verdict, about("The verdict for the changed request.")]


_POOL_RULES: Final = ", ".join(f"`{rule.value}`" for rule in PoolRule if rule is not PoolRule.USED)


class Hint(ReplyBody):
    """NUMA nodes that could serve a request together."""

    numa: NUMAIds
    preferred: Annotated[bool, about("Whether it has as few NUMA nodes as the hardware allows.")]


class HintsStep(ReplyBody, tag_field="step", tag="hints"):
    """The hints of one manager for one resource."""

    container: Annotated[str | None, about("Null: for the pod as a whole (pod scope).")]
    provider: Annotated[Provider, about("The manager.")]
    resource: Annotated[str, about("The resource.")]
    wanted: Annotated[int, about("CPUs, bytes or devices.")]
    opinion: Annotated[
        Literal["none", "impossible", "hints"],
        about("`none`: any NUMA node is possible. `impossible`: no set of NUMA nodes has enough."),
    ]
    minimum_width: Annotated[
        int | None, about("Smallest number of NUMA nodes that can have this amount. Hints of this width are preferred.")
    ]
    hints: Annotated[list[Hint], about("Narrowest first; at most 32.")]
    hints_left_out: Annotated[int, about("Number of hints that are not listed.")]
    preferred_count: Annotated[int, about("Number of preferred hints, including those that are not listed.")]


class MergeStep(ReplyBody, tag_field="step", tag="merge"):
    """The Topology Manager's merge of the hints."""

    container: Annotated[str | None, about("Null: for the pod as a whole (pod scope).")]
    policy: Annotated[str, about("The topology policy.")]
    affinity: Annotated[list[int] | None, about("The chosen NUMA nodes; null: any.")]
    preferred: Annotated[bool, about("Whether every manager prefers the result.")]
    admitted: Annotated[bool, about("Whether the policy admits it.")]
    why: Annotated[str, about("The rule that decided.")]


class AllocationStep(ReplyBody, tag_field="step", tag="allocation"):
    """What one manager allocated to one container."""

    container: Annotated[str, about("The container.")]
    provider: Annotated[Provider, about("The manager.")]
    taken: Annotated[str, about("The allocated resources.", "CPUs 8-9,24-25")]


class ComparedPool(ReplyBody):
    """A pool of the NRI topology-aware policy, as the policy sees it for a container."""

    pool: Annotated[str, about("Its name.", "NUMA node #1")]
    depth: Annotated[int, about("Levels below the root.")]
    shared_left_millicpu: Annotated[int, about("Left with the container in it; negative: it does not fit.")]
    isolated_left: Annotated[int, about("Isolated CPUs left with the container in it.")]
    memory_numa: Annotated[list[int] | None, about("Where its memory would be; null: nowhere.")]
    hint_score: Annotated[
        float | None, about("How well it satisfies the hints of devices, 0 to 1; null: the container has none.")
    ]
    containers: Annotated[int, about("Containers with a grant of the same kind of CPUs at this pool.")]
    lost_by: Annotated[PoolRule, about(f"Why it is not the used pool; empty: it is. {_POOL_RULES}. `why_not` says it.")]
    why_not: Annotated[str, about("The same in words, for people.", "memory of more NUMA nodes")]


class PoolsStep(ReplyBody, tag_field="step", tag="pools"):
    """How the NRI topology-aware policy compares its pools for one container."""

    container: Annotated[str, about("The container.")]
    refusal: Annotated[str, about("Why the container does not fit in the first pool; empty: it gets its place there.")]
    pools: Annotated[list[ComparedPool], about("The used one first; empty: the policy looks at no pool.")]
    pools_left_out: Annotated[int, about("Number of pools that are not listed.")]


class Explanation(ReplyBody):
    """The explanation of one verdict."""

    first_fault: Annotated[str | None, about("The first reason for the refusal, in one sentence; null: admitted.")]
    steps: Annotated[
        list[HintsStep | MergeStep | AllocationStep | PoolsStep], about("In the kubelet's order; at most 256.")
    ]
    steps_left_out: Annotated[int, about("Number of steps that are not listed.")]
    nearest: Annotated[list[NearestRequest], about("Empty if the pod is admitted, or if none was found.")]
    replays: Annotated[int, about("Number of admissions replayed in the search, which is limited.")]


Outcome = Literal["fits", "topology", "scheduler", "unknown"]


class CommonAnswer(ReplyBody):
    """The parts of an answer that can be equal for many nodes."""

    outcome: Annotated[
        Outcome,
        about(
            "`fits`: admitted, with `alignment`. `topology`: the kubelet's managers refuse the pod, or may refuse it. "
            "`scheduler`: they admit it, but kube-scheduler would not choose the node. `unknown`: too little is known "
            "of the node."
        ),
    ]
    passes: Annotated[bool, about("Whether filter offers the node to the scheduler.")]
    why: Annotated[str, about("The reason that the scheduler shows; empty if the node passes.")]
    never: Annotated[bool, about("The node's hardware and configuration exclude the pod, whatever is free.")]
    certainty: Annotated[Certainty, about("Certainty of the answer.")]
    score: Annotated[
        int | None,
        about(
            "The score of prioritize, 0 to 10, relative to the other nodes of the question. It does not measure how "
            "good a node is. Null: the node does not pass."
        ),
    ]
    alignment: Annotated[verdicts.AlignmentName | None, about("Alignment of the pod; null unless `outcome` is `fits`.")]
    alignment_certain: verdicts.AlignmentCertain
    numa: verdicts.AlignedNUMA


class AnswerGroup(CommonAnswer):
    """Nodes with equal answers. Amounts in sentences, notes and placements are not compared."""

    nodes: Annotated[list[str], about("Their names, in the order of the question.")]


class NodeAnswer(CommonAnswer):
    """The answer of one node's kubelet, of filter, and of the scheduler's own checks."""

    node: Annotated[str, about("Its name.")]
    hypothetical: Annotated[bool, about("Whether the node is hypothetical.")]
    reason: Annotated[str, about("Why the pod does not fit, in one sentence with amounts. Empty if it fits.")]
    notes: Annotated[
        list[str], about("Assumptions of this answer, and what was not checked; see `notes` of `pod` as well.")
    ]
    verdict: Annotated[verdicts.Verdict | None, about("Null: the node is unknown.")]
    scheduler: Annotated[Scheduler, about("Results of kube-scheduler's own checks.")]
    explanation: Annotated[Explanation | None, about("With `explain`; see `explanations_left_out`.")]


class WhatIfSummary(ReplyBody):
    """The answers, counted by `outcome`."""

    nodes: Annotated[int, about("All nodes of the question.")]
    fits: Annotated[int, about("Nodes that admit the pod.")]
    aligned: Annotated[int, about("Of these, nodes with `alignment` `aligned`.")]
    split: Annotated[int, about("Of these, nodes with `alignment` `split`.")]
    not_managed: Annotated[int, about("Of these, nodes with `alignment` `not-managed`.")]
    topology: Annotated[int, about("Nodes whose managers refuse the pod, or may refuse it.")]
    scheduler: Annotated[int, about("Nodes that kube-scheduler would not choose.")]
    unknown: Annotated[int, about("Nodes of which too little is known.")]
    reasons: Annotated[dict[str, int], about("Nodes by the reason that the scheduler shows.")]


class WhatIfReply(ReplyBody):
    """The answers, in the order of the question, or by name if it names no nodes. Hypothetical nodes are last."""

    pod: Annotated[PodSummary, about("The pod as it was read.")]
    summary: Annotated[WhatIfSummary, about("The answers, counted.")]
    nodes: Annotated[list[NodeAnswer], about("One answer for each node; with `compact`, for each explained node.")]
    explanations_left_out: Annotated[
        int, about("Nodes without an explanation, because they equal an explained node or are too many.")
    ]
    groups: Annotated[
        list[AnswerGroup] | UnsetType, about("With `compact`: nodes with equal answers, most nodes first.")
    ] = UNSET


class CapacityLimit(ReplyBody):
    """Why no further pod fits."""

    by: Annotated[
        Literal["topology", "scheduler", "max_copies", "unknown"],
        about("`topology`: the kubelet's managers. `scheduler`: the node's totals, selectors, taints or devices."),
    ]
    why: Annotated[str, about("A fixed text, without names and amounts.")]
    detail: Annotated[str, about("One sentence with the amounts.")]
    resource: Annotated[str | None, about("What ran out; null: no single resource.")] = None


class NodeCapacity(ReplyBody):
    """How many pods one node admits."""

    node: Annotated[str, about("Its name.")]
    hypothetical: Annotated[bool, about("Whether the node is hypothetical.")]
    copies: Annotated[int, about("Number of pods that certainly fit, one after another.")]
    per_pod: Annotated[list[int], about("The same for each entry of `pods`.")]
    aligned: Annotated[int, about("Of these, pods on one NUMA node.")]
    split: Annotated[int, about("Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, about("Of these, pods to which no manager assigns NUMA nodes.")]
    certainty: Annotated[Certainty, about("Certainty of the count.")]
    totals_known: Annotated[
        bool,
        about(
            "Whether the requests of the node's other pods are known. If not, the node's totals are used as if it were "
            "empty, which gives too many pods where the kubelet aligns nothing."
        ),
    ]
    limited_by: Annotated[CapacityLimit, about("Why no further pod fits.")]


class RunsOut(ReplyBody):
    """A reason why no further pod fits, and on how many nodes."""

    why: Annotated[str, about("A fixed text.")]
    resource: Annotated[str | None, about("What ran out; null: no single resource.")]
    nodes: Annotated[int, about("Number of nodes.")]


class CapacitySummary(ReplyBody):
    """Totals over all nodes of the question."""

    copies: Annotated[int, about("Number of pods.")]
    group: Annotated[int, about("Pods that must run together, as in the question.")]
    groups: Annotated[int, about("Whole groups of so many pods. At least so many, if `bounded` or a mix.")]
    per_pod: Annotated[list[int], about("The same for each entry of `pods`.")]
    aligned: Annotated[int, about("Of these, pods on one NUMA node.")]
    split: Annotated[int, about("Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, about("Of these, pods to which no manager assigns NUMA nodes.")]
    nodes: Annotated[int, about("Nodes of the question.")]
    full_nodes: Annotated[int, about("Nodes that admit no further pod.")]
    unknown_nodes: Annotated[int, about("Nodes for which no verdict is possible. They count as 0.")]
    bounded: Annotated[bool, about("Whether `max_copies` ended the count on any node.")]
    notes: Annotated[list[str], about("Assumptions of the count, and what was not checked.")]
    runs_out: Annotated[list[RunsOut], about("The most frequent first.")]
    replays: Annotated[int, about("Admissions replayed; equal nodes are counted once.")]


class CapacityEnd(ReplyBody):
    """The last line, with `Accept: application/x-ndjson`."""

    summary: Annotated[CapacitySummary, about("Totals over all nodes.")]


class CapacityReply(ReplyBody):
    """The answer. With `Accept: application/x-ndjson` it is a line for each node, and then one with `summary`."""

    summary: Annotated[CapacitySummary, about("Totals over all nodes.")]
    nodes: Annotated[list[NodeCapacity], about("In the order of the question; by name if it names none.")]


class PlannedPod(ReplyBody):
    """One line of the stream: the node of one pod."""

    pod: Annotated[int, about("Number in the plan, from 0.")]
    entry: Annotated[int, about("Index in `pods` of the question.")]
    name: Annotated[str, about("Name of the workload, with the number of the pod.")]
    node: Annotated[str | None, about("Null: it fits on no node.")]
    score: Annotated[int | None, about("0 to 10 among the nodes that pass; null: no node.")]
    certainty: Annotated[Certainty | None, about("Certainty of the placement; null: no node.")]
    alignment: Annotated[verdicts.AlignmentName | None, about("Alignment of the pod; null: no node, or unknown.")]
    alignment_certain: verdicts.AlignmentCertain
    numa: verdicts.AlignedNUMA
    containers: Annotated[dict[str, verdicts.ContainerPlacement], about("Empty: no node.")]
    nri: verdicts.PolicyPlacements
    reasons: Annotated[
        dict[str, int],
        about(
            "Nodes on which it does not fit, by reason. For a pod that has a node: only nodes whose kubelet refuses it."
        ),
    ]


class PlanSummary(ReplyBody):
    """The end of a plan."""

    pods: Annotated[int, about("Pods of the plan.")]
    placed: Annotated[int, about("Pods that have a node.")]
    aligned: Annotated[int, about("Of these, pods on one NUMA node.")]
    split: Annotated[int, about("Of these, pods over several NUMA nodes.")]
    not_managed: Annotated[int, about("Of these, pods to which no manager assigns NUMA nodes.")]
    unplaced: Annotated[int, about("Pods that have no node, and pods that are held back.")]
    held_back: Annotated[
        int, about("With `all_or_nothing`: pods that would have a node, although another pod has none.")
    ]
    notes: Annotated[list[str], about("Assumptions of the plan, and what was not checked.")]
    per_node: Annotated[dict[str, int], about("Placed pods by node. Nodes without one are left out.")]


class PlanEnd(ReplyBody):
    """The last line of the stream."""

    summary: Annotated[PlanSummary, about("Totals over all pods.")]
