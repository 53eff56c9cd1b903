"""The replies to capacity and plan: how many more pods fit, and where a list of pods would go."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from pydantic import TypeAdapter

from extender.answers.alignments import alignment_counts
from extender.answers.notes import all_notes
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
from extender.answers.requests import MAX_PLANNED_PODS, CapacityRequest, PlanRequest
from extender.answers.snapshot import Snapshot
from extender.kubelet.verdict import Certainty
from extender.questions.capacity import Capacity, NodeRoom
from extender.questions.plan import Placed, PlacementPlan
from extender.questions.subjects import Subject
from extender.replay.alignment import Alignment
from extender.replay.creation import placed_by, whole_placements
from extender.scheduling.judge import Judge
from extender.wire.errors import WireError
from extender.wire.verdicts import aligned_placements_to_json, alignment_to_json, granted_to_json
from extender.wire.workloads import PodWorkload

_CAPACITY: Final = TypeAdapter(CapacityRequest)
_PLAN: Final = TypeAdapter(PlanRequest)
MAX_PLACED: Final = 50_000_000
"""Pods of a plan times nodes: limits the cost of one plan."""
Json = dict[str, object]


def read_capacity(asked: Asked, snapshot: Snapshot, judge: Judge) -> tuple[Capacity, list[Subject]]:
    """Read a `CapacityRequest`. Raises WireError or UnknownNodeError."""
    document, paths = read_question(asked), None
    if is_manifest(document, "pods"):
        node = None if asked.node is None else list(asked.node)
        parts = parts_of(document)
        paths = [part.path for part in parts]
        document = {"pods": [part.document for part in parts], "nodes": node, "max_copies": asked.max_copies}
    question = parse_question(_CAPACITY, document)
    paths = paths or [f"pods[{i}]" for i in range(len(question.pods))]
    mix = [workload_of(asked, pod, path) for pod, path in zip(question.pods, paths, strict=True)]
    subjects = live_subjects(snapshot, question.nodes, question.hypothetical)
    subjects += made_subjects(snapshot, question.hypothetical)
    return Capacity(mix, judge, question.max_copies, question.group), subjects


def read_plan(
    asked: Asked, snapshot: Snapshot, judge: Judge
) -> tuple[PlacementPlan, list[tuple[PodWorkload, int]], bool]:
    """Read a `PlanRequest`: the plan, its workloads with the number of copies, and `all_or_nothing`.

    Raises:
        WireError: it is malformed or too large.
        UnknownNodeError: it names a node without a report.
    """
    document, paths = read_question(asked), None
    if is_manifest(document, "pods"):
        node = None if asked.node is None else list(asked.node)
        parts = parts_of(document)
        paths = [part.path for part in parts]
        asked_pods = [{"pod": part.document} for part in parts]
        document = {"pods": asked_pods, "nodes": node, "all_or_nothing": asked.all_or_nothing}
    question = parse_question(_PLAN, document)
    entries = _entries(asked, question, paths or [f"pods[{i}].pod" for i in range(len(question.pods))])
    subjects = live_subjects(snapshot, question.nodes, question.hypothetical)
    _check_size(entries, len(subjects) + len(question.hypothetical))
    subjects += made_subjects(snapshot, question.hypothetical)
    return PlacementPlan(subjects, judge), entries, question.all_or_nothing


def capacity_document(capacity: Capacity, subjects: Sequence[Subject]) -> Json:
    """The whole `CapacityReply`."""
    *nodes, last = capacity_lines(capacity, subjects)
    return {**last, "nodes": nodes}


def capacity_lines(capacity: Capacity, subjects: Sequence[Subject]) -> Iterator[Json]:
    """One document per node, then one with the summary."""
    rooms = []
    for room in capacity.rooms(subjects):
        rooms.append(room)
        yield _room(capacity, room)
    yield {"summary": {**_summary(capacity, rooms), "notes": all_notes(capacity.mix, subjects)}}


def _room(capacity: Capacity, room: NodeRoom) -> Json:
    return {
        "node": room.subject.name,
        "hypothetical": room.subject.hypothetical,
        "copies": room.copies,
        "per_pod": capacity.per_pod(room.copies),
        **alignment_counts(room.alignments),
        "certainty": room.certainty.value,
        "totals_known": room.totals_known,
        "limited_by": room.limit,
    }


def _summary(capacity: Capacity, rooms: Sequence[NodeRoom]) -> Json:
    per_node = [capacity.per_pod(room.copies) for room in rooms]
    ends = Counter((room.limit.why, room.limit.resource) for room in rooms)
    per_pod = [sum(each) for each in zip(*per_node, strict=True)] or capacity.per_pod(0)
    return {
        "copies": sum(room.copies for room in rooms),
        "group": capacity.group,
        "groups": capacity.groups(per_pod),
        **alignment_counts(sum((Counter(room.alignments) for room in rooms), Counter())),
        "per_pod": per_pod,
        "nodes": len(rooms),
        "full_nodes": sum(not room.copies and room.certainty is not Certainty.UNKNOWN for room in rooms),
        "unknown_nodes": sum(room.certainty is Certainty.UNKNOWN for room in rooms),
        "bounded": any(room.limit.by == "max_copies" for room in rooms),
        "runs_out": [
            {"why": why, "resource": resource, "nodes": count} for (why, resource), count in ends.most_common()
        ],
        "replays": capacity.replays,
    }


def _entries(asked: Asked, plan: PlanRequest, paths: Sequence[str]) -> list[tuple[PodWorkload, int]]:
    entries = []
    pods = 0
    for i, entry in enumerate(plan.pods):
        path = paths[i]
        workload = workload_of(asked, entry.pod, path)
        copies = workload.replicas if entry.copies is None else entry.copies
        pods += copies
        if pods > MAX_PLANNED_PODS:
            raise WireError(path.removesuffix(".pod"), f"more than {MAX_PLANNED_PODS} pods in one plan")
        entries.append((workload, copies))
    return entries


def _check_size(entries: Sequence[tuple[PodWorkload, int]], nodes: int) -> None:
    pods = sum(copies for _, copies in entries)
    if pods * nodes > MAX_PLACED:
        raise WireError("pods", f"{pods} pods on {nodes} nodes are too many for one plan; split it")


def plan_lines(
    plan: PlacementPlan, entries: Sequence[tuple[PodWorkload, int]], *, all_or_nothing: bool = False
) -> Iterator[Json]:
    """One document per pod, then one with the summary.

    With *all_or_nothing* nothing is sent before all pods have been placed. At most `MAX_PLANNED_PODS` are kept.
    """
    found: Iterable[Placed] = plan.run(entries)
    held_back = 0
    if all_or_nothing:
        found = list(found)
        if any(placed.node is None for placed in found):
            held_back = sum(placed.node is not None for placed in found)
            found = [placed if placed.node is None else _held_back(placed) for placed in found]
    per_node: Counter[str] = Counter()
    alignments: Counter[Alignment] = Counter()
    pods = 0
    for placed in found:
        if placed.node is not None:
            per_node[placed.node] += 1
        if placed.alignment is not None:
            alignments[placed.alignment.alignment] += 1
        yield _placed(pods, placed)
        pods += 1
    placed_pods = per_node.total()
    summary = {
        "pods": pods,
        "placed": placed_pods,
        "unplaced": pods - placed_pods,
        "held_back": held_back,
        **alignment_counts(alignments),
        "notes": all_notes((workload for workload, _ in entries), plan.subjects),
        "per_node": dict(per_node),
    }
    yield {"summary": summary}


def _held_back(placed: Placed) -> Placed:
    """A pod that fits on a node although another pod of the plan does not."""
    return Placed(entry=placed.entry, name=placed.name, node=None)


def _placed(number: int, placed: Placed) -> Json:
    return {
        "pod": number,
        "entry": placed.entry,
        "name": placed.name,
        "node": placed.node,
        "score": placed.score,
        "certainty": placed.certainty,
        **alignment_to_json(placed.alignment),
        "containers": {}
        if placed.admitted is None
        else aligned_placements_to_json(whole_placements(placed.admitted), placed.alignment),
        "nri": [] if placed.admitted is None else [granted_to_json(each) for each in placed_by(placed.admitted)],
        "reasons": placed.reasons,
    }
