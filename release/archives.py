"""Archives with the same bytes for the same content: order, owner, mode and time of entries do not vary."""

import gzip
import hashlib
import io
import tarfile
from pathlib import Path


def pack(folder: Path, prefix: str, target: Path, epoch_seconds: int) -> None:
    """A tar file of everything in *folder*, below *prefix* (may be empty). Compressed if *target* ends in gz.

    Symbolic links stay links.
    """
    with target.open("wb") as file:
        if target.suffix in (".tgz", ".gz"):
            with gzip.GzipFile(fileobj=file, mode="wb", mtime=0, filename="") as packed:
                _write(folder, prefix, packed, epoch_seconds)
        else:
            _write(folder, prefix, file, epoch_seconds)


def _write(folder: Path, prefix: str, file: io.IOBase | gzip.GzipFile, epoch_seconds: int) -> None:
    def plain(entry: tarfile.TarInfo) -> tarfile.TarInfo:
        entry.uid = entry.gid = 0
        entry.uname = entry.gname = ""
        entry.mtime = epoch_seconds
        entry.mode = 0o755 if entry.isdir() or entry.mode & 0o100 else 0o644
        return entry

    with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in sorted(folder.rglob("*")):
            name = path.relative_to(folder).as_posix()
            archive.add(path, f"{prefix}/{name}" if prefix else name, recursive=False, filter=plain)


def sha256(path: Path) -> str:
    """Hexadecimal digest of a file."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
