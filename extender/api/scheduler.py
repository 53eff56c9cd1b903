"""kube-scheduler's calls: bytes to arguments, results to bytes. Nothing is decided here.

kube-scheduler discards the body of every status but 200, so filter and bind always answer 200, with the reason in
`Error`. The replies of prioritize and preempt have no place for an error: a failed call has a status of its own, which
kube-scheduler logs. It then scores the pod without this extender, or fails the attempt to preempt (`extender.go`: send,
Prioritize, ProcessPreemption).
"""

from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response

from extender.api.access.fast_path import Endpoint
from extender.api.http.bodies import json_body
from extender.api.http.problems import documented, problem
from extender.api.scheduler_call import CallFailure, Lap, VerbCall
from extender.observability.metrics import Metrics
from extender.scheduling.binder import PodBound
from extender.scheduling.scheduling import Scheduling
from extender.wire.binding import ExtenderBindingResult, binding_reply, parse_binding
from extender.wire.preemption import ExtenderPreemptionResult, parse_preemption, preemption_reply
from extender.wire.scheduler import (
    ExtenderFilterResult,
    HostPriority,
    error_reply,
    filter_reply,
    parse_args,
    prioritize_reply,
)

FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
BIND: Final = "/scheduler/bind"
PREEMPT: Final = "/scheduler/preempt"
FREQUENT: Final = (FILTER, PRIORITIZE)
"""The verbs that kube-scheduler calls for every pod."""


def scheduler_endpoints(
    scheduling: Scheduling,
    metrics: Metrics,
    *,
    max_bytes: int,
    max_binding_bytes: int,
    clock: Callable[[], float],
) -> Mapping[str, Endpoint]:
    """The endpoint of each verb, by path. *max_bytes*: of a body; *max_binding_bytes*: of one of bind."""

    def call(verb: str, failed: Callable[[CallFailure], Response] | None, *, limit: int = max_bytes) -> VerbCall:
        return VerbCall(
            verb=verb,
            max_bytes=limit,
            metrics=metrics,
            clock=clock,
            failed=failed,
            phases=verb in ("filter", "prioritize"),
        )

    def not_filtered(failure: CallFailure) -> Response:
        return Response(error_reply(f"numa-extender: {failure.reason}"), media_type="application/json")

    def not_prioritized(failure: CallFailure) -> Response:
        return problem(failure.status, failure.reason, failure.field)

    def not_bound(failure: CallFailure) -> Response:
        metrics.binds.labels(failure.outcome.value).inc()
        return Response(binding_reply(f"numa-extender: {failure.reason}"), media_type="application/json")

    filter_call = call("filter", not_filtered)
    prioritize_call = call("prioritize", not_prioritized)
    bind_call = call("bind", not_bound, limit=max_binding_bytes)
    preempt_call = call("preempt", None)

    async def filter_(request: Request) -> Response:
        """The extender's `filterVerb`. Always status 200; if the call failed, the reason is in `Error`."""

        async def answer(body: bytes, lap: Lap) -> bytes:
            args = parse_args(body)
            lap("parse")
            result = await scheduling.filter.filter(args)
            lap("judge")
            return filter_reply(args, result.feasible, result.failed, result.unresolvable)

        return await filter_call.run(request, answer)

    async def prioritize(request: Request) -> Response:
        """The extender's `prioritizeVerb`. A failed call is a problem with a status of its own."""

        async def answer(body: bytes, lap: Lap) -> bytes:
            args = parse_args(body)
            lap("parse")
            scores = await scheduling.prioritize.prioritize(args)
            lap("judge")
            return prioritize_reply(args, scores)

        return await prioritize_call.run(request, answer)

    async def bind(request: Request) -> Response:
        """The extender's `bindVerb`. Always status 200; if the pod was not bound, the reason is in `Error`."""

        async def answer(body: bytes, _lap: Lap) -> bytes:
            outcome = await scheduling.bind.bind(parse_binding(body))
            metrics.binds.labels(outcome.label).inc()
            return binding_reply("" if isinstance(outcome, PodBound) else f"numa-extender: {outcome.reason}")

        return await bind_call.run(request, answer)

    async def preempt(request: Request) -> Response:
        """The extender's `preemptVerb`. Both forms of victims are read; the reply names victims by UID."""

        async def answer(body: bytes, _lap: Lap) -> bytes:
            plans = await scheduling.preempt.preempt(parse_preemption(body))
            return preemption_reply({name: (plan.victims, plan.violations) for name, plan in plans.items()})

        return await preempt_call.run(request, answer)

    return {FILTER: filter_, PRIORITIZE: prioritize, BIND: bind, PREEMPT: preempt}


def scheduler_router(endpoints: Mapping[str, Endpoint]) -> APIRouter:
    """POST /scheduler/filter, /scheduler/prioritize, /scheduler/bind and /scheduler/preempt."""
    router = APIRouter(tags=["scheduler"], default_response_class=Response)
    router.post(
        FILTER,
        responses={200: {"model": ExtenderFilterResult}},
        openapi_extra=json_body("ExtenderArgs"),
        summary="Which candidates would admit the pod",
    )(endpoints[FILTER])
    router.post(
        PRIORITIZE,
        responses={
            200: {"model": list[HostPriority]},
            **documented(
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                HTTPStatus.UNPROCESSABLE_ENTITY,
                HTTPStatus.TOO_MANY_REQUESTS,
                HTTPStatus.SERVICE_UNAVAILABLE,
            ),
        },
        openapi_extra=json_body("ExtenderArgs"),
        summary="How good each candidate is, 0 to 10",
    )(endpoints[PRIORITIZE])
    router.post(
        BIND,
        responses={200: {"model": ExtenderBindingResult}},
        openapi_extra=json_body("ExtenderBindingArgs"),
        summary="Bind the pod, if the node's kubelet would admit it now",
    )(endpoints[BIND])
    router.post(
        PREEMPT,
        responses={
            200: {"model": ExtenderPreemptionResult},
            **documented(HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY),
        },
        openapi_extra=json_body("ExtenderPreemptionArgs"),
        summary="On which nodes evicting these pods, and which more, makes room for the pod",
    )(endpoints[PREEMPT])
    return router
