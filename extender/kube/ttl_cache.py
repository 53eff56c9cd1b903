"""A map with expiring entries and a limited size. The least recently used entry is dropped. Thread-safe.

An entry can be used after its expiry (`get_late`) if no new answer can be had.
"""

import threading
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from extender.bounded import BoundedMap

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """*size*: maximum number of entries. *clock*: monotonic seconds."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._entries: BoundedMap[K, tuple[float, float, V]] = BoundedMap(size)
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value. None if there is none or it has expired."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                return None
            expires, late, value = entry
            now = self._clock()
            if now >= late:
                del self._entries[key]
            if now >= expires:
                return None
            self._entries.move_to_end(key)
            return value

    def get_late(self, key: K) -> V | None:
        """The value, even if expired but within its grace period. None if there is none."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None or self._clock() >= entry[1] else entry[2]

    def put(self, key: K, value: V, ttl_seconds: float, *, grace_seconds: float = 0.0) -> None:
        """Store *value* for this long, and for *grace_seconds* more for `get_late`."""
        with self._lock:
            expires = self._clock() + ttl_seconds
            self._entries[key] = (expires, expires + grace_seconds, value)

    def drop(self, key: K) -> None:
        """Remove the value, its grace period included."""
        with self._lock:
            self._entries.pop(key, None)
