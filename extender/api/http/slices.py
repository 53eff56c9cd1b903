"""Renders long lists on the event loop in slices of a millisecond, so that the scheduler's calls are not delayed.

Nothing is replayed for such lists and their length is limited. A thread would delay the event loop more: a thread
releases the interpreter only every five milliseconds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final

SLICE_SECONDS: Final = 0.001


class Slices:
    """Renders one list at a time, so that each iteration of the event loop contains at most one slice."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._clock: Final = clock
        self._lock: Final = asyncio.Lock()
        self._since = 0.0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Callable[[], Awaitable[None]]]:
        """Provides a function to await between two entries of a list."""
        async with self._lock:
            self._since = self._clock()
            yield self._breathe

    async def _breathe(self) -> None:
        if self._clock() - self._since >= SLICE_SECONDS:
            await asyncio.sleep(0)
            self._since = self._clock()
