"""Why the last scheduling calls gave their answers, and what came of the predictions."""

from collections.abc import Sequence
from http import HTTPStatus
from itertools import islice
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from extender.api.http.problems import replies_with
from extender.api.http.replies import JSON, json_reply
from extender.api.questions.routes import PROBLEMS, whole_answer
from extender.api.records import models
from extender.api.service import Service
from extender.kubelet.verdict import Certainty
from extender.questions.asked import Asked, PastCall, QuestionKind, Questions
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.decisions import Call, certainties
from extender.scheduling.records.demand_results import DemandResult
from extender.wire.verdicts import Verdict

MAX_EXAMPLES: Final = 10
_FIRST_POD: Final = {
    "pod": {"operationId": "get_decision", "parameters": {"uid": "$response.body#/decisions/0/pod/uid"}},
}


def records_router(service: Service, questions: Questions) -> APIRouter:
    """GET /v1/decisions, GET /v1/pods/UID/decision, GET /v1/audit."""
    router = APIRouter(prefix="/v1")

    @router.get(
        "/decisions",
        tags=["decisions"],
        summary="List the last scheduling calls",
        **replies_with(models.DecisionIndex, HTTPStatus.UNPROCESSABLE_ENTITY, links=_FIRST_POD),
    )
    async def list_decisions(
        limit: Annotated[int, Query(ge=1, le=500, description="Largest number of pods.")] = 50,
        pod: Annotated[str, Query(max_length=512, description="Part of a UID, or of NAMESPACE/NAME.")] = "",
    ) -> Response:
        """Pods of the last calls of kube-scheduler, newest first, with the last call of each kind."""
        return Response(await _index(service, limit, pod), media_type=JSON)

    @router.get(
        "/pods/{uid}/decision",
        tags=["decisions"],
        summary="Explain which nodes a pod was offered",
        **replies_with(models.PodDecision, *PROBLEMS),
    )
    async def get_decision(
        request: Request,
        uid: Annotated[str, Path(description="The pod's UID.", max_length=253)],
        node: Annotated[
            str, Query(max_length=253, description="Show full details of this candidate, as it was at that time.")
        ] = "",
    ) -> Response:
        """The last call of each kind about the pod.

        With `node`, also the verdict behind the answer for that candidate.
        """
        calls = service.records.decisions.of_pod(uid)
        if not calls:
            raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no record of a call about pod {uid[:253]!r}")
        candidate = await _candidate(calls, node, questions, request) if node else None
        shown = _summary(calls, service.clock())
        decision = models.PodDecision(pod=shown.pod, calls=shown.calls, node=candidate)
        return json_reply(decision)

    @router.get(
        "/audit",
        tags=["service"],
        summary="Compare predictions with what the kubelets did",
        **replies_with(models.AuditView),
    )
    async def get_audit() -> Response:
        """Counters of predictions, nodes with wrong predictions, and the last wrong predictions."""
        return json_reply(_audit_view(service))

    return router


async def _index(service: Service, limit: int, pod: str) -> bytes:
    """The last calls about *limit* pods as a `DecisionIndex`. *pod*: see `DecisionLog.newest`."""
    now = service.clock()
    found = service.records.decisions.newest(limit, pod)
    forgotten = service.records.decisions.forgotten
    rendered = []
    async with service.slices.turn() as breathe:
        for calls in found:
            await breathe()
            rendered.append(msgspec.json.encode(_summary(calls, now)))
    return b'{"decisions":[' + b",".join(rendered) + b'],"forgotten":%d}' % forgotten


async def _candidate(calls: Sequence[Call], name: str, questions: Questions, request: Request) -> models.DecidedNode:
    """One candidate of the calls, with the verdict behind its answer.

    Raises:
        HTTPException: it was no candidate.
    """
    call = next((call for call in calls if name in call.names), None)
    if call is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"{name[:253]!r} was not a candidate of the recorded calls")
    candidate, node_class = _node(call, calls, name), call.class_of(name)
    if node_class is not None and node_class.kubelet is not None and node_class.state is not None:
        past = PastCall(node_class.kubelet, node_class.state, call.pod)
        answer = await whole_answer(request, questions, Asked(kind=QuestionKind.PAST, past=past))
        candidate.verdict = msgspec.json.decode(answer, type=Verdict)
    return candidate


