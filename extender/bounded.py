"""A map with a limited size. A leaf: it imports nothing of the service."""

from collections import OrderedDict
from collections.abc import Hashable
from typing import TypeVar

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
