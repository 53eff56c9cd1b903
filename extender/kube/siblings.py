"""Nodes that have just come: until they report, they are judged as the newest node of their kind, empty.

Two nodes are of one kind if the labels of the setting `sibling_labels`, the kubelet version and the allocatable CPUs of
their Node objects are equal.

Rules of this file
- Only a node that the API server has and that has never reported is assumed. Names that only a filter call has, such as
  the template nodes of cluster-autoscaler, leave no trace.
- The nodes of the kind that have reported must agree on the configuration of their kubelets (the newest
  `MAX_COMPARED` are compared). Nodes with the NRI topology-aware policy are no model for others.
- Verdicts have the certainty `assumed` and a caveat. Pods that the watch shows on the node are replayed on the empty
  state. The first report replaces everything; without one the node goes stale.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from extender.cluster.errors import ClusterFullError
from extender.cluster.node import NodeRecord, Observation
from extender.cluster.store import NodeStore
from extender.kube.changes import Batch, Gone
from extender.kube.nodes import NodeObject
from extender.replay.kubelet import Kubelet
from extender.replay.startup import initial_state

MAX_COMPARED: Final = 8
CAVEAT: Final = "the node has not reported yet: it is judged as the newest node of its kind, empty"

Kind = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _NodeKind:
    kind: Kind
    created_at: int


class Siblings:
    """Assumes the state of nodes in *cluster*. *labels*: those that nodes of one kind have in common; empty: off."""

    def __init__(self, cluster: NodeStore, labels: Sequence[str], clock: Callable[[], float]) -> None:
        self._cluster, self._labels, self._clock = cluster, tuple(labels), clock
        self._known: dict[str, _NodeKind] = {}
        self._kinds: dict[Kind, set[str]] = {}
        self._waiting: set[str] = set()

    def apply(self, batch: Batch[NodeObject]) -> None:
        """Apply changes from the watch of nodes."""
        for change in batch.changes:
            self._forget(change.value.name)
            if not isinstance(change, Gone):
                self._note(change.value)
        self.settle()

    def settle(self) -> None:
        """Assume each waiting node of which a sibling has reported."""
        newest: dict[Kind, NodeRecord | None] = {}
        for name in sorted(self._waiting):
            kind = self._known[name].kind
            if self._cluster.observation(name) is not None:
                self._waiting.discard(name)
                continue
            if kind not in newest:
                newest[kind] = self._newest(kind)
            sibling = newest[kind]
            if sibling is not None:
                self._assume(name, sibling)

    def _note(self, node: NodeObject) -> None:
        values = [node.labels.get(label, "") for label in self._labels]
        cpus = node.allocatable.get("cpu", "")
        if not self._labels or not all((*values, node.kubelet_version, cpus)):
            return
        kind = (*values, node.kubelet_version, cpus)
        self._known[node.name] = _NodeKind(kind, node.created_at or 0)
        self._kinds.setdefault(kind, set()).add(node.name)
        if self._cluster.observation(node.name) is None:
            self._waiting.add(node.name)

    def _forget(self, name: str) -> None:
        known = self._known.pop(name, None)
        self._waiting.discard(name)
        if known is not None:
            self._kinds[known.kind].discard(name)
            if not self._kinds[known.kind]:
                del self._kinds[known.kind]

    def _newest(self, kind: Kind) -> NodeRecord | None:
        """The newest node of the kind that has reported; None if there is none, or they differ."""
        compared = list(islice(self._reporting(kind), MAX_COMPARED))
        kubelets = (record.observation.kubelet for record in compared)
        configurations = {kubelet.config.identity for kubelet in kubelets if kubelet is not None}
        return compared[0] if len(configurations) == 1 else None

    def _reporting(self, kind: Kind) -> Iterator[NodeRecord]:
        """The nodes of the kind that have reported all that a verdict needs, the newest first."""
        for name in sorted(self._kinds[kind], key=lambda each: (-self._known[each].created_at, each)):
            record = self._cluster.get(name)
            if record is None or not record.observation.is_replayable:
                continue
            kubelet = record.observation.kubelet
            if kubelet is not None and not kubelet.borrowed and kubelet.nri is None:
                yield record

    def _assume(self, name: str, sibling: NodeRecord) -> None:
        observed = sibling.observation
        assert observed.kubelet is not None
        assert observed.state is not None  # `_reporting` has looked
        kubelet = borrowed(observed.kubelet)
        observation = Observation(
            node_name=name,
            boot_id="",
            sequence=0,
            digest="",
            observed_at=0.0,
            kubelet=kubelet,
            state=initial_state(kubelet, observed.state.devices.devices),
            hidden=observed.hidden,
            facts={**observed.facts, "pods": None, "zones": [], "problems": []},
        )
        try:
            self._cluster.observe(observation, self._clock())
        except ClusterFullError:
            return
        self._waiting.discard(name)


def borrowed(kubelet: Kubelet) -> Kubelet:
    """The kubelet as the one of a node that has not reported."""
    return replace(kubelet, borrowed=True, caveats=(*kubelet.caveats, CAVEAT))
