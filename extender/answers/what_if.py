"""The reply to what-if: what each node would do with a pod, with placements and reasons."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from pydantic import TypeAdapter

from extender.answers.alignments import alignment_counts
from extender.answers.claims import claim_notes
from extender.answers.notes import node_notes
from extender.answers.pod_summary import pod_summary
from extender.answers.question import Asked
from extender.answers.reading import (
    is_manifest,
    live_subjects,
    made_subjects,
    parse_question,
    parts_of,
    read_question,
    workload_of,
)
from extender.answers.requests import WhatIfRequest
from extender.answers.snapshot import Snapshot
from extender.questions.claim_alignment import extended_by_claims
from extender.questions.explain import AdmissionStory, explain, story_to_json
from extender.questions.what_if import NodeWhatIf, what_if
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.wire.errors import WireError
from extender.wire.verdicts import alignment_to_json, explained_to_json
from extender.wire.workloads import PodWorkload

MAX_EXPLAINED: Final = 24
"""Nodes explained in one reply. Each costs up to 160 replays."""
_REQUEST: Final = TypeAdapter(WhatIfRequest)
_OUTCOMES: Final = ("fits", "topology", "scheduler", "unknown")
Json = dict[str, object]


def what_if_document(asked: Asked, snapshot: Snapshot, judge: Judge) -> Json:
    """The `WhatIfReply`; raises WireError or UnknownNodeError."""
    document = read_question(asked)
    path = "pod"
    if is_manifest(document, "pod"):
        parts = parts_of(document)
        if len(parts) > 1:
            raise WireError("", f"one workload is expected, not {len(parts)}: send one at a time, or use plan")
        path, document = (
            parts[0].path,
            {"pod": parts[0].document, "nodes": None if asked.node is None else list(asked.node)},
        )
    question = parse_question(_REQUEST, document)
    workload = workload_of(asked, question.pod, path)
    subjects = live_subjects(snapshot, question.nodes, question.hypothetical)
    subjects += made_subjects(snapshot, question.hypothetical)
    answers = what_if(workload, subjects, judge)
    reply = _reply(workload, answers, is_explained=question.explain or asked.explain, is_compact=asked.compact)
    return reply | {"groups": _groups(answers)} if asked.compact else reply


def _groups(answers: Sequence[NodeWhatIf]) -> list[Json]:
    """The nodes in groups with equal answers; the largest group first."""
    groups: dict[str, tuple[Json, list[str]]] = {}
    for answer in answers:
        common = _common(answer)
        del common["reason"]  # it has amounts
        groups.setdefault(str(common), (common, []))[1].append(answer.subject.name)
    return [{**common, "nodes": names} for common, names in sorted(groups.values(), key=lambda group: -len(group[1]))]


def _reply(workload: PodWorkload, answers: Sequence[NodeWhatIf], *, is_explained: bool, is_compact: bool) -> Json:
    stories: dict[str, AdmissionStory] = {}
    left_out = 0
    if is_explained:
        stories, left_out = _stories(workload.pod, answers)
    outcomes = Counter(answer.outcome for answer in answers)
    alignments = Counter(a.alignment.alignment for a in answers if a.alignment is not None)
    reasons = Counter(a.judgement.refusal.text for a in answers if a.judgement.refusal is not None)
    return {
        "pod": pod_summary(workload),
        "summary": {
            "nodes": len(answers),
            **{outcome: outcomes[outcome] for outcome in _OUTCOMES},
            **alignment_counts(alignments),
            "reasons": dict(reasons),
        },
        "nodes": [
            _answer(workload, answer, stories.get(answer.subject.name))
            for answer in answers
            if not is_compact or answer.subject.name in stories
        ],
        "explanations_left_out": left_out,
    }


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


def _answer(workload: PodWorkload, answer: NodeWhatIf, story: AdmissionStory | None) -> Json:
    subject = answer.subject
    return {
        "node": subject.name,
        "hypothetical": subject.hypothetical,
        **_common(answer),
        "notes": [
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
        "verdict": None if answer.verdict is None else explained_to_json(answer.verdict, answer.admitted_as),
        "scheduler": answer.scheduler,
        "explanation": None if story is None else _explanation(story),
    }


def _common(answer: NodeWhatIf) -> Json:
    """The parts of an answer that can be equal for many nodes."""
    refusal = answer.judgement.refusal
    return {
        "outcome": answer.outcome,
        "passes": refusal is None,
        "why": "" if refusal is None else refusal.text,
        "reason": answer.reason,
        "never": answer.never,
        "certainty": answer.certainty.value,
        "score": answer.score,
        **alignment_to_json(answer.alignment),
    }


def _explanation(story: AdmissionStory) -> Json:
    nearest = [
        {
            "kind": each.kind,
            "change": each.change,
            "container": each.container,
            "resource": each.resource,
            "wanted": each.wanted,
            "instead": each.instead,
            "verdict": explained_to_json(each.fit.verdict, each.fit.alignment),
        }
        for each in story.nearest.suggestions
    ]
    return {**story_to_json(story), "nearest": nearest}
