"""Applies the watches of pods and nodes to the state of the cluster.

Rules of this file
- Runs on the event loop, one batch after the other. A batch changes each node's state once.
- The kubelet's own UID counts: a static pod has another UID in the kubelet than in the API. The API object of a static
  pod may be deleted and recreated while the pod stays; the node's reports show when it is gone.
- A pod counts as refused if its kubelet says so. Otherwise Failed is an end like any other.
- A deleted pod whose phase becomes Succeeded or Failed has ended: its kubelet publishes that phase only after its pod
  worker has stopped the containers and no longer counts the pod (`status_manager.go` mergePodStatus, `pod_workers.go`
  CouldHaveRunningContainers; all kubelets from 1.24 on), so its next admission releases what the pod held.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Final

import orjson

from extender.cluster.events import (
    ContainerRefused,
    PodEvent,
    PodFinished,
    PodGone,
    PodRefused,
    PodSeen,
    PodTerminating,
)
from extender.cluster.namespace_demands import NamespaceDemands
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.kube.changes import Batch, Change, Changed, Gone
from extender.kube.nodes import NodeObject
from extender.kube.pods import CREATE_ERROR, PodRecord
from extender.replay.pod import Pod
from extender.wire.errors import WireError
from extender.wire.pods import pod_from_json

REJECTED: Final = "Pod was rejected: "
"""The beginning of a pod's status message if the kubelet's admission refused the pod."""
_SHAPES: Final = 20_000


class ClusterFeed:
    """Applies batches to the cluster.

    *on_pods*: called after each batch of pods. `demands`: of namespaces. `on_refused`: called with each pod that a
    kubelet has refused since the first list: node, pod, reason, seconds of the clock.
    """

    def __init__(
        self,
        cluster: NodeStore,
        pods: PodRegistry,
        clock: Callable[[], float],
        on_pods: Callable[[], None],
    ) -> None:
        self.demands = NamespaceDemands()
        self.on_refused: Callable[[str, Pod, str, float], None] = lambda _node, _pod, _reason, _now: None
        self._cluster, self._pods, self._clock, self._on_pods = cluster, pods, clock, on_pods
        self._nodes: dict[str, str] = {}
        self.pods_complete = False
        self.nodes_complete = False

    def uid_of(self, name: str) -> str:
        """The UID of the Node with that name. "" if the API server has none."""
        return self._nodes.get(name, "")

    def apply_pods(self, batch: Batch[PodRecord]) -> None:
        """Apply changes from the watch of pods."""
        now = self._clock()
        changes = batch.changes if self.pods_complete else sorted(batch.changes, key=_age)
        events = [event for change in changes for event in self._events(change, ordered=not batch.listed)]
        self._cluster.apply(*events, now=now)
        self.pods_complete = self.pods_complete or batch.complete
        self._on_pods()

    def apply_nodes(self, batch: Batch[NodeObject]) -> None:
        """Apply changes from the watch of nodes."""
        for change in batch.changes:
            name, uid = change.value.name, change.value.uid
            if isinstance(change, Gone):
                self._nodes.pop(name, None)
                self._cluster.drop_node(name)
                continue
            if self._nodes.setdefault(name, uid) != uid:
                self._nodes[name] = uid
                self._cluster.drop_node(name)
            self._cluster.see_version(name, change.value.kubelet_version)
        self.nodes_complete = self.nodes_complete or batch.complete
        if self.nodes_complete:
            self._cluster.set_existing(self._nodes.keys())

    def _events(self, change: Change[PodRecord], *, ordered: bool) -> Iterator[PodEvent]:
        """What the change means to the pod's node; the pod's place is noted on the way."""
        record = change.value
        node, uid = record.node_name, record.kubelet_uid
        if isinstance(change, Gone):
            self._pods.delete(record.uid)
            if not record.mirror:
                yield PodGone(node, uid)
            return
        if isinstance(change, Changed) and _stage(change.old) == _stage(record):
            return
        self._pods.watch(record.uid, node)
        if record.finished:
            if record.phase == "Failed" and record.message.startswith(REJECTED):
                pod = pod_of(record)
                if pod is not None and self.pods_complete:
                    self.on_refused(node, self.demands.complete(pod), record.reason, self._clock())
                yield PodRefused(node, uid, record.reason)
            elif isinstance(change, Changed) and change.old.terminating and not change.old.finished:
                yield PodGone(node, uid)
            else:
                yield PodFinished(node, uid)
            return
        pod = pod_of(record)
        if pod is not None:
            yield PodSeen(node, self.demands.complete(pod), started=record.started_at is not None, ordered=ordered)
        if record.policy_error:
            yield ContainerRefused(node, uid, CREATE_ERROR)
        if record.terminating:
            yield PodTerminating(node, uid)


def _stage(record: PodRecord) -> tuple[bool, ...]:
    return record.finished, record.started_at is not None, record.terminating, bool(record.policy_error)


def _age(change: Change[PodRecord]) -> tuple[float, int]:
    """Sort key for the first list, which is sorted by name: pods that were started first, the oldest first."""
    record = change.value
    return float("inf") if record.started_at is None else record.started_at, record.created_at or 0


def pod_of(record: PodRecord) -> Pod | None:
    """The pod as its kubelet knows it. None if it cannot be read."""
    shape = _shape(record.reduced)
    if shape is None:
        return None
    return replace(
        shape, uid=record.kubelet_uid, name=record.name, namespace=record.namespace, created_at=record.created_at
    )


@lru_cache(_SHAPES)
def _shape(reduced: bytes) -> Pod | None:
    """The pod without its names. What its kubelet has allocated since then is not part of its admission."""
    manifest = orjson.loads(reduced)
    for key in ("initContainerStatuses", "containerStatuses"):
        manifest["status"].pop(key, None)
    try:
        return pod_from_json(manifest)
    except WireError:
        return None
