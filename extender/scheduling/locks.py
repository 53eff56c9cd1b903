"""What concurrent bind calls share: a lock for each node, a budget of work, and a limited number of waiting calls."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final

MAX_WAITING: Final = 32
"""How many bind calls wait for a node to change, or for the API server: half of the places for scheduler calls."""


class NodeLocks:
    """Locks by node name, created on first use and removed with their last user. Waiters are served in order."""

    def __init__(self) -> None:
        self._locks: dict[str, tuple[asyncio.Lock, int]] = {}

    def __len__(self) -> int:
        return len(self._locks)

    @asynccontextmanager
    async def hold(self, name: str, timeout_seconds: float) -> AsyncIterator[None]:
        """Hold the node's lock; raises TimeoutError if it does not become free in time."""
        lock, users = self._locks.get(name) or (asyncio.Lock(), 0)
        self._locks[name] = (lock, users + 1)
        try:
            async with asyncio.timeout(timeout_seconds):
                await lock.acquire()
            try:
                yield
            finally:
                lock.release()
        finally:
            lock, users = self._locks[name]
            if users == 1:
                del self._locks[name]
            else:
                self._locks[name] = (lock, users - 1)


class WaitingPlaces:
    """A bounded number of places to wait in."""

    def __init__(self, places: int = MAX_WAITING) -> None:
        self._free = places

    @contextmanager
    def take(self) -> Iterator[bool]:
        """Take a place; False if all are taken."""
        if not self._free:
            yield False
            return
        self._free -= 1
        try:
            yield True
        finally:
            self._free += 1


class SharedBudget:
    """An amount of work, shared by all calls in progress; no call gets less than *least*."""

    def __init__(self, total: int, least: int) -> None:
        self._total: Final = total
        self._least: Final = least
        self._under_way = 0

    @contextmanager
    def share(self) -> Iterator[int]:
        """The share of a call that begins now."""
        self._under_way += 1
        try:
            yield max(self._least, self._total // self._under_way)
        finally:
            self._under_way -= 1
