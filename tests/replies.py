"""Reads replies as the type that declares them."""

from typing import TypeVar

import msgspec
import orjson

T = TypeVar("T")


def read_exactly(kind: type[T], content: bytes) -> T:
    """The reply, which has exactly the fields and types of *kind*."""
    found = msgspec.json.decode(content, type=kind)
    assert orjson.loads(msgspec.json.encode(found)) == orjson.loads(content)
    return found
