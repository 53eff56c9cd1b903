"""Converts Kubernetes quantities to exact integers.

The official client's parser does the arithmetic. The grammar is checked first, because that parser also accepts `NaN`
and `1K`. As in Kubernetes, a JSON number is read as its text, and blanks around a text do not count. Amounts are
thousandths of the base unit, rounded up, as the API server stores them. It cuts an amount above `MOST_UNITS` to
`MOST_UNITS`. The kubelet's memory manager refuses that too, because the parsed quantity is not held as an int64. So
such an amount becomes one unit more than `MOST_UNITS` here.
"""

import re
from decimal import ROUND_CEILING, Decimal
from typing import Final

from kubernetes.utils.quantity import parse_quantity

from extender.kubelet.caches import remembered
from extender.wire.errors import WireError, shown

MOST_UNITS: Final = 2**63 - 1
"""The largest amount of Kubernetes."""
_GRAMMAR: Final = re.compile(
    r"\+?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[numkMGTPE]|[KMGTPE]i|[eE][+-]?\d{1,3})?\Z", re.ASCII
)
_LONG: Final = 90
"""Characters. No quantity is longer."""
_EXPONENT: Final = re.compile(r"[eE][+-]?\d+\Z")


def parse_milli(value: object, field: str) -> int:
    """A quantity (a string, or a JSON number) as thousandths, rounded up. More than `MOST_UNITS` become one unit more.

    Source: apimachinery/pkg/api/resource/quantity.go, UnmarshalJSON.

    Raises:
        WireError: it does not parse, is negative, or is not a string or number; names *field*.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return min(value, MOST_UNITS + 1) * 1000
    if isinstance(value, str | float):
        milli = _parse_text(value.strip(" ") if isinstance(value, str) else repr(value))
        if milli is not None:
            return milli
    raise WireError(field, f"{shown(value)} is not a quantity such as 500m, 4 or 2Gi (not negative)")


def parse_whole(value: object, field: str) -> int:
    """A quantity as whole units (bytes, pages, devices), rounded up. Raises WireError as `parse_milli`."""
    return -(-parse_milli(value, field) // 1000)


@remembered(4096, 0, lambda text: len(text) > _LONG)
def _parse_text(text: str) -> int | None:
    if not _GRAMMAR.match(text):
        return None
    amount = Decimal(text) if _EXPONENT.search(text) else parse_quantity(text)  # type: ignore[no-untyped-call]
    return min(int((amount * 1000).to_integral_value(ROUND_CEILING)), (MOST_UNITS + 1) * 1000)
