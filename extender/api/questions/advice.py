"""Advice: one route for each question, all of the same form."""

from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

from fastapi import APIRouter, Request, Response

from extender.answers.question import QuestionKind, Questions
from extender.api.questions.advice_models import (
    DefragmentReply,
    MakeRoomReply,
    ResizeCheckReply,
    RestartCheckReply,
    RightsizeReply,
    TuneReply,
)
from extender.api.questions.models import Answer
from extender.api.questions.routes import PROBLEMS, answered, question_body, read_asked, wants_lines
from extender.api.service import Service


class _AdviceRoute(NamedTuple):
    """`body`: a schema of `openapi.BODIES`."""

    kind: QuestionKind
    body: str
    reply: type[Answer]
    summary: str
    description: str


_PROGRESS: Final = """
With `Accept: application/x-ndjson` lines of progress, `{"progress": {"done": 3, "of": 9}}`, precede the answer.
If the answer fails, a `StreamProblem` is the last line.
"""
_ROUTES: Final = (
    _AdviceRoute(
        QuestionKind.RESIZE_CHECK,
        "ResizeCheckRequest",
        ResizeCheckReply,
        "Whether a kubelet would accept an in-place resize",
        "Whether the kubelet of the pod's node accepts other amounts for a running container, and where the pod would "
        "be placed if it were recreated with them.",
    ),
    _AdviceRoute(
        QuestionKind.RESTART_CHECK,
        "RestartCheckRequest",
        RestartCheckReply,
        "What a restart of the kubelet would do to the pods",
        "Which state files the kubelet refuses at its start, and which pods it does not admit again, after a restart, "
        "an upgrade or a change of its configuration. The nodes are in a safe order: those to drain come last.",
    ),
    _AdviceRoute(
        QuestionKind.MAKE_ROOM,
        "MakeRoomRequest",
        MakeRoomReply,
        "Which pods to evict so that a pod is aligned",
        "The cheapest evictions with which a node aligns the pod, and where the evicted pods would go; replayed to the "
        "end. With Eviction objects and a script for kubectl.",
    ),
    _AdviceRoute(
        QuestionKind.DEFRAGMENT,
        "DefragmentRequest",
        DefragmentReply,
        "What moves would gain in the whole cluster",
        "How many more copies of a pod would be aligned after so many moves, and which moves these are.",
    ),
    _AdviceRoute(
        QuestionKind.TUNE,
        "TuneRequest",
        TuneReply,
        "Which kubelet configuration suits the pods",
        "The pods of the cluster, or a list, replayed under other kubelet configurations: those that no other one "
        "surpasses, as patches, with what a restart would do.",
    ),
    _AdviceRoute(
        QuestionKind.RIGHTSIZE,
        "RightsizeRequest",
        RightsizeReply,
        "Which requests just miss a boundary",
        "Shapes of pods of which more would be aligned on a node with a slightly smaller request.",
    ),
)


def advice_router(service: Service, questions: Questions) -> APIRouter:
    """POST /v1/advice/NAME."""
    router = APIRouter(prefix="/v1/advice", tags=["advice"])
    for route in _ROUTES:
        router.add_api_route(
            f"/{route.kind.value}",
            _endpoint(service, questions, route.kind),
            methods=["POST"],
            name=f"post_{route.kind.value.replace('-', '_')}",
            response_class=Response,
            summary=route.summary,
            description=route.description + _PROGRESS,
            responses={200: {"model": route.reply}, **PROBLEMS},
            openapi_extra=question_body(route.body),
        )
    return router


def _endpoint(service: Service, questions: Questions, kind: QuestionKind) -> Callable[[Request], Awaitable[Response]]:
    async def post(request: Request) -> Response:
        asked = await read_asked(service, request, kind, lines=wants_lines(request))
        return await answered(request, questions, asked)

    return post
