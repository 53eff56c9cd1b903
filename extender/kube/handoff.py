"""Passes batches from a watch's thread to the event loop, with back-pressure.

The loop's handler runs once per batch. The thread waits for it before it reads on, so that a busy loop slows the stream
down instead of queueing batches. A stopping application releases the thread at once. The thread waits on a
`SimpleQueue`, which is one lock of the interpreter: a Future costs it more than decoding the event.
"""

import asyncio
import threading
from collections.abc import Callable
from queue import Empty, SimpleQueue
from typing import Final, Generic, TypeVar

from extender.kube.changes import Batch, ConsumerGoneError

T = TypeVar("T")
_POLL_SECONDS: Final = 0.5


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
            ConsumerGoneError: `close` was called, or the loop has ended.
            Exception: whatever the handler raised.
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
