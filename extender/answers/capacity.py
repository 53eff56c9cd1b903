"""The replies to capacity and plan: how many more pods fit, and where a list of pods would go."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Annotated, Final

from msgspec import Meta

from extender.answers.notes import all_notes
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
from extender.questions.capacity import Capacity, CapacityLimit, NodeRoom
from extender.questions.dra import with_forecast
from extender.questions.node_context import Subject
from extender.questions.plan import PlacementPlan, PlannedPod, nowhere
from extender.replay.alignment import Alignment
from extender.scheduling.judge import Judge
from extender.wire.errors import WireError
from extender.wire.questions import Question, Workload
from extender.wire.replies import ReplyBody, about
from extender.wire.verdicts import alignment_counts
from extender.wire.workloads import PodWorkload

MAX_MIX: Final = 64
MAX_COPIES: Final = 10_000
MAX_PLANNED_PODS: Final = 10_000
MAX_PLACED: Final = 50_000_000
"""Limit on the pods of a plan times the nodes: it bounds the cost of one plan."""


class CapacityRequest(Question):
    """How many pods fit: copies of one pod, or of a mix of pods taken in turn."""

    pods: Annotated[list[Workload], about("One pod, or a mix of pods taken in turn.", min_length=1, max_length=MAX_MIX)]
    nodes: NodeNames = None
    hypothetical: HypotheticalNodes = []
    max_copies: Annotated[int, about("Stop counting on a node at this many pods.", ge=1, le=MAX_COPIES)] = 1000
    group: Annotated[
        int, about("Pods that must run together: the answer counts whole groups of so many.", ge=1, le=MAX_COPIES)
    ] = 1


class PlannedWorkload(Question):
    """Pods of one template in a plan."""

    pod: Workload
    copies: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_PLANNED_PODS)] | None, about("Null: the number of replicas in the document.")
    ] = None


class PlanRequest(Question):
    """Pods in the order of their creation."""

    pods: Annotated[
        list[PlannedWorkload], about("In the order of their creation.", min_length=1, max_length=MAX_PLANNED_PODS)
    ]
    nodes: NodeNames = None
    hypothetical: HypotheticalNodes = []
    all_or_nothing: Annotated[
        bool, about("If one pod fits on no node, none is placed: no line has a node, and `held_back` counts them.")
    ] = False


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
    shown: list[NodeCapacity] = []
    for room in capacity.rooms(subjects):
        rooms.append(room)
        shown.append(_room(capacity, room))
        if asked.lines:
            yield shown[-1]
    notes = all_notes(capacity.mix, subjects, capacity.left_out if asked.forecast else None)
    summary = _summary(capacity, rooms, notes)
    yield CapacityEnd(summary=summary) if asked.lines else CapacityReply(summary=summary, nodes=shown)


def _room(capacity: Capacity, room: NodeRoom) -> NodeCapacity:
    return NodeCapacity.filled(
        room,
        node=room.subject.name,
        hypothetical=room.subject.hypothetical,
        per_pod=capacity.per_pod(room.copies),
        **alignment_counts(room.alignments),
        limited_by=room.limit,
    )


def _summary(capacity: Capacity, rooms: Sequence[NodeRoom], notes: list[str]) -> CapacitySummary:
    per_node = [capacity.per_pod(room.copies) for room in rooms]
    ends = Counter((room.limit.why, room.limit.resource) for room in rooms)
    per_pod = [sum(each) for each in zip(*per_node, strict=True)] or capacity.per_pod(0)
    return CapacitySummary(
        copies=sum(room.copies for room in rooms),
        group=capacity.group,
        groups=capacity.groups(per_pod),
        **alignment_counts(sum((Counter(room.alignments) for room in rooms), Counter())),
        per_pod=per_pod,
        nodes=len(rooms),
        full_nodes=sum(not room.copies and room.certainty is not Certainty.UNKNOWN for room in rooms),
        unknown_nodes=sum(room.certainty is Certainty.UNKNOWN for room in rooms),
        bounded=any(room.limit.by == "max_copies" for room in rooms),
        runs_out=[RunsOut(why=why, resource=resource, nodes=count) for (why, resource), count in ends.most_common()],
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
    found: Iterable[PlannedPod] = plan.run(entries)
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
    summary = PlanSummary(
        pods=pods,
        placed=placed_pods,
        unplaced=pods - placed_pods,
        held_back=held_back,
        **alignment_counts(alignments),
        notes=all_notes([workload for workload, _ in entries], plan.subjects, left_out),
        per_node=dict(per_node),
    )
    yield PlanEnd(summary=summary)
