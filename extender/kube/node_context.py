"""Labels, taints and totals of nodes, from the watches of nodes and pods, for people's questions.

Rules of this file
- Updated on the event loop, read from other threads: a value passed to a reader is never changed afterwards.
- Sums are kept by adding and subtracting, so that a question costs one lookup per node.
- Requests are unknown until every pod is known. A pod whose spec cannot be read counts as nothing.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeVar

import orjson

from extender.kube.changes import Batch, Changed, Gone
from extender.kube.nodes import NodeObject
from extender.kube.pods import REMEMBERED_BYTES, PodRecord
from extender.questions.node_context import NOTHING_KNOWN, DynamicDevice, NodeContext, WatchedPod
from extender.recent import RecentBytes
from extender.scheduling.node_totals import add, pod_requests
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli
from extender.wire.placement_rules import placement_rules_from_json
from extender.wire.pods import pod_from_json

T = TypeVar("T")
_NOTHING: Final[Mapping[str, int]] = {}
_REQUESTS: Final[RecentBytes[bytes, Mapping[str, int]]] = RecentBytes(REMEMBERED_BYTES, lambda raw, _: len(raw))


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
        self._pods: dict[str, dict[str, WatchedPod]] = {}
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
            pods = self._lists[name] = tuple(self._pods.get(name, {}).values())
        return pods

    def finished(self, name: str, uids: Collection[str]) -> Mapping[str, int]:
        """Requests of the pods in *uids* that have finished and still exist, in thousandths.

        UIDs as the kubelet has them.
        """
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
        if record.finished:
            asked = requests_of(record.reduced) if sign > 0 else None
            _set(self._finished, record.node_name, record.kubelet_uid, asked)
            return
        self._lists.pop(record.node_name, None)
        _set(self._pods, record.node_name, record.uid, _watched(record) if sign > 0 else None)
        requests = {name: sign * amount for name, amount in requests_of(record.reduced).items()}
        total = add(self._requested.get(record.node_name, _NOTHING), requests)
        self._requested.pop(record.node_name, None)
        if left := {name: amount for name, amount in total.items() if amount}:
            self._requested[record.node_name] = left


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


def requests_of(reduced: bytes) -> Mapping[str, int]:
    """What a pod requests, in thousandths, from `PodRecord.reduced`. Empty if it cannot be read.

    As kube-scheduler counts it during a resize: the larger amounts, or the allocated ones if the resize is infeasible.
    """
    return _REQUESTS.of(reduced, lambda: _requests(reduced))


def _requests(reduced: bytes) -> Mapping[str, int]:
    manifest = orjson.loads(reduced)
    has_wish = "Infeasible" not in manifest["status"].get("resize", ())
    try:
        pod, rules = pod_from_json(manifest), placement_rules_from_json(manifest["spec"], "spec")
    except WireError:
        return _NOTHING
    containers = []
    for each in pod.containers:
        wanted, allocated = each.requests_milli, each.allocated_milli or {}
        counted = {name: max(amount, has_wish * wanted.get(name, 0)) for name, amount in allocated.items()}
        containers.append(replace(each, requests_milli={**wanted, **counted}))
    return pod_requests(replace(pod, containers=tuple(containers)), rules.overhead_milli)


def _milli(allocatable: Mapping[str, str]) -> Mapping[str, int] | None:
    """The quantities in thousandths. None if the node has none yet, or one cannot be read."""
    try:
        return {name: parse_milli(amount, name) for name, amount in allocatable.items()} or None
    except WireError:
        return None
