"""The version comes from the tag, and every place that a release publishes has it."""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
import yaml
from packaging.version import InvalidVersion, Version

from release.notes import notes_of
from release.version import BUILD_VARIABLE, PLACEHOLDER, read_version, stamp
from tests.manifests.rendering import containers, everything, pods_of

ROOT: Final = Path(__file__).parents[2]
BUILT_FROM: Final = ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE")


@pytest.mark.parametrize(
    ("python", "semantic"),
    [
        ("1.2.3", "1.2.3"),
        ("1.2", "1.2.0"),
        ("1.2.3rc1", "1.2.3-rc.1"),
        ("1.2.3b2", "1.2.3-beta.2"),
        ("1.2.4.dev5+g0a1b2c3", "1.2.4-dev.5"),
        ("1.2.4rc2.dev5", "1.2.4-rc.2.dev.5"),
    ],
)
def test_a_version_has_the_form_of_semantic_versions(python: str, semantic: str) -> None:
    assert read_version(python).semantic == semantic
    assert read_version(python).is_final == (python in ("1.2.3", "1.2"))


def test_what_is_no_version_is_refused() -> None:
    with pytest.raises(InvalidVersion):
        read_version("latest")


def _version(tree: Path, **variables: str) -> str:
    environment = {"PATH": "/usr/bin:/bin", **variables}
    run = subprocess.run(
        [sys.executable, "-m", "hatchling", "version"],
        cwd=tree, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return run.stdout.strip()


def _git(tree: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=a", "-c", "user.email=a@example.org")
    subprocess.run(["git", *identity, *arguments], cwd=tree, check=True, capture_output=True)


def test_a_tag_gives_the_version_and_a_tree_without_tag_or_without_git_still_builds(tmp_path: Path) -> None:
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, tmp_path)
    assert _version(tmp_path) == PLACEHOLDER
    assert _version(tmp_path, **{BUILD_VARIABLE: "7.8.9"}) == "7.8.9"
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", ".")
    _git(tmp_path, "commit", "-qm", "first")
    assert Version(_version(tmp_path)).is_devrelease
    _git(tmp_path, "tag", "v1.2.3")
    assert _version(tmp_path) == "1.2.3"
    (tmp_path / "README.md").write_text("changed")
    _git(tmp_path, "commit", "-qam", "second")
    assert re.fullmatch(r"1\.2\.4\.dev1\+g[0-9a-f]+", _version(tmp_path))


def test_a_source_distribution_keeps_its_version(tmp_path: Path) -> None:
    for name in BUILT_FROM:
        shutil.copy(ROOT / name, tmp_path)
    (tmp_path / "PKG-INFO").write_text("Metadata-Version: 2.4\nName: numa-extender\nVersion: 4.5.6\n")
    assert _version(tmp_path) == "4.5.6"


def test_manifests_and_chart_have_the_placeholder() -> None:
    tags = {
        container["image"].rpartition(":")[2]
        for _, pod in pods_of(everything())
        for container in containers(pod)
        if container["image"].startswith("numa-")
    }
    chart = yaml.safe_load((ROOT / "charts/numa-extender/Chart.yaml").read_text())
    assert tags == {chart["version"], chart["appVersion"]} == {PLACEHOLDER}


def test_a_release_writes_its_version_everywhere(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "manifests", tmp_path / "manifests")
    shutil.copytree(ROOT / "charts", tmp_path / "charts", symlinks=True)
    stamp(tmp_path, read_version("1.2.3rc1"))
    texts = {path: path.read_text() for path in tmp_path.rglob("*.yaml")}
    assert [path for path, text in texts.items() if re.search(r"(?<![\d.])0\.0\.0(?![\d.])", text)] == []
    assert "0.0.0.0:9473" in texts[tmp_path / "manifests/base/exporter/daemonset.yaml"]
    assert yaml.safe_load(texts[tmp_path / "charts/numa-extender/Chart.yaml"])["appVersion"] == "1.2.3-rc.1"
    assert sum(text.count("1.2.3-rc.1") for text in texts.values()) > 10


def test_the_notes_of_a_release_are_its_part_of_the_changelog(tmp_path: Path) -> None:
    changelog = tmp_path / "CHANGELOG.md"
    changelog.write_text("# Changelog\n\n## Unreleased\n\n- c\n\n## 1.1.0 (2027-01-02)\n\n- b\n\n## 1.0.0\n\n- a\n")
    assert notes_of(changelog, read_version("1.1.0")) == "- b\n"
    assert notes_of(changelog, read_version("1.0.0")) == "- a\n"
    assert notes_of(changelog, read_version("1.2.0.dev3")) == "- c\n"
    with pytest.raises(ValueError, match=r"has no section '## 1\.2\.0'"):
        notes_of(changelog, read_version("1.2.0"))


def test_the_changelog_has_its_releases_from_new_to_old() -> None:
    first, *released = re.findall(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert first == "Unreleased"
    assert released == sorted(released, key=Version, reverse=True)
