"""The values of CEL in device selectors, and how they are compared.

A bool is `bool`, an int `int`, a uint `Uint`, a double `float`, a string `str`, null `None`, a list `tuple`, a map
`dict`, a quantity `Quantity`.
"""

import re
from typing import Any, Final, NamedTuple

from extender.dra.cel_syntax import Uint
from extender.dra.errors import CelError, NotReplayedError
from extender.dra.quantity import Quantity
from extender.kubelet.budget import Budget

_VERSION: Final = re.compile(
    r"(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})\.(0|[1-9]\d{0,17})(?:-([0-9A-Za-z.-]+))?(?:\+([0-9A-Za-z.-]+))?", re.ASCII
)
_PART: Final = re.compile(r"0|[1-9][0-9]{0,17}|[0-9]*[A-Za-z-][0-9A-Za-z-]*")
_NUMBERS: Final = (int, Uint, float)


class Semver(NamedTuple):
    """A version. Versions that differ only in what follows `+` are equal. `order`: sorts before its own release."""

    major: int
    minor: int
    patch: int
    order: tuple[object, ...]


class CelOptional(NamedTuple):
    """An optional value. `items`: one value, or none."""

    items: tuple[object, ...]


class CelType(NamedTuple):
    """What `type()` gives."""

    name: str


class Domains(dict[str, Any]):
    """A map by domain. A domain that is not there is empty, and not `in` the map."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


def kind_of(value: object) -> type:
    """The type of a value; all maps have one type."""
    return dict if isinstance(value, dict) else type(value)


def semver(text: str) -> Semver | None:
    """A version such as 1.2.3-rc.1; None: it is not valid."""
    found = _VERSION.fullmatch(text)
    if found is None:
        return None
    parts = found[4].split(".") if found[4] else []
    if not all(_PART.fullmatch(part) for part in parts) or (found[5] and not all(found[5].split("."))):
        return None
    order = tuple((0, int(part), "") if part.isdecimal() else (1, 0, part) for part in parts)
    return Semver(int(found[1]), int(found[2]), int(found[3]), (0, order) if parts else (1, ()))


def are_equal(left: object, right: object, budget: Budget) -> bool:
    """Whether `left == right`. Numbers of all kinds are compared by value.

    Raises:
        CelError: a version or a quantity on the left is compared with another type.
        BudgetError: they have too many parts.
    """
    budget.spend()
    kinds = kind_of(left), kind_of(right)
    if kinds[0] in _NUMBERS and kinds[1] in _NUMBERS:
        return bool(left == right)
    if kinds[0] in (Semver, Quantity) and kinds[0] is not kinds[1]:
        raise CelError("no such overload")
    if kinds[0] is not kinds[1]:
        return False
    if isinstance(left, Quantity) and isinstance(right, Quantity):
        return left.nano == right.nano
    if isinstance(left, dict) and isinstance(right, dict):
        return left.keys() == right.keys() and all(are_equal(left[key], right[key], budget) for key in left)
    if type(left) is tuple and type(right) is tuple:
        return len(left) == len(right) and all(are_equal(a, b, budget) for a, b in zip(left, right, strict=True))
    if isinstance(left, CelOptional | float):
        raise NotReplayedError("CEL: this comparison")
    return left == right


def has_item(items: tuple[object, ...], wanted: object, budget: Budget) -> bool:
    """Whether the list has the value. Raises NotReplayedError where versions or quantities meet other types."""
    for item in items:
        kinds = {kind_of(item), kind_of(wanted)}
        if len(kinds) > 1 and not kinds.isdisjoint((Semver, Quantity)):
            raise NotReplayedError("CEL: a list of several types")
        if are_equal(item, wanted, budget):
            return True
    return False


def compared(left: object, right: object) -> int:
    """-1, 0 or 1. Raises CelError for values without an order."""
    kinds = kind_of(left), kind_of(right)
    one: Any = left
    two: Any = right
    if kinds[0] is Quantity and kinds[1] is Quantity:
        one, two = one.nano, two.nano
    elif not (all(kind in _NUMBERS for kind in kinds) or (kinds[0] is kinds[1] and kinds[0] in (str, bool, Semver))):
        raise CelError("no such overload")
    return int(one > two) - int(one < two)
