"""The composition root: creates and connects all objects. The only place that reads the clock."""

import asyncio
import ctypes
import gc
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import aclosing, asynccontextmanager
from importlib.metadata import version
from itertools import chain
from typing import Final

from fastapi import Depends, FastAPI
from starlette.routing import BaseRoute

from extender.api.access.limits import Limits
from extender.api.access.middleware import AccessControl, AccessMiddleware
from extender.api.http import docs_page, openapi, problems
from extender.api.http.ops import ops_router
from extender.api.http.page import page_router
from extender.api.http.parameters import known_parameters
from extender.api.nodes.map import map_router
from extender.api.nodes.routes import nodes_router
from extender.api.questions.table import questions_router
from extender.api.records.routes import records_router
from extender.api.reports import ReportEndpoints, reports_router
from extender.api.scheduler import SchedulerEndpoints, scheduler_router
from extender.api.service import LateNodeContext, Service
from extender.api.short_way import ShortWay
from extender.cluster.events import SettledPod
from extender.cluster.node import NodeRecord, Restarts
from extender.cluster.pod_tracker import Timeouts
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.config.settings import Settings
from extender.features.listed import listed
from extender.observability.metrics import Metrics
from extender.observability.tracing import trace
from extender.runtime.audit import examining
from extender.runtime.watchdog import watched
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.barrier import Barrier
from extender.scheduling.bind import Bind, BindSettings
from extender.scheduling.cached_judge import CachedJudge
from extender.scheduling.effects import Effects, Offload
from extender.scheduling.filter import Filter
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import LateNodes
from extender.scheduling.node_totals import NodeTotals
from extender.scheduling.pod_shape import JudgementCache
from extender.scheduling.prioritize import Prioritize
from extender.scheduling.ranking.placement import BY_PLACEMENT, least_numa
from extender.scheduling.ranking.strategies import Weights, make_strategy
from extender.scheduling.records.decisions import DecisionLog
from extender.scheduling.records.predictions import Audit
from extender.scheduling.records.refusals import RecentRefusals
from extender.scheduling.records.unjudged import UnjudgedClasses
from extender.scheduling.scheduling import Scheduling
from extender.scheduling.shared import CallRecords, KnownCluster, SharedParts
from extender.scheduling.victims import RunningPods
from extender.workers.frames import WorkerSettings
from extender.workers.pool import AskedQuestions, QuestionLimits

DISTRIBUTION: Final = "numa-extender"
_YOUNG: Final = (2_000, 10, 1_000_000)
"""Thresholds of the cycle collector: new objects before a collection of the youngest generation, such collections
before one of the second generation, and these before a full one. A full one never happens."""
_SWITCH_SECONDS: Final = 0.001
_MMAP_THRESHOLD: Final = (-3, 128 << 10)
_ARENA_MAX: Final = (-8, 1)
"""Options of mallopt(3), with their values."""
__all__ = ["make_app", "make_service", "set_up_allocator", "set_up_collector", "set_up_threads"]