def _summary(calls: Sequence[Call], now: float) -> models.DecisionSummary:
    return models.DecisionSummary(
        pod=models.DecidedPod.filled(calls[0].pod), calls=[_call(call, now) for call in calls]
    )


def _call(call: Call, now: float) -> models.DecisionCall:
    refused: dict[RefusalReason, list[str]] = {}
    for judgement, names in call.by_judgement().items():
        if judgement.refusal is not None:
            refused.setdefault(judgement.refusal, []).extend(names)
    count = sum(map(len, refused.values()))
    best: list[tuple[str, int]] = []
    if call.verb == "prioritize":
        best = sorted(call.scores(), key=lambda entry: (-entry[1], entry[0]))[:MAX_EXAMPLES]
    return models.DecisionCall(
        verb="prioritize" if call.verb == "prioritize" else "filter",
        seconds_ago=round(max(0.0, now - call.at), 3),
        candidates=call.count,
        passed=call.count - count,
        refused=count,
        place=call.place,
        aligned=call.classes is not None,
        certainty={Certainty(certainty): nodes for certainty, nodes in certainties(call).items()}
        if call.classes is not None
        else {Certainty.EXACT: call.count},
        reasons=[
            models.ReasonCount(
                reason=why.text, never=why.never, nodes=len(names), examples=sorted(names)[:MAX_EXAMPLES]
            )
            for why, names in sorted(refused.items(), key=lambda item: -len(item[1]))
        ],
        best=[models.Scored(node=name, score=score) for name, score in best],
    )


def _node(call: Call, calls: Sequence[Call], name: str) -> models.DecidedNode:
    """The candidate *name* in *call*, the newest of *calls* that had it, without the verdict."""
    judgement = call.judgement_of(name)
    scores = {n: s for ranking in calls if ranking.verb == "prioritize" for n, s in ranking.scores()}
    reason = ""
    if judgement is not None and judgement.refusal is not None:
        reason = judgement.refusal.text
    elif judgement is not None and call.place not in ("", name):
        reason = f"the place of the pod in its group is on node {call.place}"
    return models.DecidedNode(
        node=name,
        passed=not reason,
        reason=reason,
        certainty=Certainty.EXACT if judgement is None else judgement.certainty,
        score=scores.get(name),
        verdict=None,
    )


def _audit_view(service: Service) -> models.AuditView:
    audit, now = service.audit, service.clock()
    refusals = islice(reversed(service.records.refusals.all(now)), models.MAX_SHOWN)
    return models.AuditView(
        counts=[models.CountView.filled(kind, count=count) for kind, count in sorted(audit.counts.items())],
        nodes=[
            models.AuditedNodeView(
                name=name, disagreements=wrong, results=results, distrusted=audit.is_score_only(name)
            )
            for name, wrong, results in audit.disagreeing_nodes()
        ],
        recent=[
            models.DisagreementView.filled(
                each,
                seconds_ago=round(now - each.at, 3),
                kind=models.KindView.filled(each.kind),
                agrees_with=None if each.agrees_with is None else list(map(str, each.agrees_with)),
            )
            for each in reversed(audit.recent)
        ],
        behaviours=[
            models.BehaviourView.filled(each, **each.setting._asdict())
            for each in islice(service.behaviours(), models.MAX_SHOWN)
        ],
        demands=models.DemandsView(
            **{result.value: audit.demands.counts[result] for result in DemandResult},
            recent=[
                models.BrokenDemandView.filled(each, seconds_ago=round(now - each.at, 3), broken=each.broken.breach)
                for each in reversed(audit.demands.recent)
            ],
        ),
        allocations=models.AllocationsView(
            **{name: audit.allocations[name] for name in models.AllocationsView.__annotations__}
        ),
        left_out=[models.LeftOutView.filled(each, seconds_left=round(each.until - now, 3)) for each in refusals],
        pods_in_flight=service.known.nodes.pods_in_flight,
    )
