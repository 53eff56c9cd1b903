"""What a watch reads: the objects of one resource, each by itself, and those that cannot be read.

This is the one place where exceptions of readers end. An object that cannot be read, for whatever exception, is left
out, or replaced by what the source says, and nothing happens to the others. It is listed with the reason (at most
`MAX_KEPT` are), and logged once while it cannot be read, in one line a minute at most.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from logging import Logger
from operator import attrgetter
from typing import Any, Final, Generic, NamedTuple, TypeVar

from extender.bounded import BoundedMap
from extender.kube.objects import OBJECT, ObjectName, Reader, name_of, read_head, read_object
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


def _shown(text: str) -> str:
    """The beginning of the text on one line. Characters that cannot be printed are escapes."""
    shown = repr(text[:MAX_TEXT])[1:-1]
    return shown if len(shown) <= MAX_TEXT else f"{shown[: MAX_TEXT - 3]}..."


T = TypeVar("T")
Decode = Callable[[Mapping[str, Any]], tuple[str, T] | None]
"""Converts an object to (key, value). None if it cannot be used; it is then counted and skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[T]):
    """What to watch: the collection's path, and a selector that the server applies (empty: everything).

    `key`: which names in the metadata are the key. `reader`: reads the parts of an object that `decode` needs. `check`:
    called with each value; raises if a consumer could not read it, and returns what is kept until the consumers have
    the value. `instead`: makes the value of an object that cannot be read, from its head (see `read_head`) and its last
    value; None: such an object is left out.
    """

    path: str
    decode: Decode[T]
    field_selector: str = ""
    key: Callable[[ObjectName], str] = attrgetter("uid")
    reader: Reader = OBJECT
    check: Callable[[T], object] | None = None
    instead: Callable[[Mapping[str, Any], T | None], T | None] | None = None

    def query(self, **more: str) -> dict[str, str]:
        """The query of a list or watch. Empty values are left out."""
        named = {"fieldSelector": self.field_selector, **more}
        return {name: value for name, value in named.items() if value}


class ReadObject(NamedTuple, Generic[T]):
    """An object that was read once. `head`: at least its names and version, as far as they can be read.

    `entry`: its key and value, or what takes its place; None: it is left out.
    """

    head: Mapping[str, Any]
    entry: tuple[str, T] | None


class ObjectReader(Generic[T]):
    """Reads the objects of one watch, in the watch's thread. *clock*: monotonic seconds.

    `skipped`: how many objects we do not use, or could not read. `unread`: objects that cannot be read, by key; an
    unchanging copy, which any thread may read. `checked`: what the checks returned. The watch clears it when the
    consumers have the objects.
    """

    def __init__(self, source: Source[T], log: Logger, clock: Callable[[], float]) -> None:
        self._source = source
        self.skipped, self.checked = 0, list[object]()
        self.unread: Mapping[str, UnreadObject] = {}
        self._unread: BoundedMap[str, UnreadObject] = BoundedMap(MAX_KEPT)
        self._faults = FaultLog(log, f"watch of {source.path}", clock)
        self._listed: set[str] = set()

    def begin_list(self) -> None:
        """The whole list is read."""
        self._listed = set()

    def end_list(self) -> None:
        """The whole list was read: forget objects that it does not have, or that could be read."""
        self._forget(self._unread.keys() - self._listed)
        self._listed = set()

    def read(self, raw: bytes, known: Mapping[str, T]) -> ReadObject[T]:
        """Read an object. *known*: the values so far, by key."""
        try:
            document = read_object(raw, self._source.reader)
            entry = self._source.decode(document)
            if entry is not None and self._source.check is not None:
                self.checked.append(self._source.check(entry[1]))
        except Exception as error:  # noqa: BLE001 - see the file's text
            self.skipped += 1
            head = read_head(raw)
            return ReadObject(head, self._instead(head, known, error))
        if entry is None:
            self.skipped += 1
        elif self.unread:
            self._forget([entry[0]])
        return ReadObject(document, entry)

    def gone(self, head: Mapping[str, Any]) -> str:
        """The object was deleted. Returns its key."""
        key = self._source.key(name_of(head))
        self._forget([key])
        return key

    def _instead(self, head: Mapping[str, Any], known: Mapping[str, T], error: Exception) -> tuple[str, T] | None:
        """The value of an object that cannot be read; by default its last value."""
        name = name_of(head)
        key = self._source.key(name)
        self._note(key, UnreadObject(*map(_shown, (name.path, name.uid, f"{type(error).__name__}: {error}"))))
        value = known.get(key)
        if self._source.instead is not None:
            value = self._source.instead(head, value)
        return None if value is None else (key, value)

    def _note(self, key: str, unread: UnreadObject) -> None:
        self._listed.add(key)
        if self._unread.get(key) == unread:
            return
        self._faults.failed(
            "object %s uid=%s cannot be read and is skipped: %s", unread.name, unread.uid, unread.reason
        )
        self._unread[key] = unread
        self.unread = dict(self._unread)

    def _forget(self, keys: Iterable[str]) -> None:
        """These objects can be read now, or are gone."""
        gone = [key for key in keys if key in self._unread]
        for key in gone:
            del self._unread[key]
        if gone:
            self.unread = dict(self._unread)
