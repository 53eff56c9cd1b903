"""Sets of ids (CPUs, NUMA nodes, devices) as integers, and families of sets of NUMA nodes, each as one integer.

In a set bit i is set if id i is in it. Linux writes such a set as a list: `0-3,8`.

A `Universe` numbers the subsets of its NUMA ids: subset p has the ids at the set bits of p. A family is an int in which
bit p says that subset p belongs to it. So unions, intersections and "the narrowest" take a few operations on ints,
whatever the number of masks: 65,536 of them for 16 NUMA nodes.

Rules of this file
- Subset numbers grow with masks: the lowest bit of a family is its numerically smallest mask.
- Bit 0, the empty set, is in no hint; the result of `fold` may have it.
- Work is limited by the universe, and a universe by MAX_NUMA_NODES. `fold` and `embed` count their steps.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget, remembered

MAX_NUMA_ID: Final = 63
"""The largest NUMA id that the kubelet's bit mask can hold."""

MAX_CPU_ID: Final = 8191
"""Bound on CPU ids in input, so that no document can ask for an enormous int. It is that of Linux (NR_CPUS 8192)."""

_MAX_RANGE: Final = 19
"""Limit on the characters of a range: two ids with 9 digits each."""


def iter_bits(bits: int) -> Iterator[int]:
    """The ids in *bits*, ascending."""
    while bits:
        low = bits & -bits
        yield low.bit_length() - 1
        bits ^= low


def bits_of(ids: Iterable[int]) -> int:
    """The int with exactly the bits *ids* set."""
    bits = 0
    for i in ids:
        bits |= 1 << i
    return bits


def lowest_bits(bits: int, count: int) -> int:
    """The *count* lowest ids of *bits* (all of them when there are fewer)."""
    taken = 0
    for _ in range(count):
        low = bits & -bits
        if not low:
            break
        taken |= low
        bits ^= low
    return taken


def format_list(bits: int) -> str:
    """Linux list format, ascending: `0-3,8`; the empty set is `""`."""
    parts = []
    while bits:
        first = (bits & -bits).bit_length() - 1
        run = bits >> first
        length = (~run & (run + 1)).bit_length() - 1
        parts.append(str(first) if length == 1 else f"{first}-{first + length - 1}")
        bits &= ~(((1 << length) - 1) << first)
    return ",".join(parts)


def parse_list(text: str, max_id: int = MAX_CPU_ID) -> int:
    """The bits that a Linux list names. Raises ValueError naming the part that does not parse."""
    bits = 0
    if not text:
        return bits
    for part in text.split(","):
        try:
            bits |= _range_bits(part.strip(), max_id)
        except ValueError as error:
            raise ValueError(f"{part!r} in list {_shorten(text)!r} {error}") from None
    return bits


@remembered(4096, 0, lambda part, _max_id: len(part) > _MAX_RANGE)
def _range_bits(part: str, max_id: int) -> int:
    """The bits of one range. The lists of a node's containers, and those of equal nodes, have many in common."""
    first_text, dash, last_text = part.partition("-")
    last_text = last_text if dash else first_text
    if not (first_text.isascii() and first_text.isdigit() and last_text.isascii() and last_text.isdigit()):
        raise ValueError("is neither a number nor a range")
    if len(first_text) > 9 or len(last_text) > 9 or not int(first_text) <= int(last_text) <= max_id:
        raise ValueError(f"is not an ascending range within 0..{max_id}")
    first, last = int(first_text), int(last_text)
    return ((1 << (last - first + 1)) - 1) << first


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."


MAX_NUMA_NODES: Final = 16
"""Up to this many NUMA nodes every mask is tried. With more, the kubelet's own loop takes too long."""


_TOP_BIT: Final = b"0" * 128 + b"1" * 128
"""Translates a byte into the digit of its top bit."""


class Universe:
    """The subsets of some NUMA ids; equal ids give the same object (`universe`)."""

    __slots__ = ("by_width", "everything", "full", "having", "ids", "size")

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids: Final = ids
        self.size: Final = 1 << len(ids)
        self.everything: Final = (1 << self.size) - 1
        """The family of all subsets, including the empty one."""
        self.full: Final = 1 << (self.size - 1)
        """The family that holds just the set of all ids."""
        self.having: Final = tuple(_having(j, len(ids)) for j in range(len(ids)))
        """For each position: the family of the subsets that hold its id."""
        self.by_width: Final = _by_width(len(ids))
        """For each width 0..n: the family of the subsets with that many ids."""

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

    def embed(self, family: int, inner: "Universe", budget: Budget = UNLIMITED) -> int:
        """*family* of *inner* as a family of this universe, which must have every id of *inner*."""
        if inner is self or not family:
            return family
        budget.spend(family.bit_count() * len(self.ids))
        return self.family(inner.masks(family))


