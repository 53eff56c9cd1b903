"""The software bill of materials: CycloneDX, of the distributions that both programs install, made by cyclonedx-bom.

It describes the environment that `make release` runs in, which has the versions of constraints.txt, as the images do.
The packages of the images' base are not in it.
"""

import shutil
import subprocess
import sys
import zipfile
from email import message_from_bytes
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS: Final = ("server", "exporter", "tracing")


def required(wheel: Path, extras: tuple[str, ...]) -> set[str]:
    """Normalised names of all distributions that the wheel requires with *extras*, and that those require."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        own = message_from_bytes(archive.read(name)).get_all("Requires-Dist", [])
    found: set[str] = set()
    todo = [(own, extras)]
    while todo:
        requires, wanted = todo.pop()
        for requirement in map(Requirement, requires):
            marker = requirement.marker
            if marker is None or any(marker.evaluate({"extra": extra}) for extra in (*wanted, "")):
                name = canonicalize_name(requirement.name)
                if name not in found:
                    todo.append((distribution(name).requires or [], tuple(requirement.extras)))
                found.add(name)
    return found


def write_sbom(wheel: Path, target: Path, work: Path) -> None:
    """Write the bill of materials. *work*: an empty folder for an environment with nothing but metadata."""
    environment = work / "environment"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages, [name for name in archive.namelist() if ".dist-info/" in name])
    for name in required(wheel, EXTRAS):
        metadata = next(file for file in distribution(name).files or () if file.parent.name.endswith(".dist-info"))
        folder = Path(str(distribution(name).locate_file(metadata))).parent
        shutil.copytree(folder, packages / folder.name, ignore=shutil.ignore_patterns("direct_url.json"))
    command = [
        sys.executable, "-m", "cyclonedx_py", "environment", str(environment / "bin/python"), "--output-reproducible",
        "--of", "JSON", "-o", str(target),
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True)
