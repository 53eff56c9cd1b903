"""Connects declared shapes with filter, prioritize and bind, their watch, their route and their metrics."""

from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Response

from extender.api.http.parameters import known_parameters
from extender.api.http.problems import replies_with
from extender.api.http.replies import json_reply
from extender.api.service import Service
from extender.features.shapes.counts import STEP_SECONDS, CountedShape, ShapeCounts
from extender.features.shapes.objector import ShapeObjector
from extender.kube.shapes import passed_to, shapes_in
from extender.questions.asked import Questions
from extender.runtime.connection import ApiConnection, ConnectedFeature
from extender.scheduling.node_totals import format_milli
from extender.wire.replies import ReplyBody, about


class PastCount(ReplyBody):
    """One earlier count."""

    seconds_ago: Annotated[float, about("Its age.")]
    fits: Annotated[int, about("Aligned copies that fit then.")]


class ShapeView(ReplyBody):
    """A declared shape."""

    name: Annotated[str, about("Its key in the ConfigMap.")]
    requests: Annotated[dict[str, str], about("What one pod of it requests.")]
    node_selector: Annotated[dict[str, str], about("Labels of the nodes that it may run on; empty: all nodes.")]
    priority: Annotated[int, about("Pods of a higher priority may take its room.")]
    hard: Annotated[bool, about("Whether filter keeps other pods from its last room, and not only prioritize.")]
    copies: Annotated[int, about("How many must be able to start, beside those that run.")]
    fits: Annotated[int | None, about("Aligned copies that fit now, one after another; null: not counted yet.")]
    missing: Annotated[int | None, about("How many more should be able to start; null: not counted yet.")]
    pools: Annotated[dict[str, int], about("`fits` by node pool; `none`: nodes without the label of one.")]
    age_seconds: Annotated[float | None, about("Age of the count; null: not counted yet.")]
    problem: Annotated[str, about("Why the last attempt to count failed; empty: it did not.")]
    history: Annotated[list[PastCount], about("Earlier counts, one of five minutes, the oldest first.")]


class ShapesView(ReplyBody):
    """The declared shapes."""

    enabled: Annotated[bool, about("Whether `NUMA_EXTENDER_SHAPES` is on.")]
    shapes: Annotated[list[ShapeView], about("By name.")]
    unread: Annotated[dict[str, str], about("Entries that cannot be read, and are skipped: why, by name.")]


class ShapesFeature(ConnectedFeature):
    """Counts declared shapes, and keeps room for them."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.counts: Final = ShapeCounts(service)
        self.objectors = (ShapeObjector(service, self.counts),)

    def use(self, questions: Questions) -> None:
        """Count by asking these."""
        self.counts.questions = questions

    def connect(self, connection: ApiConnection) -> None:
        """Watch the ConfigMap, and count."""
        namespace = self.service.settings.lease_namespace
        connection.watch("shapes", shapes_in(namespace), passed_to(self.counts.declare))
        connection.every(STEP_SECONDS, self.counts.step)

    def routers(self) -> Iterable[APIRouter]:
        """GET /v1/shapes."""
        router = APIRouter(prefix="/v1", tags=["shapes"], dependencies=[Depends(known_parameters)])

        @router.get(
            "/shapes",
            summary="Declared shapes of pods, and how many of each could start now",
            **replies_with(ShapesView, HTTPStatus.UNPROCESSABLE_ENTITY),
        )
        async def list_shapes() -> Response:
            """Each process counts for itself, in turn; `age_seconds` says how old a count is."""
            now, counts = self.service.clock(), self.counts
            shapes = [shape_view(counts.shapes[name], now) for name in sorted(counts.shapes)]
            return json_reply(ShapesView(enabled=True, shapes=shapes, unread=dict(counts.unread)))

        yield router

    def scrape(self) -> None:
        """Show the counts. Labels are names that an operator chose, at most `MAX_SHAPES` times `MAX_POOLS`."""
        metrics, now = self.service.metrics, self.service.clock()
        for family in (metrics.shape_fits, metrics.shape_missing, metrics.shape_age):
            family.clear()
        metrics.unread_shapes.set(len(self.counts.unread))
        for name, counted in self.counts.shapes.items():
            if counted.count is None or counted.missing is None:
                continue
            metrics.shape_missing.labels(name).set(counted.missing)
            metrics.shape_age.labels(name).set(now - counted.count.at)
            for pool, fits in counted.count.pools.items():
                metrics.shape_fits.labels(name, pool).set(fits)


make = ShapesFeature


def shape_view(counted: CountedShape, now: float) -> ShapeView:
    """The shape and its counts at the time *now* of the service's clock."""
    shape, count = counted.shape, counted.count
    return ShapeView(
        name=shape.name,
        requests={name: format_milli(name, milli) for name, milli in shape.requests_milli.items()},
        node_selector=dict(shape.node_selector),
        priority=shape.priority,
        hard=shape.is_hard,
        copies=shape.copies,
        fits=None if count is None else count.fits,
        missing=counted.missing,
        pools={} if count is None else dict(count.pools),
        age_seconds=None if count is None else round(now - count.at, 1),
        problem=counted.problem,
        history=[PastCount(seconds_ago=round(now - at, 1), fits=fits) for at, fits in counted.history],
    )
