"""`kubectl-numa` as one file: a zip archive that Python runs, with everything it imports (shiv).

One file serves one platform and several versions of Python. The wheels of one release of a library differ between
Python versions in their compiled modules, whose names contain the version, so that they fit beside each other. At its
first start the file unpacks itself into ~/.shiv.
"""

import subprocess
import sys
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

TAGS: Final[Mapping[str, tuple[str, ...]]] = {
    "linux-amd64": ("manylinux_2_28_x86_64", "manylinux_2_17_x86_64", "manylinux2014_x86_64"),
    "linux-arm64": ("manylinux_2_28_aarch64", "manylinux_2_17_aarch64", "manylinux2014_aarch64"),
    "darwin-arm64": ("macosx_14_0_arm64", "macosx_11_0_arm64"),
}
"""Tags of wheels for each platform that gets a file."""
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")


def download(wheel: Path, constraints: Path, platform: str, pythons: Sequence[str], folder: Path) -> None:
    """Put *wheel* and the wheels of everything that it requires into *folder*. Raises CalledProcessError."""
    tags = [f"--platform={tag}" for tag in TAGS[platform]]
    for python in pythons:
        command = [
            sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--only-binary=:all:",
            f"--python-version={python}", *tags, f"--constraint={constraints}", f"--dest={folder}", str(wheel),
        ]  # fmt: skip
        subprocess.run(command, check=True, capture_output=True, text=True)


def build(wheels: Path, target: Path, work: Path, epoch_seconds: int) -> None:
    """Make *target* of the wheels in a folder. *work*: an empty folder for temporary files."""
    packages = work / "packages"
    for path in sorted(wheels.glob("*.whl")):
        with zipfile.ZipFile(path) as archive:
            for entry in archive.infolist():
                if not (packages / entry.filename).exists():
                    archive.extract(entry, packages)
    environment = {"SOURCE_DATE_EPOCH": str(epoch_seconds), "PATH": "/usr/bin:/bin", "HOME": str(work)}
    command = [
        sys.executable, "-m", "shiv", f"--site-packages={packages}", "--console-script=kubectl-numa", "--compressed",
        "--reproducible", f"--output-file={target}",
    ]  # fmt: skip
    subprocess.run(command, check=True, capture_output=True, text=True, env=environment)
    target.chmod(0o755)
