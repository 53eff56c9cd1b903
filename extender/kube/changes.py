"""The changes that a watch delivers in batches, the mirror that makes them of lists, and their way to the event loop.

The mirror is the only record of what the consumer has received. After a relist it compares and delivers the difference,
so a consumer that applies every batch in order always equals the mirror.

The loop's handler runs once per batch. The watch's thread waits for it before it reads on, so that a busy loop slows
the stream down instead of queueing batches. A stopping application releases the thread at once. The thread waits on a
`SimpleQueue`, which is one lock of the interpreter: a Future costs it more than decoding the event.
"""

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

T = TypeVar("T")
_POLL_SECONDS: Final = 0.5


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


class LoopHandoff(Generic[T]):
    """A `Deliver` for `Watch` that runs *handle* on *loop*. Created on the loop; called in the watch's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, handle: Callable[[Batch[T]], None]) -> None:
        self._loop, self._handle = loop, handle
        self._closed = threading.Event()

    def close(self) -> None:
        """Take no more batches and release a waiting thread. Call it before stopping the watch."""
        self._closed.set()

    def __call__(self, batch: Batch[T]) -> None:
        """Run the handler on the loop and wait for it.

        Raises:
            ConsumerGoneError: `close` was called, or the loop has ended. Exception: whatever the handler raised.
        """
        if self._closed.is_set():
            raise ConsumerGoneError
        done: SimpleQueue[Exception | None] = SimpleQueue()
        try:
            self._loop.call_soon_threadsafe(self._take, batch, done)
        except RuntimeError as error:
            raise ConsumerGoneError from error
        while True:
            try:
                fault = done.get(timeout=_POLL_SECONDS)
                break
            except Empty:
                if self._closed.is_set():
                    raise ConsumerGoneError from None
        if fault is not None:
            raise fault

    def _take(self, batch: Batch[T], done: SimpleQueue[Exception | None]) -> None:
        """Runs on the loop."""
        try:
            self._handle(batch)
        except Exception as error:  # noqa: BLE001 - it is raised again in the watch's thread
            done.put(error)
        else:
            done.put(None)
