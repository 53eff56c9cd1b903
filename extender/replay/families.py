"""Families of NUMA masks: sets of sets of NUMA nodes, as single ints.

A `Universe` numbers the subsets of its NUMA ids: subset p holds the ids at the set bits of p. A family is an int in
which bit p says that subset p belongs to it, so that unions, intersections and "the narrowest" are a few operations on
ints however many masks there are: 65,536 of them for 16 NUMA nodes.

Laws:
- Subset numbers grow with masks: the lowest bit of a family is its numerically smallest mask.
- Bit 0, the empty set, is in no hint; `fold` may produce it.
- Work is bounded by the universe, and a universe by MAX_NUMA_NODES.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Final

from extender.replay.sets import iter_bits

MAX_NUMA_NODES: Final = 16
"""NUMA nodes up to which every mask is looked at; beyond it the kubelet's own walk takes for ever."""


class Universe:
    """The subsets of some NUMA ids; equal ids give the same object (`universe`)."""

    __slots__ = ("by_width", "everything", "full", "having", "ids", "size")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids: Final = ids
        self.size: Final = 1 << len(ids)
        self.everything: Final = (1 << self.size) - 1
        """The family of all subsets, the empty one too."""
        self.full: Final = 1 << (self.size - 1)
        """The family that holds just the set of all ids."""
        self.having: Final = tuple(_having(j, len(ids)) for j in range(len(ids)))
        """For each position: the family of the subsets that hold its id."""
        self.by_width: Final = _by_width(len(ids))
        """For each width 0..n: the family of the subsets with so many ids."""

    def number(self, mask: int) -> int:
        """The number of the subset *mask*; ids outside the universe are dropped."""
        number = 0
        for position, numa in enumerate(self.ids):
            number |= (mask >> numa & 1) << position
        return number

    def mask(self, number: int) -> int:
        """The raw NUMA mask of a subset number."""
        mask = 0
        for position in iter_bits(number):
            mask |= 1 << self.ids[position]
        return mask

    def masks(self, family: int) -> Iterator[int]:
        """The raw masks of a family, ascending."""
        return (self.mask(number) for number in iter_bits(family))

    def family(self, masks: Iterable[int]) -> int:
        """The family of the given raw masks."""
        family = 0
        for mask in masks:
            family |= 1 << self.number(mask)
        return family

    def touching(self, mask: int) -> int:
        """The subsets that share an id with *mask*."""
        family = 0
        for position, numa in enumerate(self.ids):
            if mask >> numa & 1:
                family |= self.having[position]
        return family

    def containing(self, mask: int) -> int:
        """The subsets that hold every id of *mask*; none when an id is outside the universe."""
        family = self.everything
        for numa in iter_bits(mask):
            family &= self.having[self.ids.index(numa)] if numa in self.ids else 0
        return family

    def width(self, family: int) -> int | None:
        """The fewest ids of any non-empty subset in the family; None when it has none."""
        for width in range(1, len(self.ids) + 1):
            if family & self.by_width[width]:
                return width
        return None

    def embed(self, family: int, inner: "Universe") -> int:
        """The same family as one of this universe; every id of *inner* must be in it."""
        return family if inner is self else self.family(inner.masks(family))


@lru_cache(maxsize=256)
def universe(ids: tuple[int, ...]) -> Universe:
    """The universe of these ascending ids, at most MAX_NUMA_NODES."""
    assert len(ids) <= MAX_NUMA_NODES
    return Universe(ids)


def _having(position: int, ids: int) -> int:
    block = ((1 << (1 << position)) - 1) << (1 << position)
    family = block
    for grown in range(position + 1, ids):
        family |= family << (1 << grown)
    return family


def _by_width(ids: int) -> tuple[int, ...]:
    families = [1]
    for position in range(ids):
        shifted = [0, *(f << (1 << position) for f in families)]
        families = [a | b for a, b in zip([*families, 0], shifted, strict=True)]
    return tuple(families)


@lru_cache(maxsize=8192)
def at_least(amounts: tuple[int, ...], wanted: int) -> int:
    """The family of the subsets of positions whose amounts add up to *wanted* or more; none is negative.

    Recursion over positions, one step for each distinct rest of *wanted*: few where nodes are alike.
    """
    totals = [0]
    for amount in amounts:
        totals.append(totals[-1] + amount)
    known: dict[tuple[int, int], int] = {}

    def build(positions: int, rest: int) -> int:
        if rest <= 0:
            return (1 << (1 << positions)) - 1
        if totals[positions] < rest:
            return 0
        key = positions, rest
        family = known.get(key)
        if family is None:
            below = positions - 1
            family = build(below, rest) | build(below, rest - amounts[below]) << (1 << below)
            known[key] = family
        return family

    return build(len(amounts), wanted)


@lru_cache(maxsize=8192)
def touching_at_least(ids: tuple[int, ...], kinds: tuple[tuple[int, int], ...], wanted: int) -> int:
    """The family of the subsets of *ids* that touch *wanted* things or more; kinds are (raw mask, how many).

    A thing on several ids counts once, whichever of them the subset holds.
    """
    single = [0] * len(ids)
    spread: list[tuple[int, int]] = []
    for mask, count in kinds:
        positions = [j for j, numa in enumerate(ids) if mask >> numa & 1]
        if len(positions) == 1:
            single[positions[0]] += count
        elif positions:
            spread.append((sum(1 << j for j in positions), count))
    if not spread:
        return at_least(tuple(single), wanted)
    known: dict[tuple[int, int, int], int] = {}

    def build(positions: int, rest: int, untouched: int) -> int:
        if rest <= 0:
            return (1 << (1 << positions)) - 1
        if not positions:
            return 0
        key = positions, rest, untouched
        family = known.get(key)
        if family is None:
            below = positions - 1
            got, left = single[below], untouched
            for k, (where, count) in enumerate(spread):
                if untouched >> k & 1 and where >> below & 1:
                    got += count
                    left &= ~(1 << k)
            family = build(below, rest, untouched) | build(below, rest - got, left) << (1 << below)
            known[key] = family
        return family

    return build(len(ids), wanted, (1 << len(spread)) - 1)


def fold(families: Sequence[int], ids: int) -> int:
    """Every intersection of one subset from each family; the empty subset included where it can come about."""
    result = 1 << ((1 << ids) - 1)
    for family in families:
        result = _intersections(result, family, ids, {})
    return result


def _intersections(a: int, b: int, ids: int, known: dict[tuple[int, int, int], int]) -> int:
    """{x & y}: split both families by their highest id; what lacks it comes from any pair of halves but (with, with).

    Equal pairs of parts are met again and again (families of hints are regular), hence the memory.
    """
    if not a or not b:
        return 0
    if not ids:
        return 1
    top = 1 << ((1 << ids) - 1)
    if a == top:
        return b
    if b == top:
        return a
    key = (a, b, ids) if a < b else (b, a, ids)
    result = known.get(key)
    if result is None:
        half = 1 << (ids - 1)
        low = (1 << half) - 1
        a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
        below = ids - 1
        without = _intersections(a0, b0 | b1, below, known) | _intersections(a1, b0, below, known)
        result = without | _intersections(a1, b1, below, known) << half
        known[key] = result
    return result
