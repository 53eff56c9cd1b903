"""A small map whose entries expire and whose size is bounded; the one used longest ago makes room. Thread-safe.

An entry can outlive its time as a last resort (`get_late`), for who cannot get a new answer.
"""

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class TTLCache(Generic[K, V]):
    """*size*: entries kept at most. *clock*: monotonic seconds."""

    def __init__(self, size: int, clock: Callable[[], float]) -> None:
        self._size, self._clock = size, clock
        self._entries: OrderedDict[K, tuple[float, float, V]] = OrderedDict()
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        """The value; None when there is none or its time is over."""
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
        """The value, also when its time is over but for its grace; None when there is none."""
        with self._lock:
            entry = self._entries.get(key)
            return None if entry is None or self._clock() >= entry[1] else entry[2]

    def put(self, key: K, value: V, ttl_seconds: float, *, grace_seconds: float = 0.0) -> None:
        """Remember *value* for that long, and for *grace_seconds* more as a last resort."""
        with self._lock:
            expires = self._clock() + ttl_seconds
            self._entries[key] = (expires, expires + grace_seconds, value)
            self._entries.move_to_end(key)
            while len(self._entries) > self._size:
                self._entries.popitem(last=False)

    def drop(self, key: K) -> None:
        """Forget the value, its grace included."""
        with self._lock:
            self._entries.pop(key, None)
