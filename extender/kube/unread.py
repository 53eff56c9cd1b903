"""The objects of one watch that cannot be read: which they are, and why. They are skipped, and nothing else is.

Bounded: `MAX_KEPT` names. Each object is logged once while it cannot be read, and one line a minute at most.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import Logger
from typing import Final

from extender.bounded import BoundedMap
from extender.kube.objects import ObjectName
from extender.observability.logs import FaultLog

MAX_KEPT: Final = 1000
MAX_TEXT: Final = 200
"""Characters of a name or a reason that are kept."""


@dataclass(frozen=True, slots=True)
class UnreadObject:
    """One object that cannot be read. `name`: NAMESPACE/NAME; `uid`: empty if not known; both are safe to print."""

    name: str
    uid: str
    reason: str


class UnreadObjects:
    """Used by the thread of the watch. `all` may be read by any thread. *clock*: monotonic seconds."""

    def __init__(self, log: Logger, path: str, clock: Callable[[], float]) -> None:
        self._objects: BoundedMap[str, UnreadObject] = BoundedMap(MAX_KEPT)
        self._faults = FaultLog(log, f"watch of {path}", clock)
        self.all: Mapping[str, UnreadObject] = {}
        """A copy that does not change, by key."""
        self._listed: set[str] = set()

    def note(self, key: str, name: ObjectName, error: Exception) -> None:
        """The object cannot be read. *key*: its key in the watch."""
        unread = UnreadObject(*map(_shown, (name.path, name.uid, f"{type(error).__name__}: {error}")))
        self._listed.add(key)
        if self._objects.get(key) == unread:
            return
        self._faults.failed(
            "object %s uid=%s cannot be read and is skipped: %s", unread.name, unread.uid, unread.reason
        )
        self._objects[key] = unread
        self.all = dict(self._objects)

    def begin_list(self) -> None:
        """The whole list is read."""
        self._listed = set()

    def end_list(self) -> None:
        """The whole list was read: objects that it does not have, or that could be read, are none of these."""
        self.forget(self._objects.keys() - self._listed)
        self._listed = set()

    def forget(self, keys: Iterable[str]) -> None:
        """These objects can be read now, or are gone."""
        gone = [key for key in keys if key in self._objects]
        for key in gone:
            del self._objects[key]
        if gone:
            self.all = dict(self._objects)


def _shown(text: str) -> str:
    """The beginning of the text on one line. Characters that cannot be printed are escapes."""
    shown = repr(text[:MAX_TEXT])[1:-1]
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."
