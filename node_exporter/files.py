"""Reading files of a node that may be missing, huge or garbled, below a given root."""

from pathlib import Path


def under(root: Path, path: str) -> Path:
    """The place below `root` of an absolute path on the node."""
    return root / path.lstrip("/")


def read_bounded(path: Path, limit: int) -> bytes:
    """Read a whole file of at most `limit` bytes. Raises OSError, or ValueError if it is larger."""
    with path.open("rb") as file:
        content = file.read(limit + 1)
    if len(content) > limit:
        raise ValueError(f"larger than {limit} bytes")
    return content


def is_there(path: Path) -> bool:
    """Whether something is at `path` that we may know of; what we may not look at counts as absent."""
    try:
        path.stat()
    except OSError:
        return False
    return True


def identity(path: Path) -> tuple[int, int] | None:
    """Inode and time of change (ns) of what is at `path`: another file in its place has another one. None: nothing."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_ctime_ns


def is_hidden(path: Path) -> bool:
    """Whether we may not know what is at `path`."""
    try:
        path.stat()
    except PermissionError:
        return True
    except OSError:
        return False
    return False


def is_directory(path: Path) -> bool:
    """Whether `path` is a directory that we may know of."""
    try:
        return path.is_dir()
    except OSError:
        return False


def describe(error: Exception) -> str:
    """Say in one short line what went wrong, without the path that the caller names anyway."""
    text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return " ".join(text.split())[:200] or type(error).__name__
