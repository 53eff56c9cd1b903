"""The choices that the kubelet makes at random, made visible.

One replay follows one script of choices; `explore` in `admission` runs the scripts that can happen. A choice is how
many devices of each kind to take from a tier that holds more than are needed. Kinds differ in NUMA set or health;
devices of one kind are interchangeable.
"""

from collections.abc import Iterator, Sequence


class Choices:
    """Follows a script of choice numbers, 0 beyond its end, and counts the alternatives at each choice met."""

    __slots__ = ("alternatives", "random_picks", "script")

    def __init__(self, script: tuple[int, ...] = ()) -> None:
        self.script = script
        self.alternatives: list[int] = []
        self.random_picks: set[tuple[str, str]] = set()
        """(container, resource) pairs for which the kubelet had more devices to pick from than it needed."""

    def split(self, count: int, sizes: Sequence[int]) -> tuple[int, ...]:
        """How many to take from each kind, *count* in all; *sizes* is what each kind has, together more than that."""
        if len(sizes) == 1:
            return (count,)
        position = len(self.alternatives)
        wanted = self.script[position] if position < len(self.script) else 0
        self.alternatives.append(count_splits(count, sizes))
        for i, split in enumerate(_splits(count, sizes)):
            if i == wanted:
                return split
        raise AssertionError("a script names a choice that does not exist")


def _splits(count: int, sizes: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every way to take *count* from kinds of the given sizes; as many as possible from the first kinds first."""
    if len(sizes) == 1:
        if count <= sizes[0]:
            yield (count,)
        return
    rest = sum(sizes[1:])
    for first in range(min(count, sizes[0]), max(0, count - rest) - 1, -1):
        for others in _splits(count - first, sizes[1:]):
            yield (first, *others)


def count_splits(count: int, sizes: Sequence[int]) -> int:
    """How many ways `_splits` yields, without walking them."""
    ways = [1] + [0] * count
    for size in sizes:
        ways = [sum(ways[max(0, n - size) : n + 1]) for n in range(count + 1)]
    return ways[count]
