"""Container images, built by podman or buildah (and by docker for `make images`)."""

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

IMAGES: Final = {"numa-extender": "extender", "numa-node-exporter": "node-exporter"}
"""Name of the image -> name of its file in manifests/images."""
PLATFORMS: Final = ("amd64", "arm64")
ENGINES: Final = ("podman", "buildah", "docker")


class ImageError(Exception):
    """An image could not be built, or must not be pushed. The message says which, and why."""


@dataclass(frozen=True, slots=True)
class Build:
    """What goes into an image besides its files.

    `source`: URL of the repository, may be empty. `base`: image with Python; empty: that of the Containerfile.
    `options`: further arguments of the engine's `build`.
    """

    version: str
    revision: str
    source: str
    epoch_seconds: int
    base: str = ""
    options: tuple[str, ...] = ()


def find_engine(wanted: str = "") -> str | None:
    """The first program of ENGINES that is installed and works, or *wanted* if that works; otherwise None."""
    for engine in (wanted,) if wanted else ENGINES:
        try:
            if subprocess.run([engine, "info"], capture_output=True, check=False).returncode == 0:
                return engine
        except OSError:
            continue
    return None


def build(engine: str, tree: Path, name: str, image: str, what: Build, platform: str = "") -> None:
    """Build the image called *image* and name it *name*. *platform*: such as arm64; empty: that of this machine.

    Raises ImageError with the engine's last lines.
    """
    arguments = {"VERSION": what.version, "REVISION": what.revision, "SOURCE": what.source}
    arguments["SOURCE_DATE_EPOCH"] = str(what.epoch_seconds)
    if what.base:
        arguments["PYTHON"] = what.base
    command = [engine, "build", *what.options, "-f", str(tree / f"manifests/images/{IMAGES[image]}.Containerfile")]
    command += [word for key, value in arguments.items() for word in ("--build-arg", f"{key}={value}")]
    if platform:
        command += ["--platform", f"linux/{platform}"]
    if engine != "docker":  # and no image of each step is left behind
        command += ["--timestamp", str(what.epoch_seconds), "--layers=false"]
    _run([*command, "-t", name, str(tree)], f"{name} was not built")


def save(engine: str, name: str, folder: Path, tag: str) -> None:
    """Write a built image into *folder* as an OCI image layout. Only podman and buildah can."""
    _run([engine, "push", "--quiet", name, f"oci:{folder}:{tag}"], f"{name} was not saved")


def push(engine: str, name: str) -> None:
    """Push *name*, unless the registry has that tag: an overlay that names it would not notice the change."""
    if subprocess.run([engine, "manifest", "inspect", name], capture_output=True, check=False).returncode == 0:
        raise ImageError(f"{name} exists already; a tag is never replaced: choose another one with TAG=…")
    _run([engine, "push", name], f"{name} was not pushed")


def _run(command: Sequence[str], failure: str) -> None:
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    if run.returncode:
        last = "\n".join((run.stderr.strip() or run.stdout.strip()).splitlines()[-8:])
        raise ImageError(f"{failure}: {last}")
