"""Kubernetes quantities as exact integers. The extender uses it too.

As in Kubernetes, blanks around a text do not count.
"""

import math
import re
from fractions import Fraction
from typing import Final

_SCALE: Final = {
    "": Fraction(1), "n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000),
    **{unit: Fraction(1000**power) for power, unit in enumerate("kMGTPE", start=1)},
    **{f"{unit}i": Fraction(1024**power) for power, unit in enumerate("KMGTPE", start=1)},
}  # fmt: skip
_QUANTITY: Final = re.compile(
    r"([+-]?(?:\d{1,40}(?:\.\d{0,40})?|\.\d{1,40})(?:[eE][+-]?\d{1,3})?)([numkMGTPE]|[KMGTPE]i)?", re.ASCII
)


def parse_milli(text: str) -> int:
    """Read a quantity as thousandths, rounded up ("500m" is 500, "2" is 2000). Raises ValueError."""
    return _scaled(text, 1000)


def parse_units(text: str) -> int:
    """Read a quantity as whole units or bytes, rounded up ("1Ki" is 1024). Raises ValueError."""
    return _scaled(text, 1)


def parse_nano(text: str) -> int:
    """Read a quantity as billionths, rounded up ("2" is 2,000,000,000). Kubernetes keeps no more. Raises ValueError."""
    return _scaled(text, 10**9)


def format_milli(milli: int) -> str:
    """Write thousandths as a quantity: "2", "1500m"."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _scaled(text: str, factor: int) -> int:
    match = _QUANTITY.fullmatch(text.strip(" "))
    if match is None or (match[2] and "e" in match[1].lower()):
        raise ValueError(f"not a quantity: {text!r:.60}")
    return math.ceil(Fraction(match[1]) * _SCALE[match[2] or ""] * factor)
