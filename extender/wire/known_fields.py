"""The known fields of documents, and the known feature gates: finds what is misspelled, or of a newer version.

`known_fields.toml` has the names of fields. Only the places where a mistake changes an answer are checked.
`feature_gates.toml` has the names of gates and their sources. A kubelet does not start with a gate that it does not
know ("unrecognized feature gate"). The kubelet of OpenShift logs a warning and ignores it.
"""

import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from typing import Any, Final, NamedTuple

from extender.kubelet.rules import gate_fault

MAX_NAME: Final = 64
Known = Mapping[str, object]
"""The fields below each field, by name. None: any field is allowed there."""
_READ: Final = tomllib.loads(files("extender.wire").joinpath("known_fields.toml").read_text())
_RESOURCES: Final = dict.fromkeys(_READ["pod"]["resources"])
_CONTAINER: Final = {**dict.fromkeys(_READ["pod"]["container"]), "resources": _RESOURCES}
POD_SPEC: Final[Known] = {
    **dict.fromkeys(_READ["pod"]["spec"]),
    "resources": _RESOURCES,
    "initContainers": _CONTAINER,
    "containers": _CONTAINER,
}
"""Fields of a pod's spec."""
NRI_OPTIONS: Final[Known] = {
    **dict.fromkeys(_READ["nri"]["options"]),
    "agent": dict.fromkeys(_READ["nri"]["agent"]),
    "cpuClasses": dict.fromkeys(_READ["nri"]["cpu_class"]),
}
"""Fields of the spec of a TopologyAwarePolicy."""


class UnknownField(NamedTuple):
    """`meant`: the known field that is probably meant; "" if none is like it."""

    path: str
    meant: str


def unknown_fields(value: object, known: Known, path: str = "") -> Iterator[UnknownField]:
    """The fields of the value at *path*, and of those below it, that are not *known*; *value* may be a list."""
    listed = [(f"{path}[{i}]", each) for i, each in enumerate(value)] if isinstance(value, list) else [(path, value)]
    for here, each in listed:
        for name, inner in each.items() if isinstance(each, Mapping) else ():
            where = f"{here}.{name[:MAX_NAME]}" if here else name[:MAX_NAME]
            if name not in known:
                near = get_close_matches(name[:MAX_NAME], known, n=1, cutoff=0.6)
                yield UnknownField(where, near[0] if near else "")
            elif isinstance(below := known[name], Mapping):
                yield from unknown_fields(inner, below, where)


MAX_GATE_NAME: Final = 80
_GATES: Final[dict[str, Any]] = tomllib.loads(files("extender.wire").joinpath("feature_gates.toml").read_text())
_NAMES: Final[Sequence[str]] = _GATES["names"].split()
KNOWN_GATES: Final = frozenset(name.rstrip("+-") for name in _NAMES)
_LOCKED: Final = {name[:-1]: name[-1] == "+" for name in _NAMES if name[-1] in "+-"}
_LOCKED_SINCE: Final = 36
_NEEDED_BY: Final[Mapping[str, Sequence[str]]] = _GATES["needed_by"]


def start_fault(gate: str, minor: int, gates: Mapping[str, bool]) -> str | None:
    """The error with which a kubelet with these *gates* does not start; None: it starts, as far as is known."""
    is_on = gates[gate]
    if minor >= _LOCKED_SINCE and _LOCKED.get(gate, is_on) is not is_on:
        return f"cannot set feature gate {gate} to {str(is_on).lower()}, feature is locked to {str(not is_on).lower()}"
    if minor >= _LOCKED_SINCE and not is_on:
        for other in _NEEDED_BY.get(gate, ()):
            if gates.get(other, gates.get("AllBeta", True)):
                return f"{other} is enabled, but depends on features that are disabled: [{gate}]"
    return gate_fault(gate, minor, is_on=is_on)


def unknown_gates(gates: Iterable[str]) -> Iterator[tuple[str, str]]:
    """The gates among *gates* whose names are not known, each with the name that is probably meant, or ""."""
    for gate in sorted(set(gates) - KNOWN_GATES):
        close = get_close_matches(gate[:MAX_GATE_NAME], KNOWN_GATES, n=1, cutoff=0.85)
        yield gate, close[0] if close else ""
