"""Reads YAML and JSON files with the line of every value, for messages with a place.

Rules of this file
- A file is untrusted: its size, depth and number of values are limited, and a file that cannot be read is a
  `WireError` that names the line.
- Values are those of `wire.documents`, with one difference: a duplicate key is a finding and not an error.
- A string that is a document itself (a file inside a ConfigMap) can be opened with `nested`, with correct lines.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from extender.wire.documents import DocumentError, ValueLines, build_documents, path_below
from extender.wire.errors import WireError

MAX_BYTES: Final = 8 << 20
MAX_VALUES: Final = 400_000
"""Limit on the keys and values of one file."""

ENVIRONMENT: Final = "Environment"
"""The kind of an environment file, which is read as if it were a ConfigMap."""


@dataclass(frozen=True, slots=True)
class Located:
    """A value of a document. `value` is plain Python data. `line` counts from 1.

    `path` is the place as people write it: `extenders[0].httpTimeout`, empty for the document as a whole.
    """

    value: object
    file: str
    line: int
    path: str = ""
    places: Mapping[tuple[int, object], ValueLines] = field(default_factory=dict)
    """The places of all values of the document: see `DocumentBuilder.lines`."""
    duplicates: Sequence[tuple[str, int]] = ()
    """Path and line of each duplicate key of the document. The last value is used."""
    content_line: int = 0
    """The line of a string's first line; 0 if it is not a string, or its lines are not lines of the file."""

    def get(self, *keys: str | int) -> "Located | None":
        """The value at a path below, or None if there is none."""
        here: Located | None = self
        for key in keys:
            here = here.child(key) if here is not None else None
        return here

    def near(self, *keys: str | int) -> "Located":
        """The value at a path below, or the closest existing one."""
        here = self
        for key in keys:
            here = here.child(key) or here
        return here

    def child(self, key: str | int) -> "Located | None":
        """The value of a key of a map, or at an index of a list. None if there is none."""
        place = self.places.get((id(self.value), key))
        if place is None:
            return None
        parent: Any = self.value  # a list or a map: only these have places below
        path = path_below(self.path, key)
        return replace(self, value=parent[key], line=place.line, path=path, content_line=place.content_line)

    def plain(self, *keys: str | int) -> object:
        """The plain value at a path below, None if there is none."""
        found = self.get(*keys)
        return None if found is None else found.value

    def text(self, *keys: str | int) -> str:
        """The string at a path below, empty if there is none."""
        value = self.plain(*keys)
        return value if isinstance(value, str) else ""

    def items(self, *keys: str | int) -> Sequence["Located"]:
        """The entries of the list at a path below. Empty if it is not a list."""
        found = self.get(*keys)
        if found is None or not isinstance(found.value, list):
            return ()
        return tuple(found.near(i) for i in range(len(found.value)))

    def entries(self, *keys: str | int) -> Mapping[str, "Located"]:
        """The entries of the map at a path below. Empty if it is not a map."""
        found = self.get(*keys)
        if found is None or not isinstance(found.value, dict):
            return {}
        return {key: found.near(key) for key in found.value}


def read_documents(content: bytes, file: str) -> tuple[Located, ...]:
    """All non-empty documents of a file.

    Raises:
        WireError: not UTF-8, not YAML, or over a limit. `field` is `FILE:LINE`.
    """
    if len(content) > MAX_BYTES:
        raise WireError(f"{file}:1", f"larger than {MAX_BYTES >> 20} MiB")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise WireError(f"{file}:{content[: error.start].count(10) + 1}", "not UTF-8") from None
    return _read(text, file, 0)


def read_environment(content: bytes, file: str) -> tuple[Located, ...]:
    """The NAME=VALUE lines of an environment file. Empty lines, comments and `export` are skipped."""
    data: dict[str, str] = {}
    document = {"kind": ENVIRONMENT, "data": data}
    places: dict[tuple[int, object], ValueLines] = {(id(document), key): ValueLines(1) for key in document}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            data[name.strip()] = value.strip().strip("'\"")
            places[id(data), name.strip()] = ValueLines(number)
    return (Located(document, file, 1, places=places),)


def nested(text: Located) -> tuple[Located, ...]:
    """The documents in a string, such as a file in a ConfigMap. Empty if it is not YAML, or only plain text."""
    if not isinstance(text.value, str) or ":" not in text.value:
        return ()
    skip = text.content_line - 1 if text.content_line else text.line - 1
    try:
        documents = _read(text.value, text.file, skip)
    except WireError:
        return ()
    return tuple(document for document in documents if isinstance(document.value, dict))


def _read(text: str, file: str, skipped_lines: int) -> tuple[Located, ...]:
    try:
        builders = build_documents(text, MAX_VALUES, located=True, skipped_lines=skipped_lines)
        return tuple(
            Located(each.root, file, each.root_line, places=each.lines or {}, duplicates=each.duplicates)
            for each in builders
            if each.root is not None
        )
    except DocumentError as fault:
        raise WireError(f"{file}:{fault.line}", f"not YAML: {fault}" if fault.is_syntax else str(fault)) from None
