"""Applies the watches of pods and nodes to the state of the cluster.

Rules of this file
- Runs on the event loop, one batch after the other. A batch changes each node's state once.
- The kubelet's own UID counts: a static pod has another UID in the kubelet than in the API. The API object of a static
  pod may be deleted and recreated while the pod stays; the node's reports show when it is gone. Whoever may create pods
  can create such an object with any UID, so it proves nothing about the kubelet.
- A pod counts as refused if its kubelet says so. Otherwise Failed is an end like any other.
- A deleted pod whose phase becomes Succeeded or Failed has ended: its kubelet publishes that phase only after its pod
  worker has stopped the containers and no longer counts the pod (`status_manager.go` mergePodStatus, `pod_workers.go`
  CouldHaveRunningContainers; all kubelets from 1.24 on), so its next admission releases what the pod held.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from extender.bounded import BoundedMap
from extender.cluster.events import (
    ContainerRefused,
    MirrorGone,
    MirrorSeen,
    PodEvent,
    PodFinished,
    PodGone,
    PodRefused,
    PodSeen,
    PodTerminating,
    PodUnread,
)
from extender.cluster.pods import PodRegistry, with_default
from extender.cluster.store import NodeStore
from extender.kube.changes import Batch, Change, Changed, Gone
from extender.kube.nodes import NodeObject
from extender.kube.pods import CREATE_ERROR, PodRecord, read_reduced
from extender.kubelet.verdict import MANAGERS_REASONS
from extender.questions.node_context import WatchedPod
from extender.replay.alignment_demand import Demand
from extender.replay.pod import Pod
from extender.wire.errors import WireError

MAX_DELETED: Final = 20_000
"""How many deleted nodes are remembered."""


class Refused(NamedTuple):
    """A pod that a kubelet has just refused.

    `at`: seconds of the clock. `is_ours` has the meaning of `ledger.Admit`.
    """

    node_name: str
    pod: Pod
    reason: str
    at: float
    is_ours: bool


class ClusterFeed:
    """Applies batches to the cluster.

    *on_pods*: called after each batch of pods. `demands` gives the demands of a namespace. `on_refused`: called with
    each pod that the managers of a kubelet, or the NRI policy, have refused since the first list. `on_dropped`: called
    with each node that is gone. `pods_on`: the pods on a node that are not finished; None: not known yet.
    `young_seconds`: a node without a report is awaited up to this age. *wall*: Unix seconds.
    """

    def __init__(
        self,
        cluster: NodeStore,
        pods: PodRegistry,
        clock: Callable[[], float],
        on_pods: Callable[[], None],
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.demands: Mapping[str, Demand] = {}
        self.on_refused: Callable[[Refused], None] = lambda _refused: None
        self.on_dropped: Callable[[str], None] = lambda _node: None
        self.pods_on: Callable[[str], Sequence[WatchedPod] | None] = lambda _node: None
        self.young_seconds = 0.0
        self._cluster, self._pods, self._clock, self._on_pods, self._wall = cluster, pods, clock, on_pods, wall
        self._nodes: dict[str, str] = {}
        self._deleted: BoundedMap[str, bool] = BoundedMap(MAX_DELETED)
        """Nodes that are gone, as keys."""
        self.pods_complete = False
        self.nodes_complete = False

    def uid_of(self, name: str) -> str:
        """The UID of the Node with that name. "" if the API server has none."""
        return self._nodes.get(name, "")

    def apply_pods(self, batch: Batch[PodRecord]) -> None:
        """Apply changes from the watch of pods."""
        now = self._clock()
        changes = batch.changes if self.pods_complete else sorted(batch.changes, key=lambda change: _age(change.value))
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
                self._deleted[name] = True
                self._drop(name)
                continue
            before = self._nodes.get(name)
            self._nodes[name] = uid
            if before != uid:
                if before is not None or self._deleted.pop(name, False):
                    self._drop(name)  # also what its former exporter has reported after it was gone
                self._see_again(name)
                self._await_report(change.value)
            self._cluster.node_objects.see_version(name, change.value.kubelet_version)
        self.nodes_complete = self.nodes_complete or batch.complete
        if self.nodes_complete:
            self._cluster.set_existing(self._nodes.keys(), self._clock())

    def _drop(self, name: str) -> None:
        self._cluster.drop_node(name)
        self.on_dropped(name)

    def _await_report(self, node: NodeObject) -> None:
        """A Node object is new here. Its exporter may be about to start, if the node is young."""
        if node.created_at is None:
            return
        left = self.young_seconds - max(0.0, self._wall() - node.created_at)
        if left > 0:
            self._cluster.await_report(node.name, self._clock() + left)

    def _see_again(self, name: str) -> None:
        """A Node object is new: the kubelet of that name runs the pods that are bound to it already."""
        if not self.nodes_complete or self._cluster.pods_of(name).ledger.events:
            return
        pods = self.pods_on(name) or ()
        events: list[PodEvent] = []
        for watched in sorted(pods, key=_age):
            pod = pod_of_watched(watched)
            if watched.mirror:
                events += [] if pod is None or watched.terminating else [MirrorSeen(name, pod)]
                continue
            if pod is None:
                events.append(PodUnread(name, watched.uid))
            else:
                pod = with_default(pod, self.demands)
                events.append(PodSeen(name, pod, started=watched.started_at is not None, ordered=False))
            if watched.terminating:
                events.append(PodTerminating(name, watched.uid))
        self._cluster.apply(*events, now=self._clock())

    def _events(self, change: Change[PodRecord], *, ordered: bool) -> Iterator[PodEvent]:
        """What the change means to the pod's node; the pod's place is noted on the way."""
        record = change.value
        node, uid = record.node_name, record.kubelet_uid
        if isinstance(change, Gone):
            self._pods.delete(record.uid)
            yield MirrorGone(node, uid) if record.mirror else PodGone(node, uid)
            return
        if isinstance(change, Changed) and _stage(change.old) == _stage(record):
            return
        offered = self._pods.get(record.uid).pod is not None
        self._pods.watch(record.uid, node)
        if record.mirror:
            yield from self._events_of_mirror(record)
            return
        if record.finished:
            if record.is_rejected:
                if record.refusal in MANAGERS_REASONS:
                    self._note_refused(record, record.refusal, offered=offered)
                yield PodRefused(node, uid, record.refusal)
            elif isinstance(change, Changed) and change.old.terminating and not change.old.finished:
                yield PodGone(node, uid)
            else:
                yield PodFinished(node, uid)
            return
        pod = pod_of(record)
        if pod is None:
            yield PodUnread(node, uid)
        else:
            yield PodSeen(
                node,
                with_default(pod, self.demands),
                started=record.started_at is not None,
                ordered=ordered,
                offered=offered,
            )
        if record.policy_error:
            self._note_refused(record, CREATE_ERROR, offered=offered)
            yield ContainerRefused(node, uid, CREATE_ERROR)
        if record.terminating:
            yield PodTerminating(node, uid)

    def _events_of_mirror(self, record: PodRecord) -> Iterator[PodEvent]:
        """What a mirror pod means. Its end in the API server is not the end of the static pod."""
        pod = None if record.finished or record.terminating else pod_of(record)
        if pod is None:
            yield MirrorGone(record.node_name, record.kubelet_uid)
        else:
            yield MirrorSeen(record.node_name, pod)

    def _note_refused(self, record: PodRecord, reason: str, *, offered: bool) -> None:
        pod = pod_of(record)
        if pod is None or not self.pods_complete:
            return
        known = self._cluster.pods_of(record.node_name).ledger.find(record.kubelet_uid)
        is_ours = offered or (known is not None and known.is_ours)
        self.on_refused(
            Refused(record.node_name, with_default(pod, self.demands), reason, at=self._clock(), is_ours=is_ours)
        )


def _stage(record: PodRecord) -> tuple[bool, ...]:
    is_started, is_unread = record.started_at is not None, _read(record.reduced) is None
    return record.finished, is_started, record.terminating, bool(record.policy_error), is_unread


def _age(pod: PodRecord | WatchedPod) -> tuple[float, int]:
    """Sort key for lists, which are sorted by name: pods that were started first, the oldest first."""
    return float("inf") if pod.started_at is None else pod.started_at, pod.created_at or 0


def pod_of(record: PodRecord) -> Pod | None:
    """The pod as its kubelet knows it. None if it cannot be read."""
    return _named(record, record.reduced, record.kubelet_uid)


def pod_of_watched(pod: WatchedPod) -> Pod | None:
    """A watched pod in the form that questions use; None as above."""
    return _named(pod, pod.manifest, pod.uid)


def _named(of: PodRecord | WatchedPod, reduced: bytes, uid: str) -> Pod | None:
    pod = _read(reduced)
    return pod and replace(pod, uid=uid, name=of.name, namespace=of.namespace, created_at=of.created_at)


def _read(reduced: bytes) -> Pod | None:
    try:
        return read_reduced(reduced).pod
    except WireError:
        return None
