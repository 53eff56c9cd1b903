"""A cache of results that is limited in bytes. It imports nothing of the service."""

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")
PARTS: Final = 256


class RecentBytes(Generic[K, V]):
    """The results for the keys that were used last. Together they have at most *most_bytes*, as *size_of* counts.

    A result larger than a `PARTS`-th of that is not kept. Any thread may call it. There are two halves: when the newer
    half is full, the older half is dropped.
    """

    def __init__(self, most_bytes: int, size_of: Callable[[K, V], int]) -> None:
        self._most, self._size_of, self._held = most_bytes, size_of, 0
        self._newer: dict[K, V] = {}
        self._older: dict[K, V] = {}

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The result for the key: the one that is kept, or what *make* returns."""
        found = self._newer.get(key)
        if found is not None:
            return found
        found = make() if (older := self._older.get(key)) is None else older
        size = self._size_of(key, found)
        if size * PARTS > self._most:
            return found
        if (self._held + size) * 2 > self._most:
            self._newer, self._older, self._held = {}, self._newer, 0
        self._newer[key] = found
        self._held += size
        return found
