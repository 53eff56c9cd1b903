"""Amounts of capacities and counters. Kubernetes writes back the text of an amount that it has not changed."""

from functools import lru_cache
from typing import Final, NamedTuple

from node_exporter.quantity import parse_nano

NANO: Final = 10**9
_MOST: Final = (2**63 - 1) * NANO


class Quantity(NamedTuple):
    """`nano`: billionths of the unit. `text`: as written, or as Kubernetes writes it."""

    nano: int
    text: str


@lru_cache(maxsize=4096)
def quantity(text: str) -> Quantity:
    """Read a quantity such as "40Gi" or "3500m". More than 2**63 - 1 units are that many. Raises ValueError."""
    return Quantity(min(parse_nano(text), _MOST), text)


def whole(units: int) -> Quantity:
    """A computed number of units: 5,368,709,120 is "5Gi", 1,000,000,000 stays "1000000000".

    Source: apimachinery/pkg/api/resource/quantity.go CanonicalizeBytes, with the format BinarySI.
    """
    number, base, names = units, 1024, ("", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei")
    if abs(units) < base:
        base, names = 1000, ("", "k", "M", "G", "T", "P", "E")
    power = 0
    while number and number % base == 0 and power < len(names) - 1:
        number //= base
        power += 1
    return Quantity(units * NANO, f"{number}{names[power]}")
