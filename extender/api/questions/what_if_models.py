"""POST /v1/what-if: the answer. The question is in `extender.answers.requests`."""

from typing import Annotated, Final, Literal

from pydantic import Field

from extender.api.questions.models import AlignedNUMA, AlignmentCertain, AlignmentName, Answer, NUMAIds, Verdict
from extender.kubelet.verdict import Certainty
from extender.nri.pool_rules import PoolRule
from extender.wire.validation import doc

_POOL_RULES: Final = ", ".join(f"`{rule.value}`" for rule in PoolRule if rule is not PoolRule.USED)


class PodContainer(Answer):
    """The requests of one container, as the newest known kubelet reads them."""

    name: Annotated[str, doc("Its name.")]
    kind: Annotated[
        Literal["init", "sidecar", "app"],
        doc("The kind of container. `sidecar`: an init container that keeps running."),
    ]
    exclusive_cpus: Annotated[int, doc("Exclusive CPUs; 0: it runs in the shared pool.")]
    memory_bytes: Annotated[dict[str, int], doc("Memory pinned to NUMA nodes, in bytes by type; empty: none.")]
    devices: Annotated[dict[str, int], doc("Devices by resource.")]


class PodSummary(Answer):
    """The pod of the question, after defaulting."""

    kind: Annotated[str, doc("Kind of the document: `Pod`, `Deployment`…")]
    namespace: Annotated[str, doc("`default` if the document has none.")]
    name: Annotated[str, doc("Name of the document.")]
    replicas: Annotated[int, doc("Number of replicas in the document; 1 if it has none.")]
    qos: Annotated[Literal["Guaranteed", "Burstable", "BestEffort"], doc("QoS class.")]
    requests: Annotated[
        dict[str, str],
        Field(
            description="Requests as the scheduler counts them, as quantities.",
            examples=[{"cpu": "8", "memory": "16Gi"}],
        ),
    ]
    containers: Annotated[list[PodContainer], doc("In the kubelet's order: init, sidecars, app.")]
    notes: Annotated[list[str], doc("Remarks, such as why it gets no exclusive CPUs, and what is not checked.")]


class SchedulerCheck(Answer):
    """One check that kube-scheduler makes before it calls an extender."""

    check: Annotated[
        Literal["resources", "node-name", "node-selector", "node-affinity", "taints", "unschedulable", "other"],
        doc("`other`: rules that are never checked here."),
    ]
    outcome: Annotated[
        Literal["ok", "fails", "not-checked"], doc("`not-checked`: too little is known, or it is never checked here.")
    ]
    detail: Annotated[str, doc("One sentence; may be empty.")]


class Scheduler(Answer):
    """The results of kube-scheduler's own checks for the pod and the node, as far as they are known here."""

    outcome: Annotated[
        Literal["ok", "fails", "not-checked"], doc("`fails` if any check fails; `ok` if all were made and none fails.")
    ]
    checks: Annotated[list[SchedulerCheck], doc("All checks, also those that could not be made.")]


class Hint(Answer):
    """NUMA nodes that could serve a request together."""

    numa: NUMAIds
    preferred: Annotated[bool, doc("Whether it has as few NUMA nodes as the hardware allows.")]


class HintsStep(Answer):
    """The hints of one manager for one resource."""

    step: Annotated[Literal["hints"], doc("What kind of step it is.")]
    container: Annotated[str | None, doc("Null: for the pod as a whole (pod scope).")]
    provider: Annotated[Literal["cpu", "memory", "device"], doc("The manager.")]
    resource: Annotated[str, doc("The resource.")]
    wanted: Annotated[int, doc("CPUs, bytes or devices.")]
    opinion: Annotated[
        Literal["none", "impossible", "hints"],
        doc("`none`: any NUMA node is possible. `impossible`: no set of NUMA nodes has enough."),
    ]
    minimum_width: Annotated[
        int | None, doc("Smallest number of NUMA nodes that can have this amount. Hints of this width are preferred.")
    ]
    hints: Annotated[list[Hint], doc("Narrowest first; at most 32.")]
    hints_left_out: Annotated[int, doc("Number of hints that are not listed.")]
    preferred_count: Annotated[int, doc("Number of preferred hints, including those that are not listed.")]


