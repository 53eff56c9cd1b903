"""The composition root: the only place that knows everything, and reads the clock."""

import gc
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Final

from fastapi import Depends, FastAPI

from extender.api.barrier import Barrier
from extender.api.binding import binding_router
from extender.api.http import docs_page, openapi, problems
from extender.api.http.ops import ops_router
from extender.api.http.page import page_router
from extender.api.http.parameters import known_parameters
from extender.api.nodes.map_routes import map_router
from extender.api.nodes.routes import nodes_router
from extender.api.preempting import preempting_router
from extender.api.questions.capacity import capacity_router
from extender.api.questions.what_if import what_if_router
from extender.api.records.decisions import decisions_router
from extender.api.records.predictions import audit_router
from extender.api.reports import reports_router
from extender.api.scheduling import scheduling_router
from extender.api.service import Service
from extender.cluster.in_flight import Settled, Timeouts
from extender.cluster.node import NodeRecord
from extender.cluster.pods import KnownPods
from extender.cluster.restarts import Restarts
from extender.cluster.store import NodeStore
from extender.config.settings import Settings
from extender.kube.node_context import WatchedSurroundings
from extender.kube.running import WatchedPods
from extender.observability.metrics import Metrics
from extender.questions.node_context import none_finished, nothing_known
from extender.runtime.api_server import connected
from extender.runtime.leadership import on_duty
from extender.runtime.server import guard, make_server
from extender.scheduling.cache import VerdictMemo
from extender.scheduling.judge import make_judge
from extender.scheduling.preemption.running_pods import UNWATCHED
from extender.scheduling.ranking.strategies import make_strategy
from extender.scheduling.ranking.weights import Weights
from extender.scheduling.records.predictions import Audit
from extender.scheduling.records.refused_pods import WaitingPods
from extender.workers.frames import WorkerSettings
from extender.workers.pool import AskedQuestions, QuestionLimits

DISTRIBUTION: Final = "numa-extender"
__all__ = ["make_app", "make_server", "make_service", "set_up_collector"]


def make_service(settings: Settings, clock: Callable[[], float] = time.monotonic) -> Service:
    """One extender, empty."""
    metrics = Metrics()
    audit = Audit(clock=clock, window=settings.audit_window, distrust_after=settings.distrust_after)
    timeouts = Timeouts(assume=settings.assume_seconds, finish=settings.finish_seconds)

    surroundings = WatchedSurroundings()

    def settle(settled: Settled) -> None:
        kind = audit.take(settled)
        metrics.predictions.labels(*kind).inc()

    return Service(
        settings=settings,
        cluster=NodeStore(
            stale_after_seconds=settings.stale_after_seconds,
            max_nodes=settings.max_nodes,
            timeouts=timeouts,
            settled=settle,
            restarts=Restarts(start_seconds=settings.kubelet_start_seconds, down_seconds=settings.kubelet_down_seconds),
            awaited_until=clock() + settings.warm_up_seconds if settings.warm_up_seconds else None,
        ),
        memo=VerdictMemo(settings.max_remembered_judgements),
        judge=make_judge(make_strategy(settings.strategy, Weights.parse(settings.resource_weights)), settings.doubts),
        metrics=metrics,
        clock=clock,
        pods=KnownPods(settings.max_remembered_pods),
        audit=audit,
        barrier=Barrier(settings.barrier_seconds if settings.watches else 0.0, clock),
        running=WatchedPods() if settings.watches else UNWATCHED,
        surroundings=surroundings if settings.watches else nothing_known,
        finished_requests=surroundings.finished if settings.watches else none_finished,
        waiting=WaitingPods(settings.max_refused_pods, settings.refused_seconds),
    )


def make_app(service: Service) -> FastAPI:
    """The HTTP face of a service. `/docs` brings its own scripts, so that it works with no internet."""
    questions = make_questions(service)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with questions.open():
            if not service.settings.watches:
                yield
                return
            async with connected(service), on_duty(service):
                yield

    app = FastAPI(
        title=DISTRIBUTION,
        version=version(DISTRIBUTION),
        description=openapi.DESCRIPTION,
        openapi_tags=openapi.TAGS,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        lifespan=lifespan,
        generate_unique_id_function=lambda route: route.name.strip("_"),
    )
    for make_router in (
        scheduling_router,
        binding_router,
        preempting_router,
        reports_router,
        nodes_router,
        map_router,
        audit_router,
        ops_router,
    ):
        app.include_router(make_router(service))
    for make_question_router in (what_if_router, capacity_router, decisions_router):
        app.include_router(make_question_router(service, questions), dependencies=[Depends(known_parameters)])
    app.include_router(page_router())
    docs_page.install(app)
    problems.install(app)
    openapi.install(app)
    guard(app, service)
    return app


def make_questions(service: Service) -> AskedQuestions:
    """What answers people's questions, apart from the scheduler's verbs."""
    settings = service.settings

    def records() -> list[NodeRecord]:
        service.cluster.expire(service.clock())
        return list(service.cluster)

    return AskedQuestions(
        QuestionLimits(
            workers=settings.question_workers,
            max_waiting=settings.max_waiting_questions,
            wait_seconds=settings.question_wait_seconds * settings.question_share,
            seconds=settings.question_seconds * settings.question_share,
        ),
        WorkerSettings(
            strategy=settings.strategy,
            resource_weights=settings.resource_weights,
            doubts=settings.doubts,
            log_level=settings.log_level,
            log_format=settings.log_format,
            max_bytes=settings.max_question_bytes,
        ),
        records=records,
        look_up=service.surroundings,
        judge=service.judge,
        metrics=service.metrics,
    )


def set_up_collector() -> None:
    """Let Python's cycle collector look rarely: everything long-lived here is an immutable value without cycles.

    With the defaults, a full collection of 5,000 nodes' state stops every request for 0.2 s now and then.
    """
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)
