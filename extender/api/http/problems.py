"""Errors as problem+json (RFC 9457). The scheduler's routes do not use it: see `api.scheduler`."""

import logging
from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Any, Final

import msgspec
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException

from extender.api.http.bodies import BodyTooLargeError, EncodingError
from extender.api.http.replies import described, schema_of
from extender.cluster.node import ClusterFullError, OutdatedError, UnknownNodeError
from extender.questions.asked import QuestionError
from extender.wire.documents import NotYAMLError
from extender.wire.errors import NotJSONError, WireError, shown
from extender.wire.replies import ReplyBody, about

LOG: Final = logging.getLogger(__name__)
MEDIA_TYPE: Final = "application/problem+json"
_STATUSES: Final[dict[type[Exception], HTTPStatus]] = {
    BodyTooLargeError: HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    UnknownNodeError: HTTPStatus.NOT_FOUND,
    OutdatedError: HTTPStatus.CONFLICT,
    ClusterFullError: HTTPStatus.INSUFFICIENT_STORAGE,
}
"""Errors whose message is the detail of the problem."""


class ProblemDetails(ReplyBody):
    """Why a request failed."""

    title: Annotated[str, about("The phrase of the HTTP status.")]
    status: Annotated[int, about("The HTTP status.")]
    detail: Annotated[str, about("What is wrong with this request, and what was expected.")]
    field: Annotated[str | None, about("Path of the faulty part in the request body; null: no particular part.")] = None


class StreamProblem(ReplyBody):
    """The last line of a streamed reply that could not be completed."""

    problem: ProblemDetails


def problem(status: HTTPStatus, detail: str, field: str | None = None) -> Response:
    """The reply for one problem."""
    document = ProblemDetails(title=status.phrase, status=status.value, detail=detail, field=field or None)
    return Response(msgspec.json.encode(document), status_code=status, media_type=MEDIA_TYPE)


def question_problem(error: QuestionError) -> ProblemDetails:
    """Why a question got no reply, or only the part that was sent before."""
    return ProblemDetails(title=error.status.phrase, status=error.status.value, detail=str(error))


def documented(*statuses: HTTPStatus) -> dict[int | str, dict[str, Any]]:
    """The `responses` of a route that can reply with these problems."""
    content = {MEDIA_TYPE: {"schema": schema_of(ProblemDetails)}}
    return {status.value: {"description": status.phrase, "content": content} for status in statuses}


def replies_with(reply: type, *problems: HTTPStatus, links: Mapping[str, object] | None = None) -> dict[str, Any]:
    """Arguments of a route that writes its replies itself: what it replies with, and the problems that it can have."""
    success = described(reply) | ({"links": links} if links else {})
    return {"response_class": Response, "responses": {200: success, **documented(*problems)}}


def install(app: FastAPI) -> None:
    """Make *app* report every error as a problem."""
    kinds: tuple[type[Exception], ...] = (
        WireError, *_STATUSES, QuestionError, RequestValidationError, HTTPException, Exception,
    )  # fmt: skip
    for kind in kinds:
        app.add_exception_handler(kind, _answer)


def problem_of(error: Exception, method: str, path: str) -> Response:
    """The reply to a request that *error* has ended. A defect is logged."""
    match error:
        case NotJSONError() | NotYAMLError():
            return problem(HTTPStatus.BAD_REQUEST, error.reason)
        case EncodingError():
            response = problem(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, error.reason)
            response.headers["accept-encoding"] = "gzip"
        case WireError():
            return problem(HTTPStatus.UNPROCESSABLE_ENTITY, str(error), error.field)
        case QuestionError():
            response = problem(error.status, str(error))
            if error.retry_after_seconds is not None:
                response.headers["Retry-After"] = str(error.retry_after_seconds)
        case RequestValidationError():
            first = error.errors()[0]
            field = ".".join(str(part) for part in first["loc"])
            return problem(HTTPStatus.UNPROCESSABLE_ENTITY, f"{field}: {first['msg']}", field)
        case HTTPException():
            return _http_problem(error, method, path)
        case _ if (status := _STATUSES.get(type(error))) is not None:
            return problem(status, str(error))
        case _:
            LOG.error("internal error method=%s path=%s", method, path, exc_info=error)
            return problem(HTTPStatus.INTERNAL_SERVER_ERROR, "internal error; see the log of the service")
    return response


def _http_problem(error: HTTPException, method: str, path: str) -> Response:
    headers, detail = error.headers or {}, str(error.detail)
    if detail == HTTPStatus.NOT_FOUND.phrase:
        detail = f"there is no route {shown(path)}; /docs lists the routes"
    elif detail == HTTPStatus.METHOD_NOT_ALLOWED.phrase:
        detail = f"the route does not take {method}; use {headers.get('Allow', 'another method')}"
    response = problem(HTTPStatus(error.status_code), detail)
    response.headers.update(headers)
    return response


async def _answer(request: Request, error: Exception) -> Response:
    return problem_of(error, request.method, request.url.path)