def make_service(
    settings: Settings,
    clock: Callable[[], float] = time.monotonic,
    *,
    judge: BoundedJudge | None = None,
    offload: Offload = asyncio.to_thread,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> Service:
    """One extender without any node.

    *clock*: seconds of a monotonic clock. *judge*: replaces the one of the settings. *offload* runs work
    off the event loop. *sleep* waits.

    Raises:
        ProfileError: a file of the setting `node_profiles` cannot be used.
    """
    metrics, surroundings = Metrics(), LateNodeContext()
    audit = Audit(clock=clock, window=settings.audit_window, distrust_after=settings.distrust_after)
    known = _make_known(settings, _make_store(settings, clock, audit, metrics), surroundings)
    effects = Effects(clock=clock, sleep=sleep, offload=offload, metrics=metrics, cpu_clock=time.thread_time)
    judging = _make_judging(settings, known.nodes, effects, judge)
    barrier = Barrier(settings.barrier_seconds if settings.watches else 0.0, known.pods, clock)
    refusals = RecentRefusals(settings.leave_out_seconds)
    records = CallRecords(
        decisions=DecisionLog(retired=known.nodes.classes.retired), barrier=barrier, refusals=refusals
    )
    shared = SharedParts(known=known, judge=judging, records=records, effects=effects)
    service = Service(
        settings=settings,
        clock=clock,
        offload=offload,
        metrics=metrics,
        known=known,
        surroundings=surroundings,
        judging=judging,
        scheduling=_make_scheduling(settings, shared),
        records=records,
        audit=audit,
    )
    for make in listed(settings):
        service.add(make(service))
    return service


def _make_judging(settings: Settings, nodes: NodeStore, effects: Effects, judge: BoundedJudge | None) -> CachedJudge:
    """The judge of pods for the verbs. *judge*: replaces the one of the settings.

    A merit that follows from the placements costs no extra work. For every other strategy a second judge computes the
    merit, so that filter does not wait for it where many nodes are judged.
    """
    strategy = make_strategy(settings.strategy, Weights.parse(settings.resource_weights))
    unjudged = UnjudgedClasses()

    def cached(judge: BoundedJudge, late_nodes: LateNodes, ranking: CachedJudge | None) -> CachedJudge:
        return CachedJudge(
            judge,
            JudgementCache(settings.max_remembered_judgements),
            nodes,
            unjudged,
            effects,
            late_nodes=late_nodes,
            ranking=ranking,
        )

    ranking = None
    if judge is None and strategy not in BY_PLACEMENT:
        ranking, strategy = cached(BoundedJudge(strategy, settings.uncertainty), LateNodes.PASS, None), least_numa
    return cached(judge or BoundedJudge(strategy, settings.uncertainty), LateNodes(settings.late_nodes), ranking)


def _make_known(settings: Settings, nodes: NodeStore, surroundings: LateNodeContext) -> KnownCluster:
    """The known cluster at the start: without pods and without an API server."""
    pods = PodRegistry(settings.max_remembered_pods, settings.refused_seconds)
    return KnownCluster(
        nodes=nodes,
        pods=pods,
        running=RunningPods(),
        totals=NodeTotals(nodes, pods, surroundings, surroundings.finished),
        link=ApiServerLink(),
        demands={},
    )


def _make_scheduling(settings: Settings, shared: SharedParts) -> Scheduling:
    """The scheduler's verbs."""
    binding = BindSettings(
        seconds=settings.bind_seconds,
        judge_seconds=settings.filter_seconds,
        wait_seconds=settings.bind_wait_seconds,
        defer_seconds=settings.hold_back_seconds,
        certain_only=settings.uncertainty.requires_certainty,
        annotates=settings.placement_annotations == "on",
    )
    return Scheduling(
        filter=Filter(settings.filter_seconds, shared, failed_resolvable=settings.failed_nodes_resolvable),
        prioritize=Prioritize(settings.filter_seconds, shared),
        bind=Bind(binding, shared),
        objectors=shared.objectors,
    )


def _make_store(settings: Settings, clock: Callable[[], float], audit: Audit, metrics: Metrics) -> NodeStore:
    """The store of all nodes. It passes the outcome of in-flight pods to *audit*."""

    def settle(settled: SettledPod) -> None:
        kind = audit.take(settled)
        metrics.predictions.labels(*kind).inc()
        if (result := audit.demands.take(settled, clock())) is not None:
            metrics.demands.labels(result.value).inc()

    return NodeStore(
        stale_after_seconds=settings.stale_after_seconds,
        max_nodes=settings.max_nodes,
        timeouts=Timeouts(assume=settings.assume_seconds, finish=settings.finish_seconds),
        settled=settle,
        restarts=Restarts(start_seconds=settings.kubelet_start_seconds, down_seconds=settings.kubelet_down_seconds),
        awaited_until=clock() + settings.warm_up_seconds if settings.warm_up_seconds else None,
    )


def make_app(service: Service) -> FastAPI:
    """The HTTP application of a service. `/docs` has its own scripts, so that it works without internet access."""
    questions = make_questions(service)
    for feature in service.features:
        feature.use(questions)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with (
            questions.open(),
            examining(service),
            watched(service),
            aclosing(service.judging.projections),
        ):
            if not service.settings.watches:
                yield
                return
            from extender.runtime.api_server import connected  # noqa: PLC0415 - with the extra `server` only

            async with connected(service):
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
    most = service.settings.max_scheduler_body_bytes, service.settings.max_body_bytes
    verbs = SchedulerEndpoints(service.scheduling, service.metrics, service.clock, service.lifecycle, most)
    calls = [scheduler_router(verbs), reports_router(ReportEndpoints(service))]
    features = list(chain.from_iterable(feature.routers() for feature in service.features))
    routers = (make(service) for make in (nodes_router, map_router, ops_router))
    for router in (*calls, *routers):
        app.include_router(router)
    for make_question_router in (questions_router, records_router):
        app.include_router(make_question_router(service, questions), dependencies=[Depends(known_parameters)])
    for router in (*features, page_router()):
        app.include_router(router)
    docs_page.install(app)
    problems.install(app)
    openapi.install(app)
    guard(app, service, chain.from_iterable(router.routes for router in (*calls, *features)))
    return app


def guard(app: FastAPI, service: Service, routes: Iterable[BaseRoute]) -> None:
    """Put access control before every route of *app*, and the request log before that. *routes*: see `ShortWay`.

    Raises:
        TracingError: tracing is on, and its libraries are not installed.
    """
    settings = service.settings
    access = AccessControl(settings, service.authority, Limits(settings, service.clock), service.metrics)
    app.add_middleware(AccessMiddleware, access=access)
    if settings.tracing == "otlp":
        trace(app, app.version)
        routes = ()  # spans are ASGI
    service.metrics.insecure.set(settings.insecure)
    service.metrics.leader.set(settings.lease == "off")
    app.state.service, app.state.limits = service, access.limits
    max_bytes = min(settings.max_body_bytes, settings.max_scheduler_body_bytes)
    app.state.short_way = ShortWay(routes, access, max_bytes)


def make_questions(service: Service) -> AskedQuestions:
    """Answers people's questions, separately from the scheduler's verbs."""
    settings = service.settings

    def records() -> list[NodeRecord]:
        service.known.nodes.expire(service.clock())
        return list(service.known.nodes)

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
            uncertainty=settings.uncertainty,
            log_level=settings.log_level,
            log_format=settings.log_format,
            max_bytes=settings.max_question_bytes,
        ),
        records=records,
        look_up=service.surroundings,
        demands=lambda: dict(service.known.demands),  # read by other threads
        judge=service.judging.ranking.judge,
        budgets=lambda: service.known.running.budgets(),  # noqa: PLW0108 - a feature sets it later
        forecast=lambda: service.surroundings.make_forecast(),  # noqa: PLW0108 - a feature sets it later
        metrics=service.metrics,
    )


def set_up_allocator() -> None:
    """Let the C library give memory back: by default it keeps a heap for each thread, full of holes.

    Bodies of requests come and go in several threads. Without this, 70 to 100 MiB of them stay after some minutes.
    Other libraries than glibc have no such options.
    """
    set_option = getattr(ctypes.CDLL(None), "mallopt", None)
    if set_option is not None:
        set_option(*_MMAP_THRESHOLD)
        set_option(*_ARENA_MAX)


def set_up_threads() -> None:
    """Let threads take turns each millisecond, and not each five: the event loop waits for that beside long work."""
    sys.setswitchinterval(_SWITCH_SECONDS)


def set_up_collector() -> None:
    """Let Python's cycle collector examine young objects only: older ones are immutable values without cycles.

    With the defaults, a full collection sometimes stops all requests: for 0.2 s with 5,000 nodes, and for seconds with
    65,536 nodes. With these thresholds each object is examined twice, together with a few thousand others.
    """
    gc.freeze()
    gc.set_threshold(*_YOUNG)

    def freeze(phase: str, info: dict[str, int]) -> None:
        if phase == "stop" and info["generation"] > 0:
            gc.freeze()

    gc.callbacks.append(freeze)
