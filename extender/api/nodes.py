"""Nodes as people ask for them."""

from http import HTTPStatus
from typing import Annotated

from fastapi import APIRouter, Path
from pydantic import BaseModel

from extender.api.node_views import NodeDetail, NodeSummary, describe, summarize
from extender.api.problems import documented
from extender.api.service import Service
from extender.cluster.state import UnknownNodeError

NodeName = Annotated[str, Path(description="The node's name in the cluster.", min_length=1, max_length=253)]


class NodeIndex(BaseModel):
    """Every node that ever reported, by name."""

    nodes: list[NodeSummary]


def nodes_router(service: Service) -> APIRouter:
    """GET /v1/nodes and /v1/nodes/NAME."""
    router = APIRouter(prefix="/v1/nodes", tags=["nodes"])
    cluster = service.cluster

    @router.get("", summary="All nodes")
    async def list_nodes() -> NodeIndex:
        """Every node that ever reported, by name."""
        now = service.clock()
        cluster.expire(now)
        return NodeIndex(nodes=[summarize(record, now) for record in sorted(cluster, key=lambda r: r.name)])

    @router.get(
        "/{name}",
        summary="One node in full",
        responses=documented(HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    async def get_node(name: NodeName) -> NodeDetail:
        """Topology, what is free, who holds what, and what is wrong."""
        now = service.clock()
        cluster.expire(now)
        record = cluster.get(name)
        if record is None:
            raise UnknownNodeError(name)
        return describe(record, now)

    return router
