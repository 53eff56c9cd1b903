"""The verbs that kube-scheduler calls.

Laws of this file
- Every answer of filter has status 200: kube-scheduler throws other bodies away. What went wrong is in `Error`.
- An answer of prioritize is a bare list, with no place for an error: a failed one has a status of its own, which
  kube-scheduler logs; it then scores the pod without us (extender.go: send, Prioritize). An empty list would do the
  same and say nothing, and filter's object is an error of decoding that hides the reason.
- The event loop takes the picture of the cluster, another thread replays what was never replayed before.
- Filter has a deadline of its own, so that the scheduler always hears the reason; what was judged until then is kept.
"""

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from extender.api.access.fast_path import Endpoint
from extender.api.access.limits import LimitError
from extender.api.http.bodies import BodyTooLargeError, json_body, read_body
from extender.api.http.problems import documented, problem
from extender.api.judging import judge_at_once, judge_missing
from extender.api.nominated import note_nomination, with_nominations
from extender.api.service import Service
from extender.cluster.node_class import NodeClass
from extender.cluster.snapshot import ClusterSnapshot
from extender.observability.metrics import Stopwatch
from extender.replay.rules import NEWEST_MINOR, Rules
from extender.replay.verdict import Certainty
from extender.scheduling.cache import Judgements, ShapeMemo
from extender.scheduling.candidates import Candidates
from extender.scheduling.filter import PASSED, Filtered, all_of, avoid, count_answers, filter_nodes
from extender.scheduling.judge import Judgement
from extender.scheduling.prioritize import MAX_SCORE, prioritize_nodes
from extender.scheduling.reasons import NEVER_TEXTS, Refusal
from extender.scheduling.records.decisions import Call, kept_of
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
MAX_AT_ONCE: Final = 2
"""Nodes that changed since a pod shape was last asked for, and are judged before the rest is looked at."""
NOT_JUDGED: Final = Judgement(None, Certainty.UNKNOWN)
TOO_LATE: Final = Judgement(Refusal.LATE, Certainty.UNKNOWN)
"""Of nodes that take long to judge by themselves: they are left out of this answer, and hold nobody back."""
NO_JUDGEMENTS: Final[Judgements] = {}
EXACTLY_PASSED: Final = (PASSED, Certainty.EXACT)
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
    return router


def scheduling_endpoints(service: Service) -> Mapping[str, Endpoint]:
    """What answers the two verbs, by path: for the router, and for the short way there."""

    async def filter_(request: Request) -> Response:
        """The extender's `filterVerb`. Always status 200; what went wrong is in `Error`."""
        return await _answer(service, "filter", request, _filter)

    async def prioritize(request: Request) -> Response:
        """The extender's `prioritizeVerb`. What went wrong is a problem with a status of its own."""
        return await _answer(service, "prioritize", request, _prioritize)

    return {FILTER: filter_, PRIORITIZE: prioritize}


async def _answer(
    service: Service,
    verb: str,
    request: Request,
    answer: Callable[[Service, SchedulerArgs, Stopwatch], Awaitable[bytes]],
) -> Response:
    started = service.clock()
    outcome, reply = "answered", b""
    failed: Response | None = None
    watch = Stopwatch(service.metrics.phase_series, verb, service.clock)
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
        outcome, failed = "busy", _failed(verb, HTTPStatus.TOO_MANY_REQUESTS, str(error))
    except WireError as error:
        LOG.warning("request not understood verb=%s reason=%r", verb, str(error))
        outcome, failed = "invalid", _failed(verb, HTTPStatus.UNPROCESSABLE_ENTITY, str(error), error.field)
    except BodyTooLargeError as error:
        LOG.warning("request not understood verb=%s reason=%r", verb, str(error))
        outcome, failed = "invalid", _failed(verb, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, str(error))
    except UnreadyError as error:
        LOG.warning("request not answered verb=%s reason=%r", verb, str(error))
        outcome, failed = "unready", _failed(verb, HTTPStatus.SERVICE_UNAVAILABLE, str(error))
    except Exception:  # the scheduler would throw a 500's body away
        LOG.exception("defect verb=%s", verb)
        text = "a defect of the service; its log tells more"
        outcome, failed = "failed", _failed(verb, HTTPStatus.INTERNAL_SERVER_ERROR, text)
    service.metrics.verb_series[verb, outcome].observe(service.clock() - started)
    return failed or Response(reply, media_type="application/json")


def _failed(verb: str, status: HTTPStatus, reason: str, field: str | None = None) -> Response:
    """What *verb* answers to a call that it cannot answer, in the form that kube-scheduler takes from it."""
    if verb == "prioritize":
        return problem(status, reason, field)
    return Response(error_reply(f"numa-extender: {reason}"), media_type="application/json")


class UnreadyError(Exception):
    """The call cannot be answered now."""


