"""Routes for capacity and plan."""

from typing import Annotated, Final

from fastapi import APIRouter, Query, Request, Response

from extender.answers.question import QuestionKind, Questions
from extender.answers.requests import MAX_COPIES
from extender.api.questions.capacity_models import CapacityReply
from extender.api.questions.routes import (
    NDJSON,
    PROBLEMS,
    NodeQuery,
    answered,
    question_body,
    read_asked,
    wants_lines,
)
from extender.api.service import Service


def capacity_router(service: Service, questions: Questions) -> APIRouter:
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
        soon as it is counted. The last line is the summary, or a `StreamProblem` if the reply fails.
        """
        options = {"lines": wants_lines(request), "max_copies": max_copies}
        asked = await read_asked(service, request, QuestionKind.CAPACITY, node, **options)
        return await answered(request, questions, asked)

    @router.post(
        "/plan",
        response_class=Response,
        summary="Where each pod of a list would go",
        responses={
            200: {
                "description": "One `PlannedPod` a line, then one `PlanEnd`, or a `StreamProblem` if the reply fails.",
                "content": {NDJSON: {"schema": {"type": "string"}, "example": _PLAN_EXAMPLE}},
            },
            **PROBLEMS,
        },
        openapi_extra=question_body("PlanRequest"),
    )
    async def post_plan(
        request: Request,
        node: NodeQuery = None,
        all_or_nothing: Annotated[bool, Query(description="As in the body.")] = False,  # noqa: FBT002
    ) -> Response:
        """Place pods one after another by the service's own ranking. Each pod is a line, sent as soon as it is placed.

        The body is a question, or a bare manifest. As many pods of a manifest are placed as it has replicas.
        """
        asked = await read_asked(service, request, QuestionKind.PLAN, node, lines=True, all_or_nothing=all_or_nothing)
        return await answered(request, questions, asked)

    return router


_PLAN_EXAMPLE: Final = (
    '{"pod":0,"entry":0,"name":"solver-0","node":"node-a","score":10,"certainty":"exact",'
    '"alignment":"aligned","alignment_certain":true,"numa":[0],"containers":{},"reasons":{}}\n'
    '{"summary":{"pods":1,"placed":1,"unplaced":0,"held_back":0,"aligned":1,"split":0,"not_managed":0,"per_node":{"node-a":1}}}\n'
)
