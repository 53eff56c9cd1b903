"""Kubernetes quantities as exact integers, as far as the exporter needs them: reservations and eviction thresholds.

The extender has its own parser. They share no code, because the exporter imports nothing of the extender.
"""

import re
from decimal import ROUND_CEILING, Decimal

_SCALE = {
    "n": Decimal("1e-9"), "u": Decimal("1e-6"), "m": Decimal("1e-3"), "": Decimal(1),
    "k": Decimal(10**3), "M": Decimal(10**6), "G": Decimal(10**9), "T": Decimal(10**12),
    "P": Decimal(10**15), "E": Decimal(10**18),
    "Ki": Decimal(2**10), "Mi": Decimal(2**20), "Gi": Decimal(2**30), "Ti": Decimal(2**40),
    "Pi": Decimal(2**50), "Ei": Decimal(2**60),
}  # fmt: skip
_QUANTITY = re.compile(r"([+-]?(?:\d{1,24}(?:\.\d{0,24})?|\.\d{1,24}))(?:[eE]([+-]?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)")


def parse_milli(text: str) -> int:
    """Read a quantity as thousandths, rounded up ("500m" is 500, "2" is 2000). Raises ValueError."""
    return _scaled(text, 1000)


def parse_units(text: str) -> int:
    """Read a quantity as whole units or bytes, rounded up ("1Ki" is 1024). Raises ValueError."""
    return _scaled(text, 1)


def format_milli(milli: int) -> str:
    """Write thousandths as a quantity: "2", "1500m"."""
    return str(milli // 1000) if milli % 1000 == 0 else f"{milli}m"


def _scaled(text: str, factor: int) -> int:
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a quantity: {text!r:.60}")
    number, exponent, suffix = match.groups()
    scale = Decimal(10) ** int(exponent) if exponent else _SCALE[suffix or ""]
    return int((Decimal(number) * scale * factor).to_integral_value(rounding=ROUND_CEILING))
