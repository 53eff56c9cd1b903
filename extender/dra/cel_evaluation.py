"""The operators, fields and loops of CEL, evaluated. Each charges its steps first. An error is a `CelError`."""

import math
from collections.abc import Callable, Mapping
from operator import add, mul, sub
from typing import Any, Final, NamedTuple, TypeAlias

from extender.dra.cel_functions import integer, matches
from extender.dra.cel_syntax import Uint
from extender.dra.cel_values import CelOptional, are_equal, compared, has_item, kind_of
from extender.dra.errors import CelError, NotReplayedError
from extender.kubelet.budget import Budget

NUMERIC: Final = (int, Uint, float)
_ARITHMETIC: Final[Mapping[str, Callable[[Any, Any], Any]]] = {"_+_": add, "_-_": sub, "_*_": mul}


class Frame(NamedTuple):
    """The variables of an evaluation, and its steps."""

    names: Mapping[str, object]
    budget: Budget


Evaluate: TypeAlias = Callable[[Frame], object]


def with_name(frame: Frame, name: str, value: object) -> Frame:
    """The frame with one more variable."""
    return Frame({**frame.names, name: value}, frame.budget)


def as_bool(value: object) -> bool:
    """The value, which has to be a bool."""
    if isinstance(value, bool):
        return value
    raise CelError("no such overload")


def logical(frame: Frame, left: Evaluate, right: Evaluate, *, decides: bool) -> bool:
    """`||` if true decides, `&&` if false does. An error counts only if the other side does not decide."""
    frame.budget.spend()
    try:
        if as_bool(left(frame)) is decides:
            return decides
    except CelError:
        if as_bool(right(frame)) is decides:
            return decides
        raise
    return as_bool(right(frame))


def quantified(frame: Frame, variable: str, items: object, body: Evaluate, *, decides: bool) -> bool:
    """`exists` if true decides, `all` if false does, over a list or the keys of a map.

    An error counts only if no item decides.
    """
    if not isinstance(items, tuple | dict):
        raise CelError("no such overload")
    error: CelError | None = None
    for item in items:
        frame.budget.spend(len(frame.names) + 1)
        try:
            if as_bool(body(with_name(frame, variable, item))) is decides:
                return decides
        except CelError as fault:
            error = fault
    if error is not None:
        raise error
    return not decides


def list_of(frame: Frame, parts: list[Evaluate]) -> tuple[object, ...]:
    """A list that is written out."""
    frame.budget.spend(len(parts))
    return tuple(part(frame) for part in parts)


def map_of(frame: Frame, pairs: list[tuple[Evaluate, Evaluate]]) -> dict[Any, object]:
    """A map that is written out. Its keys are texts."""
    frame.budget.spend(len(pairs))
    found: dict[Any, object] = {}
    for key, value in pairs:
        name = key(frame)
        if not isinstance(name, str) or name in found:
            raise NotReplayedError("CEL: keys of this map")
        found[name] = value(frame)
    return found


def item_at(operand: object, key: object, frame: Frame) -> Any:  # noqa: ANN401 - any value
    """The field, the value of the key, or the item at the index."""
    frame.budget.spend()
    if isinstance(operand, dict):
        if not isinstance(key, str):
            raise CelError("no such key")
        try:
            return operand[key]
        except KeyError:
            raise CelError(f"no such key: {key[:64]}") from None
    if type(operand) is tuple and type(key) is int:
        if not 0 <= key < len(operand):
            raise CelError("index out of bounds")
        return operand[key]
    if isinstance(operand, CelOptional) or (type(operand) is tuple and kind_of(key) in NUMERIC):
        raise NotReplayedError("CEL: a part of this value")
    raise CelError("no such overload")


def optional_at(operand: object, key: object, frame: Frame) -> CelOptional:
    """The same as an optional value, which is empty where nothing is there."""
    if isinstance(operand, CelOptional):
        return optional_at(operand.items[0], key, frame) if operand.items else operand
    frame.budget.spend()
    if isinstance(operand, dict) and isinstance(key, str):
        return CelOptional((operand[key],) if key in operand else ())
    if type(operand) is tuple and type(key) is int:
        return CelOptional(operand[key : key + 1] if key >= 0 else ())
    raise CelError("no such overload")


def has_field(operand: object, field: str) -> bool:
    """Whether a map has the field."""
    if not isinstance(operand, dict):
        raise CelError("no such overload")
    return field in operand


def is_in(frame: Frame, item: object, items: object) -> bool:
    """Whether a list has the item, or a map the key."""
    if isinstance(items, dict):
        return isinstance(item, str) and item in items
    if type(items) is not tuple:
        raise CelError("no such overload")
    return has_item(items, item, frame.budget)


def equal(frame: Frame, left: object, right: object) -> bool:
    """Whether they are equal."""
    return are_equal(left, right, frame.budget)


def ordered(frame: Frame, left: object, right: object) -> int:
    """-1, 0 or 1: which of them is less."""
    frame.budget.spend()
    if kind_of(left) not in (*NUMERIC, str, bool):
        raise CelError("no such overload")
    return compared(left, right)


def pattern_matches(frame: Frame, text: object, pattern: object) -> bool:
    """Whether the pattern is found in the text."""
    if not isinstance(text, str) or not isinstance(pattern, str):
        raise CelError("no such overload")
    return matches(frame.budget, text, pattern)


def is_included(frame: Frame, value: object, wanted: object) -> bool:
    """Whether a list has the value, or is it: for attributes that are a list or not."""
    return has_item(value if type(value) is tuple else (value,), wanted, frame.budget)


def negative(value: object) -> object:
    """The negative of a number."""
    if type(value) is int:
        return integer(-value)
    if isinstance(value, float):
        return -value
    raise CelError("no such overload")


def arithmetic(frame: Frame, name: str, left: Any, right: Any) -> object:  # noqa: ANN401 - any value
    """The result of an operator on numbers, texts or lists."""
    kind = kind_of(left)
    frame.budget.spend(1 + (len(left) + len(right) if kind in (str, tuple) and kind is kind_of(right) else 0))
    if kind is not kind_of(right) or kind not in (int, Uint, float, str, tuple):
        raise CelError("no such overload")
    if kind is Uint or (kind is float and name in ("_/_", "_%_")):
        raise NotReplayedError("CEL: arithmetic of this type")
    if name in ("_/_", "_%_") and kind is int:
        if right == 0:
            raise CelError("division by zero" if name == "_/_" else "modulus by zero")
        quotient = abs(left) // abs(right) * (1 if (left < 0) == (right < 0) else -1)
        return integer(quotient) if name == "_/_" else left - quotient * right
    if name not in _ARITHMETIC or (kind in (str, tuple) and name != "_+_"):
        raise CelError("no such overload")
    found = _ARITHMETIC[name](left, right)
    if kind is float and not math.isfinite(found):
        raise NotReplayedError("CEL: a number that is not finite")
    return integer(found) if kind is int else found
