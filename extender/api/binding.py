"""The bind verb that kube-scheduler calls.

Laws of this file
- Every answer has status 200: what went wrong is in `Error`, and then nothing has changed.
- One binding at a time for each node, its API call included: the kubelet admits pods in the order in which the API
  server has bound them, so that order must be the one that was judged.
- A pod whose binding to the node is in doubt has its room there already, and is not judged against itself.
- Between a pod's end and our knowing of it there are moments. Where the end of a single other pod would have the
  kubelet refuse this one, it waits for a better moment, up to `hold_back_seconds`, and filter offers it other nodes;
  and however long just after the API server could not be reached, when such ends are many.
- A pod on the node that it is nominated to waits within the call, up to `bind_wait_seconds`, while only leaving pods
  stand against it: after an error kube-scheduler would clear the nomination, and others could take the room. So does a
  pod for which the totals of the node suffice only without pods that have just ended. Few calls wait at a time.
- A node whose kubelet is stopped or has just started takes no pod that was replayed, for a bounded time.
- The room is taken before the API is called, and given back only if the pod is certainly not bound.
"""

import logging
from typing import Final

from fastapi import APIRouter, Request, Response
from starlette.requests import ClientDisconnect

from extender.api.access.limits import LimitError
from extender.api.http.bodies import BodyTooLargeError, json_body, read_body
from extender.api.judging import judge_at_once, judge_missing
from extender.api.locks import NodeLocks, SharedBudget
from extender.api.nominated import breaks_promises, is_worth_waiting
from extender.api.scheduling import NEWEST_RULES
from extender.api.service import Service
from extender.cluster.projection import MAX_END_ADMISSIONS, MAX_ENDS
from extender.replay.pod import Pod
from extender.replay.verdict import Certainty
from extender.scheduling.bind import (
    AGAIN,
    BindOutcome,
    Bound,
    Unbound,
    Unsure,
    gate,
    look_up,
    over_totals,
    promised,
    starting,
    unsettled,
)
from extender.scheduling.judge import INDIFFERENT, Judgement
from extender.scheduling.reasons import Refusal
from extender.scheduling.totals import exceeds, pod_requests
from extender.wire.binding import ExtenderBindingArgs, ExtenderBindingResult, binding_reply, parse_binding
from extender.wire.errors import WireError

LOG: Final = logging.getLogger(__name__)
_MAX_LOOKS: Final = 5
"""How often a node is judged that changes while it is judged."""
NOT_NOW: Final = Judgement(Refusal.UNSETTLED, Certainty.UNKNOWN)
"""The node changes faster than it can be judged."""
_LOOK_AGAIN_SECONDS, _MAX_PAUSE_SECONDS = 0.1, 0.4
"""How soon the gate looks again while a pod waits for others to leave; ever later, because a look costs replays."""
_GATED: Final = frozenset({"refused", "unsettled", "totals", "promised", "starting"})
"""The kinds of answers of the gate itself."""


def binding_router(service: Service) -> APIRouter:
    """POST /scheduler/bind."""
    router = APIRouter(prefix="/scheduler", tags=["scheduler"])
    locks, replays = NodeLocks(), SharedBudget(MAX_END_ADMISSIONS, MAX_ENDS)

    @router.post(
        "/bind",
        response_class=Response,
        responses={200: {"model": ExtenderBindingResult}},
        openapi_extra=json_body("ExtenderBindingArgs"),
        summary="Bind the pod, if the node's kubelet would admit it now",
    )
    async def bind(request: Request) -> Response:
        """The extender's `bindVerb`. Always status 200; why the pod was not bound is in `Error`."""
        started = service.clock()
        outcome, kind = "failed", "failed"
        try:
            args = parse_binding(await read_body(request, service.settings.max_body_bytes))
            done = await _bind(service, locks, replays, args)
            outcome, kind = "answered", done.kind if isinstance(done, Unbound) else type(done).__name__.lower()
            error = "" if isinstance(done, Bound) else f"numa-extender: {done.reason}"
        except ClientDisconnect:  # nobody is left to answer, and nothing was begun: the body had not come
            raise
        except LimitError as fault:
            outcome = kind = "busy"
            error = f"numa-extender: {fault}"
        except (WireError, BodyTooLargeError) as fault:
            outcome = kind = "invalid"
            error = f"numa-extender: {fault}"
            LOG.warning("request not understood verb=bind reason=%r", str(fault))
        except Exception:  # the scheduler would throw a 500's body away
            error = "numa-extender: a defect of the service; its log tells more"
            LOG.exception("defect verb=bind")
        service.metrics.verb_seconds.labels("bind", outcome).observe(service.clock() - started)
        service.metrics.binds.labels(kind).inc()
        return Response(binding_reply(error), media_type="application/json")

    return router


