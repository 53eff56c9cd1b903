"""The questions of people: one row each, from which come the route and its part of the OpenAPI document."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, Final, NamedTuple

from fastapi import APIRouter, Depends, Query, Request, Response

from extender.answers.capacity import MAX_COPIES, CapacityReply, CapacityRequest, PlanEnd, PlanRequest
from extender.answers.defragment import DefragmentReply, DefragmentRequest
from extender.answers.make_room import MakeRoomReply, MakeRoomRequest
from extender.answers.question import Asked, QuestionKind, Questions
from extender.answers.resize_check import ResizeCheckReply, ResizeCheckRequest
from extender.answers.restart_check import RestartCheckReply, RestartCheckRequest
from extender.answers.rightsize import RightsizeReply, RightsizeRequest
from extender.answers.tune import TuneReply, TuneRequest
from extender.answers.what_if import WhatIfReply, WhatIfRequest
from extender.api.http.bodies import read_body
from extender.api.http.problems import StreamProblem
from extender.api.http.replies import described, json_body, json_reply, schema_of
from extender.api.questions.machines import MachineIndex, machine_index
from extender.api.questions.routes import NDJSON, PROBLEMS, NodeQuery, answered
from extender.api.service import Service
from extender.questions.plan import PlannedPod
from extender.wire.questions import Question
from extender.wire.replies import ReplyBody

Options = Mapping[str, Any]
"""Fields of `Asked` from query parameters."""


def _what_if_options(
    node: NodeQuery = None,
    *,
    explain: Annotated[bool, Query(description="As `explain` in the body.")] = False,
    compact: Annotated[
        bool, Query(description="Group equal answers in `groups`; `nodes` has explained nodes only.")
    ] = False,
) -> Options:
    return {"node": node and tuple(node), "explain": explain, "compact": compact}


def _capacity_options(
    node: NodeQuery = None,
    max_copies: Annotated[int, Query(ge=1, le=MAX_COPIES, description="As in the body.")] = 1000,
) -> Options:
    return {"node": node and tuple(node), "max_copies": max_copies}


def _plan_options(
    node: NodeQuery = None, *, all_or_nothing: Annotated[bool, Query(description="As in the body.")] = False
) -> Options:
    return {"node": node and tuple(node), "all_or_nothing": all_or_nothing}


def _no_options() -> Options:
    return {}


class AskedRoute(NamedTuple):
    """One question. `lines`: the answer is a stream of lines if the caller accepts it; always if `reply` is None."""

    kind: QuestionKind
    question: type[Question]
    reply: type[ReplyBody] | None
    summary: str
    description: str
    tag: str = "advice"
    lines: bool = True
    options: Callable[..., Options] = _no_options

    @property
    def path(self) -> str:
        """The route's path."""
        return f"/v1/advice/{self.kind.value}" if self.tag == "advice" else f"/v1/{self.kind.value}"


