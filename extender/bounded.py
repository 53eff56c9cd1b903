"""Limits on what is kept, and for how long. A leaf: it imports nothing of the service."""

import threading
from collections import Counter, OrderedDict
from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedMap(OrderedDict[K, V]):
    """Keeps the *size* entries that were stored last, the oldest first. To keep one in use, call `move_to_end`."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.size = size

    def __setitem__(self, key: K, value: V) -> None:
        """Store *value* as the newest entry, and drop the oldest one if there are too many."""
        super().__setitem__(key, value)
        self.move_to_end(key)
        while len(self) > self.size:
            self.popitem(last=False)


class Shares:
    """How many bytes, or other units, each owner has. Where it is too much, the one with most gives something up."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self._of: Final[Counter[str]] = Counter()

    def change(self, owner: str, by_bytes: int) -> None:
        """*owner* has more, or less."""
        self.held_bytes += by_bytes
        self._of[owner] += by_bytes
        if not self._of[owner]:
            del self._of[owner]

    @property
    def largest(self) -> str:
        """The owner that has most. There must be one."""
        return max(self._of, key=self._of.__getitem__)


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
