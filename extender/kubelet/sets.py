"""Sets of ids (CPUs, NUMA nodes, devices) as integers: bit i is set if id i is in the set.

Linux writes such a set as a list: `0-3,8`.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from extender.kubelet.caches import remembered

MAX_NUMA_ID: Final = 63
"""The largest NUMA id that the kubelet's bit mask can hold."""

MAX_CPU_ID: Final = 8191
"""Bound on CPU ids in input, so that no document can ask for an enormous int. It is that of Linux (NR_CPUS 8192)."""

_MAX_RANGE: Final = 19
"""Characters of a range of two ids with 9 digits each."""


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