async def _filter(service: Service, args: SchedulerArgs, watch: Stopwatch) -> bytes:
    if service.link.trouble:
        raise UnreadyError(service.link.trouble)
    if service.link.binder is not None:
        service.pods.remember(args.pod, args.priority)
    note_nomination(service, args.pod, args.priority, args.nominated_node)
    await service.barrier.wait(args.pod.uid)
    filtered, call = await _filtered(service, args)
    filtered = await with_nominations(service, args.pod, args.priority, filtered)
    avoided = _avoided(service, args.pod.uid, needs_alignment=call.seen is not None)
    if avoided:
        before, filtered = filtered, avoid(filtered, avoided)
        call = replace(call, avoided=filtered.refused.keys() - before.refused.keys())
    watch.lap("judge")
    service.decisions.note(call)
    if filtered.passed and call.seen is not None:
        service.barrier.offered(args.pod.uid)
    if service.settings.wake_up:
        service.waiting.note(args.pod, filtered, service.clock())
    if not service.settings.failed_nodes_resolvable:
        return filter_reply(args, filtered.passed, {}, filtered.refused)
    now = {name: text for name, text in filtered.refused.items() if text not in NEVER_TEXTS}
    never = {name: text for name, text in filtered.refused.items() if text in NEVER_TEXTS}
    return filter_reply(args, filtered.passed, now, never)


def _avoided(service: Service, uid: str, *, needs_alignment: bool) -> Collection[str]:
    """Nodes that bind would hold the pod back from: it did a moment ago, or their kubelets are starting.

    Without the pod's nominated node, where victims made room.
    """
    now = service.clock()
    names = service.pods.held_back_from(uid, now - service.settings.hold_back_seconds)
    starting = service.cluster.starting(now) if needs_alignment else ()
    if not names and not starting:
        return ()
    nomination = service.pods.nominations.of(uid, now)
    return {*names, *starting} - ({nomination.node_name} if nomination is not None else set())


async def _filtered(service: Service, args: SchedulerArgs) -> tuple[Filtered, Call]:
    """The answer, counted, and what is remembered of it.

    Raises:
        UnreadyError: it took too long, and nodes that are not judged are not to be passed.
    """
    memo, now = service.memo.shape(args.pod), service.clock()
    if not _is_aligned(service, memo):
        _count(service, {EXACTLY_PASSED: len(args.names)})
        return Filtered(passed=args.names), _call("filter", args, now)
    service.cluster.expire(now)
    picture = service.cluster.snapshot()
    sure = service.memo.sure(memo)
    lost = sure.follow(picture.generation, service.cluster.changed_since(sure.moment))
    if 0 < len(lost) <= MAX_AT_ONCE:
        changed = Candidates.of(lost, picture.classes_of(lost))
        judge_at_once(service, memo, memo.missing(changed.distinct))
        if not memo.missing(changed.distinct):
            sure.learn(changed, memo.judgements, picture)
    split = sure.split(args.names)
    surely = {EXACTLY_PASSED: len(args.names) - len(split.others)}
    if not split.others:
        _count(service, surely)
        return Filtered(passed=args.names), _call("filter", args, now, kept_of(picture, args.names), memo.judgements)
    rest = Candidates.of(split.others, picture.classes_of(split.others))
    judgements = await _judge(service, memo, rest, deadline=now + service.settings.filter_seconds)
    sure.learn(rest, judgements, picture)
    answer = filter_nodes(rest, judgements)
    _count(service, surely)
    _count(service, count_answers(answer, rest, judgements))
    return all_of(args.names, split.sure, answer), _call("filter", args, now, kept_of(picture, args.names), judgements)


async def _prioritize(service: Service, args: SchedulerArgs, watch: Stopwatch) -> bytes:
    memo, now = service.memo.shape(args.pod), service.clock()
    if not _is_aligned(service, memo):
        watch.lap("judge")
        service.decisions.note(_call("prioritize", args, now))
        return prioritize_reply(args, [MAX_SCORE] * len(args.names))
    service.cluster.expire(now)
    candidates = Candidates.of(args.names, service.cluster.snapshot().classes_of(args.names))
    judgements = await _judge(service, memo, candidates)
    watch.lap("judge")
    service.decisions.note(_call("prioritize", args, now, candidates.classes, judgements))
    return prioritize_reply(args, prioritize_nodes(candidates, judgements))


def _call(
    verb: str,
    args: SchedulerArgs,
    at: float,
    seen: ClusterSnapshot | Sequence[NodeClass] | None = None,
    judgements: Judgements = NO_JUDGEMENTS,
) -> Call:
    return Call(verb, args.pod, args.packed_names, len(args.names), at, seen, judgements)


def _is_aligned(service: Service, memo: ShapeMemo) -> bool:
    """Whether any node may have something to align for such a pod."""
    return memo.shape.is_aligned_anywhere((NEWEST_RULES, *service.cluster.rules))


async def _judge(
    service: Service, memo: ShapeMemo, candidates: Candidates, *, deadline: float | None = None
) -> Judgements:
    """The judgement of each class of the candidates.

    Raises:
        UnreadyError: it took until *deadline*, and nodes that are not judged are not to be passed.
    """
    missing = memo.missing(candidates.distinct)
    if not missing:
        return memo.judgements
    heavy = await judge_missing(service, memo, missing, deadline)
    left = [each.id for each in memo.missing(missing)]
    if not left:
        return memo.judgements
    if service.settings.late_nodes == "pass":
        return {**memo.judgements, **dict.fromkeys(left, NOT_JUDGED)}
    if not heavy.issuperset(left):
        raise UnreadyError(f"out of time with {len(left)} of {len(candidates.distinct)} kinds of nodes to judge")
    return {**memo.judgements, **dict.fromkeys(left, TOO_LATE)}


def _count(service: Service, answers: Mapping[tuple[str, Certainty], int]) -> None:
    for (result, certainty), count in answers.items():
        service.metrics.candidate_series[result, certainty.value].inc(count)
