"""The version of a commit, which its git tag gives, in the spellings that package formats need."""

import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from packaging.version import Version

PLACEHOLDER: Final = "0.0.0"
"""Stands in manifests and chart for the version. A release replaces it; an overlay or values name an image's tag."""
BUILD_VARIABLE: Final = "SETUPTOOLS_SCM_PRETEND_VERSION"
"""Gives the version to a build that does not see the repository."""
_PRE: Final = {"a": "alpha", "b": "beta", "rc": "rc"}
_STAMPED: Final = re.compile(rf"(?<![\d.]){re.escape(PLACEHOLDER)}(?![\d.])")


@dataclass(frozen=True, slots=True)
class ReleaseVersion:
    """`python`: as PEP 440 has it, such as 1.2.3rc1. `semantic`: for image tags, Helm and krew, such as 1.2.3-rc.1."""

    python: str
    semantic: str

    @property
    def is_final(self) -> bool:
        """Whether the commit has a tag of a version that is no pre-release."""
        return "-" not in self.semantic


def read_version(python: str) -> ReleaseVersion:
    """From PEP 440: 1.2 -> 1.2.0, 1.2.3rc1 -> 1.2.3-rc.1, 1.2.4.dev5+g0a1b -> 1.2.4-dev.5. Raises InvalidVersion."""
    version = Version(python)
    parts = [".".join(str(number) for number in (*version.release, 0, 0)[:3])]
    if version.pre is not None:
        parts.append(f"{_PRE[version.pre[0]]}.{version.pre[1]}")
    if version.dev is not None:
        parts.append(f"dev.{version.dev}")
    return ReleaseVersion(python, parts[0] + (f"-{'.'.join(parts[1:])}" if parts[1:] else ""))


def version_of(tree: Path) -> ReleaseVersion:
    """The version that a build in *tree* gets: of its tag, see `[tool.hatch.version]` in pyproject.toml."""
    command = [sys.executable, "-m", "hatchling", "version"]
    printed = subprocess.run(command, cwd=tree, capture_output=True, text=True, check=True).stdout
    return read_version(printed.strip())


def stamp(tree: Path, version: ReleaseVersion) -> None:
    """Write the version into the manifests and the chart of *tree*."""
    for folder in ("manifests", "charts"):
        for path in (tree / folder).rglob("*.yaml"):
            text = path.read_text()
            stamped = _STAMPED.sub(version.semantic, text)
            if stamped != text:
                path.write_text(stamped)
