"""GET /v1/map: the whole cluster for the page."""

from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Query, Response

from extender.api.http.problems import documented
from extender.api.http.replies import described
from extender.api.nodes.map_models import ClusterMap
from extender.api.nodes.map_view import MapPage
from extender.api.nodes.routes import names_after
from extender.api.service import Service

MAX_MAP_PAGE: Final = 5000
"""Nodes. A page of so many is about 400 kB."""


def map_router(service: Service) -> APIRouter:
    """GET /v1/map."""
    router = APIRouter(prefix="/v1", tags=["nodes"])

    @router.get(
        "/map",
        summary="The whole cluster in one small reply",
        response_class=Response,
        responses={200: described(ClusterMap), **documented(HTTPStatus.UNPROCESSABLE_ENTITY)},
    )
    async def get_map(
        limit: Annotated[int, Query(ge=1, le=MAX_MAP_PAGE, description="Nodes a page.")] = MAX_MAP_PAGE,
        after: Annotated[str, Query(max_length=253, description="`next` of the page before; empty: first page.")] = "",
    ) -> Response:
        """Every node with what is free on each NUMA node, by name. Details of one node: `/v1/nodes/{name}`."""
        service.known.nodes.expire(service.clock())
        return Response(await _map_page(service, after, limit), media_type="application/json")

    return router


async def _map_page(service: Service, after: str, limit: int) -> bytes:
    """*limit* nodes whose names come after *after*, as a `ClusterMap`.

    Other calls run between two nodes, so that the scheduler does not wait for a page.
    """
    page = MapPage()
    async with service.slices.turn() as breathe:
        names, total = names_after(service.known.nodes, after, limit)
        for record in filter(None, map(service.known.nodes.get, names[:limit])):
            await breathe()
            note = service.judging.unjudged.of(record.node_class.id)
            page.add(record, service.surroundings(record.name).labels, note)
        await breathe()
    shown = ClusterMap(
        total=total,
        shapes=page.shapes,
        nodes=page.columns,
        root_pools=page.root_pools,
        next=names[limit - 1] if len(names) > limit else None,
    )
    return msgspec.json.encode(shown)
