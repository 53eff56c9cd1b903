"""What the routes for people's questions share: reading the question, and finding the nodes it is about.

Laws of this file
- A question is read and answered in another thread, on values taken before: the event loop keeps answering the
  scheduler, and nothing that is asked can change what is known of the cluster.
- A bare manifest is a question too: the options then come from the query.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final, TypeVar

import orjson
from fastapi import Query, Request
from pydantic import TypeAdapter
from starlette.concurrency import iterate_in_threadpool

from extender.api.bodies import read_body
from extender.api.problems import documented
from extender.api.service import Service
from extender.cluster.node import NodeRecord
from extender.cluster.state import UnknownNodeError
from extender.verbs.hypothetical import build
from extender.verbs.subjects import Subject, live
from extender.wire.documents import read_document
from extender.wire.errors import WireError
from extender.wire.questions import HypotheticalNode
from extender.wire.validation import parse_object

NodeQuery = Annotated[
    list[str] | None, Query(max_length=1000, description="With a bare manifest as body: these live nodes.")
]
"""The nodes that a question without a body of its own is about."""

T = TypeVar("T")
NDJSON: Final = "application/x-ndjson"
PROBLEMS: Final = documented(
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.NOT_FOUND,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)
"""What every question can be answered with instead."""


def question_body(schema: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that takes a question as JSON or YAML; *schema* is one of `openapi.BODIES`."""
    described = {"schema": {"$ref": f"#/components/schemas/{schema}"}}
    content = {"application/json": described, "application/yaml": described}
    return {"requestBody": {"required": True, "content": content}}


async def read_question(request: Request, limit: int) -> object:
    """The document in the body, JSON or YAML; raises WireError or BodyTooLargeError."""
    body = await read_body(request, limit)
    return await asyncio.to_thread(read_document, body, request.headers.get("content-type", ""))


def is_manifest(document: object, key: str) -> bool:
    """Whether the document is no question (which has *key*) but a bare Kubernetes object."""
    return isinstance(document, dict) and key not in document and bool({"kind", "spec"} & document.keys())


def parse_question(adapter: TypeAdapter[T], document: object) -> T:
    """The question that the document is; raises WireError for the first fault."""
    if not isinstance(document, dict):
        raise WireError("", "an object is expected")
    return parse_object(adapter, document, "")


def live_records(
    service: Service, names: Sequence[str] | None, hypothetical: Sequence[HypotheticalNode]
) -> list[NodeRecord]:
    """The live nodes that a question is about, as they are now: in the order asked, without repeats; all: by name.

    Raises:
        UnknownNodeError: no report of one of them is held.
    """
    cluster = service.cluster
    cluster.expire(service.clock())
    if names is None:
        return [] if hypothetical else sorted(cluster, key=lambda record: record.name)
    records = []
    for name in dict.fromkeys(names):
        record = cluster.get(name)
        if record is None:
            raise UnknownNodeError(name)
        records.append(record)
    return records


def subjects_of(
    service: Service, records: Iterable[NodeRecord], hypothetical: Sequence[HypotheticalNode]
) -> list[Subject]:
    """All nodes of a question, hypothetical ones last; raises WireError where one of those cannot be."""
    subjects = [live(record, service.surroundings) for record in records]

    def find_live(name: str) -> Subject | None:
        record = service.cluster.get(name)
        return None if record is None else live(record, service.surroundings)

    made = (build(node, f"hypothetical[{i}]", i + 1, find_live) for i, node in enumerate(hypothetical))
    return [*subjects, *made]


def wants_lines(request: Request) -> bool:
    """Whether the caller asks for one JSON document a line."""
    return NDJSON in request.headers.get("accept", "")


def as_lines(documents: Iterable[Mapping[str, object]]) -> AsyncIterator[bytes]:
    """The documents as lines of JSON, made in another thread, a few at a time."""
    return iterate_in_threadpool(_batches(documents))


def _batches(documents: Iterable[Mapping[str, object]]) -> Iterator[bytes]:
    """A line each for the first ones, so that progress shows at once; then more together."""
    batch: list[bytes] = []
    sent = 0
    for document in documents:
        batch.append(orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE))
        if sent < _SINGLE_LINES or len(batch) >= _BATCH:
            yield b"".join(batch)
            sent += len(batch)
            batch = []
    if batch:
        yield b"".join(batch)


_SINGLE_LINES: Final = 16
_BATCH: Final = 16
