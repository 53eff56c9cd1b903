"""Converts Kubernetes quantities to exact integers (`node_exporter.quantity`), within the limits of the API server.

As in Kubernetes, a JSON number is read as its text. Amounts are thousandths of the base unit, rounded up, as the API
server stores them. It cuts an amount above `MOST_UNITS` to `MOST_UNITS`. The kubelet's memory manager refuses that too,
because the parsed quantity is not held as an int64. So such an amount becomes one unit more than `MOST_UNITS` here.
"""

from typing import Final

from extender.kubelet.caches import remembered
from extender.wire.errors import WireError, shown
from node_exporter.quantity import parse_milli as milli_of

MOST_UNITS: Final = 2**63 - 1
"""The largest amount of Kubernetes."""
_LONG: Final = 90
"""Characters. No quantity is longer."""


def parse_milli(value: object, field: str) -> int:
    """A quantity (a string, or a JSON number) as thousandths, rounded up. More than `MOST_UNITS` become one unit more.

    Source: apimachinery/pkg/api/resource/quantity.go, UnmarshalJSON.

    Raises:
        WireError: it does not parse, is negative, or is not a string or number; names *field*.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return min(value, MOST_UNITS + 1) * 1000
    if isinstance(value, str | float):
        milli = _parse_text(value if isinstance(value, str) else repr(value))
        if milli is not None:
            return milli
    raise WireError(field, f"{shown(value)} is not a quantity such as 500m, 4 or 2Gi (not negative)")


def parse_whole(value: object, field: str) -> int:
    """A quantity as whole units (bytes, pages, devices), rounded up. Raises WireError as `parse_milli`."""
    return -(-parse_milli(value, field) // 1000)


@remembered(4096, 0, lambda text: len(text) > _LONG)
def _parse_text(text: str) -> int | None:
    try:
        milli = milli_of(text)
    except ValueError:
        return None
    return None if text.lstrip(" ").startswith("-") else min(milli, (MOST_UNITS + 1) * 1000)
