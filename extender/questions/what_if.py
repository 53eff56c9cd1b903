"""What-if: the full verdict of nodes on a pod, with placements and reasons. Never changes anything.

Rules of this file
- What-if and filter use the same code, so that both give the same answer. The pod counts as new, even if a node has a
  pod with the same UID, because people paste what they copied from a cluster.
- The results of kube-scheduler's own filters are reported beside the verdict, never inside it.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from msgspec import UNSET
from msgspec.structs import asdict

from extender.cluster.node_class import NodeClass
from extender.kubelet.admission import MAX_OUTCOMES
from extender.kubelet.verdict import Certainty, Provider, RefusedHints, Rejected, Verdict, When
from extender.questions.asked import Asked
from extender.questions.claim_alignment import (
    ClaimAlignment,
    Places,
    can_be_ranked,
    claim_alignment_of,
    extended_by_claims,
    is_certain,
    places_of,
    ranked_by_claims,
)
from extender.questions.dra import judged_with_devices, with_devices
from extender.questions.explain import demand_fault, explain, first_fault
from extender.questions.node_context import Subject
from extender.questions.notes import claim_notes, node_notes
from extender.questions.pod_summary import pod_summary
from extender.questions.reading import pods_question_of, subjects_asked, workload_of
from extender.questions.scheduler_checks import check_node
from extender.questions.snapshot import Snapshot
from extender.replay.alignment import PodAlignment, alignment_of_outcomes
from extender.replay.pod import Pod
from extender.replay.possible_states import admit_in_all
from extender.scheduling.judge import Judge
from extender.scheduling.judgement import Judgement
from extender.scheduling.node_totals import pod_requests
from extender.scheduling.pod_shape import SHAPE_UID, PodShape
from extender.scheduling.scoring import score_nodes
from extender.wire import pod_replies, verdicts
from extender.wire.errors import WireError
from extender.wire.pod_replies import Outcome, Scheduler
from extender.wire.questions import Manifest, WhatIfRequest
from extender.wire.replies import ReplyBody
from extender.wire.workloads import PodWorkload

MAX_EXPLAINED: Final = 24
"""How many nodes one reply explains. Each of them costs up to 160 replays."""
_POLICY_UNKNOWN: Final = (
    "The kubelet admits the pod. Whether the NRI policy of the node then creates its containers is not known."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeWhatIf:
    """The result for one node.

    `verdict` None: not enough is known about the node. `admitted_as` is the alignment of an admitted pod, even if the
    node does not pass for another reason; None if it is refused. `judgement` is what filter uses, `score` what
    prioritize would return if the nodes of the question were its candidates; None if the node does not pass.
    `first_fault`: the first failure, in a sentence; empty if the pod is admitted as it demands. `claim_alignment`: None
    if the pod has no claims, or the devices of the node are not known.
    """

    subject: Subject
    verdict: Verdict | None
    admitted_as: PodAlignment | None
    first_fault: str
    judgement: Judgement
    scheduler: Scheduler
    score: int | None
    claim_alignment: ClaimAlignment | None = None

    @property
    def certainty(self) -> Certainty:
        """Certainty of the verdict."""
        return self.judgement.certainty

    @property
    def outcome(self) -> Outcome:
        """The outcome as one word: see `NodeAnswer.outcome` of the API."""
        if self.judgement.refusal is not None:
            return "unknown" if self.certainty is Certainty.UNKNOWN else "topology"
        if self.scheduler.outcome == "fails":
            return "scheduler"
        return (
            "unknown" if self.certainty is Certainty.UNKNOWN or self.verdict is None or self._hides_policy else "fits"
        )

    @property
    def _hides_policy(self) -> bool:
        """Whether the node runs an NRI policy whose grants are unknown, so that only the kubelet has answered."""
        return Provider.RUNTIME in self.subject.node_class.hidden

    @property
    def alignment(self) -> PodAlignment | None:
        """The alignment of the pod. None unless `outcome` is `fits`."""
        return self.admitted_as if self.outcome == "fits" else None

    @property
    def reason(self) -> str:
        """Why not, in one sentence, with amounts if known. Empty unless the pod is refused or not offered."""
        if self.outcome == "scheduler":
            failure = self.scheduler.first_failure
            return "" if failure is None else failure.detail
        if self.judgement.refusal is None:
            return _POLICY_UNKNOWN if self._hides_policy else ""
        return self.first_fault or f"{self.judgement.refusal.text[0].upper()}{self.judgement.refusal.text[1:]}."

    @property
    def never(self) -> bool:
        """Whether the node refuses the pod even when empty."""
        refused = isinstance(self.verdict, Rejected) and self.verdict.when is When.NEVER
        return refused and self.outcome == "topology" and self.certainty is not Certainty.POSSIBLE


@dataclass(frozen=True, slots=True)
class _Replayed:
    """The result of a replay on one node; see `NodeWhatIf`."""

    verdict: Verdict | None
    alignment: PodAlignment | None = None
    first_fault: str = ""
    places: Places = ()


def what_if(workload: PodWorkload, subjects: Sequence[Subject], judge: Judge) -> list[NodeWhatIf]:
    """The result of each node, in order.

    Equal nodes are replayed once, unless the pod requests devices: see `_replay`.
    """
    shape = PodShape(replace(workload.pod, uid=SHAPE_UID))
    wanted = pod_requests(workload.pod, workload.rules.overhead_milli)
    by_class = {each: judge(shape, each) for each in {subject.node_class for subject in subjects}}
    judgements = [by_class[subject.node_class] for subject in subjects]
    shared: dict[NodeClass, _Replayed] = {}
    wants_devices = any("/" in resource for resource in wanted)
    each_replayed = []
    for subject in subjects:
        if wants_devices or subject.node_class not in shared:
            shared[subject.node_class] = _replay(shape, subject)
        each_replayed.append(shared[subject.node_class])
    claim_alignments = [_claim_alignment(workload.pod, *each) for each in zip(subjects, each_replayed, strict=True)]
    scores = score_nodes(judgements)
    if any(each is not None for each in claim_alignments):
        known = [ClaimAlignment.UNKNOWN if each is None else each for each in claim_alignments]
        ranked = np.array([can_be_ranked(each) for each in judgements], np.bool_)
        scores = ranked_by_claims(np.array(scores, np.uint8), known, ranked).tolist()
    by_devices: dict[object, Judgement] = {}
    answers = []
    for subject, judged, replayed, claim_alignment, score in zip(
        subjects, judgements, each_replayed, claim_alignments, scores, strict=True
    ):
        devices = subject.around.devices or ()
        judgement = judged_with_devices(workload.pod, subject.node_class, judged, devices, judge, by_devices)
        answers.append(
            NodeWhatIf(
                subject=subject,
                verdict=replayed.verdict,
                admitted_as=replayed.alignment,
                first_fault=replayed.first_fault if judgement.refusal is judged.refusal else "",
                judgement=judgement,
                scheduler=check_node(subject.name, wanted, workload.rules, subject.around),
                score=score if judgement.refusal is None else None,
                claim_alignment=claim_alignment,
            )
        )
    return answers


def _claim_alignment(pod: Pod, subject: Subject, replayed: _Replayed) -> ClaimAlignment | None:
    devices = subject.around.devices
    if devices is None or not (pod.has_claims or any(each.is_for_extended for each in devices)):
        return None
    places = replayed.places if is_certain(subject.node_class) else ()
    return claim_alignment_of(pod, subject.kubelet, devices, places)


def _replay(shape: PodShape, subject: Subject) -> _Replayed:
    """Replay on the node's own state: nodes of a class have equal devices free, but with different ids.

    The verdict is that of the most likely state. The alignment is `split` if any outcome is.
    """
    kubelet = subject.kubelet
    if kubelet is None or not subject.states:
        return _Replayed(None)
    request = shape.request(kubelet.rules)
    trace = RefusedHints()
    outcomes = admit_in_all(kubelet, subject.states, request, trace=trace, max_replays=MAX_OUTCOMES)
    verdict = outcomes[0].verdict
    if isinstance(verdict, Rejected):
        fault = first_fault(kubelet, subject.states[0], request, verdict, trace.events)
        return _Replayed(verdict, alignment_of_outcomes(kubelet, outcomes), fault)
    fault = demand_fault(shape.pod.demand, kubelet, request, outcomes)
    claims = shape.pod.has_claims or shape.pod.wants_devices
    places = places_of(kubelet, outcomes) if claims else ()
    return _Replayed(verdict, alignment_of_outcomes(kubelet, outcomes), fault, places)


def what_if_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """One `WhatIfReply`."""
    question, paths = pods_question_of(asked, WhatIfRequest, "pod", _only_one)
    workload = workload_of(asked, question.pod, *(paths or ["pod"]))
    subjects = subjects_asked(snapshot, question.nodes, question.hypothetical)
    answers = what_if(workload, with_devices(asked.forecast, workload.pod, subjects), judge)
    stories: dict[str, pod_replies.Explanation] = {}
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


def _stories(pod: Pod, answers: Sequence[NodeWhatIf]) -> tuple[dict[str, pod_replies.Explanation], int]:
    """The explanations of the first nodes that differ from each other, by name, and how many nodes got none."""
    stories: dict[str, pod_replies.Explanation] = {}
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


def _answer(workload: PodWorkload, answer: NodeWhatIf, story: pod_replies.Explanation | None) -> pod_replies.NodeAnswer:
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
        explanation=story,
    )


def _common(answer: NodeWhatIf) -> pod_replies.CommonAnswer:
    refusal = answer.judgement.refusal
    passes, why = refusal is None, "" if refusal is None else refusal.text
    return pod_replies.CommonAnswer.filled(
        answer, passes=passes, why=why, **verdicts.alignment_fields(answer.alignment)
    )
