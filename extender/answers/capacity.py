"""The replies to capacity and plan: how many more pods fit, and where a list of pods would go."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from extender.answers.notes import all_notes
from extender.answers.question import Asked
from extender.answers.reading import pods_question_of, subjects_asked, workload_of
from extender.answers.snapshot import Snapshot
from extender.kubelet.verdict import Certainty
from extender.questions.capacity import Capacity, NodeRoom
from extender.questions.dra import with_forecast
from extender.questions.node_context import Subject
from extender.questions.plan import PlacementPlan, nowhere
from extender.replay.alignment import Alignment
from extender.scheduling.judge import Judge
from extender.wire import pod_replies
from extender.wire.errors import WireError
from extender.wire.questions import MAX_PLANNED_PODS, CapacityRequest, PlannedWorkload, PlanRequest
from extender.wire.replies import ReplyBody
from extender.wire.verdicts import alignment_counts
from extender.wire.workloads import PodWorkload

MAX_PLACED: Final = 50_000_000
"""Limit on the pods of a plan times the nodes: it bounds the cost of one plan."""


def capacity_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """One document for each node, then one with the summary; or one `CapacityReply`."""
    question, paths = pods_question_of(asked, CapacityRequest, "pods", list)
    paths = paths or [f"pods[{i}]" for i in range(len(question.pods))]
    mix = [workload_of(asked, pod, path) for pod, path in zip(question.pods, paths, strict=True)]
    subjects = subjects_asked(snapshot, question.nodes, question.hypothetical)
    subjects = with_forecast(asked.forecast, [each.pod for each in mix], subjects)
    capacity = Capacity(mix, judge, question.max_copies, question.group)
    yield from counted(capacity, subjects, asked)


def counted(capacity: Capacity, subjects: Sequence[Subject], asked: Asked) -> Iterator[ReplyBody]:
    """The documents of one question."""
    rooms: list[NodeRoom] = []
    shown: list[pod_replies.NodeCapacity] = []
    for room in capacity.rooms(subjects):
        rooms.append(room)
        shown.append(_room(capacity, room))
        if asked.lines:
            yield shown[-1]
    notes = all_notes(capacity.mix, subjects, capacity.left_out if asked.forecast else None)
    summary = _summary(capacity, rooms, notes)
    yield (
        pod_replies.CapacityEnd(summary=summary)
        if asked.lines
        else pod_replies.CapacityReply(summary=summary, nodes=shown)
    )


def _room(capacity: Capacity, room: NodeRoom) -> pod_replies.NodeCapacity:
    return pod_replies.NodeCapacity.filled(
        room,
        node=room.subject.name,
        hypothetical=room.subject.hypothetical,
        per_pod=capacity.per_pod(room.copies),
        **alignment_counts(room.alignments),
        limited_by=room.limit,
    )


def _summary(capacity: Capacity, rooms: Sequence[NodeRoom], notes: list[str]) -> pod_replies.CapacitySummary:
    per_node = [capacity.per_pod(room.copies) for room in rooms]
    ends = Counter((room.limit.why, room.limit.resource) for room in rooms)
    per_pod = [sum(each) for each in zip(*per_node, strict=True)] or capacity.per_pod(0)
    return pod_replies.CapacitySummary(
        copies=sum(room.copies for room in rooms),
        group=capacity.group,
        groups=capacity.groups(per_pod),
        **alignment_counts(sum((Counter(room.alignments) for room in rooms), Counter())),
        per_pod=per_pod,
        nodes=len(rooms),
        full_nodes=sum(not room.copies and room.certainty is not Certainty.UNKNOWN for room in rooms),
        unknown_nodes=sum(room.certainty is Certainty.UNKNOWN for room in rooms),
        bounded=any(room.limit.by == "max_copies" for room in rooms),
        runs_out=[
            pod_replies.RunsOut(why=why, resource=resource, nodes=count)
            for (why, resource), count in ends.most_common()
        ],
        replays=capacity.replays,
        notes=notes,
    )


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
