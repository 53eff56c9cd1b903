"""Results that are kept because many nodes and pods are alike, bounded in bytes whatever is reported or written.

Rules of this file
- Large values are kept by those who use them, never by a cache: `Shared` gives equal users one object.
- A cache by count keeps small results alone (`remembered`). So its size in bytes is the count times a small number.
"""

from collections.abc import Callable, Hashable
from functools import lru_cache, wraps
from typing import Final, Generic, TypeVar, TypeVarTuple
from weakref import WeakValueDictionary

Arguments = TypeVarTuple("Arguments")
T = TypeVar("T")
K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class Shared(Generic[K, V]):
    """One object for each key, which lives as long as something else refers to it.

    Any thread may call it. If two threads call `of` with a new key at the same time, both may call *make*, and both get
    the same object.
    """

    def __init__(self) -> None:
        self._known: Final[WeakValueDictionary[K, V]] = WeakValueDictionary()

    def get(self, key: K) -> V | None:
        """The object of the key; None if nothing refers to one."""
        return self._known.get(key)

    def of(self, key: K, make: Callable[[], V]) -> V:
        """The object of the key; if there is none, the one that *make* returns."""
        found = self._known.get(key)
        return self._known.setdefault(key, make()) if found is None else found


def remembered(
    small: int, large: int, is_large: Callable[[*Arguments], bool]
) -> Callable[[Callable[[*Arguments], T]], Callable[[*Arguments], T]]:
    """A decorator: the function remembers its last *small* results, and *large* ones of arguments that are large."""

    def wrap(function: Callable[[*Arguments], T]) -> Callable[[*Arguments], T]:
        of_small, of_large = lru_cache(small)(function), lru_cache(large)(function)

        @wraps(function)
        def call(*args: *Arguments) -> T:
            return (of_large if is_large(*args) else of_small)(*args)

        return call

    return wrap
