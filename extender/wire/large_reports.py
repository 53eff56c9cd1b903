"""Large reports, cut down to what is read of them, before anything makes objects of them.

A parser makes an object of every value, and holds the interpreter's lock meanwhile: 16 MiB of `[]` take it two seconds.
Here unknown fields are skipped and known ones are cut out as bytes: 50 milliseconds at most.

Laws of this file
- A report of up to `SMALL` bytes is not touched.
- A part that is larger than any sane node's is left out, and the reader says so. The rest of the report counts.
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
"""Problems of one report that are kept."""

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
    """The report with its known fields only, in JSON, and what was left out of them: (field, reason).

    Raises:
        WireError: not JSON, or no object, or a field is too large that is needed to know whose report this is.
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
    left_out.append(("problems", f"{len(items)} problems; {len(items) - len(kept)} of them are left out"))
    return b"[" + b",".join(kept) + b"]"
