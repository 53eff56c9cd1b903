"""The names of feature gates: finds misspelled ones, and those with which a kubelet does not start.

`feature_gates.toml` has the names and their sources.

What a kubelet does with a gate that it does not know: it does not start ("unrecognized feature gate"). The kubelet of
OpenShift logs a warning and ignores it.
"""

import difflib
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from typing import Any, Final

from extender.kubelet.rules import gate_fault

_MAX_NAME: Final = 80
_READ: Final[dict[str, Any]] = tomllib.loads(files("extender.wire").joinpath("feature_gates.toml").read_text())
_NAMES: Final[Sequence[str]] = _READ["names"].split()
KNOWN_GATES: Final = frozenset(name.rstrip("+-") for name in _NAMES)
_LOCKED: Final = {name[:-1]: name[-1] == "+" for name in _NAMES if name[-1] in "+-"}
_LOCKED_SINCE: Final = 36
_NEEDED_BY: Final[Mapping[str, Sequence[str]]] = _READ["needed_by"]


def start_fault(gate: str, minor: int, gates: Mapping[str, bool]) -> str | None:
    """The error with which a kubelet does not start because of one of its *gates*; None: none is known."""
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
        close = difflib.get_close_matches(gate[:_MAX_NAME], KNOWN_GATES, n=1, cutoff=0.85)
        yield gate, close[0] if close else ""