async def _bind(service: Service, locks: NodeLocks, replays: SharedBudget, args: ExtenderBindingArgs) -> BindOutcome:
    """Bind the pod; on its nominated node look again for a while, as long as only leaving pods stand against it."""
    if service.link.binder is None:
        return Unbound("this extender has no access to the API server: leave `bindVerb` out", "no_access")
    pause = _LOOK_AGAIN_SECONDS
    until = service.clock() + min(service.settings.bind_wait_seconds, service.settings.bind_seconds)
    while True:
        try:
            async with locks.hold(args.Node, service.settings.bind_seconds):
                outcome = await _bind_locked(service, replays, args)
        except TimeoutError:
            return Unbound(f"other pods are being bound to {args.Node}; {AGAIN}", "busy")
        if service.clock() >= until or not await _may_pass_soon(service, args, outcome):
            break
        with replays.waiting() as may_wait:
            if not may_wait:
                break
            await service.sleep(pause)
        pause = min(2 * pause, _MAX_PAUSE_SECONDS)
    if isinstance(outcome, Unbound) and outcome.kind in _GATED:
        LOG.info("bind refused pod=%s/%s node=%s reason=%r", args.PodNamespace, args.PodName, args.Node, outcome.reason)
    return outcome


async def _may_pass_soon(service: Service, args: ExtenderBindingArgs, outcome: BindOutcome) -> bool:
    """Whether the gate has refused the pod for a reason that passes by itself, and soon.

    That is so on the node that it is nominated to, and where pods that have just ended may still count in the totals.
    """
    if isinstance(outcome, Unbound) and outcome.kind == "totals":
        return True
    pod, nomination = service.pods.get(args.PodUID), service.pods.nominations.of(args.PodUID, service.clock())
    if pod is None or nomination is None or nomination.node_name != args.Node or not isinstance(outcome, Unbound):
        return False
    return outcome.kind == "unsettled" or (
        outcome.kind == "refused" and await is_worth_waiting(service, pod, args.Node)
    )


async def _bind_locked(service: Service, replays: SharedBudget, args: ExtenderBindingArgs) -> BindOutcome:
    pod = look_up(args, service.pods.get(args.PodUID), service.pods.node_of(args.PodUID))
    if not isinstance(pod, Pod):
        return pod
    if not service.cluster.may_exist(args.Node):
        return Unbound(f"there is no node {args.Node}", "unknown_node")
    if service.cluster.ledger(args.Node).find(pod.uid) is None:
        if await breaks_promises(service, pod, service.pods.priority_of(pod.uid), args.Node):
            return promised()
        if _is_over_totals(service, pod, args.Node):
            return over_totals()
        judgement = await _judge(service, pod, args.Node)
        is_replayed = judgement.merit is not None
        if is_replayed and args.Node in service.cluster.starting(service.clock()):
            return starting()
        refused = gate(judgement) or await _assume(service, replays if is_replayed else None, pod, args.Node)
        if refused is not None:
            return refused
    return await _write(service, pod, args.Node)


async def _assume(service: Service, replays: SharedBudget | None, pod: Pod, node_name: str) -> Unbound | None:
    """Take the room; why not, if what else happens on the node may turn out badly for the pod or another one.

    *replays*: to look for that; None for a pod that was not replayed at all.
    """
    is_safe = service.cluster.assume(node_name, pod, service.clock())
    if not service.settings.doubts.refuses_chances:
        return None
    try:
        if is_safe and (replays is None or await _may_go(service, replays, pod, node_name)):
            return None
    except BaseException:
        service.cluster.forget(node_name, pod.uid, service.clock())
        raise
    service.cluster.forget(node_name, pod.uid, service.clock())
    return unsettled()


