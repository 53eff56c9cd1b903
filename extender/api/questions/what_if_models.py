"""POST /v1/what-if: the answer. The question is in `extender.answers.requests`."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import AlignedNUMA, AlignmentCertain, AlignmentName, Answer, NUMAIds, Verdict
from extender.replay.verdict import Certainty


class PodContainer(Answer):
    """What one container asks for, as the newest kubelet reads it."""

    name: Annotated[str, Field(description="Its name.")]
    kind: Annotated[
        Literal["init", "sidecar", "app"],
        Field(description="How the pod lists it; `sidecar`: an init container that goes on running."),
    ]
    exclusive_cpus: Annotated[int, Field(description="CPUs for itself; 0: the shared pool.")]
    memory_bytes: Annotated[dict[str, int], Field(description="Pinned to NUMA nodes, by type, bytes; empty: not.")]
    devices: Annotated[dict[str, int], Field(description="Devices by resource.")]


class PodSummary(Answer):
    """The pod that was asked about, after defaulting."""

    kind: Annotated[str, Field(description="Of the document: `Pod`, `Deployment`…")]
    namespace: Annotated[str, Field(description="`default` where the document names none.")]
    name: Annotated[str, Field(description="Of the document.")]
    replicas: Annotated[int, Field(description="How many the document asks for; 1 where it does not say.")]
    qos: Annotated[Literal["Guaranteed", "Burstable", "BestEffort"], Field(description="QoS class.")]
    requests: Annotated[
        dict[str, str],
        Field(description="What the scheduler counts, as quantities.", examples=[{"cpu": "8", "memory": "16Gi"}]),
    ]
    containers: Annotated[list[PodContainer], Field(description="In the kubelet's order: init, sidecars, app.")]
    notes: Annotated[
        list[str],
        Field(description="What is odd about it, such as why it gets no CPUs of its own, and what is not looked at."),
    ]


class SchedulerCheck(Answer):
    """One question that kube-scheduler settles before it asks an extender."""

    check: Annotated[
        Literal["resources", "node-name", "node-selector", "node-affinity", "taints", "unschedulable", "other"],
        Field(description="`other`: what is not looked at here at all."),
    ]
    outcome: Annotated[
        Literal["ok", "fails", "not-checked"],
        Field(description="`not-checked`: too little is known, or it is not looked at here."),
    ]
    detail: Annotated[str, Field(description="One sentence; empty where there is nothing to say.")]


class Scheduler(Answer):
    """What kube-scheduler itself would say of pod and node, as far as it is known here."""

    outcome: Annotated[
        Literal["ok", "fails", "not-checked"],
        Field(description="`fails` if any check does; `ok` if all were made and none fails."),
    ]
    checks: Annotated[list[SchedulerCheck], Field(description="Those that were made or could not be.")]


class Hint(Answer):
    """NUMA nodes that could serve a request together."""

    numa: NUMAIds
    preferred: Annotated[bool, Field(description="Whether it is as narrow as the hardware makes possible.")]


class HintsStep(Answer):
    """What one provider offered for one resource."""

    step: Annotated[Literal["hints"], Field(description="What kind of step it is.")]
    container: Annotated[str | None, Field(description="Null: for the pod as a whole (pod scope).")]
    provider: Annotated[Literal["cpu", "memory", "device"], Field(description="The manager that offered.")]
    resource: Annotated[str, Field(description="Of which resource.")]
    wanted: Annotated[int, Field(description="CPUs, bytes or devices.")]
    opinion: Annotated[
        Literal["none", "impossible", "hints"],
        Field(description="`none`: any node will do. `impossible`: no set of nodes has enough."),
    ]
    minimum_width: Annotated[
        int | None, Field(description="NUMA nodes that the hardware needs; hints this wide are preferred.")
    ]
    hints: Annotated[list[Hint], Field(description="Narrowest first; at most 32.")]
    hints_left_out: Annotated[int, Field(description="Hints beyond those told.")]
    preferred_count: Annotated[int, Field(description="Of all hints, those left out included.")]


class MergeStep(Answer):
    """What the Topology Manager made of the offers."""

    step: Annotated[Literal["merge"], Field(description="What kind of step it is.")]
    container: Annotated[str | None, Field(description="Null: for the pod as a whole (pod scope).")]
    policy: Annotated[str, Field(description="The topology policy.")]
    affinity: Annotated[list[int] | None, Field(description="The NUMA nodes chosen; null: any.")]
    preferred: Annotated[bool, Field(description="Whether the result is preferred by every provider.")]
    admitted: Annotated[bool, Field(description="Whether the policy admits it.")]
    why: Annotated[str, Field(description="The rule that chose.")]


class AllocationStep(Answer):
    """What one provider took for one container."""

    step: Annotated[Literal["allocation"], Field(description="What kind of step it is.")]
    container: Annotated[str, Field(description="For which container.")]
    provider: Annotated[Literal["cpu", "memory", "device"], Field(description="The manager that took it.")]
    taken: Annotated[str, Field(description="In words.", examples=["CPUs 8-9,24-25"])]


class NearestRequest(Answer):
    """A request close to the one refused that this node would admit now."""

    kind: Annotated[
        Literal[
            "fewer-cpus", "whole-cores", "fewer-devices", "less-memory", "smaller", "topology-policy", "topology-scope"
        ],
        Field(description="What is changed."),
    ]
    change: Annotated[str, Field(description="In words.", examples=["12 CPUs instead of 16 in container app"])]
    container: Annotated[str | None, Field(description="Null: a change of the node, not of the pod.")]
    resource: Annotated[str | None, Field(description="Null: a change of the node, or of several resources.")]
    wanted: Annotated[str, Field(description="What it is in the question: a quantity, or a setting.")]
    instead: Annotated[str, Field(description="With what it would be admitted.")]
    verdict: Annotated[Verdict, Field(description="What the node answers to the changed request.")]


class Explanation(Answer):
    """The story behind one verdict."""

    first_fault: Annotated[str | None, Field(description="What broke it first, in one sentence; null: admitted.")]
    steps: Annotated[
        list[Annotated[HintsStep | MergeStep | AllocationStep, Field(discriminator="step")]],
        Field(description="In the order of the kubelet; at most 256."),
    ]
    steps_left_out: Annotated[int, Field(description="Steps beyond those told.")]
    nearest: Annotated[list[NearestRequest], Field(description="Empty for an admitted pod, or if none was found.")]
    replays: Annotated[int, Field(description="How many admissions were replayed in the search; it is bounded.")]


class NodeAnswer(Answer):
    """What one node's kubelet would answer, what filter makes of it, and what the scheduler would say before."""

    node: Annotated[str, Field(description="Its name.")]
    hypothetical: Annotated[bool, Field(description="Whether it was made up for the question.")] = False
    outcome: Annotated[
        Literal["fits", "topology", "scheduler", "unknown"],
        Field(
            description="`fits`: admitted, and `alignment` says how. "
            "`topology`: the kubelet's managers refuse, or may. `scheduler`: they admit, but "
            "kube-scheduler would not offer the node. `unknown`: too little is known of the node."
        ),
    ]
    passes: Annotated[bool, Field(description="Whether filter offers the node to the scheduler.")]
    why: Annotated[str, Field(description="The reason that the scheduler shows; empty if the node passes.")]
    reason: Annotated[
        str,
        Field(description="Why not, in one sentence with amounts. Empty unless the pod is refused, or not offered."),
    ]
    never: Annotated[
        bool, Field(description="Hardware and configuration of the node rule the pod out, whatever is free on it.")
    ]
    notes: Annotated[
        list[str],
        Field(
            description="What this answer takes for granted, and what was not checked; see `notes` of `pod` as well."
        ),
    ]
    certainty: Annotated[Certainty, Field(description="How sure the answer is.")]
    score: Annotated[
        int | None,
        Field(
            description="What prioritize gives, 0 to 10, relative to the other nodes of the question: it does not say "
            "how good a node is. Null: does not pass."
        ),
    ]
    alignment: Annotated[AlignmentName | None, Field(description="What the pod gets; null unless `outcome` is `fits`.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    verdict: Annotated[Verdict | None, Field(description="Null: the node is not known.")]
    scheduler: Annotated[Scheduler, Field(description="What kube-scheduler would say before it asks an extender.")]
    explanation: Annotated[Explanation | None, Field(description="If `explain`; see `explanations_left_out`.")] = None


class WhatIfSummary(Answer):
    """The answers, counted by `outcome`."""

    nodes: Annotated[int, Field(description="All nodes asked.")]
    fits: Annotated[int, Field(description="Nodes that admit the pod.")]
    aligned: Annotated[int, Field(description="Of these, nodes with `alignment` `aligned`.")]
    split: Annotated[int, Field(description="Of these, nodes with `alignment` `split`.")]
    not_managed: Annotated[int, Field(description="Of these, nodes with `alignment` `not-managed`.")]
    topology: Annotated[int, Field(description="Nodes whose managers refuse, or may.")]
    scheduler: Annotated[int, Field(description="Nodes that kube-scheduler would not offer.")]
    unknown: Annotated[int, Field(description="Nodes of which too little is known.")]
    reasons: Annotated[dict[str, int], Field(description="Nodes by the reason that the scheduler shows.")]


class WhatIfReply(Answer):
    """The answers, in the order of the nodes asked, hypothetical ones last; all nodes: by name."""

    pod: Annotated[PodSummary, Field(description="The pod as it was understood.")]
    summary: Annotated[WhatIfSummary, Field(description="The answers, counted.")]
    nodes: Annotated[list[NodeAnswer], Field(description="One answer a node.")]
    explanations_left_out: Annotated[
        int, Field(description="Nodes that fared like one that is explained, or were too many to explain.")
    ] = 0


class MachineShape(Answer):
    """A machine to ask about by name."""

    name: Annotated[str, Field(description="What `machine` in a question names.")]
    about: Annotated[str, Field(description="In a few words.")]
    sockets: Annotated[int, Field(description="CPU sockets.")]
    numa_nodes: Annotated[int, Field(description="On all sockets.")]
    cpus: Annotated[int, Field(description="Logical CPUs.")]
    threads: Annotated[int, Field(description="Of each core.")]
    memory_bytes: Annotated[int, Field(description="Of all NUMA nodes, bytes.")]
    devices: Annotated[dict[str, int], Field(description="Devices by resource.")]


class MachineIndex(Answer):
    """The catalogue."""

    machines: Annotated[list[MachineShape], Field(description="By name.")]
