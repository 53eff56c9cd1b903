"""GET /v1/map: the whole cluster in one small reply, for the page.

What many nodes share is sent once, as a shape. The rest is sent in columns: entry *i* of each column is about the same
node.
"""

from collections.abc import Mapping
from http import HTTPStatus
from typing import Annotated, Final
from zlib import crc32

from fastapi import APIRouter, Query, Response

from extender.api.http.problems import replies_with
from extender.api.http.replies import json_reply
from extender.api.nodes import views
from extender.api.nodes.routes import LabelSelector, names_after
from extender.api.service import Service
from extender.cluster.node import NodeRecord
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Certainty, Provider
from extender.questions.free_room import free_devices
from extender.questions.nri_pools import root_room
from extender.scheduling.records.unjudged import Note
from extender.wire.replies import ReplyBody, about
from extender.wire.selectors import Selector, parse_selector


class ShapeNUMA(ReplyBody):
    """One NUMA node of a shape."""

    id: Annotated[int, about("The kernel's id.")]
    socket: Annotated[int | None, about("The lowest socket of its CPUs. Null: it has no CPUs.")]
    cpus: Annotated[int, about("Online CPUs.")]
    reserved_cpus: Annotated[int, about("Reserved CPUs.")]
    memory_mib: Annotated[int, about("Allocatable memory in MiB; the total if no manager counts memory.")]


class NodeShape(ReplyBody):
    """Hardware, kubelet settings and labels that several nodes share."""

    pool: Annotated[str | None, about("The node pool, from a well-known label; null: unknown.")]
    instance_type: Annotated[str | None, about("`node.kubernetes.io/instance-type`; null: unknown.")]
    kubelet_version: Annotated[str | None, about("Null: unknown.")]
    topology_policy: Annotated[str | None, about("`topologyManagerPolicy`; null: unknown.")]
    topology_scope: Annotated[str | None, about("`topologyManagerScope`; null: unknown.")]
    cpu_policy: Annotated[str | None, about("`cpuManagerPolicy`; null: unknown.")]
    memory_policy: Annotated[str | None, about("`memoryManagerPolicy`; null: unknown.")]
    resource_policy: Annotated[str | None, about("As in `GET /v1/nodes`; null: no such plugin is known.")]
    hidden: Annotated[list[Provider], about("Managers whose state is unknown: nothing of theirs counts as free.")]
    numa: Annotated[list[ShapeNUMA], about("Ascending by id; empty: unknown.")]
    devices: Annotated[dict[str, int], about("Healthy devices by resource.")]


class MapColumns(ReplyBody):
    """The nodes of this page by name. All columns have the same length."""

    name: Annotated[list[str], about("Name of the Node object.")]
    shape: Annotated[list[int], about("Index in `shapes`.")]
    certainty: Annotated[list[Certainty], about("Certainty of verdicts.")]
    problems: Annotated[list[int], about("Number of warnings and errors.")]
    report: Annotated[list[int], about("A number that changes with every report of the node.")]
    free_cpus: Annotated[
        list[list[int]], about("Free exclusive CPUs by NUMA node, in the order of the shape's `numa`.")
    ]
    free_memory_mib: Annotated[
        list[list[int] | None], about("Free memory by NUMA node, MiB; null: no manager counts memory.")
    ]
    free_devices: Annotated[list[list[int]], about("Free healthy devices, in the order of the shape's `devices`.")]


class ClusterMap(ReplyBody):
    """A page of the map."""

    total: Annotated[int, about("Nodes on all pages, without `label_selector`.")]
    shapes: Annotated[list[NodeShape], about("Shapes of the nodes on this page.")]
    nodes: Annotated[MapColumns, about("The nodes on this page.")]
    root_pools: Annotated[
        dict[str, tuple[int, int, int, int]],
        about(
            "By name, where the NRI topology-aware policy runs and its pools are known: of the root pool, CPU left and "
            "all but reserved CPU, in mCPU, free memory and all memory, in MiB."
        ),
    ]
    next: Annotated[str | None, about("`after` of the next page; null: this is the last one.")]


INSTANCE_TYPE_LABEL: Final = "node.kubernetes.io/instance-type"
POOL_LABELS: Final = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "doks.digitalocean.com/node-pool",
)
"""Labels that name a node's pool. The first one that a node has counts."""
_MIB_SHIFT: Final = 20


