"""Sets of CPUs and sets of NUMA nodes.

Rules of this file
- `CPUSet` and `NUMAMask` are different types: a CPU id is never a NUMA id, and mixing them is a type error.
- Both are immutable and compare, hash and sort by value. `.bits` is the raw int (bit i = id i) for inner loops.
- A NUMAMask holds ids 0..63, as the kubelet's own bit mask does.

Mirrors: kubelet `cm/topologymanager/bitmask` and `k8s.io/utils/cpuset`.
"""

from collections.abc import Iterable, Iterator
from typing import Final, Self

MAX_NUMA_ID: Final = 63
"""The largest NUMA id that the kubelet's bit mask can hold."""

MAX_CPU_ID: Final = 65_535
"""Bound on CPU ids in input, so that no document can ask for an enormous int. Linux itself stops at 8192."""


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


class _IdSet:
    """What both set types share; never used by itself."""

    __slots__ = ("bits",)
    max_id: int

    def __init__(self, bits: int = 0) -> None:
        if bits < 0 or bits.bit_length() > self.max_id + 1:
            raise ValueError(f"{type(self).__name__} holds ids 0..{self.max_id}")
        self.bits: Final = bits

    @classmethod
    def of(cls, *ids: int) -> Self:
        """The set of the given ids; raises ValueError for an id out of range."""
        return cls.from_ids(ids)

    @classmethod
    def from_ids(cls, ids: Iterable[int]) -> Self:
        """The set of *ids*; raises ValueError for an id out of range."""
        bits = 0
        for i in ids:
            if not 0 <= i <= cls.max_id:
                raise ValueError(f"id {i} is outside 0..{cls.max_id}")
            bits |= 1 << i
        return cls(bits)

    @property
    def ids(self) -> tuple[int, ...]:
        """The members, ascending."""
        return tuple(iter_bits(self.bits))

    def __iter__(self) -> Iterator[int]:
        return iter_bits(self.bits)

    def __len__(self) -> int:
        return self.bits.bit_count()

    def __bool__(self) -> bool:
        return self.bits != 0

    def __contains__(self, i: object) -> bool:
        return isinstance(i, int) and i >= 0 and bool(self.bits >> i & 1)

    def __eq__(self, other: object) -> bool:
        return type(other) is type(self) and isinstance(other, _IdSet) and other.bits == self.bits

    def __hash__(self) -> int:
        return hash((type(self).__name__, self.bits))

    def __or__(self, other: Self) -> Self:
        return type(self)(self.bits | other.bits)

    def __and__(self, other: Self) -> Self:
        return type(self)(self.bits & other.bits)

    def __sub__(self, other: Self) -> Self:
        return type(self)(self.bits & ~other.bits)

    def __le__(self, other: Self) -> bool:
        """Whether every member is also in *other*."""
        return self.bits & ~other.bits == 0

    def isdisjoint(self, other: Self) -> bool:
        """Whether the two have no member in common."""
        return self.bits & other.bits == 0

    def __str__(self) -> str:
        return format_list(self.bits)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({format_list(self.bits)!r})"


class CPUSet(_IdSet):
    """An immutable set of logical CPU ids."""

    __slots__ = ()
    max_id = MAX_CPU_ID

    @classmethod
    def parse(cls, text: str) -> Self:
        """The set that a Linux list such as `"0-3,8"` names; `""` is the empty set.

        Raises:
            ValueError: the text is no such list, or names an id out of range.
        """
        return cls(parse_list(text))


class NUMAMask(_IdSet):
    """An immutable set of NUMA node ids, 0..63."""

    __slots__ = ()
    max_id = MAX_NUMA_ID


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
        first_text, dash, last_text = part.strip().partition("-")
        last_text = last_text if dash else first_text
        if not (first_text.isascii() and first_text.isdigit() and last_text.isascii() and last_text.isdigit()):
            raise ValueError(f"{part!r} in list {_shorten(text)!r} is neither a number nor a range")
        if len(first_text) > 9 or len(last_text) > 9 or not int(first_text) <= int(last_text) <= max_id:
            raise ValueError(f"{part!r} in list {_shorten(text)!r} is not an ascending range within 0..{max_id}")
        first, last = int(first_text), int(last_text)
        bits |= ((1 << (last - first + 1)) - 1) << first
    return bits


def _shorten(text: str) -> str:
    return text if len(text) <= 60 else text[:57] + "..."
