"""Reads untrusted JSON objects: missing values and values of another type read as empty, and nothing raises."""

from collections.abc import Mapping
from typing import Any, Final

_EMPTY: Final[Mapping[str, Any]] = {}


def mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The object under *name*. Empty if there is none."""
    found = value.get(name)
    return found if isinstance(found, dict) else _EMPTY


def items(value: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    """The objects of the list under *name*. Empty if there is none."""
    found = value.get(name)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: Mapping[str, Any], name: str) -> str:
    """The string under *name*. Empty if there is none."""
    found = value.get(name)
    return found if isinstance(found, str) else ""


def integer(value: Mapping[str, Any], name: str, default: int = 0) -> int:
    """The integer under *name*. *default* if there is none."""
    found = value.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) else default


def strings(value: Mapping[str, Any], name: str) -> dict[str, str]:
    """The string-to-string object under *name*; entries of other types are left out."""
    return {k: v for k, v in mapping(value, name).items() if isinstance(v, str)}


def texts(value: Mapping[str, Any], name: str) -> tuple[str, ...]:
    """The strings of the list under *name*; entries of other types are left out."""
    found = value.get(name)
    return tuple(item for item in found if isinstance(item, str)) if isinstance(found, list) else ()
