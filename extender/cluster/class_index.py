"""The class of each node by its name, and by its number (slot) in arrays.

Rules of this file
- Each node name has a slot. It belongs to the name until the name is removed; then it is used again. Slot `NO_SLOT`
  (-1) is the last element of every array: it stands for all names that no node has.
- A call takes the classes of its nodes out of the array once, and judges these. A class is immutable, so the call sees
  one moment, whatever changes while it waits.
- The class of a node is computed at the first read after the node has changed. The result is the same as if it had been
  computed at once. The index of classes mirrors the records at every read.
"""

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from itertools import repeat
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from extender.cluster.free_table import NO_PLACE, Int64s
from extender.cluster.node import NodeRecord
from extender.cluster.node_class import AWAITED, UNKNOWN, ClassTable, NodeClass
from extender.replay.possible_states import PossibleStates

NO_SLOT: Final = -1
NO_CLASS: Final = np.iinfo(np.int64).min
"""The class id of a slot that no node has."""
_FIRST_SLOTS: Final = 256

Classes = NDArray[np.object_]
"""Classes of nodes, one `NodeClass` each."""


class NameTable:
    """The slots of all known names; see the file's rules."""

    def __init__(self) -> None:
        self._slot_of: dict[str, int] = {}
        self.ordered: Final[list[str]] = []
        """The names, sorted. Do not change it."""
        self._free: list[int] = []
        self._scattered = 0  # names that were added since all were put side by side
        self._last: tuple[tuple[str, ...], Int64s] = (), np.zeros(0, np.int64)
        """The last names, and their slots: prioritize often has the names of filter."""

    def __len__(self) -> int:
        return len(self._slot_of)

    def get(self, name: str) -> int:
        """The slot of a name; `NO_SLOT` if it is unknown."""
        return self._slot_of.get(name, NO_SLOT)

    def slots_of(self, names: Collection[str]) -> Int64s:
        """The slot of each name, in order. Do not change it: equal names get the same array again."""
        if 4 * self._scattered > len(self._slot_of):  # side by side in memory thousands are found in half the time
            self._slot_of, self._scattered = orjson.loads(orjson.dumps(self._slot_of)), 0
        if (wanted := tuple(names)) != self._last[0]:
            self._last = wanted, np.fromiter(map(self._slot_of.get, wanted, repeat(NO_SLOT)), np.int64, len(wanted))
        return self._last[1]

    def add(self, name: str) -> int:
        """The slot of a name; a new one if it has none."""
        slot = self._slot_of.get(name)
        if slot is None:
            slot = self._free.pop() if self._free else len(self._slot_of)
            self._slot_of[name], self._last = slot, ((), self._last[1][:0])
            self._scattered += 1
            insort(self.ordered, name)
        return slot

    def remove(self, name: str) -> int:
        """Forget a known name. Returns its slot, which may be another name's from now on."""
        slot, self._last = self._slot_of.pop(name), ((), self._last[1][:0])
        del self.ordered[bisect_left(self.ordered, name)]
        self._free.append(slot)
        return slot


class ClassIndex:
    """The class of each node now. *unknown*: class returned for names that no node has.

    Arrays by slot, not to be kept or changed: `classes`; `ids`, those of the classes; `places`, those of the classes in
    the table of free amounts. `version`: another one after each change.
    """

    def __init__(self, unknown: NodeClass = UNKNOWN) -> None:
        self.names: Final = NameTable()
        self.version = 0
        self.classes: Classes = np.full(1, unknown, np.object_)
        self.ids: Int64s = np.full(1, unknown.id, np.int64)
        self.places: Int64s = np.full(1, NO_PLACE, np.int64)

    def __getitem__(self, name: str) -> NodeClass:
        found: NodeClass = self.classes[self.names.get(name)]
        return found

    def put(self, name: str, node_class: NodeClass) -> NodeClass | None:
        """Set the class of a node. Returns its class before, None for a new node."""
        slot = self.names.get(name)
        before: NodeClass | None = None if slot == NO_SLOT else self.classes[slot]
        if before is not node_class:
            self._set(self.names.add(name), node_class, node_class.id)
        return before

    def remove(self, name: str) -> NodeClass:
        """Remove a node. Returns its last class."""
        before = self[name]
        self._set(self.names.remove(name), self.classes[NO_SLOT], NO_CLASS)
        return before

    def set_unknown(self, unknown: NodeClass) -> None:
        """Set the class returned for names that no node has."""
        self._set(NO_SLOT, unknown, unknown.id)

    def _set(self, slot: int, node_class: NodeClass, class_id: int) -> None:
        self.version += 1
        if slot >= len(self.ids) - 1:
            more = max(_FIRST_SLOTS, len(self.ids))
            self.classes = _longer(self.classes, more, self.classes[NO_SLOT])
            self.ids, self.places = _longer(self.ids, more, NO_CLASS), _longer(self.places, more, NO_PLACE)
        self.classes[slot], self.ids[slot], self.places[slot] = node_class, class_id, node_class.place


def _longer(values: NDArray[Any], more: int, fill: object) -> NDArray[Any]:
    """The values with *more* elements before the last one, which stays the last."""
    return np.concatenate([values[:-1], np.full(more, fill, values.dtype), values[-1:]])


class NodeView(NamedTuple):
    """What decides the class of a node besides its report. `unread`, `silent_since`: as of `NodeRecord`."""

    possible: PossibleStates
    stale: bool
    score_only: bool
    unread: tuple[str, ...]
    silent_since: float | None


class FiledNodes:
    """The record of each node, with its class. *look*: what decides a node's class now.

    *awaited_until*: nodes without a report are `AWAITED` until then, and `UNKNOWN` later; None: from the start.
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
            silent_since=view.silent_since,
        )
