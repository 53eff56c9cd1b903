"""What would become of a pod, node by node, with placements and reasons."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Query, Request, Response
from pydantic import TypeAdapter

from extender.api.questions import (
    PROBLEMS,
    NodeQuery,
    is_manifest,
    live_records,
    parse_question,
    question_body,
    read_question,
    subjects_of,
)
from extender.api.service import Service
from extender.api.what_if_models import MachineIndex, WhatIfReply, WhatIfRequest
from extender.api.workload_views import pod_summary
from extender.replay.pod import Pod
from extender.verbs.explain import Story, explain, story_to_json
from extender.verbs.machines import CATALOGUE
from extender.verbs.what_if import Answer, what_if
from extender.wire.verdicts import explained_to_json
from extender.wire.workloads import Workload, workload_from_json

MAX_EXPLAINED: Final = 24
"""Nodes explained in one answer: each costs up to 160 replays."""
_REQUEST: Final = TypeAdapter(WhatIfRequest)
_OUTCOMES: Final = ("fits", "topology", "scheduler", "unknown")
Json = dict[str, object]


def what_if_router(service: Service) -> APIRouter:
    """POST /v1/what-if, GET /v1/machines."""
    router = APIRouter(prefix="/v1", tags=["what-if"])

    @router.post(
        "/what-if",
        response_class=Response,
        summary="What each node would answer to a pod",
        responses={200: {"model": WhatIfReply}, **PROBLEMS},
        openapi_extra=question_body("WhatIfRequest"),
    )
    async def post_what_if(
        request: Request,
        node: NodeQuery = None,
        *,
        explain: Annotated[bool, Query(description="As `explain` in the body.")] = False,
    ) -> Response:
        """Replay the pod's admission on live or hypothetical nodes. Nothing changes by asking.

        The body is a question, or a bare manifest (`kubectl get -o yaml`), as JSON or YAML.
        """
        document = await read_question(request, service.settings.max_body_bytes)
        path = "pod"
        if is_manifest(document, "pod"):
            path, document = "", {"pod": document, "nodes": node}
        asked = parse_question(_REQUEST, document)
        workload = workload_from_json(asked.pod, path)
        records = live_records(service, asked.nodes, asked.hypothetical)

        def answer() -> bytes:
            subjects = subjects_of(service, records, asked.hypothetical)
            answers = what_if(workload, subjects, service.judge)
            return orjson.dumps(_reply(workload, answers, is_explained=asked.explain or explain))

        return Response(await asyncio.to_thread(answer), media_type="application/json")

    @router.get("/machines", summary="Machines to ask about by name")
    async def list_machines() -> MachineIndex:
        """The catalogue of machine shapes that `hypothetical[].machine` can name."""
        return MachineIndex.model_validate({"machines": [_machine(name) for name in CATALOGUE]})

    return router


def _reply(workload: Workload, answers: Sequence[Answer], *, is_explained: bool) -> Json:
    stories: dict[str, Story] = {}
    left_out = 0
    if is_explained:
        stories, left_out = _stories(workload.pod, answers)
    outcomes = Counter(answer.outcome for answer in answers)
    reasons = Counter(a.judgement.refusal.text for a in answers if a.judgement.refusal is not None)
    return {
        "pod": pod_summary(workload),
        "summary": {"nodes": len(answers), **{o: outcomes[o] for o in _OUTCOMES}, "reasons": dict(reasons)},
        "nodes": [_answer(answer, stories.get(answer.subject.name)) for answer in answers],
        "explanations_left_out": left_out,
    }


def _stories(pod: Pod, answers: Sequence[Answer]) -> tuple[dict[str, Story], int]:
    """The stories of the first nodes that are unlike each other, by name; and how many nodes got none."""
    stories: dict[str, Story] = {}
    told = set()
    for answer in answers:
        subject = answer.subject
        if subject.kubelet is None or not subject.states or len(stories) >= MAX_EXPLAINED:
            continue
        if subject.node_class in told and len(answers) > MAX_EXPLAINED:
            continue
        told.add(subject.node_class)
        stories[subject.name] = explain(subject.kubelet, subject.states[0], pod)
    return stories, len(answers) - len(stories)


def _answer(answer: Answer, story: Story | None) -> Json:
    refusal, subject = answer.judgement.refusal, answer.subject
    return {
        "node": subject.name,
        "hypothetical": subject.hypothetical,
        "outcome": answer.outcome,
        "passes": refusal is None,
        "why": "" if refusal is None else refusal.text,
        "certainty": answer.certainty.value,
        "score": answer.score,
        "verdict": None if answer.verdict is None else explained_to_json(answer.verdict),
        "scheduler": answer.scheduler,
        "explanation": None if story is None else _explanation(story),
    }


def _explanation(story: Story) -> Json:
    nearest = [
        {
            "kind": each.kind,
            "change": each.change,
            "container": each.container,
            "resource": each.resource,
            "wanted": each.wanted,
            "instead": each.instead,
            "verdict": explained_to_json(each.verdict),
        }
        for each in story.nearest.suggestions
    ]
    return {**story_to_json(story), "nearest": nearest}


def _machine(name: str) -> Json:
    shape = CATALOGUE[name]
    hardware = shape.hardware
    return {
        "name": name,
        "about": shape.about,
        "sockets": hardware.sockets,
        "numa_nodes": len(hardware.numa_ids),
        "cpus": hardware.cpus,
        "threads": hardware.threads,
        "memory_bytes": len(hardware.numa_ids) * hardware.memory_gib << 30,
        "devices": {resource: len(numas) for resource, numas in shape.devices.items()},
    }
