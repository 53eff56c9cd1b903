"""Reads documents that people send: JSON, or YAML as Kubernetes reads it.

Rules of this file
- Values are those of JSON: maps with string keys, lists, strings, numbers, booleans, null. Dates stay strings.
- YAML is read from its events, without recursion. Depth and number of values are limited while reading, and the values
  behind an alias count each time it is used. A duplicate key in a map is an error.
- An error names its line and column, and the path of the value if it has one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml
from yaml.events import (
    AliasEvent,
    CollectionEndEvent,
    DocumentStartEvent,
    Event,
    MappingStartEvent,
    ScalarEvent,
    SequenceStartEvent,
)

from extender.wire.errors import NotJSONError, WireError, shown
from extender.wire.validation import load_json

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000
"""Keys and values of YAML, which take about 10 microseconds each. JSON is limited by its size alone."""
MAX_DOCUMENTS: Final = 10_000
MAX_SHOWN_KEY: Final = 64
YAML_MEDIA_TYPES: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT: Final = "tag:yaml.org,2002:str"
_KEPT_AS_TEXT: Final = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value"})
_SCALARS: Final = frozenset({f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str")})
_COLLECTIONS: Final = frozenset({None, "!", "tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"})


class NotYAMLError(WireError):
    """The document is not YAML."""

    def __init__(self, reason: str) -> None:
        super().__init__("", f"not YAML: {reason}")


def read_documents(body: bytes, media_type: str) -> list[object]:
    """The documents in *body*; YAML may contain several. *media_type* as declared by the sender, empty if not declared.

    Declared JSON is read as JSON and declared YAML as YAML. Anything else is read as JSON if possible, else as YAML.

    Raises:
        NotJSONError: it is not JSON.
        NotYAMLError: it was read as YAML, and is not YAML.
        WireError: it exceeds a limit, or has a duplicate key.
    """
    kind = media_type.partition(";")[0].strip().lower()
    if kind in YAML_MEDIA_TYPES:
        return read_yaml_documents(body)
    try:
        return [load_json(body)]
    except NotJSONError:
        if kind.endswith(("/json", "+json")) or body.lstrip()[:1] in (b"", b"{", b"["):
            raise
    return read_yaml_documents(body)


def read_yaml(body: bytes) -> object:
    """The only YAML document in *body*; see `read_yaml_documents`."""
    documents = read_yaml_documents(body)
    if len(documents) != 1:
        raise WireError("", f"one document is expected, not {len(documents)}")
    return documents[0]


def read_yaml_documents(body: bytes) -> list[object]:
    """The YAML documents in *body*. Empty ones are skipped. The limits apply to all documents together.

    Raises:
        NotYAMLError: it is not YAML.
        WireError: it exceeds a limit, or has a duplicate key.
    """
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise NotYAMLError(f"byte {error.start} is not UTF-8") from None
    documents: list[object] = []
    count = 0
    try:
        for number, events in enumerate(_documents(text), start=1):
            if number > MAX_DOCUMENTS:
                raise WireError("", f"more than {MAX_DOCUMENTS:,} documents")
            builder = _DocumentBuilder(count=count)
            document = builder.build(events)
            count = builder.count
            if document is not None:
                documents.append(document)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        raise NotYAMLError(f"{error.problem or error.context}{where}") from None
    except yaml.YAMLError as error:
        raise NotYAMLError(str(error).splitlines()[0]) from None
    return documents


def _documents(text: str) -> Iterator[Iterator[Event]]:
    stream = iter(yaml.parse(text, Loader=_LOADER))
    for event in stream:
        if isinstance(event, DocumentStartEvent):
            yield stream


@dataclass(slots=True)
class _Open:
    """A collection that is being read. `key`: the key whose value comes next; None if a key is expected."""

    value: Any
    path: str
    anchor: str | None
    first: int
    """How many values had been read before it."""
    height: int = 0
    """Its depth, as far as it has been read."""
    key: str | None = None


@dataclass(slots=True)
class _DocumentBuilder:
    """Builds one document from its events."""

    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int, int]] = field(default_factory=dict)
    """The value of an anchor, how many values that is, and how deep they are nested."""
    count: int = 0
    scalars: Any = field(default_factory=lambda: yaml.SafeLoader(""))

    def build(self, events: Iterator[Event]) -> object:
        """Read up to the end of the first node of the document."""
        for event in events:
            if isinstance(event, CollectionEndEvent):
                done = self.stack.pop()
                self._name(done.anchor, done.value, self.count - done.first, done.height + 1)
                if not self.stack:
                    return done.value
                self._deepen(done.height + 1, event)
            elif isinstance(event, MappingStartEvent | SequenceStartEvent):
                self._open(event)
            elif isinstance(event, ScalarEvent):
                value = self._scalar(event)
                self._add(value, event, 1)
                self._name(event.anchor, value, 1, 0)
                if not self.stack:
                    return value
            elif isinstance(event, AliasEvent):
                self._alias(event)
        return None

    def _open(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        if event.tag not in _COLLECTIONS:
            raise WireError(self._path(), f"the tag {shown(event.tag)}{_at(event)} is not known")
        if len(self.stack) >= MAX_DEPTH:
            raise WireError(self._path(), f"nested more than {MAX_DEPTH} deep{_at(event)}")
        value: Any = {} if isinstance(event, MappingStartEvent) else []
        path = self._path()
        first = self.count
        self._add(value, event, 1)
        self.stack.append(_Open(value, path, event.anchor, first))

    def _alias(self, event: AliasEvent) -> None:
        known = self.anchors.get(event.anchor or "")
        if known is None:
            raise WireError(self._path(), f"the alias {shown(event.anchor)}{_at(event)} is not defined")
        value, size, height = known
        self._add(value, event, size)
        self._deepen(height, event)

    def _deepen(self, height: int, event: Event) -> None:
        here = self.stack[-1]
        here.height = max(here.height, height)
        if len(self.stack) + here.height > MAX_DEPTH:
            raise WireError(here.path, f"nested more than {MAX_DEPTH} deep{_at(event)}")

    def _add(self, value: Any, event: Event, size: int) -> None:  # noqa: ANN401 - any value of a document
        """Store a value at the current position."""
        self.count += size
        if self.count > MAX_VALUES:
            raise WireError(self._path(), f"more than {MAX_VALUES:,} values{_at(event)}")
        if not self.stack:
            return
        here = self.stack[-1]
        if isinstance(here.value, list):
            here.value.append(value)
        elif here.key is not None:
            here.value[here.key] = value
            here.key = None
        else:
            here.key = self._key(value, here, event)

    def _key(self, value: object, here: _Open, event: Event) -> str:
        if not isinstance(value, str | int | float | bool):
            raise WireError(here.path, f"{shown(value)}{_at(event)} cannot be a key")
        key = value if isinstance(value, str) else str(value).lower() if isinstance(value, bool) else str(value)
        if key in here.value:
            raise WireError(here.path, f"the key {shown(key)} is a duplicate{_at(event)}")
        return key

    def _name(self, anchor: str | None, value: object, size: int, height: int) -> None:
        if anchor is not None:
            self.anchors[anchor] = value, size, height

    def _path(self) -> str:
        """The path of the next value."""
        if not self.stack:
            return ""
        here = self.stack[-1]
        if isinstance(here.value, list):
            return f"{here.path}[{len(here.value)}]"
        if here.key is None:
            return here.path
        key = here.key[:MAX_SHOWN_KEY]
        return f"{here.path}.{key}" if here.path else key

    def _scalar(self, event: ScalarEvent) -> object:
        tag = event.tag
        if tag in (None, "!"):
            tag = self.scalars.resolve(yaml.ScalarNode, event.value, event.implicit)
        if tag in _KEPT_AS_TEXT:
            tag = _TEXT
        if tag not in _SCALARS:
            raise WireError(self._path(), f"the tag {shown(tag)}{_at(event)} is not known")
        try:
            value = self.scalars.construct_object(yaml.ScalarNode(tag, event.value))
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                value = float(value)  # as the JSON parser does; nothing could write a longer integer
        except (ValueError, KeyError, OverflowError, yaml.YAMLError):
            raise WireError(self._path(), f"{shown(event.value)}{_at(event)} cannot be read") from None
        if isinstance(value, float) and not math.isfinite(value):
            raise WireError(self._path(), f"{shown(event.value)}{_at(event)} is not a number that JSON has")
        return value


def _at(event: Event) -> str:
    return f" in line {event.start_mark.line + 1}" if event.start_mark else ""
