"""The verbs that kube-scheduler calls.

Laws of this file
- Every answer has status 200: kube-scheduler throws other bodies away. What went wrong is in `Error`.
- The event loop takes the picture of the cluster, another thread replays what was never replayed before.
- Filter has a deadline of its own, so that the scheduler always hears the reason; what was judged until then is kept.
"""

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from extender.api.bodies import BodyTooLargeError, json_body, read_body
from extender.api.limits import LimitError
from extender.api.service import Service
from extender.api.shortcut import Endpoint
from extender.metrics import Stopwatch
from extender.replay.rules import NEWEST_MINOR, Rules
from extender.replay.verdict import Certainty
from extender.verbs.candidates import Candidates
from extender.verbs.filter import PASSED, Filtered, count_answers, filter_nodes
from extender.verbs.judge import Judgement
from extender.verbs.memo import Judgements, judge_all
from extender.verbs.prioritize import MAX_SCORE, prioritize_nodes
from extender.verbs.refusals import NEVER_TEXTS
from extender.wire.errors import WireError
from extender.wire.scheduler import (
    ExtenderFilterResult,
    HostPriority,
    SchedulerArgs,
    error_reply,
    filter_reply,
    parse_args,
    prioritize_reply,
)

LOG: Final = logging.getLogger(__name__)
FILTER: Final = "/scheduler/filter"
PRIORITIZE: Final = "/scheduler/prioritize"
NOT_JUDGED: Final = Judgement(None, Certainty.UNKNOWN)
NEWEST_RULES: Final = Rules.of(f"v1.{NEWEST_MINOR}.0", {}, {})
"""Stand in for kubelets that nothing is known of."""


def scheduling_router(service: Service) -> APIRouter:
    """POST /scheduler/filter and /scheduler/prioritize."""
    router = APIRouter(prefix="/scheduler", tags=["scheduler"])
    endpoints = scheduling_endpoints(service)
    router.post(
        "/filter",
        response_class=Response,
        responses={200: {"model": ExtenderFilterResult}},
        openapi_extra=json_body("ExtenderArgs"),
        summary="Which candidates would admit the pod",
    )(endpoints[FILTER])
    router.post(
        "/prioritize",
        response_class=Response,
        responses={200: {"model": list[HostPriority]}},
        openapi_extra=json_body("ExtenderArgs"),
        summary="How good each candidate is, 0 to 10",
    )(endpoints[PRIORITIZE])
    return router


def scheduling_endpoints(service: Service) -> Mapping[str, Endpoint]:
    """What answers the two verbs, by path: for the router, and for the short way there."""

    async def filter_(request: Request) -> Response:
        """The extender's `filterVerb`. Always status 200; what went wrong is in `Error`."""
        return await _answer(service, "filter", request, _filter)

    async def prioritize(request: Request) -> Response:
        """The extender's `prioritizeVerb`. Always status 200; what went wrong is in `Error`."""
        return await _answer(service, "prioritize", request, _prioritize)

    return {FILTER: filter_, PRIORITIZE: prioritize}


async def _answer(
    service: Service,
    verb: str,
    request: Request,
    answer: Callable[[Service, SchedulerArgs, Stopwatch], Awaitable[bytes]],
) -> Response:
    started = service.clock()
    outcome = "answered"
    watch = Stopwatch(service.metrics.phase_seconds, verb, service.clock)
    try:
        body = await read_body(request, service.settings.max_scheduler_body_bytes)
        watch.lap("read")
        args = parse_args(body)
        watch.lap("parse")
        reply = await answer(service, args, watch)
        watch.lap("reply")
    except ClientDisconnect:  # nobody is left to answer
        raise
    except LimitError as error:
        outcome = "busy"
        reply = error_reply(f"numa-extender: {error}")
    except (WireError, BodyTooLargeError) as error:
        outcome = "invalid"
        LOG.warning("request not understood verb=%s reason=%r", verb, str(error))
        reply = error_reply(f"numa-extender: {error}")
    except UnreadyError as error:
        outcome = "unready"
        LOG.warning("request not answered verb=%s reason=%r", verb, str(error))
        reply = error_reply(f"numa-extender: {error}")
    except Exception:  # the scheduler would throw a 500's body away
        outcome = "failed"
        LOG.exception("defect verb=%s", verb)
        reply = error_reply("numa-extender: a defect of the service; its log tells more")
    service.metrics.verb_seconds.labels(verb, outcome).observe(service.clock() - started)
    return Response(reply, media_type="application/json")


