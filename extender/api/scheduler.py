"""kube-scheduler's calls: bytes to arguments, results to bytes. Nothing is decided here.

`VerbCall` reads the body of one call, answers it, times it, and turns errors into replies; see `call_outcomes`.

kube-scheduler discards the body of every status but 200, so filter and bind always answer 200, with the reason in
`Error`. The replies of prioritize and preempt have no field for an error: a failed call gets another status, which
kube-scheduler logs. It then scores the pod without this extender, or fails the attempt to preempt (`extender.go`: send,
Prioritize, ProcessPreemption).
"""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from extender.api.call_outcomes import CallFailure, CallOutcome, failure_of, log_failure
from extender.api.http.bodies import read_body
from extender.api.http.problems import documented, problem
from extender.api.http.replies import described, json_body
from extender.observability.lifecycle import PASSED_ON, Lifecycle
from extender.observability.metrics import Metrics
from extender.scheduling.binder import PodBound
from extender.scheduling.scheduling import Scheduling
from extender.wire import binding, scheduler

Clock = Callable[[], float]
Lap = Callable[[str], None]
"""A function that ends a phase of the call; its argument is the name of the phase."""


@dataclass(frozen=True, slots=True)
class VerbCall:
    """How calls of one verb run.

    `answer` turns the body of a request into the body of its reply. `max_bytes` is the largest body. `failed` makes the
    reply to a call that failed. None: the error handlers of the app make it. `clock`: seconds of a monotonic clock.
    """

    verb: str
    answer: Callable[[bytes, Lap], Awaitable[bytes]]
    max_bytes: int
    failed: Callable[[CallFailure], Response] | None
    metrics: Metrics
    clock: Clock
    lifecycle: Lifecycle

    async def run(self, request: Request) -> Response:
        """The response to *request*."""
        started = self.clock()
        lap = self._stopwatch()
        try:
            body = await read_body(request, self.max_bytes)
            lap("read")
            leader, path = self.lifecycle.leader, request.scope["path"]
            is_forwarded = leader is not None and leader.takes(path) and PASSED_ON not in request.headers
            if leader is not None and is_forwarded and (reply := await leader.answer(path, body)) is not None:
                return Response(reply, media_type="application/json")
            reply = await self.answer(body, lap)
            lap("reply")
        except ClientDisconnect:  # the client has closed the connection
            raise
        except Exception as error:
            failure = failure_of(error)
            self._observe(failure.outcome, started)
            log_failure(self.verb, failure, error, is_handled=self.failed is not None)
            if self.failed is None:
                raise
            return self.failed(failure)
        self._observe(CallOutcome.ANSWERED, started)
        return Response(reply, media_type="application/json")

    def _stopwatch(self) -> Lap:
        """Each call of the result ends the phase that it names. The first phase begins now."""
        began = self.clock()

        def lap(phase: str) -> None:
            nonlocal began
            before, began = began, self.clock()
            self.metrics.phase_seconds.labels(self.verb, phase).observe(began - before)

        return lap

    def _observe(self, outcome: CallOutcome, started: float) -> None:
        seconds = self.clock() - started
        self.metrics.verb_seconds.labels(self.verb, outcome.value).observe(seconds)


class SchedulerEndpoints:
    """One endpoint for each verb. *max_bytes*: the limit of a body, and the limit of a body of bind."""

    def __init__(
        self, scheduling: Scheduling, metrics: Metrics, clock: Clock, lifecycle: Lifecycle, max_bytes: tuple[int, int]
    ) -> None:
        self._scheduling, self._binds = scheduling, metrics.binds
        call, (most, most_binding) = partial(VerbCall, metrics=metrics, clock=clock, lifecycle=lifecycle), max_bytes
        self.filter_: Final = call("filter", self._filter, most, failed=_not_filtered).run
        self.prioritize: Final = call("prioritize", self._prioritize, most, failed=_not_prioritized).run
        self.bind: Final = call("bind", self._bind, most_binding, failed=self._not_bound).run

    async def _filter(self, body: bytes, lap: Lap) -> bytes:
        args = scheduler.parse_args(body)
        lap("parse")
        result = await self._scheduling.filter.filter(args)
        lap("judge")
        if result.error:
            return scheduler.error_reply(f"numa-extender: {result.error}")
        return scheduler.filter_reply(args, result.feasible, result.resolvable, result.refused)

    async def _prioritize(self, body: bytes, lap: Lap) -> bytes:
        args = scheduler.parse_args(body)
        lap("parse")
        scores = await self._scheduling.prioritize.prioritize(args)
        lap("judge")
        return scheduler.scores_reply(args.names, scores)

    async def _bind(self, body: bytes, _lap: Lap) -> bytes:
        outcome = await self._scheduling.bind.bind(binding.parse_binding(body))
        self._binds.labels(outcome.label).inc()
        return binding.binding_reply("" if isinstance(outcome, PodBound) else f"numa-extender: {outcome.reason}")

    def _not_bound(self, failure: CallFailure) -> Response:
        self._binds.labels(failure.outcome.value).inc()
        return Response(binding.binding_reply(f"numa-extender: {failure.reason}"), media_type="application/json")


def _not_filtered(failure: CallFailure) -> Response:
    return Response(scheduler.error_reply(f"numa-extender: {failure.reason}"), media_type="application/json")


def _not_prioritized(failure: CallFailure) -> Response:
    return problem(failure.status, failure.reason, failure.field)


def scheduler_router(endpoints: SchedulerEndpoints) -> APIRouter:
    """POST /scheduler/filter, /scheduler/prioritize and /scheduler/bind."""
    router = APIRouter(tags=["scheduler"], default_response_class=Response)
    router.post(
        "/scheduler/filter",
        name="filter",
        description="The extender's `filterVerb`. Always status 200; if the call failed, the reason is in `Error`.",
        responses={200: described(scheduler.ExtenderFilterResult)},
        openapi_extra=json_body(scheduler.ExtenderArgs),
        summary="Which candidates would admit the pod",
    )(endpoints.filter_)
    router.post(
        "/scheduler/prioritize",
        name="prioritize",
        description="The extender's `prioritizeVerb`. A failed call gets a status other than 200.",
        responses={
            200: described(scheduler.HostPriority, is_list=True),
            **documented(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                HTTPStatus.UNPROCESSABLE_ENTITY,
                HTTPStatus.TOO_MANY_REQUESTS,
                HTTPStatus.SERVICE_UNAVAILABLE,
            ),
        },
        openapi_extra=json_body(scheduler.ExtenderArgs),
        summary="Score each candidate, 0 to 10",
    )(endpoints.prioritize)
    router.post(
        "/scheduler/bind",
        name="bind",
        description="The extender's `bindVerb`. Always status 200; if the pod was not bound, the reason is in `Error`.",
        responses={200: described(binding.ExtenderBindingResult)},
        openapi_extra=json_body(binding.ExtenderBindingArgs),
        summary="Bind the pod, if the node's kubelet would admit it now",
    )(endpoints.bind)
    return router
