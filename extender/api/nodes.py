"""Nodes as people ask for them."""

import asyncio
from collections.abc import Iterable, Sequence
from http import HTTPStatus
from typing import Annotated, Final

import orjson
from fastapi import APIRouter, Path, Query, Response

from extender.api.node_models import NodeDetail, NodeIndex
from extender.api.node_views import certainty_of, describe, summarize
from extender.api.problems import documented
from extender.api.service import Service
from extender.cluster.node import NodeRecord
from extender.cluster.state import UnknownNodeError
from extender.replay.config import TopologyPolicy
from extender.replay.verdict import Certainty
from extender.verbs.free_room import free_cpus

NodeName = Annotated[str, Path(description="The node's name in the cluster.", min_length=1, max_length=253)]
PAGE: Final = 500
MAX_PAGE: Final = 5000
_FIRST_NODE: Final = {
    "node": {"operationId": "get_node", "parameters": {"name": "$response.body#/nodes/0/name"}},
    "rest": {"operationId": "list_nodes", "parameters": {"after": "$response.body#/next"}},
}


def nodes_router(service: Service) -> APIRouter:
    """GET /v1/nodes and /v1/nodes/NAME."""
    router = APIRouter(prefix="/v1/nodes", tags=["nodes"])
    cluster = service.cluster

    @router.get(
        "",
        summary="Nodes, page by page",
        response_class=Response,
        responses={
            200: {"model": NodeIndex, "links": _FIRST_NODE},
            **documented(HTTPStatus.UNPROCESSABLE_ENTITY),
        },
    )
    async def list_nodes(
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Nodes a page.")] = PAGE,
        after: Annotated[str, Query(max_length=253, description="Name after which to go on: `next` of a page.")] = "",
        name: Annotated[str, Query(max_length=253, description="Only names that contain this text.")] = "",
        certainty: Annotated[Certainty | None, Query(description="Only nodes with verdicts this sure.")] = None,
        policy: Annotated[TopologyPolicy | None, Query(description="Only nodes with this topology policy.")] = None,
        min_free_cpus: Annotated[int, Query(ge=0, le=1 << 16, description="Only nodes with that many free CPUs.")] = 0,
    ) -> Response:
        """Every node that ever reported, by name; filters narrow it down."""
        now = service.clock()
        cluster.expire(now)
        records = list(cluster)

        def page() -> bytes:
            found = _matching(records, name, certainty, policy)
            if min_free_cpus:
                found = (each for each in found if _free_cpus(each) >= min_free_cpus)
            return _page(sorted(found, key=lambda record: record.name), after, limit, now)

        return Response(await asyncio.to_thread(page), media_type="application/json")

    @router.get(
        "/{name}",
        summary="One node in full",
        response_class=Response,
        responses={
            200: {"model": NodeDetail},
            **documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
        },
    )
    async def get_node(name: NodeName) -> Response:
        """Topology, what is free, who holds what, and what is wrong."""
        now = service.clock()
        cluster.expire(now)
        record = cluster.get(name)
        if record is None:
            raise UnknownNodeError(name)
        return Response(orjson.dumps(describe(record, now)), media_type="application/json")

    return router


def _page(records: Sequence[NodeRecord], after: str, limit: int, now: float) -> bytes:
    """One page of *records*, as a `NodeIndex`."""
    rest = [record for record in records if record.name > after] if after else records
    page = rest[:limit]
    reply = {
        "total": len(records),
        "nodes": [summarize(record, now) for record in page],
        "next": page[-1].name if len(rest) > limit else None,
    }
    return orjson.dumps(reply)


def _matching(
    records: Iterable[NodeRecord], name: str, certainty: Certainty | None, policy: TopologyPolicy | None
) -> Iterable[NodeRecord]:
    for record in records:
        if name not in record.name or (certainty is not None and certainty_of(record) is not certainty):
            continue
        if policy is None or (record.kubelet is not None and record.kubelet.policy is policy):
            yield record


def _free_cpus(record: NodeRecord) -> int:
    kubelet, state = record.kubelet, record.state
    return free_cpus(kubelet, state).bit_count() if kubelet is not None and state is not None else 0