def _is_over_totals(service: Service, pod: Pod, node_name: str) -> bool:
    """Whether the kubelet may refuse the pod as `OutOfcpu` or the like.

    kube-scheduler counts a pod until the API has it as finished, a kubelet may count it a moment longer: that doubt
    ends by itself. Where the totals do not suffice even without such pods, the pod is held back for a bounded time.
    """
    around, now = service.surroundings(node_name), service.clock()
    if (
        around.allocatable_milli is None
        or around.requested_milli is None
        or not service.settings.doubts.refuses_chances
    ):
        return False
    wanted, allocatable = pod_requests(pod, {}), around.allocatable_milli
    unseen = [pod_requests(each, {}) for each in service.pods.unseen_on(node_name) if each.uid != pod.uid]
    finished = service.finished_requests(node_name, service.cluster.may_be_gone(node_name, now))
    if not exceeds(wanted, allocatable, [around.requested_milli, finished, *unseen]):
        return False
    held_back_seconds = service.pods.hold_back(pod.uid, node_name, now)
    if held_back_seconds < service.settings.hold_back_seconds:
        return True
    return not exceeds(wanted, allocatable, [around.requested_milli, *unseen])  # else our picture is wrong, not late


async def _may_go(service: Service, replays: SharedBudget, pod: Pod, node_name: str) -> bool:
    """Whether no single end of another pod matters, or the pod was held back for long enough; and it fits as before."""
    now = service.clock()
    with replays.share() as max_admissions:
        survives_sudden_exit = service.cluster.survives_sudden_exit(node_name, pod.uid, now, max_admissions)
        if survives_sudden_exit is None:
            return True
        withstands = await service.offload(survives_sudden_exit)
    changed = not service.cluster.is_admitted(node_name, pod.uid)
    if changed or node_name in service.cluster.starting(service.clock()):  # while this was computed
        return False
    if withstands:
        return True
    held_back_seconds = service.pods.hold_back(pod.uid, node_name, now)
    return held_back_seconds >= service.settings.hold_back_seconds and not service.link.is_settling(now)


async def _judge(service: Service, pod: Pod, node_name: str) -> Judgement:
    """The node's answer in the state that it has when this returns: no `await` comes between."""
    memo = service.memo.shape(pod)
    if not memo.shape.is_aligned_anywhere((NEWEST_RULES, *service.cluster.rules)):
        return INDIFFERENT
    for _ in range(_MAX_LOOKS):
        service.cluster.expire(service.clock())
        (node_class,) = service.cluster.classes_of((node_name,))
        judgement = memo.judgements.get(node_class.id)
        if judgement is not None:
            return judgement
        await judge_missing(service, memo, (node_class,), service.clock() + service.settings.filter_seconds)
    service.cluster.expire(service.clock())
    (node_class,) = service.cluster.classes_of((node_name,))
    judge_at_once(service, memo, memo.missing((node_class,)))
    return memo.judgements.get(node_class.id, NOT_NOW)


async def _write(service: Service, pod: Pod, node_name: str) -> BindOutcome:
    """Make the binding; the pod is assumed on the node already."""
    binder, before = service.link.binder, service.pods.unsure_node(pod.uid)
    assert binder is not None
    outcome: BindOutcome = Unsure("the call was given up")
    try:
        outcome = await binder.bind(pod.namespace, pod.name, pod.uid, node_name)
    finally:
        if isinstance(outcome, Bound):
            service.pods.bound(pod.uid, node_name)
            if before is not None and before != node_name:
                service.cluster.forget(before, pod.uid, service.clock())
        elif isinstance(outcome, Unsure):
            service.pods.unsure(pod.uid, node_name)
            service.cluster.doubt(node_name, pod.uid, service.clock())
        elif before != node_name or outcome.kind != "failed":  # else the first try may still come through
            service.cluster.forget(node_name, pod.uid, service.clock())
        if isinstance(outcome, Unsure) or (isinstance(outcome, Unbound) and outcome.kind == "failed"):
            service.link.failed_at = service.clock()
        if not isinstance(outcome, Bound):
            LOG.info("not bound pod=%s/%s node=%s reason=%r", pod.namespace, pod.name, node_name, outcome.reason)
    return outcome