class MergeStep(Answer):
    """The Topology Manager's merge of the hints."""

    step: Annotated[Literal["merge"], doc("What kind of step it is.")]
    container: Annotated[str | None, doc("Null: for the pod as a whole (pod scope).")]
    policy: Annotated[str, doc("The topology policy.")]
    affinity: Annotated[list[int] | None, doc("The chosen NUMA nodes; null: any.")]
    preferred: Annotated[bool, doc("Whether every manager prefers the result.")]
    admitted: Annotated[bool, doc("Whether the policy admits it.")]
    why: Annotated[str, doc("The rule that decided.")]


class AllocationStep(Answer):
    """What one manager allocated to one container."""

    step: Annotated[Literal["allocation"], doc("What kind of step it is.")]
    container: Annotated[str, doc("The container.")]
    provider: Annotated[Literal["cpu", "memory", "device"], doc("The manager.")]
    taken: Annotated[str, Field(description="The allocated resources.", examples=["CPUs 8-9,24-25"])]


class ComparedPool(Answer):
    """A pool of the NRI topology-aware policy, as the policy sees it for a container."""

    pool: Annotated[str, Field(description="Its name.", examples=["NUMA node #1"])]
    depth: Annotated[int, doc("Levels below the root.")]
    shared_left_millicpu: Annotated[int, doc("Left with the container in it; negative: it does not fit.")]
    isolated_left: Annotated[int, doc("Isolated CPUs left with the container in it.")]
    memory_numa: Annotated[list[int] | None, doc("Where its memory would be; null: nowhere.")]
    hint_score: Annotated[
        float | None, doc("How well it satisfies the hints of devices, 0 to 1; null: the container has none.")
    ] = None
    containers: Annotated[int, doc("Containers with a grant of the same kind of CPUs at this pool.")] = 0
    lost_by: Annotated[PoolRule, doc(f"Why it is not the used pool; empty: it is. {_POOL_RULES}. `why_not` says it.")]
    why_not: Annotated[
        str, Field(description="The same in words, for people.", examples=["memory of more NUMA nodes"])
    ] = ""


class PoolsStep(Answer):
    """How the NRI topology-aware policy compares its pools for one container."""

    step: Annotated[Literal["pools"], doc("What kind of step it is.")]
    container: Annotated[str, doc("The container.")]
    refusal: Annotated[
        str, doc("Why the container does not fit in the first pool; empty: it gets its place there.")
    ] = ""
    pools: Annotated[list[ComparedPool], doc("The used one first; empty: the policy looks at no pool.")]
    pools_left_out: Annotated[int, doc("Number of pools that are not listed.")]


class NearestRequest(Answer):
    """A request similar to the refused one that this node would admit now."""

    kind: Annotated[
        Literal[
            "fewer-cpus", "whole-cores", "fewer-devices", "less-memory", "smaller", "topology-policy", "topology-scope"
        ],
        doc("Kind of change."),
    ]
    change: Annotated[
        str, Field(description="The change as a sentence.", examples=["12 CPUs instead of 16 in container app"])
    ]
    container: Annotated[str | None, doc("Null: a change of the node, not of the pod.")]
    resource: Annotated[str | None, doc("Null: a change of the node, or of several resources.")]
    wanted: Annotated[str, doc("The value in the question: a quantity or a setting.")]
    instead: Annotated[str, doc("The value with which it would be admitted.")]
    verdict: Annotated[Verdict, doc("The verdict for the changed request.")]


class Explanation(Answer):
    """The explanation of one verdict."""

    first_fault: Annotated[str | None, doc("The first reason for the refusal, in one sentence; null: admitted.")]
    steps: Annotated[
        list[Annotated[HintsStep | MergeStep | AllocationStep | PoolsStep, Field(discriminator="step")]],
        doc("In the kubelet's order; at most 256."),
    ]
    steps_left_out: Annotated[int, doc("Number of steps that are not listed.")]
    nearest: Annotated[list[NearestRequest], doc("Empty if the pod is admitted, or if none was found.")]
    replays: Annotated[int, doc("Number of admissions replayed in the search, which is limited.")]


