"""Amounts and ids as people read them on a terminal."""

from collections.abc import Sequence
from typing import Final

from rich.text import Text

_BAR: Final = 32
_UNITS: Final = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def amount(size: int) -> str:
    """Bytes for people, to three digits: `29.5Gi`."""
    for unit, name in _UNITS:
        if size >= unit:
            return f"{size / unit:.3g}{name}" if size < 1000 * unit else f"{size // unit}{name}"
    return f"{size}"


def cpus(millicpu: int) -> str:
    """CPUs from thousandths: `1.5 CPUs`."""
    return f"{millicpu / 1000:g} CPU{'' if millicpu == 1000 else 's'}"


def bar(free: int, total: int) -> Text:
    """What is taken of a total, as a bar."""
    taken = round(_BAR * (1 - free / total)) if total else 0
    return Text.assemble(("█" * taken, "blue"), ("░" * (_BAR - taken), "dim"))


def short(resource: str) -> str:
    """A resource without its domain."""
    return resource.rpartition("/")[2]


def ids(numbers: Sequence[int]) -> str:
    """Ids with commas between them."""
    return ",".join(map(str, numbers))
