"""What a watch reads: the objects of one resource, each by itself.

This is the one place where exceptions of readers end. An object that cannot be read, for whatever exception, is left
out, or replaced by what the source says, and nothing happens to the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Generic, NamedTuple, TypeVar

from extender.kube.objects import OBJECT, ObjectName, Reader, name_of, read_head, read_object
from extender.kube.unread import UnreadObject, UnreadObjects

T = TypeVar("T")
Decode = Callable[[Mapping[str, Any]], tuple[str, T] | None]
"""Converts an object to (key, value). None if it cannot be used; it is then counted and skipped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Source(Generic[T]):
    """What to watch: the collection's path, and a selector that the server applies (empty: everything).

    `key`: which names in the metadata are the key. `reader`: reads the parts of an object that `decode` needs. `check`:
    called with each value; raises if a consumer could not read it. `instead`: the value of an object that cannot be
    read, from its head (see `read_head`) and the value known before; None: it is left out.
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
    """Reads the objects of one watch. `skipped`: how many were none for us, or could not be read."""

    def __init__(self, source: Source[T], unread: UnreadObjects) -> None:
        self._source, self._unread = source, unread
        self.skipped = 0
        self.begin_list, self.end_list = unread.begin_list, unread.end_list

    @property
    def unread(self) -> Mapping[str, UnreadObject]:
        """The objects that cannot be read, by key. A copy."""
        return self._unread.all

    def read(self, raw: bytes, known: Mapping[str, T]) -> ReadObject[T]:
        """Read an object. *known*: the values so far, by key."""
        try:
            document = read_object(raw, self._source.reader)
            entry = self._source.decode(document)
            if entry is not None and self._source.check is not None:
                self._source.check(entry[1])
        except Exception as error:  # noqa: BLE001 - see the file's text
            self.skipped += 1
            head = read_head(raw)
            return ReadObject(head, self._instead(head, known, error))
        if entry is None:
            self.skipped += 1
        elif self._unread.all:
            self._unread.forget([entry[0]])
        return ReadObject(document, entry)

    def _instead(self, head: Mapping[str, Any], known: Mapping[str, T], error: Exception) -> tuple[str, T] | None:
        """What takes the place of an object that cannot be read: what was known of it, if the source does not say."""
        name = name_of(head)
        key = self._source.key(name)
        self._unread.note(key, name, error)
        value = known.get(key)
        if self._source.instead is not None:
            value = self._source.instead(head, value)
        return None if value is None else (key, value)

    def gone(self, head: Mapping[str, Any]) -> str:
        """The object was deleted. Returns its key."""
        key = self._source.key(name_of(head))
        self._unread.forget([key])
        return key
