"""What would become of a pod, node by node, with placements and reasons."""

import asyncio
from collections.abc import Sequence
from http import HTTPStatus
from typing import Annotated, Any, Final

import orjson
from fastapi import APIRouter, Request, Response
from pydantic import BaseModel, Field, TypeAdapter

from extender.api.bodies import json_body, read_body
from extender.api.problems import documented
from extender.api.service import Service
from extender.cluster.node import NodeRecord
from extender.cluster.state import UnknownNodeError
from extender.replay.verdict import Certainty
from extender.verbs.what_if import Answer, what_if
from extender.wire.pods import pod_from_json
from extender.wire.validation import Document, parse_json
from extender.wire.verdicts import explained_to_json


class WhatIfRequest(Document):
    """A pod, and the nodes to ask."""

    pod: Annotated[dict[str, Any], Field(description="A v1.Pod; only what the kubelet's managers read is needed.")]
    nodes: Annotated[list[str] | None, Field(description="Names of nodes; null: all.")] = None


class NodeAnswer(BaseModel):
    """What one node's kubelet would answer, and what filter makes of it."""

    node: str
    passes: Annotated[bool, Field(description="Whether filter offers the node to the scheduler.")]
    why: Annotated[str, Field(description="The reason that the scheduler shows; empty if the node passes.")]
    certainty: Certainty
    verdict: Annotated[
        dict[str, Any] | None,
        Field(description="`admit`, `reason`, `message`, `containers`, `refused_by`; null: the node is not known."),
    ]


class WhatIfReply(BaseModel):
    """The answers, in the order of the nodes asked; all nodes: by name."""

    nodes: list[NodeAnswer]


_REQUEST: Final = TypeAdapter(WhatIfRequest)


def what_if_router(service: Service) -> APIRouter:
    """POST /v1/what-if."""
    router = APIRouter(prefix="/v1", tags=["what-if"])

    @router.post(
        "/what-if",
        response_class=Response,
        summary="What each node would answer to a pod",
        responses={
            200: {"model": WhatIfReply},
            **documented(
                HTTPStatus.BAD_REQUEST,
                HTTPStatus.NOT_FOUND,
                HTTPStatus.REQUEST_ENTITY_TOO_LARGE,
                HTTPStatus.UNPROCESSABLE_ENTITY,
            ),
        },
        openapi_extra=json_body("WhatIfRequest"),
    )
    async def post_what_if(request: Request) -> Response:
        """Replay the pod's admission on live nodes. Nothing changes by asking."""
        asked = parse_json(_REQUEST, await read_body(request, service.settings.max_body_bytes))
        pod = pod_from_json(asked.pod, "pod")
        records = _records(service, asked.nodes)
        answers = await asyncio.to_thread(what_if, pod, records, service.judge)
        reply = {"nodes": [_answer(each) for each in answers]}
        return Response(orjson.dumps(reply), media_type="application/json")

    return router


def _records(service: Service, names: Sequence[str] | None) -> list[NodeRecord]:
    cluster = service.cluster
    cluster.expire(service.clock())
    if names is None:
        return sorted(cluster, key=lambda record: record.name)
    records = []
    for name in names:
        record = cluster.get(name)
        if record is None:
            raise UnknownNodeError(name)
        records.append(record)
    return records


def _answer(answer: Answer) -> dict[str, object]:
    refusal = answer.judgement.refusal
    return {
        "node": answer.node_name,
        "passes": refusal is None,
        "why": "" if refusal is None else refusal.text,
        "certainty": answer.certainty.value,
        "verdict": None if answer.verdict is None else explained_to_json(answer.verdict),
    }
