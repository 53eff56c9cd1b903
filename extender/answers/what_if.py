"""The reply to what-if: what each node would do with a pod, with placements and reasons."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import UNSET
from msgspec.structs import asdict

from extender.answers.explanation import explanation_of
from extender.answers.notes import claim_notes, node_notes
from extender.answers.pod_summary import pod_summary
from extender.answers.question import Asked
from extender.answers.reading import pods_question_of, subjects_asked, workload_of
from extender.answers.snapshot import Snapshot
from extender.questions.claim_alignment import extended_by_claims
from extender.questions.dra import with_devices
from extender.questions.explain import AdmissionStory, explain
from extender.questions.what_if import NodeWhatIf, what_if
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.wire import pod_replies, verdicts
from extender.wire.errors import WireError
from extender.wire.questions import Manifest, WhatIfRequest
from extender.wire.replies import ReplyBody
from extender.wire.workloads import PodWorkload

MAX_EXPLAINED: Final = 24
"""How many nodes one reply explains. Each of them costs up to 160 replays."""


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
    yield pod_replies.WhatIfReply(
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


def _groups(answers: Sequence[NodeWhatIf]) -> list[pod_replies.AnswerGroup]:
    """The nodes in groups with equal answers; the largest group first."""
    groups: dict[str, pod_replies.AnswerGroup] = {}
    for answer in answers:
        common = _common(answer)
        groups.setdefault(str(common), pod_replies.AnswerGroup(**asdict(common), nodes=[])).nodes.append(
            answer.subject.name
        )
    return sorted(groups.values(), key=lambda group: -len(group.nodes))


def _summary(answers: Sequence[NodeWhatIf]) -> pod_replies.WhatIfSummary:
    outcomes = Counter(answer.outcome for answer in answers)
    return pod_replies.WhatIfSummary(
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


def _answer(workload: PodWorkload, answer: NodeWhatIf, story: AdmissionStory | None) -> pod_replies.NodeAnswer:
    subject = answer.subject
    return pod_replies.NodeAnswer(
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


def _common(answer: NodeWhatIf) -> pod_replies.CommonAnswer:
    refusal = answer.judgement.refusal
    passes, why = refusal is None, "" if refusal is None else refusal.text
    return pod_replies.CommonAnswer.filled(
        answer, passes=passes, why=why, **verdicts.alignment_fields(answer.alignment)
    )
