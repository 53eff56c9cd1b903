"""The routes of the questions of people, with their part of the OpenAPI document. `questions.toml` has its texts."""

from collections.abc import Awaitable, Callable, Mapping
from importlib.resources import files
from typing import Annotated, Any, Final

import msgspec
from fastapi import APIRouter, Depends, Query, Request, Response
from msgspec import Struct

from extender.api.http.bodies import read_body
from extender.api.http.problems import StreamProblem, documented, replies_with
from extender.api.http.replies import described, json_body, json_reply, schema_of
from extender.api.questions.machines import MachineIndex, machine_index
from extender.api.questions.routes import NDJSON, PROBLEMS, NodeQuery, answered
from extender.api.service import Service
from extender.questions.answering import TABLE, AskedRoute
from extender.questions.asked import Asked, QuestionKind, Questions
from extender.wire.pod_replies import PlanEnd, PlannedPod
from extender.wire.questions import MAX_COPIES

Options = Mapping[str, Any]
"""Fields of the question from query parameters, and `compact`."""


def _what_if_options(
    node: NodeQuery = None,
    *,
    explain: Annotated[bool, Query(description="As `explain` in the body.")] = False,
    compact: Annotated[
        bool, Query(description="Group equal answers in `groups`; `nodes` has explained nodes only.")
    ] = False,
) -> Options:
    return {"nodes": node, "explain": explain, "compact": compact}


def _capacity_options(
    node: NodeQuery = None, max_copies: Annotated[int, Query(ge=1, le=MAX_COPIES, description="As in the body.")] = 1000
) -> Options:
    return {"nodes": node, "max_copies": max_copies}


def _plan_options(
    node: NodeQuery = None, *, all_or_nothing: Annotated[bool, Query(description="As in the body.")] = False
) -> Options:
    return {"nodes": node, "all_or_nothing": all_or_nothing}


def _no_options() -> Options:
    return {}


class _Text(Struct):
    summary: str
    description: str
    says_progress: bool = False


class _Texts(Struct):
    progress: str
    texts: dict[QuestionKind, _Text]


_TEXTS: Final = msgspec.toml.decode(files(__package__).joinpath("questions.toml").read_bytes(), type=_Texts)
_OPTIONS: Final[Mapping[QuestionKind, Callable[..., Options]]] = {
    QuestionKind.WHAT_IF: _what_if_options,
    QuestionKind.CAPACITY: _capacity_options,
    QuestionKind.PLAN: _plan_options,
}
_PLAN_EXAMPLE: Final = (
    '{"pod":0,"entry":0,"name":"solver-0","node":"node-a","score":10,"certainty":"exact",'
    '"alignment":"aligned","alignment_certain":true,"numa":[0],"containers":{},"reasons":{}}\n'
    '{"summary":{"pods":1,"placed":1,"unplaced":0,"held_back":0,"aligned":1,"split":0,"not_managed":0,"per_node":{"node-a":1}}}\n'
)
_LINES: Final[dict[str, Any]] = {
    "description": "One `PlannedPod` a line, then one `PlanEnd`, or a `StreamProblem` if the reply fails.",
    "content": {NDJSON: {"schema": {"type": "string"}, "example": _PLAN_EXAMPLE}},
}


def questions_router(service: Service, questions: Questions) -> APIRouter:
    """The routes of the table, and GET /v1/machines."""
    router = APIRouter()
    for line in (PlannedPod, PlanEnd, StreamProblem):  # no route replies with these alone
        schema_of(line)
    for kind, route in TABLE.items():
        text = _TEXTS.texts[kind]
        router.add_api_route(
            route.path,
            _endpoint(service, questions, route),
            methods=["POST"],
            name=f"post_{kind.value.replace('-', '_')}",
            response_class=Response,
            tags=[route.tag],
            summary=text.summary,
            description=text.description + (_TEXTS.progress if text.says_progress else ""),
            responses={200: _LINES if route.reply is None else described(route.reply), **documented(*PROBLEMS)},
            openapi_extra=json_body(route.question, "application/yaml"),
        )

    @router.get(
        "/v1/machines", tags=["what-if"], summary="Machine shapes for hypothetical nodes", **replies_with(MachineIndex)
    )
    async def list_machines() -> Response:
        """The catalogue of machine shapes that `hypothetical[].machine` can name."""
        return json_reply(machine_index())

    return router


def _endpoint(
    service: Service, questions: Questions, route: AskedRoute
) -> Callable[[Request, Options], Awaitable[Response]]:
    options_of = _OPTIONS.get(route.kind, _no_options)

    async def post(request: Request, options: Annotated[Options, Depends(options_of)]) -> Response:
        asked = Asked(
            kind=route.kind,
            body=await read_body(request, service.settings.max_body_bytes),
            media_type=request.headers.get("content-type", ""),
            lines=route.reply is None or (route.lines and NDJSON in request.headers.get("accept", "")),
            compact=options.get("compact", False),
            options={name: value for name, value in options.items() if name != "compact"},
        )
        return await answered(request, questions, asked)

    return post
