"""Reads documents that people send: JSON, or YAML as Kubernetes reads it.

Rules of this file
- Values are those of JSON: maps with string keys, lists, strings, numbers, booleans, null. Dates stay strings.
- YAML is read from its events, without recursion. Depth and number of values are limited while reading, and the values
  behind an alias count each time it is used. A duplicate key in a map is an error.
- A merge key (`<<`) adds the keys of other maps that the map itself does not have.
- An error names its line, and the path of the value if it has one.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

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
from extender.wire.parsing import load_json

MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000
"""Keys and values of YAML, which take about 10 microseconds each. JSON is limited by its size alone."""
MAX_DOCUMENTS: Final = 10_000
MAX_NUMBER: Final = 4000
"""Characters of a number. Base 60 (`1:30`) takes a time that grows with their square."""
MAX_SHOWN_KEY: Final = 64
YAML_MEDIA_TYPES: Final = frozenset({"application/yaml", "application/x-yaml", "text/yaml", "text/x-yaml"})
_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT: Final = "tag:yaml.org,2002:str"
_MERGE_TAG: Final = "tag:yaml.org,2002:merge"
_MERGE: Final = object()
"""The key `<<`."""
_KEPT_AS_TEXT: Final = frozenset({"tag:yaml.org,2002:timestamp", "tag:yaml.org,2002:value", _MERGE_TAG})
_SCALARS: Final = frozenset({f"tag:yaml.org,2002:{kind}" for kind in ("null", "bool", "int", "float", "str")})
_NUMBERS: Final = frozenset({"tag:yaml.org,2002:int", "tag:yaml.org,2002:float"})
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
    try:
        return [builder.root for builder in build_documents(text, MAX_VALUES) if builder.root is not None]
    except DocumentError as fault:
        if fault.is_syntax:
            raise NotYAMLError(f"line {fault.line}: {fault}") from None
        raise WireError(fault.path, f"line {fault.line}: {fault}") from None


class DocumentError(Exception):
    """Why a text cannot be read.

    `path`: where the value is, empty for the text as a whole. `is_syntax`: it is not YAML.

    `is_excess`: the text exceeds a limit of this reader, but may be correct. `line` counts from 1.
    """

    def __init__(
        self, reason: str, line: int, path: str = "", *, is_syntax: bool = False, is_excess: bool = False
    ) -> None:
        super().__init__(reason)
        self.is_excess: Final = is_excess
        self.line: Final = line
        self.path: Final = path
        self.is_syntax: Final = is_syntax


def build_documents(
    text: str, max_values: int, *, located: bool = False, skipped_lines: int = 0
) -> Iterator["DocumentBuilder"]:
    """The documents of a text, each in a builder that has read it. *max_values*: limit for all of them together.

    *located*: the builders have the lines of all values, and duplicate keys are no error: the last one is used.
    *skipped_lines*: the lines of the file before the text.

    Raises:
        DocumentError: a document cannot be read.
    """
    count = 0
    try:
        stream = iter(yaml.parse(text, Loader=_LOADER))
        starts = (event for event in stream if isinstance(event, DocumentStartEvent))
        for number, start in enumerate(starts, start=1):
            if number > MAX_DOCUMENTS:
                raise DocumentError(f"more than {MAX_DOCUMENTS:,} documents", _line_of(start) + skipped_lines)
            builder = DocumentBuilder(max_values, count, skipped_lines, {} if located else None)
            builder.build(stream)
            count = builder.count
            yield builder
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line, text.count("\n")) + 1 if mark else 1
        raise DocumentError(str(error.problem or error.context), line + skipped_lines, is_syntax=True) from None
    except yaml.YAMLError as error:
        raise DocumentError(str(error).splitlines()[0], 1 + skipped_lines, is_syntax=True) from None


@dataclass(slots=True)
class _Open:
    """A collection that is being read. `key`: the key whose value comes next; None if a key is expected."""

    value: Any
    path: str
    anchor: str | None
    first: int
    """How many values had been read before this value."""
    height: int = 0
    """The depth of the value, as far as it has been read."""
    key: object = None
    key_line: int = 0
    merged: list[object] = field(default_factory=list)
    """The values of its merge keys."""


class ValueLines(NamedTuple):
    """The line of a value: its own line in a list, the line of its key in a map. Lines count from 1.

    `content_line`: the first line of a string itself; 0 if its lines are not lines of the text, or it is no string.
    """

    line: int
    content_line: int = 0


@dataclass(slots=True)
class DocumentBuilder:
    """Builds one document from its events. `root` and `root_line`: the result. `count`: values read."""

    max_values: int
    count: int
    skipped_lines: int
    lines: dict[tuple[int, object], ValueLines] | None = None
    """The places of all values, by the id of their list or map and their index or key. None: not kept."""
    duplicates: list[tuple[str, int]] = field(default_factory=list)
    """Path and line of each duplicate key, if places are kept."""
    root: object = None
    root_line: int = 1
    stack: list[_Open] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int, int]] = field(default_factory=dict)
    """The value of an anchor, how many values that is, and how deep they are nested."""
    scalars: Any = field(default_factory=lambda: yaml.SafeLoader(""))

    def build(self, events: Iterator[Event]) -> None:
        """Read up to the end of the first node of the document."""
        for event in events:
            if isinstance(event, CollectionEndEvent):
                done = self.stack.pop()
                self._merge(done, event)
                self._name(done.anchor, done.value, self.count - done.first, done.height + 1)
                if self.stack:
                    self._deepen(done.height + 1, event)
            elif isinstance(event, MappingStartEvent | SequenceStartEvent):
                self._open(event)
            elif isinstance(event, ScalarEvent):
                value = self._scalar(event)
                self._add(value, event, 1)
                self._name(event.anchor, value, 1, 0)
            elif isinstance(event, AliasEvent):
                self._alias(event)
            if not self.stack:
                return

    def _fault(self, reason: str, event: Event, path: str | None = None, *, is_excess: bool = False) -> DocumentError:
        return DocumentError(reason, self._line(event), self._path() if path is None else path, is_excess=is_excess)

    def _line(self, event: Event) -> int:
        return _line_of(event) + self.skipped_lines

    def _open(self, event: MappingStartEvent | SequenceStartEvent) -> None:
        if event.tag not in _COLLECTIONS:
            raise self._fault(f"the tag {shown(event.tag)} is not known", event)
        if len(self.stack) >= MAX_DEPTH:
            raise self._fault(f"nested more than {MAX_DEPTH} deep", event, is_excess=True)
        value: Any = {} if isinstance(event, MappingStartEvent) else []
        path = self._path()
        first = self.count
        self._add(value, event, 1)
        self.stack.append(_Open(value, path, event.anchor, first))

    def _alias(self, event: AliasEvent) -> None:
        known = self.anchors.get(event.anchor or "")
        if known is None:
            raise self._fault(f"the alias {shown(event.anchor)} is not defined", event)
        value, size, height = known
        self._add(value, event, size)
        self._deepen(height, event)

    def _deepen(self, height: int, event: Event) -> None:
        here = self.stack[-1]
        here.height = max(here.height, height)
        if len(self.stack) + here.height > MAX_DEPTH:
            raise self._fault(f"nested more than {MAX_DEPTH} deep", event, here.path, is_excess=True)

    def _add(self, value: Any, event: Event, size: int) -> None:  # noqa: ANN401 - any value of a document
        """Store a value at the current position."""
        self.count += size
        if self.count > self.max_values:
            raise self._fault(f"more than {self.max_values:,} values", event, is_excess=True)
        line = self._line(event)
        if not self.stack:
            self.root, self.root_line = value, line
            return
        here = self.stack[-1]
        if isinstance(here.value, list):
            self._keep(here.value, len(here.value), line, event)
            here.value.append(value)
        elif here.key is None:
            here.key, here.key_line = self._key(value, here, event), line
        else:
            key, here.key = here.key, None
            if key is _MERGE:
                here.merged.append(value)
                return
            self._keep(here.value, key, here.key_line, event)
            here.value[key] = value

    def _keep(self, parent: object, key: object, line: int, event: Event) -> None:
        """Keep the place of a value, if places are kept."""
        if self.lines is None:
            return
        content_line = 0
        if isinstance(event, ScalarEvent) and (event.style == "|" or "\n" not in event.value):
            content_line = self._line(event) + (event.style == "|")
        self.lines[id(parent), key] = ValueLines(line, content_line)

    def _merge(self, done: _Open, event: Event) -> None:
        """Add the keys of merged maps. The first map that has a key counts."""
        for merged in done.merged:
            for source in merged if isinstance(merged, list) else [merged]:
                if not isinstance(source, dict):
                    raise self._fault("a merge key needs a map or a list of maps", event, done.path)
                for key in source:
                    if key in done.value:
                        continue
                    done.value[key] = source[key]
                    if self.lines is not None:
                        self.lines[id(done.value), key] = self.lines[id(source), key]

    def _key(self, value: object, here: _Open, event: Event) -> object:
        if value is _MERGE:
            return value
        if not isinstance(value, str | int | float | bool):
            raise self._fault(f"{shown(value)} cannot be a key", event, here.path)
        key = str(value).lower() if isinstance(value, bool) else str(value)
        if key in here.value:
            if self.lines is None:
                raise self._fault(f"the key {shown(key)} is a duplicate", event, here.path)
            self.duplicates.append((path_below(here.path, key), self._line(event)))
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
            return path_below(here.path, len(here.value))
        if here.key is None:
            return here.path
        return path_below(here.path, "<<" if here.key is _MERGE else str(here.key)[:MAX_SHOWN_KEY])

    def _scalar(self, event: ScalarEvent) -> object:
        tag = event.tag
        if tag in (None, "!"):
            tag = self.scalars.resolve(yaml.ScalarNode, event.value, event.implicit)
        here = self.stack[-1] if self.stack else None
        if tag == _MERGE_TAG and here is not None and isinstance(here.value, dict) and here.key is None:
            return _MERGE
        if tag in _KEPT_AS_TEXT:
            tag = _TEXT
        if tag not in _SCALARS:
            raise self._fault(f"the tag {shown(tag)} is not known", event)
        if tag in _NUMBERS and len(event.value) > MAX_NUMBER:
            raise self._fault(
                f"{shown(event.value)} cannot be read: a number of more than {MAX_NUMBER} characters", event
            )
        try:
            value = self.scalars.construct_object(yaml.ScalarNode(tag, event.value))
            if isinstance(value, int) and not -(2**63) <= value < 2**64:
                value = float(value)  # as the JSON parser does; nothing could write a longer integer
        except (ValueError, KeyError, OverflowError, yaml.YAMLError):
            raise self._fault(f"{shown(event.value)} cannot be read", event) from None
        if isinstance(value, float) and not math.isfinite(value):
            raise self._fault(f"{shown(event.value)} is not a number that JSON has", event)
        return value


def _line_of(event: Event) -> int:
    return event.start_mark.line + 1 if event.start_mark else 1


def path_below(path: str, key: object) -> str:
    """The path of a value in the list or map at *path*: `extenders[0].weight`."""
    if isinstance(key, int):
        return f"{path}[{key}]"
    return f"{path}.{key}" if path else str(key)
