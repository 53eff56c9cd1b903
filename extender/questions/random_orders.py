"""Random choices from a seed, without the state of a generator that others share: every answer can be repeated."""

from collections.abc import Sequence
from hashlib import blake2b
from typing import Final, TypeVar

T = TypeVar("T")


class Draw:
    """A sequence of numbers that follows from a seed."""

    def __init__(self, seed: int) -> None:
        self._seed: Final = seed
        self._count = 0

    def below(self, limit: int) -> int:
        """The next number from 0 to *limit* - 1."""
        self._count += 1
        digest = blake2b(f"{self._seed}/{self._count}".encode(), digest_size=8).digest()
        return int.from_bytes(digest) % limit

    def one_of(self, values: Sequence[T]) -> T:
        """One of the values."""
        return values[self.below(len(values))]

    def shuffled(self, values: Sequence[T]) -> list[T]:
        """The values in another order."""
        found = list(values)
        for last in range(len(found) - 1, 0, -1):
            other = self.below(last + 1)
            found[last], found[other] = found[other], found[last]
        return found
