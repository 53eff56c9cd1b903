"""Splits the body of a report into its fields, before anything creates objects from them.

A parser creates an object for every value, and holds the interpreter's lock meanwhile: two seconds for 16 MiB of `[]`.
Here unknown fields are skipped and known ones stay bytes: 50 milliseconds at most.

Rules of this file
- A part larger than that of any real node is left out, and `left_out` says so. The rest of the report is used.
- The parts that describe the kubelet are read only if they differ from those of an earlier report.
"""

import hashlib
from collections.abc import Mapping
from dataclasses import MISSING, fields
from typing import Any, Final, get_type_hints

import msgspec
import orjson

from extender.wire.errors import WireError
from extender.wire.parsing import decoded
from node_exporter.report import SCHEMA_VERSION, NodeReport, Problem, ReportedKubeletConfig, ReportedMachine, Severity

NRI: Final = "nri"
NRI_VERSION: Final = 1
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
    "problems": _MIB,
    "rules": _MIB // 8,
    NRI: _MIB,
}
"""8,192 CPUs are 200 kB, 16,384 devices 1 MB, a state file with 1,000 pods 300 kB. Any other field: `_MAX_OTHER`."""
_MAX_OTHER: Final = 64 << 10
_EMPTY: Final[Mapping[str, bytes]] = {
    "machine": b'{"cpus":[],"numa":[],"num_sockets":0}',
    "kubelet": b"null",
    "devices": b"null",
    "state": b"{}",
    "pods": b"null",
    "zones": b"[]",
    "problems": b"[]",
    "rules": b"{}",
    NRI: b"null",
}
_NRI_FIXED: Final = ("machine", "config", "config_status", "policy", "release", "grant_fields", "doubts")
"""The parts of the section `nri` from which the policy is made."""
_READ_LATER: Final = frozenset({"machine", "kubelet"})
_NO_MACHINE: Final = ReportedMachine(cpus=(), numa=(), num_sockets=0)


class _Versioned(msgspec.Struct):
    version: object = NRI_VERSION


def _raw(name: str, names: tuple[str, ...]) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(msgspec.defstruct(name, [(each, msgspec.Raw, msgspec.Raw()) for each in names]))


_FIELDS: Final = {field.name: field for field in fields(NodeReport)}
_DECODERS: Final = {name: msgspec.json.Decoder(kind) for name, kind in get_type_hints(NodeReport).items()}
_SPLIT: Final = _raw("ReportFields", tuple(_FIELDS))
_SPLIT_NRI: Final = _raw("NriFields", _NRI_FIXED)
_VERSIONED: Final = msgspec.json.Decoder(_Versioned)


class ReportParts:
    """The fields of a report as JSON. `left_out`: (field, reason) of what is too large."""

    def __init__(self, body: bytes) -> None:
        """Split *body*.

        Raises:
            WireError: not JSON, not an object, or a field that identifies the report is too large.
        """
        self.left_out: Final[list[tuple[str, str]]] = []
        found = decoded(_SPLIT, body)
        self._parts: Final = {
            name: self._limited(name, value) for name in _FIELDS if (value := bytes(getattr(found, name)))
        }

    def _limited(self, name: str, value: bytes) -> bytes:
        """The part, or what stands for it if it is too large."""
        if len(value) <= MAX_BYTES.get(name, _MAX_OTHER):
            return value
        reason = f"{len(value)} bytes, more than {MAX_BYTES.get(name, _MAX_OTHER)}"
        if name not in _EMPTY:
            raise WireError(name, reason)
        self.left_out.append((name, reason))
        return _EMPTY[name]

    def read(self, name: str) -> Any:  # noqa: ANN401 - the type of the field in NodeReport
        """The value of one field. Raises WireError."""
        if name in self._parts:
            return decoded(_DECODERS[name], self._parts[name], name)
        field = _FIELDS[name]
        if field.default_factory is not MISSING:
            return field.default_factory()
        if field.default is MISSING or name == "schema_version":  # the exporter's default says nothing about a report
            raise WireError(name, "missing")
        return field.default

    def leave_out_unknown_nri(self) -> str:
        """Leave out a section of the NRI policy whose version is unknown. Returns why; "" if it is not left out."""
        try:
            version = _VERSIONED.decode(self._parts.get(NRI, b"{}")).version
        except msgspec.DecodeError:
            return ""
        if version == NRI_VERSION:
            return ""
        del self._parts[NRI]
        return f"version {version!r:.40} is not known; this extender reads version {NRI_VERSION}"

    def facts(self) -> NodeReport:
        """The report without `machine` and `kubelet`. Raises WireError, also if its schema version is unknown."""
        if (version := self.read("schema_version")) != SCHEMA_VERSION:
            raise WireError("schema_version", f"{version} is unknown; this extender reads version {SCHEMA_VERSION}")
        values = {name: self.read(name) for name in _FIELDS if name not in _READ_LATER}
        return NodeReport(machine=_NO_MACHINE, kubelet=None, **values)

    def machine(self) -> ReportedMachine:
        """Raises WireError."""
        machine: ReportedMachine = self.read("machine")
        return machine

    def kubelet(self) -> ReportedKubeletConfig | None:
        """Raises WireError."""
        kubelet: ReportedKubeletConfig | None = self.read("kubelet")
        return kubelet

    def kubelet_digest(self, version: str, rules: Mapping[str, bool]) -> str:
        """SHA-256 of all that describes the kubelet, with its *version* and its *rules*."""
        nri = self._parts.get(NRI, b"null")
        if nri.startswith(b"{"):
            section = decoded(_SPLIT_NRI, nri, NRI)
            nri = b"[%b]" % b",".join(bytes(getattr(section, name)) or b"null" for name in _NRI_FIXED)
        fixed = (self._parts.get(name, b"null") for name in ("machine", "kubelet"))
        return hashlib.sha256(b",".join((orjson.dumps([version, dict(rules)]), *fixed, nri))).hexdigest()


SOURCE: Final = "extender"


def problem(path: str, reason: str, severity: Severity = "warning") -> Problem:
    """A problem of the field *path* of a report; "": of the whole report."""
    return Problem(source=SOURCE, path=path, reason=reason, severity=severity)
