"""The nodes of the cluster for questions: a copy in another process, updated by sending changes.

Rules of this file
- A node is sent again only if its class, state, context or list of pods is another object than last time. These values
  are never changed in place.
- A class is sent once, with its kubelet and its states. A node whose state is the class's own object sends no state.
- One update is small (`MAX_UPDATE_NODES`), so that the sender can do other work between two of them.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from operator import attrgetter, is_
from typing import Final

import orjson

from extender.cluster.node import NodeRecord, UnknownNodeError
from extender.cluster.node_class import AWAITED, UNKNOWN, NodeClass
from extender.kubelet.state import ManagerState
from extender.questions.node_context import LookUp, NodeContext, Subject, subject_of

MAX_UPDATE_NODES: Final = 16
"""Nodes in one update: about a millisecond if all of them have changed."""
MAX_MANIFESTS: Final = 20_000
"""How many distinct manifests of watched pods are shared. If there are more, sharing starts again from none."""


@dataclass(frozen=True, slots=True)
class NodeUpdate:
    """One node. `state` None: the first state of its class. `pods`: JSON of the pods that its report lists."""

    name: str
    class_id: int
    state: ManagerState | None
    around: NodeContext
    pods: bytes


@dataclass(frozen=True, slots=True)
class SnapshotUpdate:
    """New classes, new or changed nodes, and names of nodes and ids of classes that no longer exist."""

    classes: Sequence[NodeClass] = ()
    nodes: Sequence[NodeUpdate] = ()
    gone_nodes: Sequence[str] = ()
    gone_classes: Sequence[int] = ()


_parts_of: Final = attrgetter(*(each.name for each in fields(NodeContext)))


@dataclass(frozen=True, slots=True)
class _Sent:
    """The objects that a node was last sent with, compared by identity."""

    node_class: NodeClass
    state: ManagerState | None
    around: NodeContext
    facts: object

    def is_current(self, record: NodeRecord, around: NodeContext) -> bool:
        return (
            self.node_class is record.node_class
            and self.state is record.state
            and self.facts is record.observation.facts
            and all(map(is_, _parts_of(self.around), _parts_of(around)))
        )


class SnapshotSender:
    """Tracks what one other process has, and computes the updates that it needs."""

    def __init__(self) -> None:
        self._nodes: dict[str, _Sent] = {}
        self._classes: dict[int, NodeClass] = {UNKNOWN.id: UNKNOWN, AWAITED.id: AWAITED}

    def updates(self, records: Sequence[NodeRecord], look_up: LookUp) -> Iterator[SnapshotUpdate | None]:
        """What has changed since the last call, in steps; None for a step without changes. Run it to its end.

        *records*: all current nodes.
        """
        for start in range(0, len(records), MAX_UPDATE_NODES):
            yield self._changed(records[start : start + MAX_UPDATE_NODES], look_up)
        names = {record.name for record in records} if len(records) < len(self._nodes) else self._nodes.keys()
        gone = [name for name in self._nodes if name not in names]
        for name in gone:
            del self._nodes[name]
        yield SnapshotUpdate(gone_nodes=gone) if gone else None
        if len(self._classes) > 2 * (len(records) + 1):
            held = {sent.node_class.id for sent in self._nodes.values()} | {UNKNOWN.id, AWAITED.id}
            unused = [class_id for class_id in self._classes if class_id not in held]
            for class_id in unused:
                del self._classes[class_id]
            yield SnapshotUpdate(gone_classes=unused)

    def _changed(self, records: Iterable[NodeRecord], look_up: LookUp) -> SnapshotUpdate | None:
        classes: list[NodeClass] = []
        nodes: list[NodeUpdate] = []
        for record in records:
            around, sent = look_up(record.name), self._nodes.get(record.name)
            if sent is not None and sent.is_current(record, around):
                continue
            node_class, facts = record.node_class, record.observation.facts
            self._nodes[record.name] = _Sent(node_class, record.state, around, facts)
            if node_class.id not in self._classes:
                self._classes[node_class.id] = node_class
                classes.append(node_class)
            own = None if record.state is node_class.state else record.state
            nodes.append(NodeUpdate(record.name, node_class.id, own, around, orjson.dumps(facts.get("pods"))))
        return SnapshotUpdate(classes, nodes) if nodes else None


class Snapshot:
    """Every live node, as of the last update."""

    def __init__(self) -> None:
        self._classes: dict[int, NodeClass] = {UNKNOWN.id: UNKNOWN, AWAITED.id: AWAITED}
        self._nodes: dict[str, Subject] = {}
        self._pods: dict[str, bytes] = {}
        self._manifests: dict[bytes, bytes] = {}
        """Equal manifests of watched pods are one object."""

    @classmethod
    def of(cls, records: Sequence[NodeRecord], look_up: LookUp) -> "Snapshot":
        """The snapshot of these nodes."""
        snapshot = cls()
        for update in SnapshotSender().updates(records, look_up):
            if update is not None:
                snapshot.apply(update)
        return snapshot

    def apply(self, update: SnapshotUpdate) -> None:
        """Apply an update."""
        for node_class in update.classes:
            self._classes[node_class.id] = node_class
        for node in update.nodes:
            node_class = self._classes[node.class_id]
            state = node_class.state if node.state is None else node.state
            self._nodes[node.name] = subject_of(node.name, node_class, state, self._shared(node.around))
            self._pods[node.name] = node.pods
        for name in update.gone_nodes:
            del self._nodes[name], self._pods[name]
        for class_id in update.gone_classes:
            del self._classes[class_id]

    def _shared(self, around: NodeContext) -> NodeContext:
        if not around.pods:
            return around
        if len(self._manifests) >= MAX_MANIFESTS:
            self._manifests.clear()
        share = self._manifests.setdefault
        pods = tuple(pod._replace(manifest=share(pod.manifest, pod.manifest)) for pod in around.pods)
        return replace(around, pods=pods)

    def find(self, name: str) -> Subject | None:
        """One node with the pods in its report. None if it has no report."""
        subject = self._nodes.get(name)
        return None if subject is None else replace(subject, facts={"pods": orjson.loads(self._pods[name])})

    def subjects(self, names: Iterable[str] | None) -> list[Subject]:
        """Nodes in the order of *names*, without repeats; None: all of them, by name.

        Raises:
            UnknownNodeError: one of them has no report.
        """
        if names is None:
            return sorted(self._nodes.values(), key=lambda subject: subject.name)
        found = []
        for name in dict.fromkeys(names):
            subject = self._nodes.get(name)
            if subject is None:
                raise UnknownNodeError(name)
            found.append(subject)
        return found
