"""How many more fit, and where a list of pods would go."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Query, Request, Response
from fastapi.responses import StreamingResponse
from pydantic import TypeAdapter

from extender.api.capacity_models import (
    MAX_COPIES,
    MAX_PLANNED_PODS,
    CapacityReply,
    CapacityRequest,
    PlanRequest,
)
from extender.api.questions import (
    NDJSON,
    PROBLEMS,
    NodeQuery,
    as_lines,
    is_manifest,
    live_records,
    parse_question,
    question_body,
    read_question,
    subjects_of,
    wants_lines,
)
from extender.api.service import Service
from extender.replay.verdict import Certainty
from extender.verbs.capacity import Capacity, Room
from extender.verbs.plan import Placed, Plan
from extender.verbs.subjects import Subject
from extender.wire.errors import WireError
from extender.wire.verdicts import placements_to_json
from extender.wire.workloads import Workload, workload_from_json

_CAPACITY: Final = TypeAdapter(CapacityRequest)
_PLAN: Final = TypeAdapter(PlanRequest)
MAX_PLACED: Final = 50_000_000
"""Pods of a plan times its nodes: how much looking around one plan may cost."""
Json = dict[str, object]


def capacity_router(service: Service) -> APIRouter:
    """POST /v1/capacity, POST /v1/plan."""
    router = APIRouter(prefix="/v1", tags=["what-if"])

    @router.post(
        "/capacity",
        response_class=Response,
        summary="How many copies fit",
        responses={200: {"model": CapacityReply}, **PROBLEMS},
        openapi_extra=question_body("CapacityRequest"),
    )
    async def post_capacity(
        request: Request,
        node: NodeQuery = None,
        max_copies: Annotated[int, Query(ge=1, le=MAX_COPIES, description="As in the body.")] = 1000,
    ) -> Response:
        """Copies of a pod, or of a mix in turn, replayed one after another on each node until one is refused.

        The body is a question, or a bare manifest. With `Accept: application/x-ndjson` each node is a line, sent as
        soon as it is counted, and the summary is the last line.
        """
        document = await read_question(request, service.settings.max_body_bytes)
        asked, mix = _read_capacity(document, node, max_copies)
        records = live_records(service, asked.nodes, asked.hypothetical)
        subjects = await asyncio.to_thread(subjects_of, service, records, asked.hypothetical)
        capacity = Capacity(mix, service.judge, asked.max_copies)
        if wants_lines(request):
            return StreamingResponse(as_lines(_capacity_lines(capacity, subjects)), media_type=NDJSON)
        return Response(await asyncio.to_thread(capacity_reply, capacity, subjects), media_type="application/json")

    @router.post(
        "/plan",
        response_class=Response,
        summary="Where each pod of a list would go",
        responses={
            200: {
                "description": "One `PlannedPod` a line, then one `PlanEnd`.",
                "content": {NDJSON: {"schema": {"type": "string"}, "example": _PLAN_EXAMPLE}},
            },
            **PROBLEMS,
        },
        openapi_extra=question_body("PlanRequest"),
    )
    async def post_plan(request: Request, node: NodeQuery = None) -> Response:
        """Place pods one after another by the service's own ranking; one line of JSON a pod, as soon as it is placed.

        The body is a question, or a bare manifest, of which as many pods are placed as it has replicas.
        """
        document = await read_question(request, service.settings.max_body_bytes)
        asked, entries = _read_plan(document, node)
        records = live_records(service, asked.nodes, asked.hypothetical)
        _check_size(entries, len(records) + len(asked.hypothetical))
        subjects = await asyncio.to_thread(subjects_of, service, records, asked.hypothetical)
        plan = await asyncio.to_thread(Plan, subjects, service.judge)
        return StreamingResponse(as_lines(_plan_lines(plan, entries)), media_type=NDJSON)

    return router


_PLAN_EXAMPLE: Final = (
    '{"pod":0,"entry":0,"name":"solver-0","node":"node-a","score":10,"certainty":"exact","containers":{},'
    '"reasons":{}}\n{"summary":{"pods":1,"placed":1,"unplaced":0,"per_node":{"node-a":1}}}\n'
)


def _read_capacity(document: object, node: list[str] | None, max_copies: int) -> tuple[CapacityRequest, list[Workload]]:
    """The question, and its mix of pods; of a bare manifest with the query's options."""
    prefix = "pods[{}]"
    if is_manifest(document, "pods"):
        prefix, document = "", {"pods": [document], "nodes": node, "max_copies": max_copies}
    asked = parse_question(_CAPACITY, document)
    return asked, [workload_from_json(pod, prefix.format(i)) for i, pod in enumerate(asked.pods)]


