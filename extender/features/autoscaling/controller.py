"""Asks autoscalers for nodes, and keeps them from draining these while their pods fit nowhere else.

Rules of this file
- Only the leader acts, one step after the other. Each step begins with the objects in the API server, and each action
  may be repeated. So a process that ends between two actions leaves nothing behind that the next one does not see.
- Order of a request: PodTemplate with the record, then what the autoscaler needs. The order of its end is the reverse.
- A request ends when its pods are placed or gone, or after `REQUEST_SECONDS`. If its pods were not placed in that time,
  the record stays for `REST_SECONDS`, and nothing is requested for these pods until then.
- A placed pod gets the annotation of the autoscaler's guard, unless it has one of its own. It stays as long as the
  nodes that refused the pod would refuse it again. Only values that the record names are removed.
- Limits: `autoscaling_max_requests` at a time, `PER_NAMESPACE` of them in a namespace, and nodes an hour.
- With `dry-run` nothing new is written: the objects are in the log and in `GET /v1/scale-ups`. What an earlier process
  has written is ended. So before the feature is switched off, it should run as `dry-run` for a minute.
"""

import asyncio
import logging
from collections import Counter, defaultdict, deque
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Final

from extender.bounded import BoundedMap
from extender.features.autoscaling.autoscaler import Autoscaler, Wish
from extender.features.autoscaling.cluster_autoscaler import ClusterAutoscaler
from extender.features.autoscaling.documents import Record, name_for, shape_of, template_of
from extender.features.autoscaling.karpenter import Karpenter
from extender.features.autoscaling.objects import Objects
from extender.features.autoscaling.pools import KARPENTER_POOL, NodePool, Pools, Room, rooms_in
from extender.features.autoscaling.waiting import Waiting
from extender.kube.client import JSON
from extender.kube.errors import KubeError
from extender.kube.objects import Json, ObjectName, items, mapping, strings, text
from extender.kube.pod_objects import controller_of, is_waiting, node_of, write_event
from extender.observability.logs import FewWarnings
from extender.runtime.connection import LeaderTask
from extender.scheduling.records.decisions import Call
from extender.wire.errors import WireError
from extender.wire.pods import pod_from_json
from extender.wire.workloads import workload_from_json

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())
REQUEST_SECONDS: Final = 900
"""As long as Cluster Autoscaler waits for a new node (`--max-node-provision-time`)."""
REST_SECONDS: Final = 1800
PER_NAMESPACE: Final = 2
MAX_PODS: Final = 64
"""Pods of one request."""
MAX_READ: Final = 50
"""Pods that one step reads from the API server for new requests."""
HOUR: Final = 3600
SCAN_SECONDS: Final = 0.5
EVENT_SECONDS: Final = 600.0
REASON: Final = "NoPoolFits"
PLACED: Final = "placed"
GONE: Final = "gone"
TIMED_OUT: Final = "timed_out"
STOPPED: Final = "stopped"


@dataclass(frozen=True, slots=True)
class PodsThatWait:
    """Pods of one owner and one shape that wait together, at least one."""

    pods: dict[ObjectName, Json] = field(default_factory=dict)
    refused_on: dict[str, None] = field(default_factory=dict)

    @property
    def first(self) -> ObjectName:
        """The pod that stands for all."""
        return next(iter(self.pods))


