"""The part of CHANGELOG.md about one release."""

import re
from pathlib import Path

from release.version import ReleaseVersion


def notes_of(changelog: Path, version: ReleaseVersion) -> str:
    """The text under `## 1.2.3`, or that under `## Unreleased` if the version is no final one.

    Raises ValueError if there is no such heading.
    """
    heading = version.semantic if version.is_final else "Unreleased"
    found = re.search(rf"^## {re.escape(heading)}\b.*\n((?:(?!## ).*\n?)*)", changelog.read_text(), re.MULTILINE)
    if found is None:
        raise ValueError(f"{changelog.name} has no section '## {heading}': rename '## Unreleased' before you tag")
    return found[1].strip() + "\n"
