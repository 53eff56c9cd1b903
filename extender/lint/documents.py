"""Reads YAML and JSON files with the line of every value, for messages with a place.

Rules of this file
- A file is untrusted: its size, depth and number of values are limited, aliases are followed once, and a file that
  cannot be read is a `WireError` naming the line.
- Values are what Kubernetes reads: plain maps, lists, strings, numbers, booleans, null.
- A string that is a document itself (a file inside a ConfigMap) can be opened with `nested`, with correct lines.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import yaml
from yaml.constructor import ConstructorError

from extender.wire.errors import WireError, shown

MAX_BYTES: Final = 8 << 20
MAX_DEPTH: Final = 64
MAX_VALUES: Final = 200_000

ENVIRONMENT: Final = "Environment"
"""The kind of an environment file, which is read as if it were a ConfigMap."""

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


@dataclass(frozen=True, slots=True)
class Located:
    """A value of a document. `value` is plain Python data. `line` counts from 1.

    `path` is the place as people write it: `extenders[0].httpTimeout`, empty for the document as a whole.
    """

    value: object
    file: str
    line: int
    path: str = ""
    children: Mapping[str | int, "Located"] = field(default_factory=dict)
    twice: tuple["Located", ...] = ()
    """Values whose key occurred before in this map. The last one is used."""
    first_content_line: int = 0
    """The line of a string's first line; 0 if it is not a string, or its lines are not lines of the file."""

    def get(self, *keys: str | int) -> "Located | None":
        """The value at a path below, or None if there is none."""
        here: Located | None = self
        for key in keys:
            here = here.children.get(key) if here is not None else None
        return here

    def near(self, *keys: str | int) -> "Located":
        """The value at a path below, or the closest existing one."""
        here = self
        for key in keys:
            here = here.children.get(key, here)
        return here

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
        return tuple(found.children.values()) if found is not None and isinstance(found.value, list) else ()

    def entries(self, *keys: str | int) -> Mapping[str, "Located"]:
        """The entries of the map at a path below. Empty if it is not a map."""
        found = self.get(*keys)
        if found is None or not isinstance(found.value, dict):
            return {}
        return {str(key): child for key, child in found.children.items()}

    def walk(self) -> Iterator["Located"]:
        """This value and all values below."""
        yield self
        for child in self.children.values():
            yield from child.walk()


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
    variables: dict[str | int, Located] = {}
    for number, line in enumerate(content.decode(errors="replace").splitlines(), start=1):
        name, equals, value = line.strip().removeprefix("export ").partition("=")
        if equals and not name.startswith("#"):
            variables[name.strip()] = Located(value.strip().strip("'\""), file, number, name.strip())
    data = Located({name: variable.value for name, variable in variables.items()}, file, 1, "data", variables)
    kind = Located(ENVIRONMENT, file, 1, "kind")
    return (Located({"kind": ENVIRONMENT, "data": data.value}, file, 1, "", {"kind": kind, "data": data}),)


def nested(text: Located) -> tuple[Located, ...]:
    """The documents in a string, such as a file in a ConfigMap. Empty if it is not YAML, or only plain text."""
    if not isinstance(text.value, str) or ":" not in text.value:
        return ()
    skip = text.first_content_line - 1 if text.first_content_line else text.line - 1
    try:
        documents = _read(text.value, text.file, skip)
    except WireError:
        return ()
    return tuple(document for document in documents if isinstance(document.value, dict))


def _read(text: str, file: str, skipped_lines: int) -> tuple[Located, ...]:
    builder = _LocatedBuilder(file, skipped_lines)
    try:
        _check_depth(text, file, skipped_lines)
        documents = [builder.build(node) for node in yaml.compose_all(text, Loader=_LOADER)]
    except WireError:
        raise
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = min(mark.line + 1 if mark else 1, text.count("\n") + 1) + skipped_lines
        raise WireError(f"{file}:{line}", f"not YAML: {error.problem or error.context}") from None
    except (yaml.YAMLError, ValueError) as error:
        raise WireError(f"{file}:{skipped_lines + 1}", f"not YAML: {str(error).splitlines()[0]}") from None
    return tuple(document for document in documents if document.value is not None)


def _check_depth(text: str, file: str, skipped_lines: int) -> None:
    """Check the depth before a tree is built: libyaml's composer recurses in C, and crashes on 100,000 "["."""
    depth = 0
    for event in yaml.parse(text, Loader=_LOADER):
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
            if depth > MAX_DEPTH:
                line = event.start_mark.line + 1 if event.start_mark else 1
                raise WireError(f"{file}:{line + skipped_lines}", f"nested more than {MAX_DEPTH} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1


class _LocatedBuilder:
    """Builds located values from PyYAML's nodes."""

    def __init__(self, file: str, skipped_lines: int) -> None:
        self._file, self._skipped, self._count = file, skipped_lines, 0
        self._scalars = yaml.SafeLoader("")

    def build(self, node: yaml.Node | None, path: str = "", depth: int = 0) -> Located:
        """The value of a node. An alias is built again where it is used, within the limit on values."""
        if node is None:
            return Located(None, self._file, self._skipped + 1)
        line = node.start_mark.line + 1 + self._skipped
        self._count += 1
        if self._count > MAX_VALUES:
            raise WireError(f"{self._file}:{line}", f"more than {MAX_VALUES:,} values")
        if depth > MAX_DEPTH:
            raise WireError(f"{self._file}:{line}", f"nested more than {MAX_DEPTH} deep")
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, line, path, depth)
        if isinstance(node, yaml.SequenceNode):
            items: dict[str | int, Located] = {
                i: self.build(item, f"{path}[{i}]", depth + 1) for i, item in enumerate(node.value)
            }
            return Located([item.value for item in items.values()], self._file, line, path, items)
        assert isinstance(node, yaml.ScalarNode)
        content_line = line + 1 if node.style == "|" else line if "\n" not in node.value else 0
        return Located(self._scalar(node, line), self._file, line, path, first_content_line=content_line)

    def _mapping(self, node: yaml.MappingNode, line: int, path: str, depth: int) -> Located:
        entries: dict[str | int, Located] = {}
        merged: dict[str | int, Located] = {}
        twice = []
        for key_node, value_node in node.value:
            key_line = key_node.start_mark.line + 1 + self._skipped
            if not isinstance(key_node, yaml.ScalarNode):
                raise WireError(f"{self._file}:{key_line}", "a key that is not a string")
            key = key_node.value
            child = replace(self.build(value_node, f"{path}.{key}" if path else key, depth + 1), line=key_line)
            if key_node.tag == "tag:yaml.org,2002:merge":
                merged |= child.children
            else:
                if key in entries:
                    twice.append(child)
                entries[key] = child
        entries = merged | entries
        plain = {key: child.value for key, child in entries.items()}
        return Located(plain, self._file, line, path, entries, tuple(twice))

    def _scalar(self, node: yaml.ScalarNode, line: int) -> object:
        try:
            value = self._scalars.construct_object(node)
        except (ConstructorError, ValueError) as error:
            raise WireError(f"{self._file}:{line}", f"{shown(node.value)}: {error}") from None
        return value if isinstance(value, str | int | float | bool | None) else str(node.value)
