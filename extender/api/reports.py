"""Routes that node exporters call."""

import asyncio
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import partial
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Request, Response

from extender.api.access.limits import LimitError
from extender.api.http.bodies import BodyTooLargeError, read_body
from extender.api.http.problems import documented, replies_with
from extender.api.http.replies import JSON, json_body
from extender.api.nodes.routes import NodeName
from extender.api.service import Service
from extender.cluster.node import ClusterFullError, NodeRecord, Observation, OutdatedError, UnknownNodeError
from extender.intake import observation_of
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.verdict import Certainty, Provider
from extender.wire.errors import WireError, shown
from extender.wire.replies import ReplyBody, about
from extender.wire.reports import HEARTBEAT, REPORT, NewKubeletError, read_heartbeat, read_report

_OUTCOMES: Final[dict[type[Exception], str]] = {
    WireError: "invalid",
    BodyTooLargeError: "too_large",
    OutdatedError: "outdated",
    UnknownNodeError: "unknown",
    ClusterFullError: "full",
}


MAX_LOOP_BYTES: Final = 32 << 10
"""Reports up to this size, of a known kubelet and without the NRI policy, are read on the event loop: those of 24 pods
have 12 kB, which take less time than to wake up a thread and to wait for the interpreter's lock."""
_NRI: Final = b'"nri"'


class Accepted(ReplyBody):
    """The reply to an accepted report."""

    name: Annotated[str, about("The node's name.")]
    certainty: Annotated[Certainty, about("Certainty of verdicts on the node from now on.")]
    hidden: Annotated[list[Provider], about("Managers whose state is missing from the report.")]
    problems: Annotated[list[str], about("Missing or contradictory parts of the report.")]


class ReportEndpoints:
    """What node exporters call."""

    def __init__(self, service: Service) -> None:
        self._service, self._cluster = service, service.known.nodes
        self._limit: Final = service.settings.max_body_bytes
        self._switches: Final = service.settings.switches
        self._being_read: Final[set[str]] = set()
        """Nodes of which a report is being read in another thread: one at a time of each."""

    async def put_report(self, name: NodeName, request: Request) -> Response:
        """Accept a NodeReport. A report that is refused, or older than the current one (409), changes nothing."""
        service, cluster = self._service, self._cluster
        with _counted(service, "report"):
            body = await read_body(request, self._limit)
            await asyncio.sleep(0)  # calls that have arrived meanwhile wait for a part of a report only
            observation = await self._read(name, body)
            await asyncio.sleep(0)
            record = cluster.observe(observation, service.clock())
            if service.audit.recent or cluster.score_only:  # a prediction was wrong
                is_score_only = service.audit.is_score_only(name)
                record = cluster.set_score_only(name, service.clock(), score_only=is_score_only)
        return Response(msgspec.json.encode(_accepted(record)), media_type=JSON)

    async def _read(self, name: str, body: bytes) -> Observation:
        """Read the report: on the event loop if that takes about a millisecond, and elsewhere otherwise."""
        version = self._cluster.node_objects.version_of(name)
        read = partial(_observe, body, name, version, self._cluster.kubelet_with, self._switches)
        if len(body) <= MAX_LOOP_BYTES and _NRI not in body:
            with suppress(NewKubeletError):
                return read(starts=False)
        if name in self._being_read:
            raise LimitError("node", "a report of the node is being read", 1)
        self._being_read.add(name)
        try:
            return await self._service.offload(read)
        finally:
            self._being_read.discard(name)

    async def post_heartbeat(self, name: NodeName, request: Request) -> Response:
        """Keep the node fresh. 404 and 409 mean: send the full report, because the service does not have this one."""
        with _counted(self._service, "heartbeat"):
            beat = read_heartbeat(await read_body(request, self._limit))
            now, boot_id, sequence = self._service.clock(), beat.boot_id, beat.sequence
            self._cluster.heartbeat(name, boot_id=boot_id, sequence=sequence, digest=beat.digest, now=now)
        return Response(status_code=HTTPStatus.NO_CONTENT)


_REFUSALS: Final = (
    HTTPStatus.BAD_REQUEST,
    HTTPStatus.CONFLICT,
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
    HTTPStatus.UNPROCESSABLE_ENTITY,
)


def reports_router(endpoints: ReportEndpoints) -> APIRouter:
    """PUT /v1/nodes/NAME/report, POST /v1/nodes/NAME/heartbeat."""
    router = APIRouter(prefix="/v1/nodes", tags=["nodes"])
    router.put(
        "/{name}/report",
        summary="Replace the report of a node",
        **replies_with(Accepted, *_REFUSALS, HTTPStatus.INSUFFICIENT_STORAGE),
        openapi_extra=json_body(REPORT),
    )(endpoints.put_report)
    router.post(
        "/{name}/heartbeat",
        status_code=HTTPStatus.NO_CONTENT,
        response_class=Response,
        summary="Confirm that the current report is still valid",
        responses=documented(*_REFUSALS, HTTPStatus.NOT_FOUND),
        openapi_extra=json_body(HEARTBEAT),
    )(endpoints.post_heartbeat)
    return router


@contextmanager
def _counted(service: Service, kind: str) -> Iterator[None]:
    """Count a message of an exporter by its result."""
    outcome = "failed"
    try:
        yield
        outcome = "accepted"
    except tuple(_OUTCOMES) as error:
        outcome = next(name for fault, name in _OUTCOMES.items() if isinstance(error, fault))
        raise
    finally:
        service.metrics.reports.labels(kind, outcome).inc()


def _observe(
    body: bytes,
    name: str,
    version: str,
    known: Callable[[str], Kubelet | None],
    switches: Mapping[str, bool],
    *,
    starts: bool = True,
) -> Observation:
    """Read the report; may run in another thread. *version*: the kubelet's, from the Node object."""
    report = read_report(body, lambda _name: version, known=known, switches=switches, starts=starts)
    if report.facts.node_name != name:
        reason = f"the report is for node {shown(report.facts.node_name)}, but the path names {shown(name)}"
        raise WireError("node_name", reason)
    return observation_of(report, body)


def _accepted(record: NodeRecord) -> Accepted:
    problems = record.observation.facts.get("problems", [])
    return Accepted(
        name=record.name,
        certainty=record.certainty,
        hidden=sorted(record.observation.hidden),
        problems=[f"{p['source']}: {p['path']}: {p['reason']}" for p in problems] if isinstance(problems, list) else [],
    )
