"""The preempt verb that kube-scheduler calls.

Laws of this file
- The reply has no place for an error, and an empty one means "evicting helps nowhere". So what cannot be answered has a
  status of its own: the scheduler then fails this attempt (or goes on without us, where we are `ignorable`).
- Nobody is evicted here. What is remembered: the pod's nomination, and the victims that were answered.
- While the pod's nominated node only waits for pods to leave, the answer is empty: kube-scheduler then evicts nobody
  and keeps the nomination.
- The event loop takes the picture of nodes and pods, another thread replays.
"""

import logging
from collections import Counter
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Request, Response

from extender.api.http.bodies import BodyTooLargeError, json_body, read_body
from extender.api.http.problems import documented
from extender.api.nominated import is_worth_waiting, note_nomination, promises_before
from extender.api.scheduling import NEWEST_RULES
from extender.api.service import Service
from extender.cluster.node_class import NodeClass
from extender.scheduling.judge import INDIFFERENT, Judge, Judgement, PodShape
from extender.scheduling.preemption.plan import Plan, Preemptor, Site, Trials, Veto, plan_preemption
from extender.wire.errors import WireError
from extender.wire.preemption import ExtenderPreemptionResult, PreemptionArgs, parse_preemption, preemption_reply

LOG: Final = logging.getLogger(__name__)


def preempting_router(service: Service) -> APIRouter:
    """POST /scheduler/preempt."""
    router = APIRouter(prefix="/scheduler", tags=["scheduler"])

    @router.post(
        "/preempt",
        response_class=Response,
        responses={
            200: {"model": ExtenderPreemptionResult},
            **documented(HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY),
        },
        openapi_extra=json_body("ExtenderPreemptionArgs"),
        summary="On which nodes evicting these pods, and which more, makes room for the pod",
    )
    async def preempt(request: Request) -> Response:
        """The extender's `preemptVerb`. Both forms of victims are read; the reply names victims by UID."""
        started = service.clock()
        outcome = "failed"
        try:
            body = await read_body(request, service.settings.max_scheduler_body_bytes)
            reply = await _preempt(service, parse_preemption(body), started)
            outcome = "answered"
        except (WireError, BodyTooLargeError) as error:
            outcome = "invalid"
            LOG.warning("request not understood verb=preempt reason=%r", str(error))
            raise
        finally:
            service.metrics.verb_seconds.labels("preempt", outcome).observe(service.clock() - started)
        return Response(reply, media_type="application/json")

    return router


async def _preempt(service: Service, args: PreemptionArgs, started: float) -> bytes:
    preemptor = Preemptor(shape=PodShape(args.pod), priority=args.priority, may_preempt=args.may_preempt)
    note_nomination(service, args.pod, args.priority, args.nominated_node)
    nomination = service.pods.nominations.of(args.pod.uid, started)
    if nomination is not None and await is_worth_waiting(service, args.pod, nomination.node_name):
        _tell(service, args, dict.fromkeys(args.proposals, Veto.NOMINATED))
        return preemption_reply({})
    sites = _sites(service, args, started)
    trials = Trials(
        _judge(service, preemptor.shape),
        preemptor.shape,
        out_of_time=lambda: service.clock() - started > service.settings.preempt_seconds,
    )
    answers = await service.offload(plan_preemption, preemptor, args.proposals, sites, trials)
    _tell(service, args, answers)
    plans = {name: (a.victims, a.violations) for name, a in answers.items() if isinstance(a, Plan)}
    victims = {name: victims for name, (victims, _) in plans.items()}
    service.pods.nominations.propose(args.pod.uid, victims, service.clock())
    return preemption_reply(plans)


def _judge(service: Service, shape: PodShape) -> Judge:
    """The judge of filter; a pod that nothing aligns anywhere passes on every node, as it does there."""
    if shape.is_aligned_anywhere((NEWEST_RULES, *service.cluster.rules)):
        return service.judge
    return _indifferent


def _indifferent(_shape: PodShape, _node_class: NodeClass) -> Judgement:
    return INDIFFERENT


def _sites(service: Service, args: PreemptionArgs, now: float) -> dict[str, Site]:
    """What is known of each candidate and its pods, in one picture."""
    service.cluster.expire(now)
    sites = {}
    for name in args.proposals:
        record, pods = service.cluster.get(name), service.running.on_node(name)
        if record is None:
            sites[name] = Site(pods=pods)
        else:
            sites[name] = Site(
                node_class=record.node_class,
                states=record.states,
                pods=pods,
                promised=tuple(
                    PodShape(each.pod) for each in promises_before(service, args.pod.uid, args.priority, name)
                ),
            )
    return sites


def _tell(service: Service, args: PreemptionArgs, answers: dict[str, Plan | Veto]) -> None:
    for result, count in Counter(map(_result, answers.values())).items():
        service.metrics.preemptions.labels(result).inc(count)
    if any(isinstance(answer, Veto) for answer in answers.values()):
        vetoes = Counter(answer.value for answer in answers.values() if isinstance(answer, Veto))
        LOG.info("preemption vetoed pod=%s/%s nodes=%s", args.pod.namespace, args.pod.name, dict(vetoes))


def _result(answer: Plan | Veto) -> str:
    if isinstance(answer, Veto):
        return answer.value
    return "extended" if answer.added else "kept"
