"""The class of each node: an index that changes, immutable snapshots of it, and what changed since a snapshot.

Rules of this file
- A snapshot never changes. All readers share one snapshot until a node changes its class; the next one is a copy.
- The generation counts the changes of the index. Only the last `MAX_CHANGES` changes are kept by name.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from extender.cluster.node_class import UNKNOWN, NodeClass

MAX_CHANGES: Final = 10_000
"""Changes kept by name. A reader that is further behind starts again from a whole snapshot, which costs no more."""


class ClusterSnapshot(dict[str, NodeClass]):
    """The class of each node at one generation.

    Looking up a name that no node has returns `unknown`, and does not add the name.
    """

    def __init__(self, classes: Mapping[str, NodeClass], unknown: NodeClass, generation: int) -> None:
        super().__init__(classes)
        self.unknown: Final = unknown
        self.generation: Final = generation

    def __missing__(self, _name: str) -> NodeClass:
        return self.unknown

    def classes_of(self, names: Iterable[str]) -> list[NodeClass]:
        """The class of each name, in order. Cost: a lookup for each name."""
        return list(map(self.__getitem__, names))


class ClassIndex:
    """The class of each node now. *unknown*: class returned for names that no node has."""

    def __init__(self, unknown: NodeClass = UNKNOWN) -> None:
        self._unknown = unknown
        self._class_of: dict[str, NodeClass] = {}
        self._changed: list[str] = []
        self._generation = 0
        self._snapshot: ClusterSnapshot | None = None

    def __getitem__(self, name: str) -> NodeClass:
        return self._class_of.get(name, self._unknown)

    def put(self, name: str, node_class: NodeClass) -> NodeClass | None:
        """Set the class of a node. Returns its class before, None for a new node."""
        before = self._class_of.get(name)
        if before is not node_class:
            self._class_of[name] = node_class
            self._record_change(name)
        return before

    def remove(self, name: str) -> NodeClass:
        """Remove a node. Returns its last class."""
        before = self._class_of.pop(name)
        self._record_change(name)
        return before

    def set_unknown(self, unknown: NodeClass) -> None:
        """Set the class returned for unknown names. `changed_since` cannot list those names."""
        self._unknown, self._snapshot = unknown, None
        self._generation += 1
        self._changed.clear()

    def snapshot(self) -> ClusterSnapshot:
        """The index as of now. Cost: a copy if anything has changed since the last call."""
        if self._snapshot is None:
            self._snapshot = ClusterSnapshot(self._class_of, self._unknown, self._generation)
        return self._snapshot

    def changed_since(self, generation: int) -> Sequence[str] | None:
        """The nodes whose class has changed since *generation*, with repeats; None: more changed than are kept."""
        kept, missed = len(self._changed), self._generation - generation
        return self._changed[kept - missed :] if missed <= kept else None

    def _record_change(self, name: str) -> None:
        self._snapshot = None
        self._generation += 1
        self._changed.append(name)
        if len(self._changed) > MAX_CHANGES:
            del self._changed[: MAX_CHANGES // 2]
