"""The class of each node: an index that changes, and immutable snapshots of it.

Rules of this file
- Nodes have numbers (slots, see `name_table`), and every array by slot has one more element at the end, for all names
  that no node has.
- A snapshot never changes. All readers share one snapshot until a node changes its class. The next one copies only the
  parts of `PART` slots that have changed.
"""

from collections.abc import Sequence
from itertools import chain
from operator import is_
from typing import Final

import numpy as np

from extender.cluster.free_table import NO_PLACE
from extender.cluster.name_table import NO_SLOT, Int64s, NameTable
from extender.cluster.node_class import UNKNOWN, NodeClass

PART: Final = 256
_NO_CLASS: Final = np.iinfo(np.int64).min
"""The class id of a slot that no node has."""


class ClusterSnapshot:
    """The class of each of `count` nodes at one moment. `unknown`: the class of all names that no node has.

    `parts`: the class by slot, in parts of `PART` slots. Snapshots share the parts in which no node has changed.
    """

    __slots__ = ("__weakref__", "count", "parts", "unknown")

    def __init__(self, parts: tuple[Sequence[NodeClass], ...], unknown: NodeClass, count: int) -> None:
        self.parts: Final = parts
        self.unknown: Final = unknown
        self.count: Final = count

    def at(self, slots: Int64s) -> list[NodeClass]:
        """The class at each slot, in order; slots are those of the moment of the snapshot."""
        if len(slots) * 4 < self.count:
            parts, unknown = self.parts, self.unknown
            return [unknown if slot < 0 else parts[slot // PART][slot % PART] for slot in slots.tolist()]
        classes = list(chain.from_iterable(self.parts))
        classes.append(self.unknown)
        return list(map(classes.__getitem__, slots.tolist()))

    def slots_beyond(self, other: "ClusterSnapshot | None") -> int:
        """How many slots are in parts that *other* does not have: what it takes to keep this snapshot beside it."""
        shared = 0 if other is None else sum(map(is_, self.parts, other.parts))
        return (len(self.parts) - shared) * PART


class ClassIndex:
    """The class of each node now. *unknown*: class returned for names that no node has."""

    def __init__(self, unknown: NodeClass = UNKNOWN) -> None:
        self.names: Final = NameTable()
        self._unknown = unknown
        self._parts: list[list[NodeClass]] = []
        self._shared: set[int] = set()
        """Parts that a snapshot has too."""
        self._ids: Int64s = np.full(1, unknown.id, np.int64)
        self._places: Int64s = np.full(1, NO_PLACE, np.int64)
        self._snapshot: ClusterSnapshot | None = None

    def __getitem__(self, name: str) -> NodeClass:
        slot = self.names.get(name)
        return self._unknown if slot == NO_SLOT else self._parts[slot // PART][slot % PART]

    @property
    def ids(self) -> Int64s:
        """The class id by slot; the last element is that of names that no node has. Do not keep or change it."""
        return self._ids

    @property
    def places(self) -> Int64s:
        """The place of the class in the table of free amounts, by slot, as of `ids`. Do not keep or change it."""
        return self._places

    def put(self, name: str, node_class: NodeClass) -> NodeClass | None:
        """Set the class of a node. Returns its class before, None for a new node."""
        slot = self.names.get(name)
        if slot == NO_SLOT:
            slot, before = self.names.add(name), None
        else:
            before = self._parts[slot // PART][slot % PART]
        if before is not node_class:
            self._set(slot, node_class, node_class.id)
        return before

    def remove(self, name: str) -> NodeClass:
        """Remove a node. Returns its last class."""
        before = self[name]
        self._set(self.names.remove(name), self._unknown, _NO_CLASS)
        return before

    def set_unknown(self, unknown: NodeClass) -> None:
        """Set the class returned for names that no node has."""
        self._unknown, self._snapshot = unknown, None
        self._ids[NO_SLOT] = unknown.id

    def snapshot(self) -> ClusterSnapshot:
        """The index as of now. Cost: a reference to each part, if anything has changed since the last call."""
        if self._snapshot is None:
            self._snapshot = ClusterSnapshot(tuple(self._parts), self._unknown, len(self.names))
            self._shared.update(range(len(self._parts)))
        return self._snapshot

    def _set(self, slot: int, node_class: NodeClass, class_id: int) -> None:
        """Set the class at a slot. A part that a snapshot has is copied first."""
        self._snapshot = None
        number = slot // PART
        if number == len(self._parts):
            self._parts.append([self._unknown] * PART)
            if len(self._parts) * PART >= len(self._ids):
                ids = np.full(2 * len(self._parts) * PART + 1, _NO_CLASS, np.int64)
                ids[: len(self._ids) - 1], ids[NO_SLOT] = self._ids[:-1], self._unknown.id
                self._ids = ids
                places = np.full(len(ids), NO_PLACE, np.int64)
                places[: len(self._places) - 1] = self._places[:-1]
                self._places = places
        elif number in self._shared:
            self._parts[number] = self._parts[number].copy()
        self._shared.discard(number)
        self._parts[number][slot % PART] = node_class
        self._ids[slot], self._places[slot] = class_id, node_class.place