class MapPage:
    """One page of the map, filled node by node."""

    def __init__(self) -> None:
        self.shapes: list[NodeShape] = []
        self.columns: Final = MapColumns(
            name=[], shape=[], certainty=[], problems=[], report=[], free_cpus=[], free_memory_mib=[], free_devices=[]
        )
        self.root_pools: dict[str, tuple[int, int, int, int]] = {}
        self._shape_ids: dict[object, int] = {}

    def add(self, record: NodeRecord, labels: Mapping[str, str] | None, note: Note | None) -> None:
        """Append *record*. *labels* None: unknown. *note*: why some pod could not be judged on the node's class."""
        observation, columns = record.observation, self.columns
        columns.name.append(record.name)
        columns.shape.append(self._shape(record, labels or {}))
        columns.certainty.append(record.certainty)
        columns.problems.append(views.problem_count(record, note))
        columns.report.append(crc32(f"{observation.boot_id} {observation.sequence}".encode()))
        cpus, memory, devices = _free(record.kubelet, views.shown_state(record))
        columns.free_cpus.append(cpus)
        columns.free_memory_mib.append(memory)
        columns.free_devices.append(devices)
        if (room := root_room(record)) is not None:
            self.root_pools[record.name] = (room[0], room[1], room[2] >> _MIB_SHIFT, room[3] >> _MIB_SHIFT)

    def _shape(self, record: NodeRecord, labels: Mapping[str, str]) -> int:
        """Index of the shape that *record* has; a new one is appended."""
        kubelet, state = record.kubelet, views.shown_state(record)
        devices = _device_totals(state) if kubelet is not None and state is not None else {}
        pool = next((labels[key] for key in POOL_LABELS if labels.get(key)), None)
        instance_type = labels.get(INSTANCE_TYPE_LABEL) or None
        reported = views.kubelet_version_of(record), views.resource_policy_of(record), record.observation.hidden
        # Equal kubelets are one object, so its id identifies machine and configuration while the page is built.
        key = (id(kubelet), state is None, tuple(devices.items()), pool, instance_type, *reported)
        found = self._shape_ids.get(key)
        if found is None:
            found = self._shape_ids[key] = len(self.shapes)
            summary = views.summarize(record, 0)
            numa = [ShapeNUMA.filled(each, memory_mib=each.memory_bytes >> _MIB_SHIFT) for each in summary.numa]
            self.shapes.append(
                NodeShape.filled(summary, pool=pool, instance_type=instance_type, numa=numa, devices=devices)
            )
        return found


def _device_totals(state: ManagerState) -> dict[str, int]:
    return {
        resource: sum(device.healthy for device in devices.values())
        for resource, devices in sorted(state.devices.devices.items())
    }


def _free(kubelet: Kubelet | None, state: ManagerState | None) -> tuple[list[int], list[int] | None, list[int]]:
    """What is free: CPUs and memory by NUMA node, devices by resource."""
    if kubelet is None or state is None:
        return [], None, []
    rooms = views.free_by_numa(kubelet, state)
    memory = [(free_bytes or 0) >> _MIB_SHIFT for _, free_bytes in rooms]
    is_counted = any(free_bytes is not None for _, free_bytes in rooms)
    devices = [len(ids) for ids in free_devices(state.devices).values()]
    return [cpus for cpus, _ in rooms], memory if is_counted else None, devices


MAX_MAP_PAGE: Final = 5000
"""Limit on the nodes of a page: about 400 kB."""


def map_router(service: Service) -> APIRouter:
    """GET /v1/map."""
    router = APIRouter(prefix="/v1", tags=["nodes"])

    @router.get(
        "/map",
        summary="The whole cluster in one small reply",
        **replies_with(ClusterMap, HTTPStatus.UNPROCESSABLE_ENTITY),
    )
    async def get_map(
        limit: Annotated[int, Query(ge=1, le=MAX_MAP_PAGE, description="Nodes a page.")] = MAX_MAP_PAGE,
        after: Annotated[str, Query(max_length=253, description="`next` of the page before; empty: first page.")] = "",
        label_selector: LabelSelector = "",
    ) -> Response:
        """Every node with what is free on each NUMA node, by name. Details of one node: `/v1/nodes/{name}`."""
        service.known.nodes.expire(service.clock())
        selects = parse_selector(label_selector, "query.label_selector")
        return json_reply(await _map_page(service, after, limit, selects))

    return router


async def _map_page(service: Service, after: str, limit: int, selects: Selector) -> ClusterMap:
    """Of *limit* nodes whose names come after *after* those with the labels.

    Other calls run between two nodes, so that the scheduler does not wait for a page.
    """
    page = MapPage()
    async with service.slices.turn() as breathe:
        names, total = names_after(service.known.nodes, after, limit)
        for record in filter(None, map(service.known.nodes.get, names[:limit])):
            await breathe()
            note = service.judging.unjudged.of(record.node_class.id)
            labels = service.surroundings(record.name).labels
            if selects(labels):
                page.add(record, labels, note)
        await breathe()
    return ClusterMap(
        total=total,
        shapes=page.shapes,
        nodes=page.columns,
        root_pools=page.root_pools,
        next=names[limit - 1] if len(names) > limit else None,
    )
