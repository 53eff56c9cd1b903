"""Requeues pods that were refused for now: when one would fit on a node that has changed, writes to one object.

kube-scheduler tries a refused pod again when it sees a change, and after five minutes at the latest. The pod would wait
so long if a refusal ends without a change that kube-scheduler sees after it: a report of the node follows later, or
kube-scheduler saw the end of a pod before the extender did. After an extender's refusal every change of a
CSIStorageCapacity counts, whatever the object says (`framework.go`: defaultEnqueueExtension). The manifests have one
for this, of no storage class that exists. So no right on nodes or pods is needed.

Rules of this file
- Only the leader writes, also once when it begins to lead: it does not know which pods were refused before. A standby
  scans the nodes as well, so that a takeover does not start with a scan of every node.
- A scan covers nodes whose class has changed, and replays only what is not cached. The results are cached for the
  scheduler's next call.
- Two scans cover each change that leads to no write: a filter call that began before the change may refuse its pod
  after the first one.
- A scan has a time limit. After `SCAN_SECONDS` it stops, and the next one continues with the same nodes.
- One write requeues every refused pod, and kube-scheduler's back-off of up to 10 s follows. So there are at most
  `PER_SECOND` writes. A write over this limit is not queued: a later scan tries again if a refused pod still fits.

RBAC: `patch` on this CSIStorageCapacity.
"""

import asyncio
import logging
from dataclasses import dataclass
from itertools import chain
from typing import Final

import numpy as np

from extender.api.access.limits import Rates
from extender.cluster.class_index import NO_CLASS, NO_SLOT
from extender.cluster.free_table import Int64s
from extender.cluster.node_class import NodeClass
from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import KubeError
from extender.observability.logs import FewWarnings
from extender.replay.pod import Pod
from extender.runtime.connection import ApiConnection, ConnectedFeature, LeaderTask

LOG: Final = logging.getLogger(__name__)
LOG.addFilter(FewWarnings())  # without the right, every write fails
ANNOTATION: Final = "numa-extender/room-changed-at"
OBJECT: Final = "numa-extender-wake-up"
SCAN_SECONDS: Final = 0.1
PER_SECOND: Final = 0.5
"""Beyond a burst of five."""
TOUCH_SECONDS: Final = 5.0
"""Time limit of one request."""


class RequeueFeature(ConnectedFeature):
    """Writes to an object that kube-scheduler watches, so that it tries refused pods again."""

    def connect(self, connection: ApiConnection) -> None:
        """Scan the nodes that changed."""
        requeuer = Requeuer(self.service, connection.client, connection.leads)
        connection.every(self.service.settings.wake_up_seconds, requeuer.scan)


make = RequeueFeature


def _as_long(class_ids: Int64s, ids: Int64s) -> Int64s:
    """The class ids by slot, for as many slots as *ids* has: there may be more of them since, and never fewer."""
    return np.pad(class_ids, (0, len(ids) - len(class_ids)), constant_values=NO_CLASS)


@dataclass
class Requeuer(LeaderTask):
    """Scans nodes. `_done`: the class id of each slot of the index when its node was done; `_before`: one scan ago."""

    def __post_init__(self) -> None:
        """Nothing was written yet."""
        self._writes, self._led = Rates(PER_SECOND, self.service.clock), False
        self._done = self._before = np.zeros(0, np.int64)

    async def scan(self) -> str | None:
        """Scan once. Returns the node for which pods were requeued, or None."""
        service, now, most = self.service, self.service.clock(), self.service.settings.max_refused_pods
        service.known.pods.expire(now)
        refused = service.known.pods.refused(now)
        service.metrics.refused_pods.set(len(refused))
        service.known.nodes.expire(now)
        index = service.known.nodes.index
        ids = index.ids[:NO_SLOT].copy()
        done, before = _as_long(self._done, ids), _as_long(self._before, ids)
        for name in chain.from_iterable(each.released() for each in service.scheduling.objectors):
            if (slot := index.names.get(name)) != NO_SLOT:
                done[slot] = NO_CLASS
        changed = np.flatnonzero((ids != done) & (ids != NO_CLASS))
        classes = index.classes[changed]
        self._done, self._before = np.where(ids == NO_CLASS, NO_CLASS, done), ids
        fitting, finished = await self._fitting(refused[:most], frozenset(classes), now + SCAN_SECONDS)
        self._led = self.can_write() and (self._led or await self._touch("every node") is not None)
        requeued = None
        if fitting is not None and self.can_write():
            slot = changed[np.flatnonzero(classes == fitting)[0]]
            names = (name for name in index.names.ordered if index.names.get(name) == slot)
            requeued = await self._touch(next(names, "gone since"))
        if requeued is not None or (finished and fitting is None):
            is_done = changed if requeued is not None else changed[before[changed] == ids[changed]]
            self._done[is_done] = ids[is_done]
        return requeued

    async def _fitting(
        self, pods: list[Pod], classes: frozenset[NodeClass], deadline: float
    ) -> tuple[NodeClass | None, bool]:
        """The first class found that admits one of the pods, and whether all pods were checked."""
        service = self.service
        asked = set()
        for pod in pods:
            entry = service.judging.entry(pod)
            if id(entry) in asked:
                continue
            asked.add(id(entry))
            await service.judging.answer(entry, classes, deadline)
            for node_class in classes:
                judgement = entry.get(node_class.id)
                if judgement is not None and judgement.refusal is None:
                    return node_class, True
            if service.clock() > deadline:
                return None, False
        return None, True

    async def _touch(self, node_name: str) -> str | None:
        """*node_name* once the object was written, None if it was not."""
        wake_ups = self.service.metrics.wake_ups
        if self._writes.take(""):
            wake_ups.labels("limited").inc()
            return None
        namespace = self.service.settings.lease_namespace
        try:
            await asyncio.to_thread(touch, self.client, namespace, f"{self.wall():.3f}")
        except KubeError as error:
            wake_ups.labels("failed").inc()
            LOG.warning("could not requeue refused pods object=%s reason=%r", OBJECT, str(error))
            return None
        wake_ups.labels("touched").inc()
        LOG.info("requeued refused pods node=%s", node_name)
        return node_name


def touch(client: Requester, namespace: str, value: str) -> None:
    """Set the annotation of the object. Raises KubeError."""
    patch: JSON = {"metadata": {"annotations": {ANNOTATION: value}}}
    path = path_of("/apis/storage.k8s.io/v1", "csistoragecapacities", namespace=namespace, name=OBJECT)
    content_type = "application/merge-patch+json"
    client.request("PATCH", path, body=patch, content_type=content_type, timeout_seconds=TOUCH_SECONDS)
