"""Reads JSON as declared types with msgspec, and reports errors as `WireError`.

Types are strict: a number in quotes is not a number, `true` is not 1. Unknown keys are ignored, because a newer writer
may send more.
"""

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar

import msgspec
import orjson

from extender.wire.errors import NotJSONError, WireError, shown

T = TypeVar("T")
MAX_PART: Final = 128
"""Characters of a key that the path of an error repeats."""
_STEP: Final = re.compile(r"\[\.\.\.\]|\[(\d+)\]|\.([^.\[`]+)")
_NAMES: Final = {
    "int": "an integer", "float": "a number", "str": "a string", "bool": "true or false", "object": "an object",
    "array": "a list", "null": "null",
}  # fmt: skip
"""What msgspec calls the types."""
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`(.*?)(?:, got .*)?")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")


def load_json(body: bytes) -> object:
    """Parse the JSON text *body*. Raises NotJSONError. Stricter than other parsers: no NaN, no invalid UTF-8."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotJSONError(str(error) if body.strip() else "the text is empty") from None


def decoded(decoder: msgspec.json.Decoder[T], text: bytes | msgspec.Raw, field: str = "") -> T:
    """The value of the JSON *text*, whose path in the whole document is *field*.

    Raises:
        NotJSONError: it is not JSON.
        WireError: a part has another type than declared, or is missing.
    """
    try:
        return decoder.decode(text)
    except msgspec.ValidationError as error:
        raise _fault(str(error), _untyped(text), decoder.type).below(field) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotJSONError(str(error)) from None


def converted(value: object, kind: type[T], field: str) -> T:
    """The parsed JSON *value* as *kind*. Raises WireError for the first error, with a path that begins with *field*."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _fault(str(error), value, kind).below(field) from None


def _untyped(text: bytes | msgspec.Raw) -> object:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotJSONError(str(error)) from None


def _fault(text: str, value: object, kind: Any) -> WireError:  # noqa: ANN401 - any type that msgspec knows
    """The error that msgspec describes in *text*, with the names that msgspec leaves out of its path."""

    def first(part: object) -> str:
        try:
            msgspec.convert(part, kind)
        except msgspec.ValidationError as error:
            return str(error)
        return ""

    reason, _, where = (first(value) or text).partition(" - at `")
    path, found = _located(where, value, first)
    if missing := _MISSING.fullmatch(reason):
        return WireError(f"{path}.{missing[1]}" if path else missing[1], "missing")
    if expected := _EXPECTED.fullmatch(reason):
        kinds = " or ".join(_NAMES.get(kind, kind) for kind in expected[1].split(" | "))
        bound = expected[2].replace("of length <=", "of length at most").replace("of length >=", "of length at least")
        return WireError(path, f"{kinds}{bound} is expected, not {shown(found)}")
    return WireError(path, f"{reason}, not {shown(found)}")


def _located(where: str, value: object, first: Callable[[object], str]) -> tuple[str, object]:
    """The path of a value, and the value. *where*: the path as msgspec writes it, with `[...]` for any key of a map.

    The key is the first one with which the map fails. Half of the keys are tried at a time, because there can be
    thousands. *first*: the first error in a document, "" if there is none.
    """
    wanted = first(value)
    box: list[Any] = [value]
    parent: Any = box
    key: Any = 0
    path = ""
    for step in _STEP.finditer(where):
        here = parent[key] = parent[key].copy()
        parent = here
        if step[1] is not None:
            key, path = int(step[1]), f"{path}[{step[1]}]"
            continue
        key = step[2]
        if key is None:
            items = list(here.items())
            while len(items) > 1:
                here.clear()
                here.update(items[: len(items) // 2])
                items = items[: len(here)] if first(box[0]) == wanted else items[len(here) :]
            here.clear()
            here.update(items)
            key = items[0][0]
        path += f".{str(key)[:MAX_PART]}" if path else str(key)[:MAX_PART]
    return path, parent[key]
