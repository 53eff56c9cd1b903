"""Requeues pods that were refused for now: when one would fit on a node that has changed, touches the node.

kube-scheduler retries unschedulable pods when a node changes. From 1.30 on a changed annotation is enough.

Rules of this file
- Only the leader touches nodes. A standby scans them as well, so that a takeover does not start with a scan of every
  node.
- A scan covers nodes whose class has changed, and replays only what is not cached. The results are cached for the
  scheduler's next call.
- Two scans cover each change that leads to no touch: a filter call that began before the change may refuse its pod
  after the first one.
- A scan has a time limit. After `SCAN_SECONDS` it stops, and the next one continues with the same nodes.
- All watchers of nodes receive every touch. So a node is touched once in `NODE_SECONDS`, and all nodes together
  `PER_SECOND` times. A touch over these limits is not queued: a later scan tries again if a refused pod still fits.

RBAC: `patch` on nodes.
"""

import asyncio
import logging
from dataclasses import dataclass, field
from itertools import chain
from typing import Final

from extender.api.access.limits import Rates
from extender.cluster.node_class import NodeClass
from extender.kube.client import JSON, Requester, path_of
from extender.kube.errors import KubeError
from extender.replay.pod import Pod
from extender.runtime.connection import ApiConnection, ConnectedFeature, LeaderTask

LOG: Final = logging.getLogger(__name__)
ANNOTATION: Final = "numa-extender/room-changed-at"
SCAN_SECONDS: Final = 0.25
NODE_SECONDS: Final = 10.0
PER_SECOND: Final = 2.0
TOUCH_SECONDS: Final = 5.0
"""Time limit of one request."""
MAX_TRIES: Final = 8
"""How many nodes one scan tries if the first ones were touched too recently."""


class RequeueFeature(ConnectedFeature):
    """Touches nodes that changed, so that kube-scheduler tries refused pods again."""

    def connect(self, connection: ApiConnection) -> None:
        """Scan and touch nodes."""
        requeuer = Requeuer(self.service, connection.client, connection.leads)
        connection.every(self.service.settings.wake_up_seconds, requeuer.scan)


make = RequeueFeature


@dataclass
class Requeuer(LeaderTask):
    """Scans and touches nodes for one service.

    `_scanned_at`: the class id of each node when it was done. `_before`: the nodes of the last scan.
    """

    _scanned_at: dict[str, int] = field(default_factory=dict, init=False)
    _before: dict[str, NodeClass] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        """Nothing was touched yet."""
        self._of_node = Rates(1 / NODE_SECONDS, self.service.clock)
        self._of_all = Rates(PER_SECOND, self.service.clock)

    async def scan(self) -> str | None:
        """Scan once. Returns the node that was touched, or None."""
        service = self.service
        now = service.clock()
        service.known.pods.expire(now)
        refused = service.known.pods.refused(now)
        service.metrics.refused_pods.set(len(refused))
        pods = refused[: service.settings.max_refused_pods]
        service.known.nodes.expire(now)
        for name in chain.from_iterable(each.released() for each in service.scheduling.objectors):
            self._scanned_at.pop(name, None)
        changed = {r.name: r.node_class for r in service.known.nodes if self._scanned_at.get(r.name) != r.node_class.id}
        before, self._before = self._before, changed
        fitting, finished = await self._fitting(pods, frozenset(changed.values()), now + SCAN_SECONDS)
        touched = None
        if fitting is not None and self.can_write():
            touched = await self._touch([name for name, node_class in changed.items() if node_class is fitting])
        if touched is not None:
            self._done(changed)
        elif finished and fitting is None:
            self._done(dict(changed.items() & before.items()))
        return touched

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
                judgement = entry.judgements.get(node_class.id)
                if judgement is not None and judgement.refusal is None:
                    return node_class, True
            if service.clock() > deadline:
                return None, False
        return None, True

    async def _touch(self, names: list[str]) -> str | None:
        wake_ups = self.service.metrics.wake_ups
        for name in names[:MAX_TRIES]:
            if self._of_all.wait_seconds("") or self._of_node.take(name):
                wake_ups.labels("limited").inc()
                continue
            self._of_all.take("")
            try:
                await asyncio.to_thread(touch, self.client, name, f"{self.wall():.3f}")
            except KubeError as error:
                wake_ups.labels("failed").inc()
                LOG.warning("could not touch node=%s reason=%r", name, str(error))
                return None
            wake_ups.labels("touched").inc()
            LOG.info("requeued refused pods node=%s", name)
            return name
        return None

    def _done(self, changed: dict[str, NodeClass]) -> None:
        """Do not scan these again until they change."""
        self._scanned_at.update((name, node_class.id) for name, node_class in changed.items())
        if len(self._scanned_at) > 2 * len(self.service.known.nodes) + 100:
            held = {record.name for record in self.service.known.nodes}
            self._scanned_at = {name: at for name, at in self._scanned_at.items() if name in held}


def touch(client: Requester, node: str, value: str) -> None:
    """Set the annotation of the node. Raises KubeError."""
    patch: JSON = {"metadata": {"annotations": {ANNOTATION: value}}}
    path = path_of("/api/v1", "nodes", name=node)
    content_type = "application/merge-patch+json"
    client.request("PATCH", path, body=patch, content_type=content_type, timeout_seconds=TOUCH_SECONDS)
