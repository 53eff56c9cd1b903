"""What a watch tells: values seen, changed and gone, in batches; and the mirror that turns lists into changes.

The mirror is the only memory of what the consumer has been told. After a relist it compares and reports the
difference, so a consumer that applies every batch in order always equals the mirror.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Seen(Generic[T]):
    """A value that was not there before."""

    value: T


@dataclass(frozen=True, slots=True)
class Changed(Generic[T]):
    """A value that differs from the last one told in something we keep."""

    old: T
    value: T


@dataclass(frozen=True, slots=True)
class Gone(Generic[T]):
    """The last known value of something that no longer exists (or no longer matches the selector)."""

    value: T


Change = Seen[T] | Changed[T] | Gone[T]


@dataclass(frozen=True, slots=True)
class Batch(Generic[T]):
    """Changes in the order to apply them; may be empty.

    `complete`: with this batch applied, the consumer knows all that the server had at some moment since the last such
    batch. False only within the delivery of a list that takes several batches. `listed`: the changes were found by
    comparing with a list, so their order is not the one in which they happened.
    """

    changes: tuple[Change[T], ...]
    complete: bool = True
    listed: bool = False


class ConsumerGoneError(Exception):
    """Raised by a consumer that takes no more batches because the application is stopping."""


class Mirror(Generic[T]):
    """What the server has, by key. Not thread-safe: one thread feeds it, and hands the changes on."""

    def __init__(self) -> None:
        self._values: dict[str, T] = {}

    def __len__(self) -> int:
        return len(self._values)

    @property
    def values(self) -> Mapping[str, T]:
        """What the consumer knows by now; a view, to be read by the feeding thread only."""
        return self._values

    def replace(self, listed: dict[str, T]) -> list[Change[T]]:
        """The server's whole truth; returns what is new: removals first, so that their room is free again."""
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
        """The object is there; None when nothing that we keep differs."""
        old = self._values.get(key)
        if old is None:
            self._values[key] = value
            return Seen(value)
        if old == value:
            return None
        self._values[key] = value
        return Changed(old, value)

    def remove(self, key: str) -> Change[T] | None:
        """The object is gone; None when it was not known."""
        old = self._values.pop(key, None)
        return None if old is None else Gone(old)


def batches(changes: list[Change[T]], size: int) -> Iterable[Batch[T]]:
    """*changes* in batches of at most *size*, the last one complete; one empty complete batch for no changes."""
    last = max(len(changes) - 1, 0) // size
    for i in range(last + 1):
        yield Batch(tuple(changes[i * size : (i + 1) * size]), complete=i == last, listed=True)
