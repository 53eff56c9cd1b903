"""Hints: what a provider would like, and the order of NUMA masks."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations

Mask = frozenset[int]


@dataclass(frozen=True)
class Hint:
    """A mask (None: any) and whether it is preferred."""

    mask: Mask | None
    preferred: bool


# A provider's answer: resource -> hints; None instead of the list: no preference.
Hints = dict[str, list[Hint] | None]


@lru_cache(maxsize=256)
def _masks(ids: tuple[int, ...]) -> tuple[Mask, ...]:
    return tuple(frozenset(chosen) for size in range(1, len(ids) + 1) for chosen in combinations(ids, size))


def masks_over(ids: Sequence[int]) -> Iterator[Mask]:
    """Every non-empty set of these ids: sizes ascending, inside a size by position."""
    yield from _masks(tuple(ids))


def as_integer(mask: Mask) -> int:
    return sum(1 << node for node in mask)


def narrowness(mask: Mask) -> tuple[int, int]:
    """Sort key: the narrower mask first."""
    return (len(mask), as_integer(mask))
