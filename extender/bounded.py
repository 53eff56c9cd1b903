"""Limits on what is kept. A leaf: it imports nothing of the service."""

from collections import Counter, OrderedDict
from collections.abc import Hashable
from typing import Final, TypeVar

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
    """How many bytes, or other units, each owner has. Over the limit, the owner with most gives something up."""

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
