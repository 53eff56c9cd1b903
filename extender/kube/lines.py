"""Parses the bytes of a watch into its events. Pure. The objects in them stay bytes: see `objects`.

A line that is not an event means that the stream is broken (cut, or not a watch at all): it raises, and the caller
opens another stream at the last resourceVersion it has.
"""

from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple

import msgspec
import orjson

from extender.kube.errors import KubeError, status_error
from extender.kube.objects import decoded, mapping, text

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""etcd refuses objects above 1.5 MiB. As JSON, with managed fields, the largest are a few times that."""


class BrokenStreamError(KubeError):
    """The stream contains something that is not a watch event."""


class WatchEvent(NamedTuple):
    """`type`: ADDED or MODIFIED: the object exists; DELETED: `object` is its last state.

    BOOKMARK: up to the resourceVersion of `object` nothing has changed except what was already sent.
    """

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: bytes


class LineReader:
    """Collects bytes and returns complete lines. Holds at most one incomplete line of MAX_LINE_BYTES."""

    def __init__(self, limit: int = MAX_LINE_BYTES) -> None:
        self._limit = limit
        self._rest: list[bytes] = []
        self._size = 0

    def feed(self, data: bytes) -> list[bytes]:
        """The lines that *data* completes, without their line ends. Empty lines are skipped.

        Raises:
            BrokenStreamError: a line is longer than the limit.
        """
        head, newline, tail = data.rpartition(b"\n")
        if not newline:
            self._keep(data)
            return []
        whole = b"".join((*self._rest, head))
        self._rest, self._size = [], 0
        self._keep(tail)
        return [line for line in whole.split(b"\n") if line]

    def _keep(self, data: bytes) -> None:
        self._size += len(data)
        if self._size > self._limit:
            raise BrokenStreamError(f"a watch line is longer than {self._limit} bytes")
        if data:
            self._rest.append(data)


class _WatchLine(msgspec.Struct):
    type: str
    object: msgspec.Raw


_LINE: Final = msgspec.json.Decoder(_WatchLine)


def parse_events(lines: list[bytes]) -> Iterator[WatchEvent]:
    """The events in *lines*. Unknown event types are skipped.

    Raises:
        BrokenStreamError: a line is not a watch event.
        ApiError: an ERROR, with which the server ends the stream; `expired` if it no longer has the history.
    """
    for line in lines:
        try:
            read = decoded(line, _LINE)
            body = bytes(read.object)
            if not body.startswith(b"{"):
                raise BrokenStreamError("a watch line is not a watch event")
            if read.type == "ERROR":
                raise status_error(orjson.loads(body))
        except (ValueError, RecursionError) as error:
            raise BrokenStreamError(f"a watch line is not a watch event: {error}") from error
        match read.type:
            case "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK":
                yield WatchEvent(read.type, body)


def resource_version(value: Mapping[str, Any]) -> str:
    """`metadata.resourceVersion` of an object or a list. Empty if there is none."""
    return text(mapping(value, "metadata"), "resourceVersion")


def went_back(before: str, now: str) -> bool:
    """Whether *now* is older than *before*: the server has lost history (etcd restored from a backup).

    Versions are compared as numbers, which Kubernetes guarantees from 1.35 and etcd has always provided. Anything else
    is opaque and never older.
    """
    return before.isdecimal() and now.isdecimal() and int(now) < int(before)
