"""Wheels of the packages that the tests run with: what an index would give, without asking one."""

import re
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LEFT_OUT: Final = re.compile(r"kubernetes/(aio|client/(api|models))/.*(?<!__init__\.py)|.*/tests/.*")
"""Files that no program of ours imports, and more than half of what a build compiles."""


def write_wheels(requirements: Iterable[str], target: Path) -> None:
    """A wheel in *target* of each installed package that these need, themselves included; not compressed."""
    todo, done = [Requirement(text) for text in requirements], set[tuple[str, frozenset[str]]]()
    while todo:
        wanted = todo.pop()
        if (key := (canonicalize_name(wanted.name), frozenset(wanted.extras))) in done:
            continue
        done.add(key)
        found = distribution(wanted.name)
        for text in found.requires or ():
            needed = Requirement(text)
            if needed.marker is None or any(needed.marker.evaluate({"extra": e}) for e in ("", *wanted.extras)):
                todo.append(needed)
        _write(found, target)


def _write(package: Distribution, target: Path) -> None:
    tags = [line.partition(": ")[2] for line in (package.read_text("WHEEL") or "").splitlines() if "Tag: " in line]
    parts = zip(*(tag.split("-") for tag in tags), strict=True)
    tag = "-".join(".".join(dict.fromkeys(part)) for part in parts)  # as py2.py3-none-any
    name = f"{canonicalize_name(package.name).replace('-', '_')}-{package.version}-{tag}.whl"
    kept = [path for path in package.files or () if path.parts[0] != ".." and path.suffix != ".pyc"]
    kept = [path for path in kept if not LEFT_OUT.fullmatch(path.as_posix())]
    with zipfile.ZipFile(target / name, "w") as wheel:
        for path in kept:
            wheel.write(str(path.locate()), path.as_posix())
