"""Liveness, readiness and metrics."""

from collections import Counter
from http import HTTPStatus

from fastapi import APIRouter, HTTPException, Response
from pydantic import BaseModel, Field

from extender.api.http.problems import documented
from extender.api.nodes.views import certainty_of
from extender.api.service import Service
from extender.observability.metrics import CONTENT_TYPE
from extender.replay.rules import NEWEST_MINOR, UnknownVersionError, parse_minor
from extender.replay.verdict import Certainty


class Ready(BaseModel):
    """The service is ready."""

    nodes: int = Field(description="Nodes that reported.")
    classes: int = Field(description="Number of node classes: nodes of a class get the same verdicts.")


def ops_router(service: Service) -> APIRouter:
    """GET /livez, /readyz, /metrics."""
    router = APIRouter(tags=["service"])

    @router.get("/livez", summary="The process runs")
    async def livez() -> dict[str, str]:
        """Replies as long as the event loop runs."""
        return {"status": "alive"}

    @router.get(
        "/readyz",
        summary="Check that the service can serve requests",
        responses=documented(HTTPStatus.SERVICE_UNAVAILABLE),
    )
    async def readyz() -> Ready:
        """Ready once pods and nodes are listed, or at once if the API server is not watched.

        503 before that and on shutdown.

        Nodes without a report yet are unknown, and are treated as the settings say.
        """
        if service.lifecycle.draining:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "the service is shutting down")
        if service.known.link.trouble:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, service.known.link.trouble)
        if not service.settings.standby_ready and not service.lifecycle.leads():
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, "another extender is the leader")
        return Ready(nodes=len(service.known.nodes), classes=service.known.nodes.class_count)

    @router.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        """The Prometheus text format."""
        service.known.nodes.expire(service.clock())
        by_certainty = Counter(certainty_of(record) for record in service.known.nodes)
        for certainty in Certainty:
            if certainty is not Certainty.POSSIBLE:  # that value exists for verdicts only
                service.metrics.nodes.labels(certainty.value).set(by_certainty[certainty])
        _kubelets(service)
        _silence(service)
        _behaviours(service)
        service.metrics.assumed.set(service.known.nodes.pods_in_flight)
        service.metrics.left_out.set(len(service.records.refusals.all(service.clock())))
        service.metrics.score_only.set(service.known.nodes.score_only_count)
        service.metrics.classes.set(service.known.nodes.class_count)
        service.metrics.remembered.set(len(service.judging.cache))
        return Response(service.metrics.exposition(), media_type=CONTENT_TYPE)

    return router


def _kubelets(service: Service) -> None:
    """Count nodes by minor version of the kubelet and by certainty of their verdicts."""
    counts = Counter(
        (_minor_label(record.observation.facts.get("kubelet_version")), certainty_of(record).value)
        for record in service.known.nodes
    )
    service.metrics.kubelets.clear()
    for labels, count in counts.items():
        service.metrics.kubelets.labels(*labels).set(count)


def _behaviours(service: Service) -> None:
    """How many kubelets behave as with each rule."""
    counts = Counter(each.setting for each in service.behaviours())
    service.metrics.behaviours.clear()
    for setting, count in counts.items():
        service.metrics.behaviours.labels(setting.rule, str(setting.value).lower()).set(count)


def _minor_label(version: object) -> str:
    """The minor version, such as `1.36`.

    `other` if it is not a version or far from any known one, to limit the labels.
    """
    try:
        minor = parse_minor(str(version))
    except UnknownVersionError:
        return "other"
    return f"1.{minor}" if minor <= NEWEST_MINOR + 10 else "other"


def _silence(service: Service) -> None:
    """Set how long nodes have been silent. Nothing of it is kept between two scrapes."""
    now = service.clock()
    ages = sorted(now - record.heard_at for record in service.known.nodes) or [0.0]
    for quantile in ("0.5", "0.99", "1"):
        service.metrics.silence.labels(quantile).set(ages[min(len(ages) - 1, int(float(quantile) * len(ages)))])
