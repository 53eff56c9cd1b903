"""Reads parts of parsed JSON without a model. An error names the path of the part.

For hot paths, and where only a few parts of a large object are read.
"""

from collections.abc import Mapping
from typing import Final

from extender.wire.errors import CapError, WireError, shown

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


def mapping(value: object) -> Json:
    """*value* if it is an object, otherwise an empty one: for what the API server has checked."""
    return value if isinstance(value, dict) else {}


def objects(value: object) -> list[Json]:
    """The objects of a list, without anything else in it. Empty if *value* is not a list."""
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
