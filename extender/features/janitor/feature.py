"""Deletes failed pods that kubelets refused for their topology, where the settings allow it.

The controller of such a pod has created another one long ago. The failed ones stay until the garbage collection of
pods, which keeps 12,500 of them by default.

Rules of this file
- Only pods whose status says that the kubelet's CPU, memory, device or topology manager refused them, that belong to a
  controller of `REPLACED_BY`, and that are not being deleted. Other controllers, such as that of a Job, may count
  failed pods, or treat a missing pod as an error.
- A pod must have been seen as failed for `janitor_after_seconds`. A restart of this process counts anew.
- At most `janitor_per_minute` pods are deleted, each under the precondition of its UID.
- With `dry-run` nothing is sent: the log and a metric say which pods would be deleted.
- Bounded: `MAX_KEPT` pods. Only the leader deletes.
"""

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from extender.bounded import BoundedMap
from extender.config.settings import Settings
from extender.kube.changes import Batch, Gone
from extender.kube.client import Requester, path_of
from extender.kube.errors import ApiError, KubeError
from extender.kube.pods import PodRecord
from extender.kubelet.verdict import MANAGERS_REASONS
from extender.observability.metrics import Metrics
from extender.runtime.connection import ApiConnection, ConnectedFeature

LOG: Final = logging.getLogger(__name__)
MAX_KEPT: Final = 10_000
REPLACED_BY: Final = frozenset({"ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"})
"""Kinds whose controllers replace a failed pod and do not count it."""


class JanitorFeature(ConnectedFeature):
    """Watches pods, and deletes those that kubelets refused for their topology."""

    def connect(self, connection: ApiConnection) -> None:
        """Watch pods, and delete."""
        service = self.service
        janitor = Janitor(connection.client, service.settings, service.metrics, connection.leads, service.clock)
        connection.on_pods(janitor.apply, is_refused_for_topology)
        connection.every(60 / service.settings.janitor_per_minute, janitor.step)


make = JanitorFeature


class Janitor:
    """Deletes failed pods when they are due. *can_write*: whether this process leads. *clock*: seconds, monotonic."""

    def __init__(
        self,
        client: Requester,
        settings: Settings,
        metrics: Metrics,
        can_write: Callable[[], bool],
        clock: Callable[[], float],
    ) -> None:
        self._client, self._settings, self._metrics = client, settings, metrics
        self._can_write, self._clock = can_write, clock
        self._failed: BoundedMap[str, tuple[float, PodRecord]] = BoundedMap(MAX_KEPT)

    def apply(self, batch: Batch[PodRecord]) -> None:
        """Apply changes from the watch of pods."""
        now = self._clock()
        for change in batch.changes:
            record = change.value
            if isinstance(change, Gone) or not is_refused_for_topology(record):
                self._failed.pop(record.uid, None)
            elif record.uid not in self._failed:
                self._failed[record.uid] = now, record

    async def step(self) -> PodRecord | None:
        """Delete the pod that has been failed for longest, if it is due; returns it."""
        due = self._clock() - self._settings.janitor_after_seconds
        uid = next((uid for uid, (since, _) in self._failed.items() if since <= due), None)
        if uid is None or not self._can_write():
            return None
        _, record = self._failed.pop(uid)
        if self._settings.janitor == "dry-run":
            outcome = "would_delete"
        else:
            outcome = await asyncio.to_thread(self._delete, record)
        self._metrics.janitor.labels(outcome).inc()
        LOG.info(
            "failed pod %s pod=%s/%s node=%s reason=%s",
            outcome,
            record.namespace,
            record.name,
            record.node_name,
            record.reason,
        )
        return record

    def _delete(self, record: PodRecord) -> str:
        path = path_of("/api/v1", "pods", namespace=record.namespace, name=record.name)
        try:
            self._client.request("DELETE", path, body={"preconditions": {"uid": record.uid}})
        except KubeError as error:
            if isinstance(error, ApiError) and error.status in (404, 409):
                return "gone"
            LOG.warning("could not delete pod=%s/%s reason=%r", record.namespace, record.name, str(error))
            return "failed"
        return "deleted"


def is_refused_for_topology(record: PodRecord) -> bool:
    """Whether the kubelet refused the pod for its topology, and a controller of `REPLACED_BY` owns it."""
    if not record.is_rejected or record.refusal not in MANAGERS_REASONS:
        return False
    owners = record.manifest()["metadata"].get("ownerReferences", ())
    kinds = {owner["kind"] for owner in owners}
    return bool(kinds) and kinds <= REPLACED_BY and not record.terminating