_PROGRESS: Final = """
With `Accept: application/x-ndjson` lines of progress, `{"progress": {"done": 3, "of": 9}}`, precede the answer.
If the answer fails, a `StreamProblem` is the last line.
"""
_PLAN_EXAMPLE: Final = (
    '{"pod":0,"entry":0,"name":"solver-0","node":"node-a","score":10,"certainty":"exact",'
    '"alignment":"aligned","alignment_certain":true,"numa":[0],"containers":{},"reasons":{}}\n'
    '{"summary":{"pods":1,"placed":1,"unplaced":0,"held_back":0,"aligned":1,"split":0,"not_managed":0,"per_node":{"node-a":1}}}\n'
)
_LINES: Final[dict[str, Any]] = {
    "description": "One `PlannedPod` a line, then one `PlanEnd`, or a `StreamProblem` if the reply fails.",
    "content": {NDJSON: {"schema": {"type": "string"}, "example": _PLAN_EXAMPLE}},
}
ROUTES: Final = (
    AskedRoute(
        QuestionKind.WHAT_IF,
        WhatIfRequest,
        WhatIfReply,
        "What each node would answer to a pod",
        "Replay the pod's admission on live or hypothetical nodes. Nothing in the cluster changes.\n\n"
        "The body is a question, or a bare manifest (`kubectl get -o yaml`), as JSON or YAML.",
        tag="what-if",
        lines=False,
        options=_what_if_options,
    ),
    AskedRoute(
        QuestionKind.CAPACITY,
        CapacityRequest,
        CapacityReply,
        "How many copies fit",
        "Copies of a pod, or of a mix in turn, replayed one after another on each node until one is refused.\n\n"
        "The body is a question, or a bare manifest. With `Accept: application/x-ndjson` each node is a line, sent as "
        "soon as it is counted. The last line is the summary, or a `StreamProblem` if the reply fails.",
        tag="what-if",
        options=_capacity_options,
    ),
    AskedRoute(
        QuestionKind.PLAN,
        PlanRequest,
        None,
        "Where each pod of a list would go",
        "Place pods one after another by the service's own ranking. Each pod is a line, sent as soon as it is placed."
        "\n\nThe body is a question, or a bare manifest. As many pods of a manifest are placed as it has replicas.",
        tag="what-if",
        options=_plan_options,
    ),
    AskedRoute(
        QuestionKind.RESIZE_CHECK,
        ResizeCheckRequest,
        ResizeCheckReply,
        "Whether a kubelet would accept an in-place resize",
        "Whether the kubelet of the pod's node accepts other amounts for a running container, and where the pod would "
        f"be placed if it were recreated with them.{_PROGRESS}",
    ),
    AskedRoute(
        QuestionKind.RESTART_CHECK,
        RestartCheckRequest,
        RestartCheckReply,
        "What a restart of the kubelet would do to the pods",
        "Which state files the kubelet refuses at its start, and which pods it does not admit again, after a restart, "
        "an upgrade or a change of its configuration. The nodes are in a safe order: those to drain come last."
        f"{_PROGRESS}",
    ),
    AskedRoute(
        QuestionKind.MAKE_ROOM,
        MakeRoomRequest,
        MakeRoomReply,
        "Which pods to evict so that a pod is aligned",
        "The cheapest evictions with which a node aligns the pod, and where the evicted pods would go; replayed to the "
        f"end. With Eviction objects and a script for kubectl.{_PROGRESS}",
    ),
    AskedRoute(
        QuestionKind.DEFRAGMENT,
        DefragmentRequest,
        DefragmentReply,
        "What moves would gain in the whole cluster",
        f"How many more copies of a pod would be aligned after so many moves, and which moves these are.{_PROGRESS}",
    ),
    AskedRoute(
        QuestionKind.TUNE,
        TuneRequest,
        TuneReply,
        "Which kubelet configuration suits the pods",
        "The pods of the cluster, or a list, replayed under other kubelet configurations: those that no other one "
        f"surpasses, as patches, with what a restart would do.{_PROGRESS}",
    ),
    AskedRoute(
        QuestionKind.RIGHTSIZE,
        RightsizeRequest,
        RightsizeReply,
        "Which requests just miss a boundary",
        f"Shapes of pods of which more would be aligned on a node with a slightly smaller request.{_PROGRESS}",
    ),
)


def questions_router(service: Service, questions: Questions) -> APIRouter:
    """The routes of the table, and GET /v1/machines."""
    router = APIRouter()
    for line in (PlannedPod, PlanEnd, StreamProblem):  # no route replies with these alone
        schema_of(line)
    for route in ROUTES:
        router.add_api_route(
            route.path,
            _endpoint(service, questions, route),
            methods=["POST"],
            name=f"post_{route.kind.value.replace('-', '_')}",
            response_class=Response,
            tags=[route.tag],
            summary=route.summary,
            description=route.description,
            responses={200: _LINES if route.reply is None else described(route.reply), **PROBLEMS},
            openapi_extra=json_body(route.question, "application/yaml"),
        )

    @router.get(
        "/v1/machines",
        tags=["what-if"],
        summary="Machine shapes for hypothetical nodes",
        response_class=Response,
        responses={200: described(MachineIndex)},
    )
    async def list_machines() -> Response:
        """The catalogue of machine shapes that `hypothetical[].machine` can name."""
        return json_reply(machine_index())

    return router


def _endpoint(
    service: Service, questions: Questions, route: AskedRoute
) -> Callable[[Request, Options], Awaitable[Response]]:
    async def post(request: Request, options: Annotated[Options, Depends(route.options)]) -> Response:
        lines = route.reply is None or (route.lines and NDJSON in request.headers.get("accept", ""))
        asked = Asked(
            kind=route.kind,
            body=await read_body(request, service.settings.max_body_bytes),
            media_type=request.headers.get("content-type", ""),
            lines=lines,
            **options,
        )
        return await answered(request, questions, asked)

    return post
