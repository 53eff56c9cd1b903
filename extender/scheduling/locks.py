"""What concurrent bind calls share: a lock for each node, and a budget of work."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Final


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
