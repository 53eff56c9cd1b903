"""kube-scheduler's calls: bytes to arguments, results to bytes. Nothing is decided here.

kube-scheduler discards the body of every status but 200, so filter and bind always answer 200, with the reason in
`Error`. The replies of prioritize and preempt have no field for an error: a failed call gets another status, which
kube-scheduler logs. It then scores the pod without this extender, or fails the attempt to preempt (`extender.go`: send,
Prioritize, ProcessPreemption).
"""

from collections.abc import Callable
from functools import partial
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Response
from starlette.routing import Route

from extender.api.http.bodies import json_body
from extender.api.http.problems import documented, problem
from extender.api.http.replies import described
from extender.api.scheduler_call import CallFailure, Lap, VerbCall
from extender.observability.metrics import Metrics
from extender.scheduling.binder import PodBound
from extender.scheduling.scheduling import Scheduling
from extender.wire.binding import ExtenderBindingResult, binding_reply, parse_binding
from extender.wire.scheduler import (
    ExtenderFilterResult,
    HostPriority,
    error_reply,
    filter_reply,
    parse_args,
)

FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
BIND: Final = "/scheduler/bind"


class SchedulerEndpoints:
    """One endpoint for each verb. *max_bytes*: limit of a body; *max_binding_bytes*: limit of a body of bind."""

    def __init__(
        self,
        scheduling: Scheduling,
        metrics: Metrics,
        *,
        max_bytes: int,
        max_binding_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._scheduling, self._binds = scheduling, metrics.binds
        call = partial(VerbCall, metrics=metrics, clock=clock, max_bytes=max_bytes)
        self.filter_: Final = call(verb="filter", answer=self._filter, failed=_not_filtered, phases=True).run
        self.prioritize: Final = call(
            verb="prioritize", answer=self._prioritize, failed=_not_prioritized, phases=True
        ).run
        self.bind: Final = call(verb="bind", answer=self._bind, failed=self._not_bound, max_bytes=max_binding_bytes).run
        self.frequent: Final = (
            Route(FILTER, self.filter_, methods=["POST"]),
            Route(PRIORITIZE, self.prioritize, methods=["POST"]),
            Route(BIND, self.bind, methods=["POST"]),
        )
        """Those that kube-scheduler calls for every pod, without FastAPI's handling of a request."""

    async def _filter(self, body: bytes, lap: Lap) -> bytes:
        args = parse_args(body)
        lap("parse")
        result = await self._scheduling.filter.filter(self._scheduling.completed(args))
        lap("judge")
        if result.error:
            return error_reply(f"numa-extender: {result.error}")
        return filter_reply(args, result.feasible, result.resolvable, result.refused)

    async def _prioritize(self, body: bytes, lap: Lap) -> bytes:
        args = parse_args(body)
        lap("parse")
        scores = await self._scheduling.prioritize.prioritize(self._scheduling.completed(args))
        lap("judge")
        return scores.packed

    async def _bind(self, body: bytes, _lap: Lap) -> bytes:
        outcome = await self._scheduling.bind.bind(parse_binding(body))
        self._binds.labels(outcome.label).inc()
        return binding_reply("" if isinstance(outcome, PodBound) else f"numa-extender: {outcome.reason}")

    def _not_bound(self, failure: CallFailure) -> Response:
        self._binds.labels(failure.outcome.value).inc()
        return Response(binding_reply(f"numa-extender: {failure.reason}"), media_type="application/json")


def _not_filtered(failure: CallFailure) -> Response:
    return Response(error_reply(f"numa-extender: {failure.reason}"), media_type="application/json")


def _not_prioritized(failure: CallFailure) -> Response:
    return problem(failure.status, failure.reason, failure.field)


def scheduler_router(endpoints: SchedulerEndpoints) -> APIRouter:
    """POST /scheduler/filter, /scheduler/prioritize and /scheduler/bind."""
    router = APIRouter(tags=["scheduler"], default_response_class=Response)
    router.post(
        FILTER,
        name="filter",
        description="The extender's `filterVerb`. Always status 200; if the call failed, the reason is in `Error`.",
        responses={200: described(ExtenderFilterResult)},
        openapi_extra=json_body("ExtenderArgs"),
        summary="Which candidates would admit the pod",
    )(endpoints.filter_)
    router.post(
        PRIORITIZE,
        name="prioritize",
        description="The extender's `prioritizeVerb`. A failed call gets a status other than 200.",
        responses={
            200: described(HostPriority, is_list=True),
            **documented(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                HTTPStatus.UNPROCESSABLE_ENTITY,
                HTTPStatus.TOO_MANY_REQUESTS,
                HTTPStatus.SERVICE_UNAVAILABLE,
            ),
        },
        openapi_extra=json_body("ExtenderArgs"),
        summary="Score each candidate, 0 to 10",
    )(endpoints.prioritize)
    router.post(
        BIND,
        name="bind",
        description="The extender's `bindVerb`. Always status 200; if the pod was not bound, the reason is in `Error`.",
        responses={200: described(ExtenderBindingResult)},
        openapi_extra=json_body("ExtenderBindingArgs"),
        summary="Bind the pod, if the node's kubelet would admit it now",
    )(endpoints.bind)
    return router
