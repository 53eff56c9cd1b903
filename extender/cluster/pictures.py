"""Which class each node is of: now, as it was when somebody took a picture, and which nodes changed since.

Laws of this file
- A picture never changes once it is taken. It is shared until a node changes: then the next one is a copy.
- A moment is a number of changes. Only the last changes are remembered; who has seen less has seen nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from extender.cluster.classes import UNKNOWN, NodeClass

MAX_CHANGES: Final = 10_000
"""Changes remembered. Who has missed thousands is as well off when starting anew."""


class Picture(dict[str, NodeClass]):
    """The class of each node at `moment`; `nobody` for any other name (looking one up does not put it in)."""

    def __init__(self, classes: Mapping[str, NodeClass], nobody: NodeClass, moment: int) -> None:
        super().__init__(classes)
        self.nobody: Final = nobody
        self.moment: Final = moment

    def __missing__(self, _name: str) -> NodeClass:
        return self.nobody

    def classes_of(self, names: Iterable[str]) -> list[NodeClass]:
        """The class of each name, in order. Cost: a lookup a name."""
        return list(map(self.__getitem__, names))


class Classing:
    """The class of each node now. *nobody*: the class of names that no node has."""

    def __init__(self, nobody: NodeClass = UNKNOWN) -> None:
        self._nobody = nobody
        self._class_of: dict[str, NodeClass] = {}
        self._changed: list[str] = []
        self._moment = 0
        self._picture: Picture | None = None

    def __getitem__(self, name: str) -> NodeClass:
        return self._class_of.get(name, self._nobody)

    def put(self, name: str, node_class: NodeClass) -> NodeClass | None:
        """The node is of this class from now on; returns the one that it was of before, None for a new node."""
        before = self._class_of.get(name)
        if before is not node_class:
            self._class_of[name] = node_class
            self._note(name)
        return before

    def remove(self, name: str) -> NodeClass:
        """There is no such node any more; returns the class that it was of."""
        before = self._class_of.pop(name)
        self._note(name)
        return before

    def set_nobody(self, nobody: NodeClass) -> None:
        """Names that no node has are of this class from now on: a change of more names than can be told."""
        self._nobody, self._picture = nobody, None
        self._moment += 1
        self._changed.clear()

    def picture(self) -> Picture:
        """All of it, as of now."""
        if self._picture is None:
            self._picture = Picture(self._class_of, self._nobody, self._moment)
        return self._picture

    def changed_since(self, moment: int) -> Sequence[str] | None:
        """The nodes whose class changed since; None: more did than are remembered."""
        known, missed = len(self._changed), self._moment - moment
        return self._changed[known - missed :] if missed <= known else None

    def _note(self, name: str) -> None:
        self._picture = None
        self._moment += 1
        self._changed.append(name)
        if len(self._changed) > MAX_CHANGES:
            del self._changed[: MAX_CHANGES // 2]
