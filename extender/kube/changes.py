"""The changes that a watch delivers, in batches, and the mirror that turns lists into changes.

The mirror is the only record of what the consumer has received. After a relist it compares and delivers the difference,
so a consumer that applies every batch in order always equals the mirror.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A new value."""

    value: T


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """A value that differs from the last one delivered in a part that we keep."""

    old: T
    value: T


@dataclass(frozen=True, slots=True)
class Gone(Generic[T]):
    """The last known value of an object that was deleted, or no longer matches the selector."""

    value: T


Change = Seen[T] | Changed[T] | Gone[T]


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Changes in the order to apply them. May be empty.

    `complete`: after this batch the consumer knows everything that the server had at some moment since the last
    complete batch. False only while a list is delivered in several batches. `listed`: the changes come from comparing
    with a list, so their order is not the order of the events.
    """

    changes: tuple[Change[T], ...]
    complete: bool = True
    listed: bool = False


class ConsumerGoneError(Exception):
    """Raised by a consumer that takes no more batches because the application is stopping."""


class Mirror(Generic[T]):
    """The server's objects by key. Not thread-safe: one thread updates it and passes the changes on."""

    def __init__(self) -> None:
        self._values: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> Mapping[str, T]:
        """What the consumer knows. A view, which only the updating thread may read."""
        return self._values

    def replace(self, listed: dict[str, T]) -> list[Change[T]]:
        """Replace everything with a full list.

        Returns the changes, removals first, so that their resources are free again.
        """
        changes: list[Change[T]] = [Gone(value) for key, value in self._values.items() if key not in listed]
        for key, value in listed.items():
            old = self._values.get(key)
            if old is None:
                changes.append(Seen(value))
            elif old != value:
                changes.append(Changed(old, value))
        self._values = listed
        return changes

    def upsert(self, key: str, value: T) -> Change[T] | None:
        """Add or update an object. None if no part that we keep has changed."""
        old = self._values.get(key)
        if old is None:
            self._values[key] = value
            return Seen(value)
        if old == value:
            return None
        self._values[key] = value
        return Changed(old, value)

    def remove(self, key: str) -> Change[T] | None:
        """Remove an object. None if it was not known."""
        old = self._values.pop(key, None)
        return None if old is None else Gone(old)


def batches(changes: list[Change[T]], size: int) -> Iterable[Batch[T]]:
    """*changes* in batches of at most *size*, the last one complete. Without changes, one empty complete batch."""
    last = max(len(changes) - 1, 0) // size
    for i in range(last + 1):
        yield Batch(tuple(changes[i * size : (i + 1) * size]), complete=i == last, listed=True)
