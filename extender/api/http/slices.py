"""Rendering long lists on the event loop, a millisecond at a time, so that the scheduler's calls go first.

Nothing is replayed for such lists and their length is bounded. A thread would do worse: it hands the interpreter back
only every five milliseconds, at each of the points where the event loop waits for it.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

SLICE_SECONDS: Final = 0.001


class Slices:
    """One list is rendered at a time, however many are asked for: a turn of the event loop has one slice at most."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock: Final = clock
        self._lock: Final = asyncio.Lock()
        self._since = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Gives a function to await between two entries of a list."""
        async with self._lock:
            self._since = self._clock()
            yield self._breathe

    async def _breathe(self) -> None:
        if self._clock() - self._since >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = self._clock()