_SMALL: Final = 8
"""A universe of up to this many ids has families of 32 bytes. With `MAX_NUMA_NODES` ids a family has 8 KiB."""
_FEW_KINDS: Final = 16


@remembered(256, 32, lambda ids: len(ids) > _SMALL)
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


@remembered(8192, 512, lambda amounts, _wanted: len(amounts) > _SMALL)
def at_least(amounts: tuple[int, ...], wanted: int) -> int:
    """The family of the subsets of positions whose amounts add up to *wanted* or more; none is negative.

    Recursion over positions, one step for each distinct rest of *wanted*: few where nodes are alike, and never more
    than there are subsets.
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


@remembered(4096, 64, lambda ids, kinds, _wanted: len(ids) > _SMALL or len(kinds) > _FEW_KINDS)
def touching_at_least(ids: tuple[int, ...], kinds: tuple[tuple[int, int], ...], wanted: int) -> int:
    """The family of the subsets of *ids* that touch *wanted* things or more; kinds are (raw mask, how many).

    A thing on several ids counts once, whichever of them the subset holds.
    """
    space = universe(ids)
    there: dict[int, int] = {}
    for mask, count in kinds:
        number = space.number(mask)
        there[number] = there.get(number, 0) + count
    there.pop(0, None)
    if all(number & (number - 1) == 0 for number in there):
        return at_least(tuple(there.get(1 << j, 0) for j in range(len(ids))), wanted)
    total = sum(there.values())
    # A subset touches all but the things that lie in its complement. Few enough lie there if no more than
    # total - wanted do, so the family holds the complements of those that do not reach one more.
    untouched = _reaching(list(there.items()), len(ids), total - wanted + 1)
    return _complements(space.everything & ~untouched, len(ids))


def _reaching(parts: Sequence[tuple[int, int]], ids: int, wanted: int) -> int:
    """The family of the subsets that wholly contain parts which add up to *wanted* or more.

    *parts*: (subset number, amount). The sums of all subsets are the fields of one long int: an id after the other,
    what a subset without it holds is added to the subset with it. A few operations on long ints for each id.
    """
    total = sum(amount for _, amount in parts)
    if wanted <= 0:
        return (1 << (1 << ids)) - 1
    if wanted > total:
        return 0
    width = -(-(total.bit_length() + 2) // 8)  # bytes of a field: any sum, and a bit for the comparison
    fields = bytearray(width << ids)
    for number, amount in parts:
        at = number * width
        fields[at : at + width] = (int.from_bytes(fields[at : at + width], "little") + amount).to_bytes(width, "little")
    sums = int.from_bytes(fields, "little")
    for position in range(ids):
        block = width << position
        lacking = int.from_bytes((b"\xff" * block + b"\0" * block) * (1 << (ids - position - 1)), "little")
        sums += (sums & lacking) << 8 * block
    lift = ((1 << (8 * width - 1)) - wanted).to_bytes(width, "little")  # a sum of *wanted* or more sets the top bit
    top = sums + int.from_bytes(lift * (1 << ids), "little")
    leading = top.to_bytes(width << ids, "little")[width - 1 :: width]
    return int(leading.translate(_TOP_BIT)[::-1], 2)


def _complements(family: int, ids: int) -> int:
    """The family of the complements: subset number p becomes 2^ids - 1 - p."""
    return int(format(family, f"0{1 << ids}b")[::-1], 2)


def fold(families: Sequence[int], ids: int, budget: Budget = UNLIMITED) -> int:
    """Every intersection of one subset from each family, including the empty subset if it can occur."""
    result = 1 << ((1 << ids) - 1)
    for family in families:
        result = _intersections(result, family, ids, {}, budget)
    return result


def _intersections(a: int, b: int, ids: int, known: dict[tuple[int, int, int], int], budget: Budget) -> int:
    """{x & y}: split both families by their highest id. If a result lacks that id, at least one of its halves does.

    Families of hints are regular, so equal pairs of parts occur often and their results are cached.
    """
    if not a or not b:
        return 0
    top = 1 << ((1 << ids) - 1)
    if a == top:
        return b
    if b == top:
        return a
    if ids == 1:  # one id, and neither family is that id alone: both have the empty set
        return a & b
    key = (a, b, ids) if a < b else (b, a, ids)
    result = known.get(key)
    if result is None:
        half = 1 << (ids - 1)
        budget.spend(2 + (half >> 10))
        low = (1 << half) - 1
        a0, a1, b0, b1 = a & low, a >> half, b & low, b >> half
        below = ids - 1
        without = _intersections(a0, b0 | b1, below, known, budget) | _intersections(a1, b0, below, known, budget)
        result = without | _intersections(a1, b1, below, known, budget) << half
        known[key] = result
    return result
