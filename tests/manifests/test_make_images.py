"""`make images` with a program on PATH that stands in for podman, buildah or docker and writes down its arguments."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml
from packaging.version import Version

from tests.manifests.rendering import MANIFESTS

ROOT: Final = MANIFESTS.parent
TOOLS: Final = ("sh", "git")
RECORDS: Final = """#!/bin/sh
case "$0 $*" in *"$BROKEN info") exit 1;; *" info") exit 0;; *" manifest inspect "*) exit "$ABSENT";; esac
echo "$0 $*" >> "$CALLS"
case "$*" in $FAILS) echo "no space left" >&2; exit 7;; esac
"""


def _make(
    tmp_path: Path,
    *arguments: str,
    engines: tuple[str, ...] = ("docker",),
    fails: str = "-",
    broken: str = "-",
    absent: str = "1",
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
    run = subprocess.run(
        [sys.executable, "-m", "release", "images", *arguments],
        cwd=ROOT, env={"PATH": str(path), "CALLS": str(calls), "FAILS": fails, "BROKEN": broken, "ABSENT": absent},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    lines = [line.split() for line in calls.read_text().splitlines()]
    return run, [[Path(words[0]).name, *words[1:]] for words in lines]


@pytest.mark.parametrize("engine", ["docker", "podman", "buildah"])
def test_both_images_are_built_and_pushed(tmp_path: Path, engine: str) -> None:
    run, calls = _make(tmp_path, "--registry=images.example.org/numa", "--tag=1.2.3", engines=(engine,))

    assert run.returncode == 0, run.stderr
    names = [f"images.example.org/numa/numa-{image}:1.2.3" for image in ("extender", "node-exporter")]
    assert [words[:2] for words in calls] == [[engine, "build"], [engine, "push"]] * 2
    assert [words[-1] for words in calls if words[1] == "push"] == names
    for words, name in zip((words for words in calls if words[1] == "build"), names, strict=True):
        assert words[words.index("-t") + 1] == name
        assert words[-1] == str(ROOT)
        built_with = dict(word.partition("=")[::2] for at, word in enumerate(words) if words[at - 1] == "--build-arg")
        assert re.fullmatch(r"\d+", built_with["SOURCE_DATE_EPOCH"])
        assert re.fullmatch(r"[0-9a-f]{40}", built_with["REVISION"])
        assert Version(built_with["VERSION"])
        containerfile = ROOT / words[words.index("-f") + 1]
        sources = re.findall(r"^COPY (?!--from)(.*) \S+$", containerfile.read_text(), re.MULTILINE)
        assert sources
        assert all((ROOT / source).exists() for line in sources for source in line.split())


def test_the_lines_for_the_overlay_are_printed(tmp_path: Path) -> None:
    run, _ = _make(tmp_path, "--registry=images.example.org/numa", "--tag=1.2.3")

    images = yaml.safe_load(run.stdout[run.stdout.rindex("images:") :])["images"]
    assert [image["name"] for image in images] == ["numa-extender", "numa-node-exporter"]
    assert images[1] == {
        "name": "numa-node-exporter",
        "newName": "images.example.org/numa/numa-node-exporter",
        "newTag": "1.2.3",
    }


def test_the_first_engine_is_used_and_another_one_can_be_named(tmp_path: Path) -> None:
    both = ("podman", "docker")
    (tmp_path / "first").mkdir()
    (tmp_path / "named").mkdir()

    _, calls = _make(tmp_path / "first", "--registry=r", engines=both)
    assert {words[0] for words in calls} == {"podman"}

    (tmp_path / "works").mkdir()
    _, calls = _make(tmp_path / "works", "--registry=r", engines=both, broken="podman")
    assert {words[0] for words in calls} == {"docker"}, "podman is installed, and does not work"

    _, calls = _make(tmp_path / "named", "--registry=r", "--engine=docker", engines=both)
    assert {words[0] for words in calls} == {"docker"}


def test_a_tag_that_the_registry_has_is_not_replaced(tmp_path: Path) -> None:
    run, calls = _make(tmp_path, "--registry=r", "--tag=1.2.3", absent="0")

    assert run.returncode == 1
    assert "r/numa-extender:1.2.3 exists already" in run.stderr
    assert [words for words in calls if "push" in words] == []


@pytest.mark.parametrize(
    ("arguments", "engines", "sentence"),
    [
        (("--registry=r",), (), "make images needs podman, buildah or docker, and none of them works here"),
        ((), ("docker",), "name the registry to push to: make images REGISTRY=registry.example.org/team"),
    ],
)
def test_what_is_missing_is_said_and_nothing_is_built(
    tmp_path: Path, arguments: tuple[str, ...], engines: tuple[str, ...], sentence: str
) -> None:
    run, calls = _make(tmp_path, *arguments, engines=engines)

    assert run.returncode == 1
    assert sentence in run.stderr
    assert calls == []


def test_what_did_not_build_is_not_pushed(tmp_path: Path) -> None:
    run, calls = _make(tmp_path, "--registry=r", fails="build*")

    assert run.returncode == 1
    assert "no space left" in run.stderr
    assert [words[1] for words in calls] == ["build"]
    assert "pushed" not in run.stdout
