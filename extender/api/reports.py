"""Routes that node exporters call."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field

from extender.api.http.bodies import BodyTooLargeError, json_body, read_body
from extender.api.http.problems import documented
from extender.api.nodes.routes import NodeName
from extender.api.nodes.views import certainty_of
from extender.api.service import Service
from extender.cluster.errors import ClusterFullError, OutdatedError, UnknownNodeError
from extender.cluster.node import NodeRecord, Observation
from extender.intake.report import observation_of
from extender.replay.kubelet import Kubelet
from extender.replay.verdict import Certainty, Provider
from extender.wire.errors import WireError, shown
from extender.wire.reports import read_heartbeat, read_report

_OUTCOMES: Final[dict[type[Exception], str]] = {
    WireError: "invalid",
    BodyTooLargeError: "too_large",
    OutdatedError: "outdated",
    UnknownNodeError: "unknown",
    ClusterFullError: "full",
}


class Accepted(BaseModel):
    """The reply to an accepted report."""

    name: str
    certainty: Annotated[Certainty, Field(description="Certainty of verdicts on the node from now on.")]
    hidden: Annotated[list[Provider], Field(description="Managers whose state is missing from the report.")]
    problems: Annotated[list[str], Field(description="Missing or contradictory parts of the report.")]


def reports_router(service: Service) -> APIRouter:
    """PUT /v1/nodes/NAME/report, POST /v1/nodes/NAME/heartbeat."""
    router = APIRouter(prefix="/v1/nodes", tags=["nodes"])
    cluster, limit = service.known.nodes, service.settings.max_body_bytes

    @router.put(
        "/{name}/report",
        summary="Replace the report of a node",
        responses=documented(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.CONFLICT,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNPROCESSABLE_ENTITY,
            HTTPStatus.INSUFFICIENT_STORAGE,
        ),
        openapi_extra=json_body("NodeReport"),
    )
    async def put_report(name: NodeName, request: Request) -> Accepted:
        """Accept a NodeReport. A report that is refused, or older than the current one (409), changes nothing."""
        with _counted(service, "report"):
            body = await read_body(request, limit)
            version = cluster.version_of(name)
            switches = service.settings.switches
            observation = await service.offload(_observe, body, name, version, cluster.kubelet_with, switches)
            now = service.clock()
            cluster.observe(observation, now)
            record = cluster.set_score_only(name, now, score_only=service.audit.is_score_only(name))
        return _accepted(record)

    @router.post(
        "/{name}/heartbeat",
        status_code=HTTPStatus.NO_CONTENT,
        response_class=Response,
        summary="Confirm that the current report is still valid",
        responses=documented(
            HTTPStatus.BAD_REQUEST,
            HTTPStatus.NOT_FOUND,
            HTTPStatus.CONFLICT,
            HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
            HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
            HTTPStatus.UNPROCESSABLE_ENTITY,
        ),
        openapi_extra=json_body("Heartbeat"),
    )
    async def post_heartbeat(name: NodeName, request: Request) -> Response:
        """Keep the node fresh. 404 and 409 mean: send the full report, because the service does not have this one."""
        with _counted(service, "heartbeat"):
            beat = read_heartbeat(await read_body(request, limit))
            cluster.heartbeat(
                name, boot_id=beat.boot_id, sequence=beat.sequence, digest=beat.digest, now=service.clock()
            )
        return Response(status_code=HTTPStatus.NO_CONTENT)

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
    body: bytes, name: str, version: str, known: Callable[[str], Kubelet | None], switches: Mapping[str, bool]
) -> Observation:
    """Read the report; may run in another thread. *version*: the kubelet's, from the Node object."""
    report = read_report(body, lambda _name: version, known=known, switches=switches)
    _check_name(report.node_name, name)
    return observation_of(report, body)


def _check_name(reported: str, name: str) -> None:
    if reported != name:
        raise WireError("node_name", f"the report is for node {shown(reported)}, but the path names {shown(name)}")


def _accepted(record: NodeRecord) -> Accepted:
    problems = record.observation.facts.get("problems", [])
    return Accepted(
        name=record.name,
        certainty=certainty_of(record),
        hidden=sorted(record.observation.hidden),
        problems=[f"{p['source']}: {p['path']}: {p['reason']}" for p in problems] if isinstance(problems, list) else [],
    )
