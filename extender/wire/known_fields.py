"""The known fields of documents. Finds unknown fields: misspelled ones, or fields of a newer version.

`known_fields.toml` has the names. Only the places where a mistake changes an answer are checked.
"""

import tomllib
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib.resources import files
from typing import Final, NamedTuple

MAX_NAME: Final = 64
Known = Mapping[str, object]
"""The fields below each field, by name. None: any field is allowed there."""
_READ: Final = tomllib.loads(files("extender.wire").joinpath("known_fields.toml").read_text())


def _any(names: list[str]) -> Known:
    return dict.fromkeys(names)


_RESOURCES: Final = _any(_READ["pod"]["resources"])
_CONTAINER: Final = {**_any(_READ["pod"]["container"]), "resources": _RESOURCES}
POD_SPEC: Final[Known] = {
    **_any(_READ["pod"]["spec"]),
    "resources": _RESOURCES,
    "initContainers": _CONTAINER,
    "containers": _CONTAINER,
}
"""Fields of a pod's spec."""
NRI_OPTIONS: Final[Known] = {
    **_any(_READ["nri"]["options"]),
    "agent": _any(_READ["nri"]["agent"]),
    "cpuClasses": _any(_READ["nri"]["cpu_class"]),
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
