"""What the routes for people's questions share: taking a question in, and sending its answer.

Rules of this file
- A question is read, checked and answered in a worker process, on a copy of the nodes: the event loop only moves bytes,
  and nothing that is asked can change what is known of the cluster.
- The work ends when the client leaves.
- An answer that breaks off after its first bytes were sent ends with a line that says so (`StreamProblem`).
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from contextlib import aclosing
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import orjson
from fastapi import Query, Request, Response
from fastapi.responses import StreamingResponse
from starlette.requests import ClientDisconnect

from extender.answers.question import Asked, QuestionError, Questions
from extender.api.http.problems import documented, question_problem
from extender.identity import Means, Principal

NodeQuery = Annotated[
    list[str] | None, Query(max_length=1000, description="With a bare manifest as body: these live nodes.")
]
"""The nodes that a question without a body of its own is about."""

T = TypeVar("T")
NDJSON: Final = "application/x-ndjson"
JSON: Final = "application/json"
PROBLEMS: Final = documented(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
    HTTPStatus.GATEWAY_TIMEOUT,
)
"""What every question can be answered with instead."""


def question_body(schema: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes a question as JSON or YAML; *schema* is one of `openapi.BODIES`."""
    described = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    content = {"application/json": described, "application/yaml": described}
    return {"requestBody": {"required": True, "content": content}}


def wants_lines(request: Request) -> bool:
    """Whether the caller asks for one JSON document a line."""
    return NDJSON in request.headers.get("accept", "")


async def whole_answer(request: Request, questions: Questions, asked: Asked) -> bytes:
    """The whole answer to a question.

    Raises:
        ClientDisconnect: the client left first.
        QuestionError: and the other errors of `Questions.ask`.
    """

    async def joined() -> bytes:
        async with aclosing(questions.ask(asked, _caller_of(request))) as pieces:
            return b"".join([piece async for piece in pieces])

    return await _while_client_waits(request, joined())


async def answered(request: Request, questions: Questions, asked: Asked) -> Response:
    """The answer to a question, in one piece or, if it wants lines, as they become known.

    Raises:
        ClientDisconnect: the client left before the first line.
        QuestionError: and the other errors of `Questions.ask`, before the first line.
    """
    if not asked.lines:
        return Response(await whole_answer(request, questions, asked), media_type=JSON)
    pieces = questions.ask(asked, _caller_of(request))
    first = await _while_client_waits(request, anext(pieces))
    return StreamingResponse(_lines(first, pieces), media_type=NDJSON)


async def _lines(first: bytes, rest: AsyncGenerator[bytes, None]) -> AsyncGenerator[bytes, None]:
    """The lines; closed by the response when the client leaves."""
    try:
        async with aclosing(rest):
            yield first
            async for piece in rest:
                yield piece
    except QuestionError as error:
        last = {"problem": question_problem(error).model_dump()}
        yield orjson.dumps(last, option=orjson.OPT_APPEND_NEWLINE)


async def _while_client_waits(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """The result of *work*, which is cancelled when the client leaves.

    Raises:
        ClientDisconnect: the client left first.
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
    """Whom limits count; empty: cannot be told apart."""
    principal = request.scope.get("state", {}).get("principal")
    if not isinstance(principal, Principal) or principal.means in (Means.LOOPBACK, Means.INSECURE):
        return ""
    return principal.name
