"""The reply to what-if: what each node would do with a pod, with placements and reasons."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

from msgspec import UNSET, UnsetType
from msgspec.structs import asdict

from extender.answers.explanation import Explanation, explanation_of
from extender.answers.notes import claim_notes, node_notes
from extender.answers.pod_summary import PodSummary, pod_summary
from extender.answers.question import Asked
from extender.answers.reading import (
    HypotheticalNodes,
    NodeNames,
    pods_question_of,
    subjects_asked,
    workload_of,
)
from extender.answers.snapshot import Snapshot
from extender.kubelet.verdict import Certainty
from extender.questions.claim_alignment import extended_by_claims
from extender.questions.dra import with_devices
from extender.questions.explain import AdmissionStory, explain
from extender.questions.scheduler_checks import Scheduler
from extender.questions.what_if import NodeWhatIf, Outcome, what_if
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.wire import verdicts
from extender.wire.errors import WireError
from extender.wire.questions import Manifest, Question, Workload
from extender.wire.replies import ReplyBody, about
from extender.wire.workloads import PodWorkload

MAX_EXPLAINED: Final = 24
"""How many nodes one reply explains. Each of them costs up to 160 replays."""


class WhatIfRequest(Question):
    """A pod, and the nodes to check."""

    pod: Workload
    nodes: NodeNames = None
    hypothetical: HypotheticalNodes = []
    explain: Annotated[bool, about("Explain each verdict, and search for the nearest requests that fit.")] = False


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


def what_if_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """One `WhatIfReply`."""
    question, paths = pods_question_of(asked, WhatIfRequest, "pod", _only_one)
    workload = workload_of(asked, question.pod, *(paths or ["pod"]))
    subjects = subjects_asked(snapshot, question.nodes, question.hypothetical)
    answers = what_if(workload, with_devices(asked.forecast, workload.pod, subjects), judge)
    stories: dict[str, AdmissionStory] = {}
    left_out = 0
    if question.explain or asked.options.get("explain"):
        stories, left_out = _stories(workload.pod, answers)
    yield WhatIfReply(
        pod=pod_summary(workload),
        summary=_summary(answers),
        nodes=[
            _answer(workload, answer, stories.get(answer.subject.name))
            for answer in answers
            if not asked.compact or answer.subject.name in stories
        ],
        explanations_left_out=left_out,
        groups=_groups(answers) if asked.compact else UNSET,
    )


def _only_one(pods: Sequence[Manifest]) -> Manifest:
    if len(pods) != 1:
        raise WireError("", f"one workload is expected, not {len(pods)}: send one at a time, or use plan")
    return pods[0]


def _groups(answers: Sequence[NodeWhatIf]) -> list[AnswerGroup]:
    """The nodes in groups with equal answers; the largest group first."""
    groups: dict[str, AnswerGroup] = {}
    for answer in answers:
        common = _common(answer)
        groups.setdefault(str(common), AnswerGroup(**asdict(common), nodes=[])).nodes.append(answer.subject.name)
    return sorted(groups.values(), key=lambda group: -len(group.nodes))


def _summary(answers: Sequence[NodeWhatIf]) -> WhatIfSummary:
    outcomes = Counter(answer.outcome for answer in answers)
    return WhatIfSummary(
        nodes=len(answers),
        fits=outcomes["fits"],
        topology=outcomes["topology"],
        scheduler=outcomes["scheduler"],
        unknown=outcomes["unknown"],
        **verdicts.alignment_counts(Counter(a.alignment.alignment for a in answers if a.alignment is not None)),
        reasons=dict(Counter(a.judgement.refusal.text for a in answers if a.judgement.refusal is not None)),
    )


def _stories(pod: Pod, answers: Sequence[NodeWhatIf]) -> tuple[dict[str, AdmissionStory], int]:
    """The explanations of the first nodes that differ from each other, by name, and how many nodes got none."""
    stories: dict[str, AdmissionStory] = {}
    told = set()
    for answer in answers:
        subject = answer.subject
        if subject.kubelet is None or not subject.states or len(stories) >= MAX_EXPLAINED:
            continue
        if subject.node_class in told and len(answers) > MAX_EXPLAINED:
            continue
        told.add(subject.node_class)
        stories[subject.name] = explain(subject.kubelet, subject.states[0], pod)
    return stories, len(answers) - len(stories)


def _answer(workload: PodWorkload, answer: NodeWhatIf, story: AdmissionStory | None) -> NodeAnswer:
    subject = answer.subject
    return NodeAnswer(
        **asdict(_common(answer)),
        node=subject.name,
        hypothetical=subject.hypothetical,
        reason=answer.reason,
        notes=[
            *node_notes(workload, subject.kubelet, answer.scheduler),
            *claim_notes(
                workload.pod,
                subject.kubelet,
                subject.around.devices,
                answer.admitted_as,
                answer.claim_alignment,
                extended_by_claims(workload.pod, subject.node_class),
            ),
        ],
        verdict=None if answer.verdict is None else verdicts.explained(answer.verdict, answer.admitted_as),
        scheduler=answer.scheduler,
        explanation=None if story is None else explanation_of(story),
    )


def _common(answer: NodeWhatIf) -> CommonAnswer:
    refusal = answer.judgement.refusal
    passes, why = refusal is None, "" if refusal is None else refusal.text
    return CommonAnswer.filled(answer, passes=passes, why=why, **verdicts.alignment_fields(answer.alignment))
