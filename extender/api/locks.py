"""One lock for each node that somebody is binding to."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


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
