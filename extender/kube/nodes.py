"""The watch of nodes, and what people's questions need of it and of the watch of pods: labels, taints and totals.

Rules of this file
- Of a node the fields are kept that scheduling reads. Heartbeats (condition times, image lists) are no change.
- Updated on the event loop, read from other threads: a value passed to a reader is never changed afterwards.
- Sums are kept by adding and subtracting, so that a question costs one lookup per node.
- Requests are unknown until every pod is known. A pod whose spec cannot be read counts as nothing.

RBAC: `list`, `watch` on nodes.
"""

import sys
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final, TypeVar

from extender.kube.changes import Batch, Changed, Gone
from extender.kube.objects import items, mapping, strings, text
from extender.kube.pods import PodRecord, read_reduced
from extender.kube.source import Source
from extender.questions.node_context import NOTHING_KNOWN, DynamicDevice, NodeContext, Taint, WatchedPod
from extender.scheduling.node_totals import add
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli, unix_seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeObject:
    """One node. A node recreated under its old name has another `uid`.

    `allocatable`: quantities as in the API. `kubelet_version`: empty until the kubelet has registered. `created_at`:
    Unix seconds, None if unset.
    """

    name: str
    uid: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, str]
    taints: tuple[Taint, ...]
    unschedulable: bool
    kubelet_version: str
    created_at: int | None = None


def decode_node(value: Mapping[str, Any]) -> tuple[str, NodeObject] | None:
    """The node's name and record. None without a name."""
    metadata, spec, status = mapping(value, "metadata"), mapping(value, "spec"), mapping(value, "status")
    name = sys.intern(text(metadata, "name"))
    if not name:
        return None
    info = mapping(status, "nodeInfo")
    return name, NodeObject(
        name=name,
        uid=text(metadata, "uid"),
        labels=strings(metadata, "labels"),
        allocatable=strings(status, "allocatable"),
        taints=tuple(
            Taint(key=text(t, "key"), value=text(t, "value"), effect=text(t, "effect")) for t in items(spec, "taints")
        ),
        unschedulable=spec.get("unschedulable") is True,
        kubelet_version=sys.intern(text(info, "kubeletVersion")),
        created_at=unix_seconds(metadata.get("creationTimestamp")),
    )


NODES: Final = Source(path="/api/v1/nodes", decode=decode_node, key=attrgetter("name"))
"""All nodes."""


T = TypeVar("T")
_NOTHING: Final[Mapping[str, int]] = {}


class WatchedSurroundings:
    """Implements `extender.questions.node_context.LookUp` with watches.

    `devices_on`: the devices of DRA drivers of a node by name; None: not known. `claims_on`: `NodeContext.claims`.
    """

    def __init__(self) -> None:
        self.devices_on: Callable[[str], Sequence[DynamicDevice] | None] = lambda _name: None
        self.claims_on: Callable[[str], object] = lambda _name: None
        self._nodes: dict[str, NodeContext] = {}
        self._requested: dict[str, Mapping[str, int]] = {}
        self._finished: dict[str, dict[str, Mapping[str, int]]] = {}
        self._pods: dict[str, dict[str, tuple[WatchedPod, Mapping[str, int]]]] = {}
        """The pods that are not finished, with what they request."""
        self._lists: dict[str, Sequence[WatchedPod]] = {}
        """The pods of `_pods` by node, as readers get them."""
        self._pods_complete = False

    def __call__(self, name: str) -> NodeContext:
        """What is known of a node."""
        known = self._nodes.get(name, NOTHING_KNOWN)
        if not self._pods_complete:
            return known
        requested, devices, claims = self._requested.get(name, _NOTHING), self.devices_on(name), self.claims_on(name)
        return replace(known, requested_milli=requested, pods=self._list(name), devices=devices, claims=claims)

    def _list(self, name: str) -> Sequence[WatchedPod]:
        pods = self._lists.get(name)
        if pods is None:
            pods = self._lists[name] = tuple(pod for pod, _ in self._pods.get(name, {}).values())
        return pods

    def finished(self, name: str, uids: Collection[str]) -> Mapping[str, int]:
        """Requests of the finished pods in *uids* that still exist, in thousandths. UIDs as the kubelet has them."""
        total: Mapping[str, int] = _NOTHING
        for uid, requests in self._finished.get(name, {}).items():
            if uid in uids:
                total = add(total, requests)
        return total

    def apply_nodes(self, batch: Batch[NodeObject]) -> None:
        """Apply changes from the watch of nodes."""
        for change in batch.changes:
            node = change.value
            if isinstance(change, Gone):
                self._nodes.pop(node.name, None)
            else:
                total = _milli(node.allocatable)
                self._nodes[node.name] = NodeContext(
                    labels=node.labels, taints=node.taints, unschedulable=node.unschedulable, allocatable_milli=total
                )

    def apply_pods(self, batch: Batch[PodRecord]) -> None:
        """Apply changes from the watch of pods. Finished pods request nothing."""
        for change in batch.changes:
            if isinstance(change, Changed | Gone):
                self._charge(change.old if isinstance(change, Changed) else change.value, -1)
            if not isinstance(change, Gone):
                self._charge(change.value, 1)
        self._pods_complete = self._pods_complete or batch.complete

    def _charge(self, record: PodRecord, sign: int) -> None:
        """Add what a pod requests to its node, or with *sign* -1 take it away."""
        name, requests = record.node_name, _requests_of(record) if sign > 0 else _NOTHING
        if record.finished:
            _set(self._finished, name, record.kubelet_uid, requests if sign > 0 else None)
            return
        self._lists.pop(name, None)
        if sign < 0:
            _, requests = self._pods.get(name, {}).get(record.uid, (None, _NOTHING))
        _set(self._pods, name, record.uid, (_watched(record), requests) if sign > 0 else None)
        changes = {resource: sign * amount for resource, amount in requests.items()}
        total = add(self._requested.get(name, _NOTHING), changes)
        self._requested.pop(name, None)
        if left := {resource: amount for resource, amount in total.items() if amount}:
            self._requested[name] = left


def _set(table: dict[str, dict[str, T]], node_name: str, uid: str, value: T | None) -> None:
    """Keep the value of a pod on a node; None: keep it no longer. Nothing is kept of a node without pods."""
    of_node = table.setdefault(node_name, {})
    if value is None:
        of_node.pop(uid, None)
    else:
        of_node[uid] = value
    if not of_node:
        del table[node_name]


def _watched(record: PodRecord) -> WatchedPod:
    return WatchedPod(
        uid=record.kubelet_uid,
        api_uid=record.uid,
        namespace=record.namespace,
        name=record.name,
        priority=record.priority,
        created_at=record.created_at,
        started_at=record.started_at,
        terminating=record.terminating,
        mirror=record.mirror,
        manifest=record.reduced,
    )


def _requests_of(record: PodRecord) -> Mapping[str, int]:
    """What the pod requests, in thousandths. Empty if it cannot be read."""
    try:
        return read_reduced(record.reduced).requests_milli
    except WireError:
        return _NOTHING


def _milli(allocatable: Mapping[str, str]) -> Mapping[str, int] | None:
    """The quantities in thousandths. None if the node has none yet, or one cannot be read."""
    try:
        return {name: parse_milli(amount, name) for name, amount in allocatable.items()} or None
    except WireError:
        return None
