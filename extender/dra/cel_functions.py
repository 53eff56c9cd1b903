"""The functions of CEL in device selectors: of the language, its string extensions, and of Kubernetes.

Each has its result's type and, for each list of argument types, the function. What is not here is not known. Budgets of
steps bound what a function can cost: it is charged before it works.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from extender.dra.cel_syntax import Uint
from extender.dra.cel_values import CelOptional, CelType, Semver, compared, kind_of, semver
from extender.dra.errors import CelError, NotReplayedError
from extender.dra.quantity import NANO, Quantity, quantity
from extender.kubelet.budget import Budget

Overloads: TypeAlias = Mapping[tuple[type, ...], Callable[..., Any]]
ANY: Final = object
"""Stands for a type that is known only when the expression is evaluated."""
_INT64: Final = 2**63
_LOWER: Final[Mapping[int, int]] = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
_UPPER: Final[Mapping[int, int]] = {code: code - 32 for code in range(ord("a"), ord("z") + 1)}
_TYPES: Final = {bool: "bool", int: "int", Uint: "uint", float: "double", str: "string", tuple: "list", dict: "map"}
TYPE_NAMES: Final[Mapping[str, CelType]] = {name: CelType(name) for name in _TYPES.values()}


def integer(value: int) -> int:
    """The value as int. Raises CelError if it has more than 64 bits."""
    if not -_INT64 <= value < _INT64:
        raise CelError("integer overflow")
    return value


def _quantity(text: str) -> Quantity:
    found = _quantity_or_none(text)
    if found is None:
        raise CelError("not a quantity")
    return found


def _quantity_or_none(text: str) -> Quantity | None:
    try:
        return None if " " in text else quantity(text)
    except ValueError:
        return None


def _as_integer(value: Quantity) -> int:
    if not _is_integer(value):
        raise CelError("cannot convert value to integer")
    return value.nano // NANO


def _is_integer(value: Quantity) -> bool:
    return value.nano % NANO == 0 and -_INT64 <= value.nano // NANO < _INT64


def _sum(left: Quantity, right: Quantity | int, sign: int = 1) -> Quantity:
    return Quantity(left.nano + sign * (right.nano if isinstance(right, Quantity) else right * NANO), "")


def _difference(left: Quantity, right: Quantity | int) -> Quantity:
    return _sum(left, right, -1)


def _to_string(value: int) -> str:
    return str(int(value))


def _bool_to_string(value: object) -> str:
    return str(value).lower()


def _not_known(_value: object) -> float:
    raise NotReplayedError("CEL: this conversion")


def _semver(text: str) -> Semver:
    found = semver(text)
    if found is None:
        raise CelError("not a semantic version")
    return found


def _to_integer(value: float | str) -> int:
    if isinstance(value, str):
        if not re.fullmatch(r"[+-]?\d{1,20}", value, re.ASCII):
            raise CelError("type conversion error")
        return integer(int(value))
    if not -_INT64 < value < _INT64:
        raise CelError("integer overflow")
    return int(value)


def _split(text: str, by: str) -> tuple[str, ...]:
    return tuple(text.split(by)) if by else tuple(text)


def _or_value(optional: CelOptional, other: object) -> object:
    return optional.items[0] if optional.items else other


def _type(value: object) -> CelType:
    name = _TYPES.get(kind_of(value))
    if name is None:
        raise NotReplayedError("CEL: this type")
    return TYPE_NAMES[name]


_SAFE_TOKEN: Final = re.compile(
    r"(?P<group>\((?!\?))|(?P<end>\))|(?P<alternative>\|)|(?P<quantifier>[*+?]|\{\d{1,2}(?:,\d{0,2})?\})"
    r"|(?P<atom>[^\\\[\](){}*+?|\x00-\x1f]|\\[dDwWsS]|\\[^\w\s]"
    r"|\[\^?(?:[^\\\[\]&~|\x00-\x1f-]-[^\\\[\]&~|\x00-\x1f-]|[^\\\[\]&~|\x00-\x1f-]|\\[dwsDWS]|\\[^\w\s])+-?\])",
    re.ASCII,
)


def matches(budget: Budget, text: str, pattern: str) -> bool:
    """Whether the pattern, in the syntax of RE2, is found in the text.

    Only patterns that mean the same in Python are known. Python tries alternatives one after the other, so the possible
    number of tries is charged first.
    """
    budget.spend(1 + len(pattern) // 10 + len(text) * len(pattern) // 1000)
    at, choices, depth, before = 0, 0, 0, "start"
    while at < len(pattern):
        token = _SAFE_TOKEN.match(pattern, at)
        kind = token.lastgroup if token else None
        if token is None or (kind == "quantifier" and before != "atom"):
            raise NotReplayedError("CEL: this regular expression")
        choices += kind in ("quantifier", "alternative")
        depth += (kind == "group") - (kind == "end")
        at, before = token.end(), str(kind)
        if depth < 0:
            raise NotReplayedError("CEL: this regular expression")
    if depth or any(ord(character) < ord(" ") for character in text):
        raise NotReplayedError("CEL: this regular expression")
    budget.spend(int(min(1 + (len(text) + 1.0) ** (choices + 1) / 100, 1e9)))
    return re.search(pattern, text, re.ASCII) is not None


MEMBERS: Final[Mapping[str, tuple[type, Overloads]]] = {
    "startsWith": (bool, {(str, str): str.startswith}),
    "endsWith": (bool, {(str, str): str.endswith}),
    "contains": (bool, {(str, str): str.__contains__}),
    "size": (int, {(str,): len, (tuple,): len, (dict,): len}),
    "lowerAscii": (str, {(str,): lambda text: text.translate(_LOWER)}),
    "upperAscii": (str, {(str,): lambda text: text.translate(_UPPER)}),
    "split": (tuple, {(str, str): _split}),
    "isGreaterThan": (bool, {(k, k): lambda a, b: compared(a, b) > 0 for k in (Quantity, Semver)}),
    "isLessThan": (bool, {(k, k): lambda a, b: compared(a, b) < 0 for k in (Quantity, Semver)}),
    "compareTo": (int, {(k, k): compared for k in (Quantity, Semver)}),
    "asInteger": (int, {(Quantity,): _as_integer}),
    "isInteger": (bool, {(Quantity,): _is_integer}),
    "asApproximateFloat": (float, {(Quantity,): lambda value: value.nano / NANO}),
    "add": (Quantity, {(Quantity, Quantity): _sum, (Quantity, int): _sum}),
    "sub": (Quantity, {(Quantity, Quantity): _difference, (Quantity, int): _difference}),
    "major": (int, {(Semver,): lambda version: version.major}),
    "minor": (int, {(Semver,): lambda version: version.minor}),
    "patch": (int, {(Semver,): lambda version: version.patch}),
    "hasValue": (bool, {(CelOptional,): lambda optional: bool(optional.items)}),
    "orValue": (ANY, {(CelOptional, ANY): _or_value}),
}  # fmt: skip
"""TARGET.NAME(ARGS); the target is the first argument."""
GLOBALS: Final[Mapping[str, tuple[type, Overloads]]] = {
    "size": MEMBERS["size"],
    "quantity": (Quantity, {(str,): _quantity}),
    "isQuantity": (bool, {(str,): lambda text: _quantity_or_none(text) is not None}),
    "sign": (int, {(Quantity,): lambda value: (value.nano > 0) - (value.nano < 0)}),
    "semver": (Semver, {(str,): _semver}),
    "isSemver": (bool, {(str,): lambda text: semver(text) is not None}),
    "int": (int, {(int,): int, (Uint,): lambda value: integer(int(value)), (float,): _to_integer, (str,): _to_integer}),
    "double": (float, {(int,): float, (Uint,): float, (float,): float, (str,): _not_known}),
    "string": (str, {(str,): str, (int,): str, (Uint,): _to_string, (bool,): _bool_to_string,
                     (float,): _not_known}),
    "type": (CelType, {(ANY,): _type}),
    "dyn": (ANY, {(ANY,): lambda value: value}),
}  # fmt: skip
"""NAME(ARGS)."""


def call(overloads: Overloads, args: tuple[object, ...], budget: Budget) -> object:
    """The result of a function. Raises CelError, also where no overload fits."""
    budget.spend(1 + sum(_size(each) for each in args))
    kinds = tuple(kind_of(each) for each in args)
    for wanted, function in overloads.items():
        if len(wanted) == len(kinds) and all(want in (ANY, kind) for want, kind in zip(wanted, kinds, strict=True)):
            return function(*args)
    raise CelError("no such overload")


def _size(value: object) -> int:
    return len(value) if isinstance(value, tuple | dict) else len(value) // 10 if isinstance(value, str) else 0
