"""GET /v1/decisions and /v1/pods/UID/decision: why the last scheduling calls gave their answers."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, HTTPException, Path, Query, Request, Response

from extender.answers.question import Asked, PastCall, QuestionKind, Questions
from extender.api.http.problems import replies_with
from extender.api.http.replies import JSON, json_reply
from extender.api.questions.routes import PROBLEMS, whole_answer
from extender.api.records.models import (
    DecidedNode,
    DecidedPod,
    DecisionCall,
    DecisionIndex,
    DecisionSummary,
    PodDecision,
    ReasonCount,
    Scored,
)
from extender.api.service import Service
from extender.kubelet.verdict import Certainty
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.decisions import Call, certainties
from extender.wire.verdicts import Verdict

MAX_SHOWN: Final = 10
_FIRST_POD: Final = {
    "pod": {"operationId": "get_decision", "parameters": {"uid": "$response.body#/decisions/0/pod/uid"}},
}


def decisions_router(service: Service, questions: Questions) -> APIRouter:
    """GET /v1/decisions, GET /v1/pods/UID/decision."""
    router = APIRouter(prefix="/v1", tags=["decisions"])

    @router.get(
        "/decisions",
        summary="List the last scheduling calls",
        **replies_with(DecisionIndex, HTTPStatus.UNPROCESSABLE_ENTITY, links=_FIRST_POD),
    )
    async def list_decisions(
        limit: Annotated[int, Query(ge=1, le=500, description="Largest number of pods.")] = 50,
        pod: Annotated[str, Query(max_length=512, description="Part of a UID, or of NAMESPACE/NAME.")] = "",
    ) -> Response:
        """Pods of the last calls of kube-scheduler, newest first, with the last call of each kind."""
        return Response(await _index(service, limit, pod), media_type=JSON)

    @router.get(
        "/pods/{uid}/decision",
        summary="Explain which nodes a pod was offered",
        **replies_with(PodDecision, *PROBLEMS),
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
        decision = PodDecision(pod=shown.pod, calls=shown.calls, node=candidate)
        return json_reply(decision)

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


async def _candidate(calls: Sequence[Call], name: str, questions: Questions, request: Request) -> DecidedNode:
    """One candidate of the calls, with the verdict behind its answer.

    Raises:
        HTTPException: it was no candidate.
    """
    candidate = _node(calls, name)
    if candidate is None:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"{name[:253]!r} was not a candidate of the recorded calls")
    if (past := _past_call(calls, name)) is not None:
        answer = await whole_answer(request, questions, Asked(kind=QuestionKind.PAST, past=past))
        candidate.verdict = msgspec.json.decode(answer, type=Verdict)
    return candidate


def _summary(calls: Sequence[Call], now: float) -> DecisionSummary:
    return DecisionSummary(pod=DecidedPod.filled(calls[0].pod), calls=[_call(call, now) for call in calls])


def _call(call: Call, now: float) -> DecisionCall:
    refused: dict[RefusalReason, list[str]] = {}
    for judgement, names in call.by_judgement().items():
        if judgement.refusal is not None:
            refused.setdefault(judgement.refusal, []).extend(names)
    count = sum(map(len, refused.values()))
    best: list[tuple[str, int]] = []
    if call.verb == "prioritize":
        best = sorted(call.scores(), key=lambda entry: (-entry[1], entry[0]))[:MAX_SHOWN]
    return DecisionCall(
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
            ReasonCount(reason=why.text, never=why.never, nodes=len(names), examples=sorted(names)[:MAX_SHOWN])
            for why, names in sorted(refused.items(), key=lambda item: -len(item[1]))
        ],
        best=[Scored(node=name, score=score) for name, score in best],
    )


def _node(calls: Sequence[Call], name: str) -> DecidedNode | None:
    """The candidate *name* in the newest call that had it, without the verdict. None if no call did."""
    call = next((call for call in calls if name in call.names), None)
    if call is None:
        return None
    judgement = call.judgement_of(name)
    scores = {n: s for ranking in calls if ranking.verb == "prioritize" for n, s in ranking.scores()}
    reason = ""
    if judgement is not None and judgement.refusal is not None:
        reason = judgement.refusal.text
    elif judgement is not None and call.place not in ("", name):
        reason = f"the place of the pod in its group is on node {call.place}"
    return DecidedNode(
        node=name,
        passed=not reason,
        reason=reason,
        certainty=Certainty.EXACT if judgement is None else judgement.certainty,
        score=scores.get(name),
        verdict=None,
    )


def _past_call(calls: Sequence[Call], name: str) -> PastCall | None:
    """The pod and the candidate at the time of the call. None if nothing was replayed."""
    call = next(call for call in calls if name in call.names)
    node_class = call.class_of(name)
    if node_class is None or node_class.kubelet is None or node_class.state is None:
        return None
    return PastCall(node_class.kubelet, node_class.state, call.pod)
