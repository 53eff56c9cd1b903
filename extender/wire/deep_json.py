"""JSON with values nested deeper than parsers follow, made readable: without them. Pure.

Managed fields of an object may be nested 10,000 deep. Nothing that this service reads is nested more than `MAX_DEPTH`
deep, and managed fields are not read. The cost is proportional to the bytes, whatever they are.
"""

import re
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from extender.wire.errors import NotJSONError
from extender.wire.typed import load_json

MAX_DEPTH: Final = 64
MAX_CUTS: Final = 10_000
"""Values of one object that are replaced by null."""
_MANAGED: Final = b'"managedFields":['
_MAX_MANAGED: Final = 16
"""Lists of managed fields that are looked for. An object has one."""
_HALF_PAIR: Final = re.compile(rb"((?<!\\)(?:\\\\)*)\\u[dD][89a-fA-F][0-9a-fA-F]{2}")
_CODES: Final = np.zeros(256, np.int8)
_CODES[[*b"[{"]], _CODES[[*b"]}"]], _CODES[[*b'"']] = 1, -1, 2
_QUOTE: Final = 2


class UnreadableError(ValueError):
    """The document is not JSON, not of the expected form, or has more than `MAX_CUTS` values that are too deep."""


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
        except UnreadableError:
            raise error from None


def repaired(raw: bytes) -> bytes:
    """The document without managed fields, with null for values that are too deep, and without halves of pairs.

    Raises:
        UnreadableError: too many values are too deep, or brackets do not match.
    """
    raw = _HALF_PAIR.sub(rb"\1\\ufffd", raw)
    at, step, depth = brackets(raw)
    raw = b"".join(_without(raw, list(_managed(raw, at, step, depth))))
    at, step, depth = brackets(raw)
    starts = at[(step == 1) & (depth == MAX_DEPTH + 1)]
    ends = at[(step == -1) & (depth == MAX_DEPTH)]
    if len(starts) != len(ends) or len(starts) > MAX_CUTS:
        raise UnreadableError(f"{len(starts)} values are nested more than {MAX_DEPTH} deep")
    return b"".join(_without(raw, list(zip(starts.tolist(), ends.tolist(), strict=True))))


def brackets(raw: bytes) -> tuple[Any, Any, Any]:
    """Of each bracket outside strings: its place, 1 if it opens and -1 if it closes, and the depth after it."""
    plain = raw.replace(b"\\\\", b"__").replace(b'\\"', b"__")
    codes = _CODES[np.frombuffer(plain, np.uint8)]
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
        i = int(np.searchsorted(at, place))
        if i < len(at) and at[i] == place and step[i] == 1:
            length = int(np.argmax(depth[i:] < depth[i]))
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
