"""The record of each node, and its class: computed at the first read after the node has changed.

The result is the same as if it had been computed at once. The index of classes mirrors the records at every read.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, NamedTuple

from extender.cluster.node import NodeRecord
from extender.cluster.node_class import AWAITED, UNKNOWN, ClassTable
from extender.cluster.snapshot import ClassIndex
from extender.replay.possible_states import PossibleStates


class NodeView(NamedTuple):
    """What decides the class of a node besides its report. `unread`: as `NodeRecord`."""

    possible: PossibleStates
    stale: bool
    score_only: bool
    unread: tuple[str, ...]


class FiledNodes:
    """See the file's text. *look*: what decides a node's class now.

    *awaited_until*: when nodes without a report are no longer `AWAITED` but `UNKNOWN`; None: from the start.
    """

    def __init__(self, look: Callable[[NodeRecord], NodeView], awaited_until: float | None) -> None:
        self._look: Final = look
        self._awaited_until = awaited_until
        self.index: Final = ClassIndex(UNKNOWN if awaited_until is None else AWAITED)
        """The classes of the nodes that have not changed since."""
        self.classes: Final = ClassTable()
        self._records: dict[str, NodeRecord] = {}
        self._young: dict[str, float] = {}
        """New nodes: until when each is `AWAITED` rather than `UNKNOWN`."""
        self._changed: dict[str, None] = {}
        """Nodes that have changed since their class was computed."""

    def __len__(self) -> int:
        return len(self._records)

    def __contains__(self, name: str) -> bool:
        return name in self._records

    def __iter__(self) -> Iterator[str]:
        """The names of all nodes."""
        return iter(self._records)

    def as_stored(self, name: str) -> NodeRecord | None:
        """The record of one node, with the class of its last read; None if there is no report of it. Cheap."""
        return self._records.get(name)

    def __getitem__(self, name: str) -> NodeRecord:
        """The record of a node that has one."""
        self._file(name)
        return self._records[name]

    def get(self, name: str) -> NodeRecord | None:
        """The record of one node; None if there is no report of it."""
        self._file(name)
        return self._records.get(name)

    def records(self) -> Iterator[NodeRecord]:
        """Every node, in no particular order; their classes may be those of the last read."""
        return iter(self._records.values())

    def put(self, record: NodeRecord) -> None:
        """Replace a node's record. `changed` says whether its class may be another one."""
        self._records[record.name] = record

    def changed(self, name: str) -> None:
        """What decides the node's class has changed."""
        if name in self._records:
            self._changed[name] = None

    @property
    def has_changed(self) -> bool:
        """Whether a node has changed since its class was computed."""
        return bool(self._changed)

    def file_all(self) -> None:
        """Compute the class of every node that has changed."""
        while self._changed:
            self._file(next(iter(self._changed)))

    def drop(self, name: str) -> None:
        """The node is gone."""
        self._end_youth(name)
        self._changed.pop(name, None)
        if self._records.pop(name, None) is not None:
            self.classes.drop(self.index.remove(name))

    def await_report(self, name: str, until: float) -> None:
        """A new node, whose exporter may be about to start: until then it is `AWAITED` while nothing is known of it."""
        self._young[name] = until
        if name in self._records:
            self._changed[name] = None
        else:
            self.index.put(name, AWAITED)

    def expire(self, now: float) -> None:
        """Nodes are awaited no longer, if the time is over."""
        if self._awaited_until is not None and now >= self._awaited_until:
            self._awaited_until = None
            self.index.set_unknown(UNKNOWN)
        for name in [name for name, until in self._young.items() if until <= now]:
            self._end_youth(name)

    def _end_youth(self, name: str) -> None:
        if self._young.pop(name, None) is None:
            return
        if name in self._records:
            self._changed[name] = None
        else:
            self.index.remove(name)

    def _file(self, name: str) -> None:
        """Compute the class of the node, if it has changed. Its former class loses a node."""
        if name not in self._changed:
            return
        del self._changed[name]
        record = self._records[name]
        observation, view = record.observation, self._look(record)
        node_class = self.classes.hold(
            observation.kubelet,
            view.possible,
            observation.hidden,
            stale=view.stale,
            score_only=view.score_only,
            counts=observation.counts,
            pools=observation.pools and replace(observation.pools, config=observation.nri_config),
        )
        if node_class is UNKNOWN and name in self._young:
            node_class = AWAITED
        before = self.index.put(name, node_class)
        if before is not None:
            self.classes.drop(before)
        is_same = observation.kubelet is node_class.kubelet
        self._records[name] = replace(
            record,
            node_class=node_class,
            observation=observation if is_same else replace(observation, kubelet=node_class.kubelet),
            possible=view.possible,
            unread=view.unread,
        )