@dataclass
class Controller(LeaderTask):
    """The controller of one service. `shown`: the last records, with their objects in a dry run."""

    pools: Pools
    waiting: Waiting
    shown: list[tuple[Record, str, Sequence[JSON]]] = field(default_factory=list, init=False)
    _nodes_asked: deque[tuple[float, int]] = field(default_factory=deque, init=False)
    _told_at: BoundedMap[str, float] = field(default_factory=lambda: BoundedMap(10_000), init=False)
    _proposed: BoundedMap[str, tuple[Record, Sequence[JSON]]] = field(
        default_factory=lambda: BoundedMap(100), init=False
    )

    def __post_init__(self) -> None:
        """Nothing was read yet."""
        self._objects = Objects(self.client)
        self._autoscalers = self._for_a_step()
        self._writes = self.service.settings.autoscaling == "on"

    def _for_a_step(self) -> Mapping[str, Autoscaler]:
        """The autoscalers by the label of their pools, without what they have read before. "": of all other labels."""
        return {"": ClusterAutoscaler(self._objects), KARPENTER_POOL: Karpenter(self._objects, self.wall)}

    async def step(self) -> None:
        """Continue what was asked for, and ask for more."""
        if not self.can_write():
            return
        self._autoscalers = self._for_a_step()
        records = await asyncio.to_thread(self._objects.records)
        kept = []
        for record in records:
            try:
                if (after := await self._follow(record)) is not None:
                    kept.append(after)
            except KubeError as error:
                kept.append(record)
                LOG.warning("request for nodes not updated name=%s reason=%r", record.name, str(error))
        await self._ask(kept)
        outcomes = await self._outcomes(kept)
        proposed = [(record, "proposed", objects) for record, objects in self._proposed.values()]
        self.shown = [(each, outcomes.get((each.namespace, each.name), ""), ()) for each in kept] + proposed

    def _autoscaler_of(self, pool: NodePool) -> Autoscaler:
        return self._autoscalers.get(pool.label, self._autoscalers[""])

    async def _outcomes(self, records: Sequence[Record]) -> Mapping[tuple[str, str], str]:
        """What the autoscalers say of requests that have not ended."""
        found: dict[tuple[str, str], str] = {}
        for autoscaler in self._autoscalers.values():
            own = [each for each in records if not each.ended and self._autoscaler_of(each.pools[0]) is autoscaler]
            found |= await asyncio.to_thread(autoscaler.outcomes, own) if own else {}
        return found

    async def _follow(self, record: Record) -> Record | None:
        """One step of a request: the record after it, None once nothing of it is left."""
        found = {pod: await asyncio.to_thread(self._objects.pod, pod) for pod in record.pods}
        pods = {pod: manifest for pod, manifest in found.items() if manifest is not None and not _is_finished(manifest)}
        waiting = [pod for pod, manifest in pods.items() if not node_of(manifest)]
        if not record.ended:
            record = await self._ask_again(record, pods, waiting)
        guarded = await self._guard(record, pods)
        is_resting = (
            record.ended == TIMED_OUT and waiting and self.wall() < record.since + REQUEST_SECONDS + REST_SECONDS
        )
        if record.ended and not guarded and not (is_resting and self._writes):
            await asyncio.to_thread(self._objects.delete_template, record)
            return None
        return record

    async def _ask_again(
        self, record: Record, pods: Mapping[ObjectName, JSON], waiting: Sequence[ObjectName]
    ) -> Record:
        """Repeat what may be missing, or end the request."""
        ended = ""
        if not self._writes:
            ended = STOPPED
        elif not waiting:
            ended = PLACED if pods else GONE
        elif self.wall() >= record.since + REQUEST_SECONDS:
            ended = TIMED_OUT
        autoscaler = self._autoscaler_of(record.pools[0])
        if not ended:
            return await self._ask_for(record, {pod: pods[pod] for pod in waiting})
        await asyncio.to_thread(autoscaler.withdraw, record, pods)
        self.service.metrics.scale_ups.labels(ended).inc()
        LOG.info("request for nodes ended name=%s outcome=%s nodes=%d", record.name, ended, record.nodes)
        return await self._note(replace(record, ended=ended))

    async def _ask_for(self, record: Record, pods: Mapping[ObjectName, Json]) -> Record:
        await asyncio.to_thread(self._autoscaler_of(record.pools[0]).ask, record, pods)
        return record if record.asked else await self._note(replace(record, asked=True))

    async def _guard(self, record: Record, pods: Mapping[ObjectName, JSON]) -> Sequence[str]:
        """Guard placed pods, and end guards that are not needed; returns the UIDs of guarded pods."""
        guard = self._autoscaler_of(record.pools[0]).guard
        placed = {pod.uid: pod for pod, manifest in pods.items() if node_of(manifest)}
        needed = dict[str, None]()
        for uid, pod in placed.items():
            own = guard.annotation in _annotations(pods[pod]) and uid not in record.guarded
            if self._writes and not own and not await self._fits_elsewhere(pods[pod], record.refused_on):
                needed[uid] = None
        ended = [uid for uid in record.guarded if uid not in needed]
        if new := [uid for uid in needed if uid not in record.guarded]:  # the record first: see the file's rules
            record = await self._note(replace(record, guarded=(*record.guarded, *new)))
        for uid in needed:
            if _annotations(pods[placed[uid]]).get(guard.annotation) != guard.value:
                await asyncio.to_thread(self._objects.annotate, placed[uid], {guard.annotation: guard.value})
        for uid in ended:
            if uid in placed and _annotations(pods[placed[uid]]).get(guard.annotation) == guard.value:
                await asyncio.to_thread(self._objects.annotate, placed[uid], {guard.annotation: None})
        if ended:
            await self._note(replace(record, guarded=tuple(needed)))
        return tuple(needed)

    async def _fits_elsewhere(self, manifest: JSON, names: Sequence[str]) -> bool:
        """Whether one of these nodes, which refused the pod, would take it now."""
        service, own = self.service, node_of(manifest)
        entry = service.judging.entry(pod_from_json(manifest, "pod"))
        records = (service.known.nodes.get(name) for name in names if name != own)
        classes = frozenset(record.node_class for record in records if record is not None)
        await service.judging.answer(entry, classes, service.clock() + SCAN_SECONDS)
        judged = (entry.get(each.id) for each in classes)
        return any(each is not None and each.refusal is None for each in judged)

    async def _note(self, record: Record) -> Record:
        await asyncio.to_thread(self._objects.note, record)
        return record

    async def _ask(self, records: list[Record]) -> None:
        """Ask for nodes for pods that wait, within the limits. Adds to *records*."""
        settings = self.service.settings
        known = {pod.uid for record in records for pod in record.pods}
        self._proposed.clear()
        opened = Counter(record.namespace for record in records if not record.ended)
        full = {namespace for namespace, count in opened.items() if count >= PER_NAMESPACE}
        due = await self.waiting.due(full) if opened.total() < settings.autoscaling_max_requests else []
        self.service.metrics.scale_up_pods.set(len(known) + len(due))
        asked = await self._grouped(call for call in due if self._is_news(call, known))
        models = self.pools.models() if asked else {}
        for each in asked:
            namespace = each.first.namespace
            if opened.total() >= settings.autoscaling_max_requests or opened[namespace] >= PER_NAMESPACE:
                continue
            try:
                manifest = each.pods[each.first]
                workload = workload_from_json(manifest)
                found = await self.service.offload(rooms_in, models, workload, self.service.judging.judge)
                wish = Wish(found, models, manifest, [record for record in records if not record.ended])
                if (rooms := await self._limited(wish)) is None:
                    continue
                if (record := self._record(each, rooms)) is None:
                    await self._tell(each, rooms)
                elif (made := await self._create(record, each.pods)) is not None:
                    records.append(made)
                    opened[namespace] += 1
            except (KubeError, WireError) as error:
                self.service.metrics.scale_ups.labels("failed").inc()
                LOG.warning("no node asked for pod=%s/%s reason=%r", namespace, each.first.name, str(error))

    def _is_news(self, call: Call, known: Container[str]) -> bool:
        """Whether no request is for the pod, and it was not told of late that none can be."""
        told_at = self._told_at.get(call.pod.uid, -EVENT_SECONDS)
        return call.pod.uid not in known and self.service.clock() - told_at >= EVENT_SECONDS

    async def _grouped(self, calls: Iterator[Call]) -> list[PodsThatWait]:
        """The pods of these calls that still wait, by owner and shape."""
        groups = defaultdict[tuple[str, bytes], PodsThatWait](PodsThatWait)
        for call in islice(calls, MAX_READ):
            if call.pod.has_claims:  # Cluster Autoscaler simulates claims itself
                continue
            pod = ObjectName(call.pod.uid, call.pod.namespace, call.pod.name)
            manifest = await asyncio.to_thread(self._objects.pod, pod)
            if manifest is None or not _is_unschedulable(manifest):
                continue
            group = groups[controller_of(manifest) or pod.uid, shape_of(manifest)]
            if len(group.pods) < MAX_PODS:
                group.pods[pod] = manifest
                group.refused_on.update(dict.fromkeys(call.names))
        return list(groups.values())

    async def _limited(self, wish: Wish) -> Mapping[NodePool, Room] | None:
        """The rooms with what the autoscalers may add now; None: one should look again later."""
        limited: dict[NodePool, Room] = {}
        for autoscaler in self._autoscalers.values():
            own = {pool: room for pool, room in wish.rooms.items() if self._autoscaler_of(pool) is autoscaler}
            found = await asyncio.to_thread(autoscaler.limited, wish._replace(rooms=own)) if own else {}
            if found is None:
                return None
            limited |= found
        return limited

    def _record(self, asked: PodsThatWait, rooms: Mapping[NodePool, Room]) -> Record | None:
        """The request for these pods; None: no pool's empty node takes one.

        Of several pools the request names those whose nodes take the most of these pods. So the number of nodes is
        right, whichever pool the autoscaler chooses.
        """
        wanted = len(asked.pods)
        most = max((min(room.copies, wanted) for room in rooms.values()), default=0)
        if not most:
            return None
        best = sorted(pool for pool, room in rooms.items() if min(room.copies, wanted) == most)
        autoscaler = self._autoscaler_of(best[0])
        pools = autoscaler.together([pool for pool in best if self._autoscaler_of(pool) is autoscaler])
        return Record(
            namespace=asked.first.namespace,
            name=name_for(asked.first),
            pods=tuple(asked.pods),
            pools=tuple(pools),
            nodes=min(-(-wanted // most), *(rooms[pool].nodes for pool in pools)),
            refused_on=tuple(asked.refused_on),
            since=int(self.wall()),
        )

    async def _create(self, record: Record, pods: Mapping[ObjectName, Json]) -> Record | None:
        """Create the objects of a request, or show them in a dry run; None: nothing was created."""
        manifest = next(iter(pods.values()))
        template = template_of(record, manifest, self.pools.hostnames(record.refused_on))
        if not self._writes:
            asking = await asyncio.to_thread(self._autoscaler_of(record.pools[0]).asking, record, manifest)
            self._proposed[record.name] = record, (template, *asking)
            LOG.info("would ask for nodes name=%s nodes=%d pools=%s", record.name, record.nodes, record.pools)
            return None
        now = self.wall()
        while self._nodes_asked and self._nodes_asked[0][0] <= now - HOUR:
            self._nodes_asked.popleft()
        used = sum(nodes for _, nodes in self._nodes_asked)
        if used + record.nodes > self.service.settings.autoscaling_nodes_per_hour:
            self.service.metrics.scale_ups.labels("limited").inc()
            return None
        self._nodes_asked.append((now, record.nodes))
        await asyncio.to_thread(self._objects.create_template, record, template)
        record = await self._ask_for(record, pods)
        self.service.metrics.scale_ups.labels("asked").inc()
        LOG.info("asked for nodes name=%s nodes=%d pools=%s", record.name, record.nodes, record.pools)
        return record

    async def _tell(self, asked: PodsThatWait, rooms: Mapping[NodePool, Room]) -> None:
        """Write an event on the first pod that no new node can help, if the pools are known at all."""
        pod, now = asked.first, self.service.clock()
        if not rooms or not self._writes:
            return
        self._told_at |= {each.uid: now for each in asked.pods}
        self.service.metrics.scale_ups.labels("no_pool").inc()
        reasons = [f"{pool.value}: {room.limit}" for pool, room in islice(rooms.items(), 5)]
        more = f", and {len(rooms) - 5} further pools" * (len(rooms) > 5)
        message = f"No new node of any pool could take the pod, so none is asked for: {'; '.join(reasons)}{more}."
        await asyncio.to_thread(write_event, self.client, pod, REASON, message, self.wall())


def _annotations(manifest: Json) -> Mapping[str, str]:
    return strings(mapping(manifest, "metadata"), "annotations")


def _is_finished(manifest: Json) -> bool:
    return text(mapping(manifest, "status"), "phase") in ("Succeeded", "Failed")


def _is_unschedulable(manifest: Json) -> bool:
    """Whether kube-scheduler has found no node for the pod, and no preemption is under way for it."""
    conditions = items(mapping(manifest, "status"), "conditions")
    reasons = [text(each, "reason") for each in conditions if text(each, "type") == "PodScheduled"]
    return is_waiting(manifest) and "Unschedulable" in reasons
