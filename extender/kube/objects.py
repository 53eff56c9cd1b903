"""Reads the untrusted JSON of the API server: splits lists and watches into objects, each read by itself. Pure.

The API server passes on what it does not read: managed fields and parameters of claims may be nested 10,000 deep, have
numbers of any size, and half of a surrogate pair. Parsers refuse that, and would refuse the whole list for one object.

Rules of this file
- Objects are split by a parser that skips their content. Where it refuses, they are split by brackets alone.
- An object that cannot be parsed is parsed once more `repaired`, without managed fields and what is nested deep.
- The cost is proportional to the bytes, whatever they are.
- Of the fields of an object, missing values and values of another type read as empty, and nothing raises.
- A line of a watch that is not an event means that the stream is broken (cut, or not a watch at all): it raises, and
  the caller opens another stream at the last resourceVersion it has.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final, Literal, NamedTuple, TypedDict, TypeVar

import msgspec
import orjson

from extender.kube.errors import KubeError, status_error
from extender.wire.errors import WireError
from extender.wire.parsing import MAX_CUTS, brackets, repaired

T = TypeVar("T")
_ITEMS: Final = re.compile(rb'"items"\s*:\s*\Z')

Json = Mapping[str, Any]
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


class ListMetadata(msgspec.Struct):
    """Metadata of a list. `token`: where the next page begins; empty on the last page."""

    version: str = msgspec.field(name="resourceVersion", default="")
    token: str = msgspec.field(name="continue", default="")


class Page(msgspec.Struct):
    """One page of a list."""

    metadata: ListMetadata = msgspec.field(default_factory=ListMetadata)
    items: list[msgspec.Raw] | None = None


Reader = msgspec.json.Decoder[Any]
_NAMES: Final = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
_METADATA: Final = (*_NAMES, "generateName", "labels", "annotations", "ownerReferences")


def _parts(*names: str, total: bool = False, **inner: object) -> Any:  # noqa: ANN401 - a type
    """The type of an object of which these members are read: *names* whole, of the *inner* ones some parts."""
    return TypedDict("Parts", {**dict.fromkeys(names, Any), **inner}, total=total)  # type: ignore[operator]


OBJECT: Final[Reader] = msgspec.json.Decoder(_parts("kind", "spec", "status", metadata=_parts(*_METADATA)))
"""Reads the parts of an object that any reader uses; the other parts are skipped."""
TOPOLOGY: Final[Reader] = msgspec.json.Decoder(
    _parts("kind", "topologyPolicies", "attributes", "zones", metadata=_parts(*_METADATA, "managedFields"))
)
"""Reads the parts of a NodeResourceTopology object that any reader uses."""
WHOLE: Final = msgspec.json.Decoder(dict[str, Any])
"""Reads everything."""
_STATUS: Final = _parts("phase", "reason", "message", "startTime")
_HEADS: Final[tuple[Reader, ...]] = (
    msgspec.json.Decoder(_parts(total=True, metadata=_parts(*_NAMES), spec=_parts("nodeName"), status=_STATUS)),
    msgspec.json.Decoder(_parts(total=True, metadata=_parts(*_NAMES))),
)
_PAGE: Final = msgspec.json.Decoder(Page)


class ObjectName(NamedTuple):
    """What names an object. Each is empty if it is not known."""

    uid: str
    namespace: str
    name: str

    @property
    def path(self) -> str:
        """NAMESPACE/NAME, or the name of an object without a namespace."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name


def name_of(head: Json) -> ObjectName:
    """The names in an object's metadata."""
    metadata = mapping(head, "metadata")
    return ObjectName(*(text(metadata, key) for key in ("uid", "namespace", "name")))


def decoded(raw: bytes | msgspec.Raw, reader: msgspec.json.Decoder[T]) -> T:
    """What *reader* reads of the document, if need be of the repaired one. Raises ValueError, RecursionError."""
    try:
        return reader.decode(raw)
    except (ValueError, RecursionError):
        return reader.decode(repaired(bytes(raw)))


def read_object(raw: bytes | msgspec.Raw, reader: Reader = OBJECT) -> Json:
    """The object's parts. Raises WireError."""
    try:
        return _object(decoded(raw, reader))
    except (ValueError, RecursionError) as error:
        raise WireError("", str(error)) from error


def read_head(raw: bytes | msgspec.Raw) -> Json:
    """As much as can be read of the names, times, node and phase of an object. Empty if nothing can."""
    for is_repaired in (False, True):
        for reader in _HEADS:
            try:
                return _object(reader.decode(repaired(bytes(raw)) if is_repaired else raw))
            except (ValueError, RecursionError):
                continue
    return {}


def read_page(raw: bytes) -> Page:
    """One page of a list, with its objects as bytes. Raises WireError."""
    try:
        return _PAGE.decode(raw)
    except (ValueError, RecursionError):
        pass
    try:
        rest, listed = _split(raw)
        page = _PAGE.decode(rest)
    except (ValueError, RecursionError) as error:
        raise WireError("", str(error)) from error
    page.items = [msgspec.Raw(item) for item in listed]
    return page


def _object(value: object) -> Json:
    if isinstance(value, dict):
        return value
    raise WireError("", "not an object")


def _split(raw: bytes) -> tuple[bytes, list[bytes]]:
    """A list without its items, and the items. Raises WireError."""
    at, step, depth = brackets(raw)
    for i in ((step == 1) & (depth == 2)).nonzero()[0][:MAX_CUTS].tolist():
        start = int(at[i])
        if _ITEMS.search(raw, max(0, start - 64), start) is None:
            continue
        length = int((depth[i:] < depth[i]).argmax())
        within = slice(i + 1, i + length)
        starts = at[within][(step[within] == 1) & (depth[within] == 3)]
        ends = at[within][(step[within] == -1) & (depth[within] == 2)]
        if length == 0 or len(starts) != len(ends):
            break
        listed = [raw[a : b + 1] for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
        return raw[: start + 1] + raw[int(at[i + length]) :], listed
    raise WireError("", "the document is not a list")


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