class CommonAnswer(Answer):
    """The parts of an answer that can be equal for many nodes."""

    outcome: Annotated[
        Literal["fits", "topology", "scheduler", "unknown"],
        doc(
            "`fits`: admitted, with `alignment`. `topology`: the kubelet's managers refuse the pod, or may refuse it. "
            "`scheduler`: they admit it, but kube-scheduler would not choose the node. `unknown`: too little is known "
            "of the node."
        ),
    ]
    passes: Annotated[bool, doc("Whether filter offers the node to the scheduler.")]
    why: Annotated[str, doc("The reason that the scheduler shows; empty if the node passes.")]
    never: Annotated[bool, doc("The node's hardware and configuration exclude the pod, whatever is free.")]
    certainty: Annotated[Certainty, doc("Certainty of the answer.")]
    score: Annotated[
        int | None,
        doc(
            "The score of prioritize, 0 to 10, relative to the other nodes of the question. It does not measure how "
            "good a node is. Null: the node does not pass."
        ),
    ]
    alignment: Annotated[AlignmentName | None, doc("Alignment of the pod; null unless `outcome` is `fits`.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA


class AnswerGroup(CommonAnswer):
    """Nodes with equal answers. Amounts in sentences, notes and placements are not compared."""

    nodes: Annotated[list[str], doc("Their names, in the order of the question.")]


class NodeAnswer(CommonAnswer):
    """The answer of one node's kubelet, of filter, and of the scheduler's own checks."""

    node: Annotated[str, doc("Its name.")]
    hypothetical: Annotated[bool, doc("Whether the node is hypothetical.")] = False
    reason: Annotated[str, doc("Why the pod does not fit, in one sentence with amounts. Empty if it fits.")]
    notes: Annotated[
        list[str], doc("Assumptions of this answer, and what was not checked; see `notes` of `pod` as well.")
    ]
    verdict: Annotated[Verdict | None, doc("Null: the node is unknown.")]
    scheduler: Annotated[Scheduler, doc("Results of kube-scheduler's own checks.")]
    explanation: Annotated[Explanation | None, doc("With `explain`; see `explanations_left_out`.")] = None


class WhatIfSummary(Answer):
    """The answers, counted by `outcome`."""

    nodes: Annotated[int, doc("All nodes of the question.")]
    fits: Annotated[int, doc("Nodes that admit the pod.")]
    aligned: Annotated[int, doc("Of these, nodes with `alignment` `aligned`.")]
    split: Annotated[int, doc("Of these, nodes with `alignment` `split`.")]
    not_managed: Annotated[int, doc("Of these, nodes with `alignment` `not-managed`.")]
    topology: Annotated[int, doc("Nodes whose managers refuse the pod, or may refuse it.")]
    scheduler: Annotated[int, doc("Nodes that kube-scheduler would not choose.")]
    unknown: Annotated[int, doc("Nodes of which too little is known.")]
    reasons: Annotated[dict[str, int], doc("Nodes by the reason that the scheduler shows.")]


class WhatIfReply(Answer):
    """The answers in the order of the question, hypothetical nodes last. If it names no nodes, by name."""

    pod: Annotated[PodSummary, doc("The pod as it was read.")]
    summary: Annotated[WhatIfSummary, doc("The answers, counted.")]
    nodes: Annotated[list[NodeAnswer], doc("One answer for each node; with `compact`, for each explained node.")]
    groups: Annotated[list[AnswerGroup] | None, doc("With `compact`: nodes with equal answers, most nodes first.")] = (
        None
    )
    explanations_left_out: Annotated[
        int, doc("Nodes without an explanation, because they equal an explained node or are too many.")
    ] = 0


class MachineShape(Answer):
    """A machine shape that a question can name."""

    name: Annotated[str, doc("Name for `machine` in a question.")]
    about: Annotated[str, doc("Short description.")]
    sockets: Annotated[int, doc("CPU sockets.")]
    numa_nodes: Annotated[int, doc("NUMA nodes of all sockets.")]
    cpus: Annotated[int, doc("Logical CPUs.")]
    threads: Annotated[int, doc("Threads of each core.")]
    memory_bytes: Annotated[int, doc("Memory of all NUMA nodes, in bytes.")]
    devices: Annotated[dict[str, int], doc("Devices by resource.")]


class MachineIndex(Answer):
    """The catalogue."""

    machines: Annotated[list[MachineShape], doc("By name.")]
