"""Parses the bytes of a watch into its events. Pure. The objects in them stay bytes: see `objects`.

A line that is not an event means that the stream is broken (cut, or not a watch at all): it raises, and the caller
opens another stream at the last resourceVersion it has.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
import orjson

from extender.kube.errors import ApiError, KubeError, status_error
from extender.kube.objects import read_head
from extender.wire.parsing import repaired

MAX_LINE_BYTES: Final = 16 * 1024 * 1024
"""etcd refuses objects above 1.5 MiB. As JSON, with managed fields, the largest are a few times that."""


class BrokenStreamError(KubeError):
    """The stream contains something that is not a watch event."""


@dataclass(frozen=True, slots=True)
class Upsert:
    """ADDED or MODIFIED: the object exists."""

    object: bytes


@dataclass(frozen=True, slots=True)
class Delete:
    """DELETED: the last state of the object."""

    object: bytes


@dataclass(frozen=True, slots=True)
class Bookmark:
    """Up to this resourceVersion nothing has changed except what was already sent."""

    version: str


@dataclass(frozen=True, slots=True)
class Failure:
    """ERROR: the server ends the stream. `error.expired` if it no longer has the history."""

    error: ApiError


WatchEvent = Upsert | Delete | Bookmark | Failure


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


class _Event(msgspec.Struct):
    type: str
    object: msgspec.Raw


_EVENT: Final = msgspec.json.Decoder(_Event)


def parse_events(lines: list[bytes]) -> Iterator[WatchEvent]:
    """The events in *lines*. Unknown event types are skipped.

    Raises:
        BrokenStreamError: a line is not a watch event.
    """
    for line in lines:
        event = _event(line)
        body = bytes(event.object)
        if not body.startswith(b"{"):
            raise BrokenStreamError("a watch line is not a watch event")
        match event.type:
            case "ADDED" | "MODIFIED":
                yield Upsert(body)
            case "DELETED":
                yield Delete(body)
            case "BOOKMARK":
                yield Bookmark(resource_version(read_head(body)))
            case "ERROR":
                yield Failure(_failure(body))


def _event(line: bytes) -> _Event:
    try:
        return _EVENT.decode(line)
    except (ValueError, RecursionError):
        pass
    try:
        return _EVENT.decode(repaired(line))
    except (ValueError, RecursionError) as error:
        raise BrokenStreamError(f"a watch line is not a watch event: {error}") from error


def _failure(body: bytes) -> ApiError:
    try:
        return status_error(orjson.loads(body))
    except orjson.JSONDecodeError as error:
        raise BrokenStreamError(f"a watch line is not a watch event: {error}") from error


def resource_version(value: Mapping[str, Any]) -> str:
    """`metadata.resourceVersion` of an object or a list. Empty if there is none."""
    metadata = value.get("metadata")
    version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
    return version if isinstance(version, str) else ""


def went_back(before: str, now: str) -> bool:
    """Whether *now* is older than *before*: the server has lost history (etcd restored from a backup).

    Versions are compared as numbers, which Kubernetes guarantees from 1.35 and etcd has always provided. Anything else
    is opaque and never older.
    """
    return before.isdecimal() and now.isdecimal() and int(now) < int(before)
