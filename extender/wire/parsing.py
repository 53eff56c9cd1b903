"""Reads JSON: as declared types with msgspec, or single values without a model. An error names the path of the value.

Types are strict: a number in quotes is not a number, `true` is not 1. Unknown keys are ignored, because a newer writer
may send more. Single values are for hot paths, and where only a few parts of a large object are read.

Managed fields of an object may be nested 10,000 deep. Nothing that this service reads is nested more than `MAX_DEPTH`
deep, and managed fields are not read. So where a text is nested deeper than parsers follow, it is read without them.
The cost is proportional to the bytes, whatever they are.

Quantities become exact integers (`node_exporter.quantity`), within the limits of the API server. As in Kubernetes, a
JSON number is read as its text. Amounts are thousandths of the base unit, rounded up, as the API server stores them. It
cuts an amount above `MOST_UNITS` to `MOST_UNITS`. The kubelet's memory manager refuses such an amount, because it does
not fit into an int64. So it becomes one unit more than `MOST_UNITS` here.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
import orjson

from extender.kubelet.budget import remembered
from extender.kubelet.rules import SWITCHES
from extender.kubelet.sets import MAX_CPU_ID, parse_list
from extender.wire.errors import CapError, NotJSONError, WireError, shown
from node_exporter.quantity import parse_milli as milli_of

T = TypeVar("T")
MAX_PART: Final = 128
"""Characters of a key that the path of an error repeats."""
_STEP: Final = re.compile(r"\[\.\.\.\]|\[(\d+)\]|\.([^.\[`]+)")
_NAMES: Final = {
    "int": "an integer", "float": "a number", "str": "a string", "bool": "true or false", "object": "an object",
    "array": "a list", "null": "null",
}  # fmt: skip
"""The names that msgspec gives to types."""
_EXPECTED: Final = re.compile(r"Expected `([^`]*)`(.*?)(?:, got .*)?")
_MISSING: Final = re.compile(r"Object missing required field `(.*)`")
_UNKNOWN: Final = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


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
        try:
            return decoder.decode(text)
        except msgspec.ValidationError as error:
            raise _fault(str(error), msgspec.json.decode(text), decoder.type).below(field) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise NotJSONError(str(error)) from None


def converted(value: object, kind: type[T], field: str) -> T:
    """The parsed JSON *value* as *kind*. Raises WireError for the first error, with a path that begins with *field*."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        raise _fault(str(error), value, kind).below(field) from None


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
    for named, what in ((_MISSING.fullmatch(reason), "missing"), (_UNKNOWN.fullmatch(reason), "unknown field")):
        if named:
            return WireError(f"{path}.{named[1][:MAX_PART]}" if path else named[1][:MAX_PART], what)
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


