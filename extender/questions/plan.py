"""Plan: where each of a list of pods would go, in order, by the service's own scores.

Rules of this file
- Each pod is placed as filter and prioritize would, on the states after the pods before it.
- Among nodes with equal scores the first one wins. kube-scheduler, which uses other scores as well, may differ.
- Judgements are shared between nodes in equal states, and a pod that did not fit is not tried again before something
  has changed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from extender.cluster.node_class import ClassTable, NodeClass
from extender.kubelet.admission import start_pod
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Provider
from extender.questions.asked import Asked
from extender.questions.dra import Option, PlannedClaims, forecast_of, with_forecast
from extender.questions.node_context import Subject
from extender.questions.notes import all_notes
from extender.questions.reading import pods_question_of, subjects_asked, workload_of
from extender.questions.scheduler_checks import check_node
from extender.questions.snapshot import Snapshot
from extender.replay.alignment import Alignment, PodAlignment, alignment_of_outcomes
from extender.replay.creation import placed_by, whole_placements
from extender.replay.possible_states import admit_in_all
from extender.scheduling.judge import Judge
from extender.scheduling.judgement import Judgement
from extender.scheduling.node_totals import add, pod_requests
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.scoring import score_nodes
from extender.wire import pod_replies
from extender.wire.errors import WireError
from extender.wire.pod_replies import PlannedPod
from extender.wire.questions import MAX_PLANNED_PODS, PlannedWorkload, PlanRequest
from extender.wire.replies import ReplyBody
from extender.wire.verdicts import alignment_counts, alignment_fields, container_placements, placed_by_policy
from extender.wire.workloads import PodWorkload

MAX_REPLAYS_A_POD: Final = 16
MAX_PLACED: Final = 50_000_000
"""Limit on the pods of a plan times the nodes: it bounds the cost of one plan."""


def nowhere(pod: int, entry: int, name: str, reasons: Mapping[str, int] | None = None) -> PlannedPod:
    """A pod that has no node. *reasons*: number of nodes that refuse it, by reason."""
    return PlannedPod(
        pod=pod,
        entry=entry,
        name=name,
        node=None,
        score=None,
        certainty=None,
        **alignment_fields(None),
        containers={},
        nri=[],
        reasons=dict(reasons or {}),
    )


@dataclass(slots=True)
class _PlannedNode:
    """A node in the state after the pods placed so far."""

    subject: Subject
    node_class: NodeClass
    states: tuple[ManagerState, ...]


class PlacementPlan:
    """Places pods on a copy of the nodes' states."""

    def __init__(self, subjects: Sequence[Subject], judge: Judge) -> None:
        self._judge: Final = judge
        self.claims: Final = PlannedClaims(judge) if any(forecast_of(each.around) for each in subjects) else None
        self._some_served: Final = any(each.around.served for each in subjects)
        self.subjects: Final = subjects
        self._classes: Final = ClassTable()
        self._nodes: Final = [_PlannedNode(s, s.node_class, s.states) for s in subjects]
        self._groups: dict[NodeClass, list[int]] = {}
        self._judgements: dict[object, dict[int, Judgement]] = {}
        self._hopeless: dict[int, PlannedPod] = {}
        """Results by entry, valid until the next pod is placed."""
        for number, node in enumerate(self._nodes):
            node.node_class = self._class_of(node, node.states)
            self._groups.setdefault(node.node_class, []).append(number)

    def run(self, entries: Iterable[tuple[PodWorkload, int]]) -> Iterator[PlannedPod]:
        """Place the given number of copies of each workload. One value per pod."""
        number = 0
        for entry, (workload, copies) in enumerate(entries):
            wanted = pod_requests(workload.pod, workload.rules.overhead_milli)
            for _ in range(copies):
                placed = self._place(entry, workload, number, wanted)
                number += 1
                if placed.node is None:
                    self._hopeless[entry] = placed
                else:
                    self._hopeless.clear()
                yield placed

    def _place(self, entry: int, workload: PodWorkload, number: int, wanted: Mapping[str, int]) -> PlannedPod:
        name = f"{workload.name}-{number}"
        known = self._hopeless.get(entry)
        if known is not None:
            return nowhere(number, entry, name, known.reasons)
        shape = PodShape(workload.copy(number))
        judgements = self._judged(shape)
        options: Iterable[Option] = self._by_class(judgements)
        reasons, failed = self._reasons(judgements), Counter[str]()
        if self.claims is not None and (shape.pod.has_claims or self._some_served):
            options, reasons, failed = self.claims.options(shape, self._nodes, judgements)
        for position, score, certainty in options:
            subject = self._nodes[position].subject
            failure = check_node(subject.name, wanted, workload.rules, subject.around).first_failure
            if failure is not None:
                failed[f"kube-scheduler: {failure.check}"] += 1
                continue
            admitted, alignment = self._take(position, shape, wanted)
            return PlannedPod(
                pod=number,
                entry=entry,
                name=name,
                node=subject.name,
                score=score,
                certainty=certainty,
                **alignment_fields(alignment),
                containers={} if admitted is None else container_placements(whole_placements(admitted), alignment),
                nri=[] if admitted is None else placed_by_policy(placed_by(admitted)),
                reasons=reasons,
            )
        return nowhere(number, entry, name, Counter(reasons) + failed)

    def _by_class(self, judgements: Mapping[int, Judgement]) -> Iterator[Option]:
        """The nodes that pass, the best first."""
        classes = [each for each in self._groups if judgements[each.id].refusal is None]
        scores = dict(zip(classes, score_nodes([judgements[each.id] for each in classes]), strict=True))
        ranked = sorted(scores, key=lambda c: (-scores[c], -(judgements[c.id].merit or 0), self._groups[c][0]))
        for each in ranked:
            yield from ((position, scores[each], judgements[each.id].certainty) for position in self._groups[each])

    def _judged(self, shape: PodShape) -> Mapping[int, Judgement]:
        """The judgement of every class that has nodes, by its id."""
        known = self._judgements.setdefault(shape.pod.shape, {})
        for node_class in self._groups:
            if node_class.id not in known:
                known[node_class.id] = self._judge(shape, node_class)
        return known

    def _take(
        self, position: int, shape: PodShape, wanted: Mapping[str, int]
    ) -> tuple[Admitted | None, PodAlignment | None]:
        """Put the pod on a node. None if not enough is known about the node to compute its placement.

        None as well where the grants of the NRI policy are not known: the kubelet alone does not decide the placement.
        """
        node = self._nodes[position]
        kubelet, around = node.subject.kubelet, node.subject.around
        if self.claims is not None:
            around = self.claims.after(position, shape.pod, node.subject)
        if around.requested_milli is not None:
            around = replace(around, requested_milli=add(around.requested_milli, wanted))
        node.subject = replace(node.subject, around=around)
        if kubelet is None or not node.states or Provider.RUNTIME in node.node_class.hidden:
            return None, None
        request = shape.request(kubelet.rules)
        outcomes = admit_in_all(kubelet, node.states, request, max_replays=MAX_REPLAYS_A_POD)
        admissions = [outcome for outcome in outcomes if isinstance(outcome.verdict, Admitted)]
        if not admissions:
            return None, None
        states = {o.state.key: start_pod(o.state, request) for o in admissions}
        self._move(position, tuple(states.values()))
        first = admissions[0].verdict
        alignment = alignment_of_outcomes(kubelet, outcomes)
        return (first if isinstance(first, Admitted) else None), alignment

    def _move(self, position: int, states: tuple[ManagerState, ...]) -> None:
        """Move a node to the class of its new states."""
        node = self._nodes[position]
        group = self._groups[node.node_class]
        group.remove(position)
        if not group:
            del self._groups[node.node_class]
        node.states = states
        node.node_class = self._class_of(node, states)
        group = self._groups.setdefault(node.node_class, [])
        group.append(position)
        group.sort()

    def _class_of(self, node: _PlannedNode, states: tuple[ManagerState, ...]) -> NodeClass:
        before = node.subject.node_class
        if before.kubelet is None or not states:
            return before
        return self._classes.hold(
            before.kubelet,
            replace(before.possible, states=states),
            before.hidden,
            stale=before.stale,
            score_only=before.score_only,
            pools=before.pools,
        )

    def _reasons(self, judgements: Mapping[int, Judgement]) -> dict[str, int]:
        counted = Counter[str]()
        for node_class, group in self._groups.items():
            if (refusal := judgements[node_class.id].refusal) is not None:
                counted[refusal.text] += len(group)
        return dict(counted)


