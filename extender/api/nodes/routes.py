"""Routes for nodes."""

import asyncio
from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from typing import Annotated, Final

import msgspec
from fastapi import APIRouter, Path, Query, Response

from extender.api.http.problems import replies_with
from extender.api.http.replies import JSON
from extender.api.nodes.models import NodeDetail, NodeIndex
from extender.api.nodes.views import describe, free_cpu_count, is_large, summarize
from extender.api.service import Service
from extender.cluster.node import NodeRecord, UnknownNodeError
from extender.cluster.store import NodeStore
from extender.kubelet.config import TopologyPolicy
from extender.kubelet.verdict import Certainty
from extender.wire.selectors import parse_selector

LabelSelector = Annotated[
    str, Query(max_length=1000, description="Only nodes with these labels, as `kubectl -l`; needs `kubernetes`.")
]
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
    cluster = service.known.nodes
    large = ThreadPoolExecutor(1, "large-node")
    """Separate from the threads of the scheduler's verbs."""

    @router.get(
        "",
        summary="Nodes, page by page",
        **replies_with(NodeIndex, HTTPStatus.UNPROCESSABLE_ENTITY, links=_FIRST_NODE),
    )
    async def list_nodes(
        limit: Annotated[int, Query(ge=1, le=MAX_PAGE, description="Nodes a page.")] = PAGE,
        after: Annotated[
            str, Query(max_length=253, description="Nodes after this name: `next` of the page before.")
        ] = "",
        name: Annotated[str, Query(max_length=253, description="Only names that contain this text.")] = "",
        certainty: Annotated[Certainty | None, Query(description="Only nodes with this certainty.")] = None,
        policy: Annotated[TopologyPolicy | None, Query(description="Only nodes with this topology policy.")] = None,
        min_free_cpus: Annotated[
            int, Query(ge=0, le=1 << 16, description="Only nodes with at least this many free CPUs.")
        ] = 0,
        label_selector: LabelSelector = "",
    ) -> Response:
        """Every node with a report, by name. Filters select some of them."""
        selects = parse_selector(label_selector, "query.label_selector")
        now = service.clock()
        cluster.expire(now)

        def is_wanted(record: NodeRecord) -> bool:
            return (
                name in record.name
                and certainty in (None, record.certainty)
                and (policy is None or (record.kubelet is not None and record.kubelet.policy is policy))
                and (not min_free_cpus or free_cpu_count(record) >= min_free_cpus)
                and selects(service.surroundings(record.name).labels)
            )

        return Response(await _page(service, now, is_wanted, after, limit), media_type=JSON)

    @router.get(
        "/{name}",
        summary="All details of one node",
        **replies_with(NodeDetail, HTTPStatus.NOT_FOUND, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    async def get_node(name: NodeName) -> Response:
        """Topology, free resources, the containers that have resources, and problems."""
        return Response(await _details(service, name, large), media_type=JSON)

    return router


async def _details(service: Service, name: str, large: ThreadPoolExecutor) -> bytes:
    """One node as JSON. The text of a large node is made in a thread of *large*.

    Raises: UnknownNodeError: the node has not reported.
    """
    nodes, now = service.known.nodes, service.clock()
    nodes.expire(now)
    record = nodes.get(name)
    if record is None:
        raise UnknownNodeError(name)
    note = service.judging.unjudged.of(record.node_class.id)
    behaviours = service.audit.behaviours.of(name, record.kubelet)

    def described() -> bytes:
        return msgspec.json.encode(describe(record, now, note, behaviours))

    return await asyncio.get_running_loop().run_in_executor(large, described) if is_large(record) else described()


def names_after(cluster: NodeStore, after: str, limit: int) -> tuple[Sequence[str], int]:
    """The names of a page and, if there are more, of the first node after it; and the number of all nodes."""
    names = cluster.index.names.ordered
    first = bisect_right(names, after) if after else 0
    return names[first : first + limit + 1], len(names)


async def _page(service: Service, now: float, is_wanted: Callable[[NodeRecord], bool], after: str, limit: int) -> bytes:
    """The wanted nodes by name, *limit* of them that come after *after*, as a `NodeIndex`."""
    found: list[NodeRecord] = []
    async with service.slices.turn() as breathe:
        for name in list(service.known.nodes.index.names.ordered):
            await breathe()
            record = service.known.nodes.get(name)
            if record is not None and is_wanted(record):
                found.append(record)
        rest = [record for record in found if record.name > after] if after else found
        page: list[bytes] = []
        for record in rest[:limit]:
            await breathe()
            page.append(msgspec.json.encode(summarize(record, now, service.judging.unjudged.of(record.node_class.id))))
    following = rest[limit - 1].name if len(rest) > limit else None
    head = b'{"total":%d,"nodes":[' % len(found)
    return head + b",".join(page) + b'],"next":' + msgspec.json.encode(following) + b"}"