class UnreadyError(Exception):
    """The call cannot be answered now."""


async def _filter(service: Service, args: SchedulerArgs, watch: Stopwatch) -> bytes:
    if service.link.trouble:
        raise UnreadyError(service.link.trouble)
    if service.link.binder is not None:
        service.pods.remember(args.pod)
    await service.barrier.wait(args.pod.uid)
    judged = await _judge(service, args, deadline=service.clock() + service.settings.filter_seconds)
    watch.lap("judge")
    filtered = Filtered(passed=args.names) if judged is None else filter_nodes(*judged)
    service.decisions.note("filter", args.pod, args.names, judged, service.clock())
    if filtered.passed and judged is not None:
        service.barrier.offered(args.pod.uid)
    if service.settings.wake_up:
        service.waiting.note(args.pod, filtered, service.clock())
    _count(service, filtered, judged)
    if not service.settings.failed_nodes_resolvable:
        return filter_reply(args, filtered.passed, {}, filtered.refused)
    now = {name: text for name, text in filtered.refused.items() if text not in NEVER_TEXTS}
    never = {name: text for name, text in filtered.refused.items() if text in NEVER_TEXTS}
    return filter_reply(args, filtered.passed, now, never)


async def _prioritize(service: Service, args: SchedulerArgs, watch: Stopwatch) -> bytes:
    judged = await _judge(service, args)
    watch.lap("judge")
    scores = [MAX_SCORE] * len(args.names) if judged is None else prioritize_nodes(*judged)
    service.decisions.note("prioritize", args.pod, args.names, judged, service.clock())
    return prioritize_reply(args.names, scores)


async def _judge(
    service: Service, args: SchedulerArgs, *, deadline: float | None = None
) -> tuple[Candidates, Judgements] | None:
    """The candidates, and the judgement of each of their classes; None for a pod that nothing aligns anywhere.

    Raises:
        UnreadyError: it took until *deadline*, and nodes that are not judged are not to be passed.
    """
    memo = service.memo.shape(args.pod)
    if not memo.shape.is_aligned_anywhere((NEWEST_RULES, *service.cluster.rules)):
        return None
    candidates = Candidates.of(args.names, service.cluster.classes_of(args.names, service.clock()))
    missing = memo.missing(candidates.distinct)
    if not missing:
        return candidates, memo.judgements

    def out_of_time() -> bool:
        return deadline is not None and service.clock() > deadline

    judged = await service.offload(judge_all, service.judge, memo.shape, missing, out_of_time)
    service.metrics.judgements.labels("replayed").inc(len(judged))
    service.memo.store(memo, judged)
    left = [each for each in missing if each.id not in judged]
    if not left:
        return candidates, memo.judgements
    if service.settings.late_nodes == "error":
        raise UnreadyError(f"out of time with {len(left)} of {len(candidates.distinct)} kinds of nodes to judge")
    return candidates, {**memo.judgements, **dict.fromkeys((each.id for each in left), NOT_JUDGED)}


def _count(service: Service, filtered: Filtered, judged: tuple[Candidates, Judgements] | None) -> None:
    families = service.metrics.candidates
    if judged is None:
        families.labels(PASSED, Certainty.EXACT.value).inc(len(filtered.passed))
        return
    for (result, certainty), count in count_answers(filtered, *judged).items():
        families.labels(result, certainty.value).inc(count)
