"""Quantities and CPU lists as they are written in objects."""

import math
from collections.abc import Iterable
from decimal import Decimal
from functools import lru_cache

from kubernetes.utils import parse_quantity


@lru_cache(maxsize=4096)
def _decimal(text: str) -> Decimal:
    return Decimal(parse_quantity(text))  # type: ignore[no-untyped-call]


def milli(quantity: object) -> int:
    """In thousandths, rounded up: the precision in which quantities are stored."""
    return math.ceil(_decimal(str(quantity)) * 1000)


def whole(quantity: object) -> int:
    """In units, rounded up."""
    return math.ceil(_decimal(str(quantity)))


def parse_cpus(text: str) -> frozenset[int]:
    """Read `0-3,8` as a set."""
    found: set[int] = set()
    for part in text.split(","):
        if part:
            first, _, last = part.partition("-")
            found.update(range(int(first), int(last or first) + 1))
    return frozenset(found)


def format_cpus(cpus: Iterable[int]) -> str:
    """Write a set as `0-3,8`."""
    runs: list[list[int]] = []
    for cpu in sorted(cpus):
        if runs and runs[-1][1] == cpu - 1:
            runs[-1][1] = cpu
        else:
            runs.append([cpu, cpu])
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
