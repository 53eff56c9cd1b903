"""`make images` with a program on PATH that stands in for docker, podman or buildah and writes down its arguments."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Final

import pytest
import yaml

from tests.manifests.rendering import MANIFESTS

ROOT: Final = MANIFESTS.parent
MAKE: Final = shutil.which("make")
TOOLS: Final = ("sh", "git", "echo")
pytestmark = pytest.mark.skipif(MAKE is None, reason="make is not installed")
RECORDS: Final = """#!/bin/sh
case "$0 $*" in *"$BROKEN info") exit 1;; *" info") exit 0;; esac
echo "$0 $*" >> "$CALLS"
case "$*" in $FAILS) exit 7;; esac
"""


def _make(
    tmp_path: Path, *arguments: str, engines: tuple[str, ...] = ("docker",), fails: str = "-", broken: str = "-"
) -> tuple[subprocess.CompletedProcess[str], list[list[str]]]:
    """The finished run, and the calls of engines: name and arguments."""
    path = tmp_path / "bin"
    path.mkdir()
    for tool in TOOLS:
        found = shutil.which(tool)
        assert found
        (path / tool).symlink_to(found)
    for engine in engines:
        (path / engine).write_text(RECORDS)
        (path / engine).chmod(0o755)
    calls = tmp_path / "calls"
    calls.touch()
    assert MAKE
    run = subprocess.run(
        [MAKE, "images", *arguments],
        cwd=ROOT, env={"PATH": str(path), "CALLS": str(calls), "FAILS": fails, "BROKEN": broken},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.split() for line in calls.read_text().splitlines()]
    return run, [[Path(words[0]).name, *words[1:]] for words in lines]


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_both_images_are_built_and_pushed(tmp_path: Path, engine: str) -> None:
    run, calls = _make(tmp_path, "REGISTRY=images.example.org/numa", "TAG=1.2.3", engines=(engine,))

    assert run.returncode == 0, run.stderr
    names = [f"images.example.org/numa/numa-{image}:1.2.3" for image in ("extender", "node-exporter")]
    assert [words[:2] for words in calls] == [[engine, "build"], [engine, "push"]] * 2
    assert [words[-1] for words in calls if words[1] == "push"] == names
    for words, name in zip((words for words in calls if words[1] == "build"), names, strict=True):
        assert words[words.index("-t") + 1] == name
        assert words[-1] == "."
        assert re.fullmatch(r"SOURCE_DATE_EPOCH=\d+", words[words.index("--build-arg") + 1])
        containerfile = ROOT / words[words.index("-f") + 1]
        sources = re.findall(r"^COPY (?!--from)(.*) \S+$", containerfile.read_text(), re.MULTILINE)
        assert sources
        assert all((ROOT / source).exists() for line in sources for source in line.split())


def test_the_lines_for_the_overlay_are_printed(tmp_path: Path) -> None:
    run, _ = _make(tmp_path, "REGISTRY=images.example.org/numa")

    images = yaml.safe_load(run.stdout[run.stdout.rindex("images:") :])["images"]
    assert [image["name"] for image in images] == ["numa-extender", "numa-node-exporter"]
    assert images[1] == {
        "name": "numa-node-exporter",
        "newName": "images.example.org/numa/numa-node-exporter",
        "newTag": "0.1.0",
    }


def test_the_first_engine_is_used_and_another_one_can_be_named(tmp_path: Path) -> None:
    both = ("docker", "podman")
    (tmp_path / "first").mkdir()
    (tmp_path / "named").mkdir()

    _, calls = _make(tmp_path / "first", "REGISTRY=r", engines=both)
    assert {words[0] for words in calls} == {"docker"}

    (tmp_path / "works").mkdir()
    _, calls = _make(tmp_path / "works", "REGISTRY=r", engines=both, broken="docker")
    assert {words[0] for words in calls} == {"podman"}, "docker is installed, and its daemon does not run"

    _, calls = _make(tmp_path / "named", "REGISTRY=r", "ENGINE=podman", engines=both)
    assert {words[0] for words in calls} == {"podman"}


@pytest.mark.parametrize(
    ("arguments", "engines", "sentence"),
    [
        (("REGISTRY=r",), (), "make images needs docker, podman or buildah, and none of them works here (docker info)"),
        ((), ("docker",), "name the registry to push to: make images REGISTRY=registry.example.org/team"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_built(
    tmp_path: Path, arguments: tuple[str, ...], engines: tuple[str, ...], sentence: str
) -> None:
    run, calls = _make(tmp_path, *arguments, engines=engines)

    assert run.returncode == 2
    assert sentence in run.stdout
    assert calls == []


def test_what_did_not_build_is_not_pushed(tmp_path: Path) -> None:
    run, calls = _make(tmp_path, "REGISTRY=r", fails="build*")

    assert run.returncode == 2
    assert [words[1] for words in calls] == ["build"]
    assert "pushed" not in run.stdout
