"""What bindings that are under way at the same time share: a lock for each node, and an amount of work."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final


class NodeLocks:
    """Locks by node name, made when needed and dropped with their last user. Waiters are served in order."""

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


MAX_WAITING: Final = 16
"""Bind calls that wait for a node at a time: a quarter of the places for scheduler calls."""


class SharedBudget:
    """An amount that is shared by all who are at work at the same time; nobody gets less than *least*.

    And `MAX_WAITING` places to wait in.
    """

    def __init__(self, total: int, least: int) -> None:
        self._total: Final = total
        self._least: Final = least
        self._at_work = 0
        self._waiting = 0

    @contextmanager
    def waiting(self) -> Iterator[bool]:
        """Take a place to wait in; False: there is none."""
        if self._waiting >= MAX_WAITING:
            yield False
            return
        self._waiting += 1
        try:
            yield True
        finally:
            self._waiting -= 1

    @contextmanager
    def share(self) -> Iterator[int]:
        """What one gets who begins now."""
        self._at_work += 1
        try:
            yield max(self._least, self._total // self._at_work)
        finally:
            self._at_work -= 1
