"""Common parts of the routes for questions: reading a question, and sending its answer.

Rules of this file
- A question is parsed and answered in a worker process, on a copy of the nodes. The event loop only passes bytes on,
  and no question can change the state of the cluster.
- The work ends when the client disconnects.
- An answer that fails after its first bytes were sent ends with a line that says so (`StreamProblem`).
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import msgspec
from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from extender.api.http.problems import StreamProblem, question_problem
from extender.api.http.replies import JSON
from extender.identity import Means, Principal
from extender.questions.asked import Asked, QuestionError, Questions

NodeQuery = Annotated[
    list[str] | None, Query(max_length=1000, description="If the body is a bare manifest: only these live nodes.")
]
"""The nodes of a question whose body is a bare manifest."""

T = TypeVar("T")
NDJSON: Final = "application/x-ndjson"
PROBLEMS: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
"""Errors that every question can get."""


async def whole_answer(request: Request, questions: Questions, asked: Asked) -> bytes:
    """The whole answer to a question.

    Raises:
        ClientDisconnect: the client disconnected first.
        QuestionError: or another error of `Questions.ask`.
    """

    async def joined() -> bytes:
        async with aclosing(questions.ask(asked, _caller_of(request))) as pieces:
            return b"".join([piece async for piece in pieces])

    return await _while_client_waits(request, joined())


async def answered(request: Request, questions: Questions, asked: Asked) -> Response:
    """The answer to a question: in one piece, or line by line if the question wants lines.

    Raises:
        ClientDisconnect: the client disconnected before the first line.
        QuestionError: or another error of `Questions.ask`, before the first line.
    """
    if not asked.lines:
        return Response(await whole_answer(request, questions, asked), media_type=JSON)
    pieces = questions.ask(asked, _caller_of(request))
    first = await _while_client_waits(request, anext(pieces))
    return StreamingResponse(_lines(first, pieces), media_type=NDJSON)


async def _lines(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The lines. The response closes them when the client disconnects."""
    try:
        async with aclosing(rest):
            yield first
            async for piece in rest:
                yield piece
    except QuestionError as error:
        yield msgspec.json.encode(StreamProblem(question_problem(error))) + b"\n"


async def _while_client_waits(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of *work*, which is cancelled when the client disconnects.

    Raises:
        ClientDisconnect: the client disconnected first.
    """
    working, leaving = asyncio.ensure_future(work), asyncio.ensure_future(_left(request))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientDisconnect
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass


def _caller_of(request: Request) -> str:
    """The caller for limits. Empty: callers that cannot be distinguished."""
    principal = request.scope.get("state", {}).get("principal")
    if not isinstance(principal, Principal) or principal.means in (Means.LOOPBACK, Means.INSECURE):
        return ""
    return principal.name
