"""HTTP/1.1 as far as Kubernetes clients need it: keep-alive, Content-Length bodies, chunked replies.

Written on asyncio streams and not on a framework because the tests must be able to break a reply at any byte.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from tests.fakes.k8s.resources import JSON, ApiProblem

MAX_HEAD_BYTES: Final = 64 * 1024
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
_PHRASES: Final = {200: "OK", 201: "Created", 400: "Bad Request", 404: "Not Found", 409: "Conflict", 410: "Gone"}


@dataclass(frozen=True, slots=True)
class Request:
    """One request, read whole. Header names are lower case; of a repeated query name the last value counts."""

    method: str
    path: str
    query: Mapping[str, str]
    headers: Mapping[str, str]
    body: bytes

    def json(self) -> JSON:
        """The body as an object; empty for an empty body; 400 for anything else."""
        if not self.body:
            return {}
        try:
            value = orjson.loads(self.body)
        except orjson.JSONDecodeError as error:
            raise ApiProblem(400, "BadRequest", f"the body is not JSON: {error}") from error
        if not isinstance(value, dict):
            raise ApiProblem(400, "BadRequest", "the body is not a JSON object")
        return value


async def read_request(reader: asyncio.StreamReader) -> Request | None:
    """The next request of the connection; None when the client has closed it."""
    try:
        head = await reader.readuntil(b"\r\n\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError):
        return None
    first, *lines = head.decode("latin-1").split("\r\n")
    method, _, rest = first.partition(" ")
    url = urlsplit(rest.rpartition(" ")[0])
    headers = {}
    for line in filter(None, lines):
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    length = int(headers.get("content-length", 0))
    if length > MAX_BODY_BYTES:
        return None
    body = await reader.readexactly(length) if length else b""
    return Request(method, unquote(url.path), dict(parse_qsl(url.query, keep_blank_values=True)), headers, body)


def reply(status: int, body: bytes, *, retry_after: int | None = None) -> bytes:
    """A whole reply."""
    extra = f"Retry-After: {retry_after}\r\n" if retry_after is not None else ""
    return (
        f"HTTP/1.1 {status} {_PHRASES.get(status, 'Status')}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\n{extra}\r\n"
    ).encode() + body


def problem(error: ApiProblem) -> bytes:
    """A refusal as a whole reply."""
    return reply(error.code, orjson.dumps(error.status()), retry_after=error.retry_after)


STREAM_HEAD: Final = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
STREAM_END: Final = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked reply."""
    return b"%x\r\n%b\r\n" % (len(data), data)