def _read_plan(document: object, node: list[str] | None) -> tuple[PlanRequest, list[tuple[Workload, int]]]:
    """The question, and its workloads with the number of copies; of a bare manifest with the query's options."""
    prefix = "pods[{}].pod"
    if is_manifest(document, "pods"):
        prefix, document = "", {"pods": [{"pod": document}], "nodes": node}
    asked = parse_question(_PLAN, document)
    return asked, _entries(asked, prefix)


def capacity_reply(capacity: Capacity, subjects: Sequence[Subject]) -> bytes:
    """The whole `CapacityReply`."""
    *nodes, last = _capacity_lines(capacity, subjects)
    return orjson.dumps({**last, "nodes": nodes})


def _capacity_lines(capacity: Capacity, subjects: Sequence[Subject]) -> Iterator[Json]:
    """One document a node, and one with the summary."""
    rooms = []
    for room in capacity.rooms(subjects):
        rooms.append(room)
        yield _room(capacity, room)
    yield {"summary": _summary(capacity, rooms)}


def _room(capacity: Capacity, room: Room) -> Json:
    return {
        "node": room.subject.name,
        "hypothetical": room.subject.hypothetical,
        "copies": room.copies,
        "per_pod": capacity.per_pod(room.copies),
        "certainty": room.certainty.value,
        "totals_known": room.totals_known,
        "limited_by": room.limit,
    }


def _summary(capacity: Capacity, rooms: Sequence[Room]) -> Json:
    per_node = [capacity.per_pod(room.copies) for room in rooms]
    ends = Counter((room.limit.why, room.limit.resource) for room in rooms)
    return {
        "copies": sum(room.copies for room in rooms),
        "per_pod": [sum(each) for each in zip(*per_node, strict=True)] or capacity.per_pod(0),
        "nodes": len(rooms),
        "full_nodes": sum(not room.copies and room.certainty is not Certainty.UNKNOWN for room in rooms),
        "unknown_nodes": sum(room.certainty is Certainty.UNKNOWN for room in rooms),
        "bounded": any(room.limit.by == "max_copies" for room in rooms),
        "runs_out": [
            {"why": why, "resource": resource, "nodes": count} for (why, resource), count in ends.most_common()
        ],
        "replays": capacity.replays,
    }


def _entries(asked: PlanRequest, prefix: str) -> list[tuple[Workload, int]]:
    entries = []
    pods = 0
    for i, entry in enumerate(asked.pods):
        path = prefix.format(i)
        workload = workload_from_json(entry.pod, path)
        copies = workload.replicas if entry.copies is None else entry.copies
        pods += copies
        if pods > MAX_PLANNED_PODS:
            raise WireError(f"pods[{i}]" if prefix else "", f"more than {MAX_PLANNED_PODS} pods in one plan")
        entries.append((workload, copies))
    return entries


def _check_size(entries: Sequence[tuple[Workload, int]], nodes: int) -> None:
    pods = sum(copies for _, copies in entries)
    if pods * nodes > MAX_PLACED:
        raise WireError("pods", f"{pods} pods on {nodes} nodes are more than one plan may look at; ask in parts")


def _plan_lines(plan: Plan, entries: Sequence[tuple[Workload, int]]) -> Iterator[Json]:
    per_node: Counter[str] = Counter()
    pods = 0
    for placed in plan.run(entries):
        if placed.node is not None:
            per_node[placed.node] += 1
        yield _placed(pods, placed)
        pods += 1
    placed_pods = per_node.total()
    summary = {"pods": pods, "placed": placed_pods, "unplaced": pods - placed_pods, "per_node": dict(per_node)}
    yield {"summary": summary}


def _placed(number: int, placed: Placed) -> Json:
    return {
        "pod": number,
        "entry": placed.entry,
        "name": placed.name,
        "node": placed.node,
        "score": placed.score,
        "certainty": placed.certainty,
        "containers": {} if placed.admitted is None else placements_to_json(placed.admitted.placements),
        "reasons": placed.reasons,
    }