def entries_of(asked: Asked, listed: Sequence[PlannedWorkload], paths: Sequence[str]) -> list[tuple[PodWorkload, int]]:
    """The workloads with the number of copies. *paths*: of their pods. Raises WireError, also for too many copies."""
    entries = []
    pods = 0
    for entry, path in zip(listed, paths, strict=True):
        workload = workload_of(asked, entry.pod, path)
        copies = workload.replicas if entry.copies is None else entry.copies
        pods += copies
        if pods > MAX_PLANNED_PODS:
            raise WireError(path.removesuffix(".pod"), f"more than {MAX_PLANNED_PODS} pods in one question")
        entries.append((workload, copies))
    return entries


def plan_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """One document for each pod, then one with the summary.

    With `all_or_nothing` nothing is sent before all pods have been placed. At most `MAX_PLANNED_PODS` are kept.
    """
    question, paths = pods_question_of(asked, PlanRequest, "pods", lambda pods: [{"pod": pod} for pod in pods])
    entries = entries_of(asked, question.pods, paths or [f"pods[{i}].pod" for i in range(len(question.pods))])
    subjects = subjects_asked(snapshot, question.nodes, question.hypothetical)
    pods = sum(copies for _, copies in entries)
    if pods * len(subjects) > MAX_PLACED:
        raise WireError("pods", f"{pods} pods on {len(subjects)} nodes are too many for one plan; split it")
    subjects = with_forecast(asked.forecast, [workload.pod for workload, _ in entries], subjects)
    yield from _planned(PlacementPlan(subjects, judge), entries, all_or_nothing=question.all_or_nothing)


def _planned(
    plan: PlacementPlan, entries: Sequence[tuple[PodWorkload, int]], *, all_or_nothing: bool
) -> Iterator[ReplyBody]:
    found: Iterable[pod_replies.PlannedPod] = plan.run(entries)
    held_back = 0
    if all_or_nothing:
        found = list(found)
        if any(placed.node is None for placed in found):
            held_back = sum(placed.node is not None for placed in found)
            found = [each if each.node is None else nowhere(each.pod, each.entry, each.name) for each in found]
    per_node: Counter[str] = Counter()
    alignments: Counter[Alignment] = Counter()
    pods = 0
    for placed in found:
        pods += 1
        if placed.node is not None:
            per_node[placed.node] += 1
        if placed.alignment is not None:
            alignments[placed.alignment] += 1
        yield placed
    placed_pods, left_out = per_node.total(), len(plan.claims.left_out) if plan.claims else None
    summary = pod_replies.PlanSummary(
        pods=pods,
        placed=placed_pods,
        unplaced=pods - placed_pods,
        held_back=held_back,
        **alignment_counts(alignments),
        notes=all_notes([workload for workload, _ in entries], plan.subjects, left_out),
        per_node=dict(per_node),
    )
    yield pod_replies.PlanEnd(summary=summary)
