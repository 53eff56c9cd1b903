"""Reads files of a node that may be missing, huge, malformed, endless or not regular files, below a given root.

Rules of this file
- No other file of the exporter opens files or lists directories.
- Only regular files are read (the kernel's own in /proc and /sys are regular), without blocking on open, in chunks, up
  to a limit that the caller passes. A FIFO, a device or a directory in place of a file is an error at once.
- Exceeding a limit is an error, never truncated content.
"""

import os
import stat
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import orjson

READ_AT_ONCE_BYTES: Final = 64 << 10
MAX_CREDENTIAL_BYTES: Final = 1 << 20
"""Limit for a token, key, certificate or CA bundle. The trust store of a distribution has 200 to 500 kB."""
MAX_JSON_DEPTH: Final = 32
"""The deepest document of the kubelet has 8 levels."""
MAX_JSON_VALUES: Final = 100_000
"""Values of one JSON document. Each costs 30 to 100 bytes of memory. A device checkpoint has some for each device."""
MAX_YAML_VALUES: Final = 10_000
"""Values of one YAML document. Each costs about 1 kB of memory during parsing. A full KubeletConfiguration has 300."""
MAX_YAML_DEPTH: Final = 32

_KINDS: Final = (
    (stat.S_ISDIR, "a directory"),
    (stat.S_ISFIFO, "a FIFO"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISSOCK, "a socket"),
)


def under(root: Path, path: str) -> Path:
    """The path below `root` of an absolute path on the node."""
    return root / path.lstrip("/")


def read_file(path: Path, limit: int) -> bytes:
    """Read a whole regular file of at most `limit` bytes.

    Raises:
        OSError: it is missing or not readable.
        ValueError: it is not a regular file, or too large.
    """
    return _read(path, limit + 1, at_most=limit)


def read_beginning(path: Path, length: int) -> bytes:
    """Read the first `length` bytes of a regular file, or all of a shorter one. Raises as `read_file`."""
    return _read(path, length, at_most=None)


def read_text(path: Path, limit: int) -> str:
    """Read a file as text. Bytes that are not UTF-8 are replaced. Raises what `read_file` raises."""
    return read_file(path, limit).decode(errors="replace")


def read_token(path: Path) -> str:
    """Read a token without surrounding white space. Raises what `read_file` raises; ValueError if it is not ASCII."""
    return read_file(path, MAX_CREDENTIAL_BYTES).strip().decode("ascii")


@contextmanager
def as_path(content: bytes) -> Iterator[str]:
    """A path from which `content` can be read while the context lasts. OpenSSL reads some things only from paths.

    The content is in memory; nothing is written to a disk.
    """
    handle = os.memfd_create("credential", os.MFD_CLOEXEC)
    with os.fdopen(handle, "wb", buffering=0) as file:
        file.write(content)
        yield f"/proc/self/fd/{handle}"


def list_names(directory: Path, limit: int) -> list[str]:
    """The names in a directory, unordered. Raises OSError, or ValueError if there are more than `limit`."""
    names: list[str] = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if len(names) == limit:
                raise ValueError(f"more than {limit} entries")
            names.append(entry.name)
    return names


def parse_json(content: bytes) -> object:
    """Parse one JSON document of limited size and depth. Raises ValueError."""
    values = content.count(b",") + content.count(b"[") + content.count(b"{")
    if values > MAX_JSON_VALUES:
        raise ValueError(f"more than {MAX_JSON_VALUES} values")
    try:
        document: object = orjson.loads(content)
    except orjson.JSONDecodeError as error:
        raise ValueError(f"not JSON: {describe(error)}") from None
    check_depth(document, MAX_JSON_DEPTH)
    return document


def parse_yaml(content: bytes) -> object:
    """Parse one YAML or JSON document of limited size and depth. Raises ValueError.

    Values and levels are counted before anything is built from them. An alias is refused, because a few lines of
    aliases can name millions of values.
    """
    import yaml  # noqa: PLC0415 - only few nodes need it

    depth = 0
    try:
        for values, event in enumerate(yaml.parse(content, Loader=yaml.SafeLoader)):
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if isinstance(event, yaml.AliasEvent):
                raise ValueError("has an alias (*name), which is not supported: repeat the value")  # noqa: TRY004
            if values > MAX_YAML_VALUES:
                raise ValueError(f"more than {MAX_YAML_VALUES} values")
            if depth > MAX_YAML_DEPTH:
                raise ValueError(f"nested deeper than {MAX_YAML_DEPTH} levels")
        document: object = yaml.safe_load(content)  # not the C loader: 200,000 nested brackets crash it
    except (yaml.YAMLError, RecursionError) as error:
        raise ValueError(describe(error)) from None
    check_depth(document, MAX_YAML_DEPTH)
    return document


def mapping(value: object) -> Mapping[str, Any]:
    """A JSON object of another program; empty if *value* is none."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[Any]:
    """A JSON list of another program; empty if *value* is none."""
    return value if isinstance(value, list) else []


def check_depth(document: object, most: int) -> None:
    """Raises ValueError if maps and lists are nested deeper than `most` levels."""
    level: list[object] = [document]
    for _ in range(most):
        level = [
            value
            for item in level
            if isinstance(item, dict | list)
            for value in (item.values() if isinstance(item, dict) else item)
            if isinstance(value, dict | list)
        ]
        if not level:
            return
    raise ValueError(f"nested deeper than {most} levels")


def is_there(path: Path, is_kind: Callable[[int], bool] = bool) -> bool:
    """Whether there is a file at `path` that we may access, of the kind that *is_kind* accepts."""
    try:
        return is_kind(path.stat().st_mode)
    except OSError:
        return False


def identity(path: Path) -> tuple[int, int] | None:
    """Inode and change time (ns) of the file at `path`. A replaced file has others. None if there is no file."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_ctime_ns


def is_directory(path: Path) -> bool:
    """Whether `path` is a directory that we may access."""
    return is_there(path, stat.S_ISDIR)


def describe(error: Exception) -> str:
    """Describe the error in one short line, without the path, which the caller names."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text[:1000].split())[:200] or type(error).__name__


def _read(path: Path, length: int, *, at_most: int | None) -> bytes:
    """Up to `length` bytes. The file type is checked before opening, because opening a device can have side effects."""
    _check_kind(path.stat().st_mode)
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
    try:
        found = os.fstat(handle)
        _check_kind(found.st_mode)
        if at_most is not None and found.st_size > at_most:
            raise ValueError(f"larger than {at_most} bytes")
        pieces: list[bytes] = []
        left = length
        while left and (piece := os.read(handle, min(left, READ_AT_ONCE_BYTES))):
            pieces.append(piece)
            left -= len(piece)
    finally:
        os.close(handle)
    if at_most is not None and not left:
        raise ValueError(f"larger than {at_most} bytes")
    return b"".join(pieces)


def _check_kind(mode: int) -> None:
    if not stat.S_ISREG(mode):
        raise ValueError(f"not a regular file: {next((name for is_kind, name in _KINDS if is_kind(mode)), 'other')}")
