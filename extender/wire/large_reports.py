"""Reduces large reports to the parts that are read, before anything creates objects from them.

A parser creates an object for every value, and holds the interpreter's lock meanwhile: two seconds for 16 MiB of `[]`.
Here unknown fields are skipped and known ones are copied as bytes: 50 milliseconds at most.

Rules of this file
- A report of up to `SMALL` bytes is not changed.
- A part larger than that of any real node is left out, and a problem says so. The rest of the report is used.
"""

from collections.abc import Mapping
from dataclasses import fields
from typing import Final

import msgspec
import orjson

from extender.wire.errors import NotJSONError, WireError
from node_exporter.report import NodeReport

SMALL: Final = 256 << 10
MAX_PROBLEMS: Final = 200
"""How many problems of one report are kept."""

_MIB: Final = 1 << 20
MAX_BYTES: Final[Mapping[str, int]] = {
    "machine": _MIB // 2,
    "kubelet": _MIB // 8,
    "devices": 3 * _MIB // 2,
    "state": _MIB,
    "pods": _MIB,
    "zones": _MIB,
    "rules": _MIB // 8,
    "nri": _MIB,
}
"""8,192 CPUs are 200 kB, 16,384 devices 1 MB, a state file with 1,000 pods 300 kB. Any other field: `_MAX_OTHER`."""
_MAX_OTHER: Final = 64 << 10
_EMPTY: Final[Mapping[str, object]] = {
    "machine": {"cpus": [], "numa": [], "num_sockets": 0},
    "kubelet": None,
    "devices": None,
    "state": {},
    "pods": None,
    "zones": [],
    "rules": {},
    "nri": None,
}
_NAMES: Final = tuple(field.name for field in fields(NodeReport))
_FIELDS: Final = msgspec.json.Decoder(
    msgspec.defstruct("ReportFields", [(name, msgspec.Raw, msgspec.Raw()) for name in _NAMES])
)
_ITEMS: Final = msgspec.json.Decoder(list[msgspec.Raw])


def cut_down(body: bytes) -> tuple[bytes, list[tuple[str, str]]]:
    """The report with its known fields only, in JSON, and what was left out: (field, reason).

    Raises:
        WireError: not JSON, not an object, or a field that identifies the report is too large.
    """
    if len(body) <= SMALL:
        return body, []
    try:
        found = _FIELDS.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise NotJSONError(str(error)) from None
    parts: list[bytes] = []
    left_out: list[tuple[str, str]] = []
    for name in _NAMES:
        value = bytes(getattr(found, name))
        if not value:
            continue
        if name == "problems":
            value = _first_problems(value, left_out)
        elif len(value) > MAX_BYTES.get(name, _MAX_OTHER):
            reason = f"{len(value)} bytes, more than {MAX_BYTES.get(name, _MAX_OTHER)}"
            if name not in _EMPTY:
                raise WireError(name, reason)
            left_out.append((name, reason))
            value = orjson.dumps(_EMPTY[name])
        parts.append(orjson.dumps(name) + b":" + value)
    return b"{" + b",".join(parts) + b"}", left_out


def _first_problems(value: bytes, left_out: list[tuple[str, str]]) -> bytes:
    try:
        items = _ITEMS.decode(value)
    except msgspec.DecodeError:
        return b"[]" if len(value) > _MAX_OTHER else value
    if len(items) <= MAX_PROBLEMS and len(value) <= _MIB:
        return value
    kept = [bytes(item) for item in items[:MAX_PROBLEMS] if len(item) <= _MIB // MAX_PROBLEMS]
    left_out.append(("problems", f"{len(items)} problems; {len(items) - len(kept)} of them are not listed"))
    return b"[" + b",".join(kept) + b"]"