MAX_DEPTH: Final = 64
MAX_CUTS: Final = 10_000
"""Values of one object that are replaced by null."""
_MANAGED: Final = b'"managedFields":['
_MAX_MANAGED: Final = 16
"""The most lists of managed fields that are searched for. An object has one."""
_HALF_PAIR: Final = re.compile(rb"((?<!\\)(?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_QUOTE: Final = 2
_CODES: Final = bytes((c in b"[{") + 255 * (c in b"]}") + _QUOTE * (c in b'"') for c in range(256))  # 255 is -1


def load_deep_json(body: bytes) -> object:
    """As `load_json`; where managed fields are nested too deep for it, what is nested deep is null.

    Raises:
        NotJSONError: the text is not JSON.
    """
    try:
        return load_json(body)
    except NotJSONError as error:
        if _MANAGED not in body:
            raise
        try:
            return load_json(repaired(body))
        except WireError:
            raise error from None


def repaired(raw: bytes) -> bytes:
    """The document without managed fields, with null for values that are too deep, and without halves of pairs.

    Raises:
        WireError: too many values are too deep, or brackets do not match.
    """
    raw = _HALF_PAIR.sub(rb"\1\\ufffd", raw)
    at, step, depth = brackets(raw)
    raw = b"".join(_without(raw, list(_managed(raw, at, step, depth))))
    at, step, depth = brackets(raw)
    starts = at[(step == 1) & (depth == MAX_DEPTH + 1)]
    ends = at[(step == -1) & (depth == MAX_DEPTH)]
    if len(starts) != len(ends) or len(starts) > MAX_CUTS:
        raise WireError("", f"{len(starts)} values are nested more than {MAX_DEPTH} deep")
    return b"".join(_without(raw, list(zip(starts.tolist(), ends.tolist(), strict=True))))


def brackets(raw: bytes) -> tuple[Any, Any, Any]:
    """For each bracket outside strings: its place, 1 for opening or -1 for closing, and the depth after it."""
    import numpy as np  # noqa: PLC0415 - a fifth of the time of a command that has no use for it

    plain = raw.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    codes = np.frombuffer(plain.translate(_CODES), np.int8)
    at = np.flatnonzero(codes)
    codes = codes[at]
    counts = (np.cumsum(codes == _QUOTE, dtype=np.int32) & 1 == 0) & (codes != _QUOTE)
    at, step = at[counts], codes[counts]
    return at, step, np.cumsum(step, dtype=np.int32)


def _managed(raw: bytes, at: Any, step: Any, depth: Any) -> Iterator[tuple[int, int]]:  # noqa: ANN401 - arrays
    """Where each list of managed fields begins and ends."""
    found = -1
    for _ in range(_MAX_MANAGED):
        found = raw.find(_MANAGED, found + 1)
        if found < 0:
            return
        place = found + len(_MANAGED) - 1
        i = int(at.searchsorted(place))
        if i < len(at) and at[i] == place and step[i] == 1:
            length = int((depth[i:] < depth[i]).argmax())
            end = int(at[i + length])
            yield place, end
            found = end


def _without(raw: bytes, ranges: list[tuple[int, int]]) -> Iterator[bytes]:
    """The document with null in place of each of *ranges*, which are in order."""
    done = 0
    for start, end in ranges:
        yield raw[done:start]
        yield b"null"
        done = end + 1
    yield raw[done:]


MAX_TEXT: Final = 512
"""Limit on the characters of a name."""
Json = Mapping[str, object]


def object_at(value: object, path: str) -> Json:
    """The object at *path*. Raises WireError if it is missing, or something else."""
    if isinstance(value, dict):
        return value
    raise WireError(path, "missing" if value is None else f"{shown(value)} is not an object")


def optional_object_at(value: object, path: str) -> Json:
    """The object at *path*, empty if it is missing. Raises WireError."""
    return {} if value is None else object_at(value, path)


def list_at(value: object, path: str, most: int) -> list[object]:
    """The list at *path*, empty if it is missing. Raises WireError, and CapError for more than *most* entries."""
    if value is None:
        return []
    if not isinstance(value, list):
        raise WireError(path, f"{shown(value)} is not a list")
    if len(value) > most:
        raise CapError(path, f"{len(value)} entries, more than {most}")
    return value


def text_at(value: object, path: str) -> str:
    """The text at *path*. Raises WireError if it is longer than `MAX_TEXT`, missing, or something else."""
    if not isinstance(value, str):
        raise WireError(path, f"{shown(value)} is not a text")
    if len(value) > MAX_TEXT:
        raise WireError(path, f"{len(value)} characters, more than {MAX_TEXT}")
    return value


def integer_at(value: object, path: str) -> int:
    """The integer at *path*, 0 if it is missing: Go omits it then. Raises WireError."""
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool):
        raise WireError(path, f"{shown(value)} is not an integer")
    return value


def ids_at(text: str, path: str, most: int = MAX_CPU_ID) -> int:
    """The ids of a list such as `0-3,8`, as bits. Raises WireError, also for an id above *most*."""
    try:
        return parse_list(text, most)
    except ValueError as error:
        raise WireError(path, str(error)) from None


def mapping(value: object) -> Json:
    """*value* if it is an object, otherwise an empty one: for what the API server has checked."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """The objects of a list, without anything else in it. Empty if *value* is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []


MOST_UNITS: Final = 2**63 - 1
"""The largest amount of Kubernetes."""
_LONG: Final = 90
"""Limit on the characters of a quantity. No real one is longer."""


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


def unix_seconds(written: object) -> int | None:
    """An RFC 3339 time in whole seconds since 1970. None if it is not valid: pods are then ordered without it."""
    if not isinstance(written, str):
        return None
    try:
        return int(datetime.fromisoformat(written).timestamp())
    except (ValueError, OverflowError):
        return None


def rfc_3339(seconds: int) -> str:
    """The time in the format of the API server."""
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


NO_SWITCHES: Final[Mapping[str, bool]] = {}


def check_switches(switches: Mapping[str, bool], path: str = "rules") -> None:
    """Refuse a switch that the replay does not know: ignoring it would make the replay wrong without any sign.

    Raises:
        WireError: it names the switch and the known ones.
    """
    for name in sorted(set(switches) - SWITCHES):
        raise WireError(f"{path}.{shown(name)[1:-1]}", f"unknown rule; known rules are {', '.join(sorted(SWITCHES))}")


def switches_from_text(text: str) -> dict[str, bool]:
    """Switches in one line, such as `distribute_inside_hint,spread_by_topology=false`. Empty: none.

    Raises:
        ValueError: the form is wrong, or a switch is repeated or unknown.
    """
    switches: dict[str, bool] = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = (word.strip() for word in part.partition("="))
        if (equals and value not in ("true", "false")) or name in switches:
            raise ValueError(f"{part!r}: each switch is NAME, NAME=true or NAME=false, and is given once")
        if name not in SWITCHES:
            raise ValueError(f"{name!r} is not a switch; known are {', '.join(sorted(SWITCHES))}")
        switches[name] = value != "false"
    return switches
