"""Liveness, readiness and metrics."""

from collections import Counter
from http import HTTPStatus
from itertools import product
from typing import Annotated

import numpy as np
from fastapi import APIRouter, HTTPException, Response

from extender.api.http.problems import documented, replies_with
from extender.api.http.replies import json_reply
from extender.api.service import Service
from extender.kubelet.errors import UnknownVersionError
from extender.kubelet.rules import NEWEST_MINOR, parse_minor
from extender.kubelet.verdict import Certainty
from extender.observability.metrics import CONTENT_TYPE
from extender.observability.node_metrics import NodeMetrics
from extender.scheduling.records.predictions import DISAGREEING, labels_of
from extender.wire.replies import ReplyBody, about


class Ready(ReplyBody):
    """The service is ready."""

    nodes: Annotated[int, about("Nodes that reported.")]
    classes: Annotated[int, about("Number of node classes: nodes of a class get the same verdicts.")]
    late_watches: Annotated[
        tuple[str, ...], about("Watches of the API server without progress for `watch_silent_seconds`.")
    ]
    unreadable_objects: Annotated[
        dict[str, int],
        about("Objects of the API server that cannot be read and are skipped, by watch. The log names them."),
    ]


def ops_router(service: Service) -> APIRouter:
    """GET /livez, /readyz, /metrics, /metrics/nodes."""
    router = APIRouter(tags=["service"])

    @router.get("/livez", summary="The process runs")
    async def livez() -> dict[str, str]:
        """Replies as long as the event loop runs."""
        return {"status": "alive"}

    @router.get(
        "/readyz",
        summary="Check that the service can serve requests",
        **replies_with(Ready, HTTPStatus.SERVICE_UNAVAILABLE),
    )
    async def readyz() -> Response:
        """Ready once pods and nodes are listed, or at once if the API server is not watched.

        503 before that, on shutdown, and if the API server answers without progress of these watches.

        Nodes without a report yet are unknown, and are treated as the settings say.
        """
        if why_not := _why_not_ready(service):
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, why_not)
        nodes, link = service.known.nodes, service.known.link
        return json_reply(Ready(len(nodes), nodes.class_count, link.late, dict(link.unread)))

    @router.get("/metrics", summary="Prometheus metrics", response_class=Response)
    async def metrics() -> Response:
        """The Prometheus text format."""
        await _set_gauges(service)
        return Response(service.metrics.exposition(), media_type=CONTENT_TYPE)

    @router.get(
        "/metrics/nodes",
        summary="Prometheus metrics of single nodes",
        response_class=Response,
        responses=documented(HTTPStatus.NOT_FOUND),
    )
    async def node_metrics() -> Response:
        """What is free on each NUMA node, in the Prometheus text format. 404 if the setting `node_metrics` is 0."""
        limit = service.settings.node_metrics
        if not limit:
            raise HTTPException(HTTPStatus.NOT_FOUND, "NUMA_EXTENDER_NODE_METRICS is 0: metrics of nodes are off")
        families = await _of_single_nodes(service, limit)
        return Response(await service.offload(families.exposition), media_type=CONTENT_TYPE)

    return router


def _why_not_ready(service: Service) -> str:
    """Why the service cannot serve requests; empty if it can."""
    if service.lifecycle.draining:
        return "the service is shutting down"
    if service.known.link.trouble:
        return service.known.link.trouble
    if service.known.link.stalled:
        return service.known.link.stalled
    if not service.settings.standby_ready and not service.lifecycle.leads():
        return "another extender is the leader"
    return ""


async def _set_gauges(service: Service) -> None:
    """Set the metrics that are read from the state at a scrape."""
    nodes, metrics = service.known.nodes, service.metrics
    nodes.expire(service.clock())
    await _nodes(service)
    _behaviours(service)
    for feature in service.features:
        feature.scrape()
    metrics.assumed.set(nodes.pods_in_flight)
    metrics.left_out.set(len(service.records.refusals.all(service.clock())))
    metrics.score_only.set(len(nodes.score_only))
    metrics.classes.set(nodes.class_count)
    metrics.remembered.set(len(service.judging.cache))


async def _of_single_nodes(service: Service, limit: int) -> NodeMetrics:
    """The metrics of the first *limit* nodes by name."""
    nodes, families = service.known.nodes, NodeMetrics()
    nodes.expire(service.clock())
    names = nodes.index.names.ordered
    families.left_out.set(max(0, len(names) - limit))
    async with service.slices.turn() as breathe:
        for name in names[:limit]:
            await breathe()
            record = nodes.get(name)
            if record is not None:  # it may have gone meanwhile
                families.add(record)
    return families


async def _nodes(service: Service) -> None:
    """Count nodes by certainty of their verdicts and by minor version of the kubelet, and how long they were silent.

    Other calls run between two nodes: 65,536 of them take some tenths of a second.
    """
    counts: Counter[tuple[object, Certainty]] = Counter()
    kinds: set[tuple[str, str, str]] = set()
    now, ages = service.clock(), []
    async with service.slices.turn() as breathe:
        for record in list(service.known.nodes):
            await breathe()
            counts[record.observation.facts.get("kubelet_version"), record.certainty] += 1
            ages.append(now - record.heard_at)
            if record.kubelet is not None:
                kinds.add(labels_of(record.kubelet))
    for kind, certainty, result in product(kinds, Certainty, DISAGREEING):
        service.metrics.predictions.labels(*kind, certainty.value, result.value)  # from 0 on, for `increase`
    by_minor: Counter[tuple[str, str]] = Counter()
    for (version, certainty), count in counts.items():
        by_minor[_minor_label(version), certainty.value] += count
    for certainty in Certainty:
        nodes = sum(count for (_, each), count in counts.items() if each is certainty)
        service.metrics.nodes.labels(certainty.value).set(nodes)
    service.metrics.kubelets.clear()
    for labels, count in by_minor.items():
        service.metrics.kubelets.labels(*labels).set(count)
    _silence(service, ages)


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


def _silence(service: Service, seconds: list[float]) -> None:
    """Set how long nodes have been silent. Nothing of it is kept between two scrapes."""
    ages = np.sort(seconds or [0.0])
    for percentile in (50, 99, 100):
        service.metrics.silence.labels(percentile).set(float(ages[min(len(ages) - 1, len(ages) * percentile // 100)]))
