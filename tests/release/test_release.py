"""Two builds of a commit are equal, and what they contain has the version and works."""

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Final

import jsonschema
import pytest
import yaml

from release import krew, single_file
from release.__main__ import _print
from release.archives import pack, sha256
from release.building import Release, Wanted, _build_images, build
from release.version import read_version
from tests.manifests.test_chart import HELM
from tests.reports import pod_of, report_of, sample

ROOT: Final = Path(__file__).parents[2]
NOTHING_FOREIGN: Final = Wanted(engine="no-engine", platforms=(), source="https://example.org/numa-extender")
pytestmark = pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is built from a commit")

KREW: Final = {  # what krew 0.5 checks of a manifest, and the names of its fields
    "type": "object",
    "additionalProperties": False,
    "required": ["apiVersion", "kind", "metadata", "spec"],
    "properties": {
        "apiVersion": {"const": "krew.googlecontainertools.github.com/v1alpha2"},
        "kind": {"const": "Plugin"},
        "metadata": {"additionalProperties": False, "properties": {"name": {"pattern": r"^[\w-]+$"}}},
        "spec": {
            "additionalProperties": False,
            "required": ["version", "shortDescription", "platforms"],
            "properties": {
                "version": {"pattern": r"^v(0|[1-9]\d*)\.(0|[1-9]\d*)\.(0|[1-9]\d*)(-[0-9A-Za-z.-]+)?$"},
                "homepage": {"pattern": "^https://"},
                "shortDescription": {"pattern": "^[^\r\n]+$"},
                "description": {"type": "string"},
                "caveats": {"type": "string"},
                "platforms": {
                    "minItems": 1,
                    "items": {
                        "additionalProperties": False,
                        "required": ["selector", "uri", "sha256", "bin"],
                        "properties": {
                            "selector": {
                                "required": ["matchLabels"],
                                "properties": {
                                    "matchLabels": {
                                        "minProperties": 1,
                                        "additionalProperties": False,
                                        "properties": {"os": {}, "arch": {}},
                                    }
                                },
                            },
                            "uri": {"pattern": r"^https://.+\.(tar\.gz|zip)$"},
                            "sha256": {"pattern": "^[a-f0-9]{64}$"},
                            "bin": {"minLength": 1},
                        },
                    },
                },
            },
        },
    },
}


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Release, Path]]:
    """A release, and its directory."""
    dist = tmp_path_factory.mktemp("dist")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GNUPGHOME", str(tmp_path_factory.mktemp("gnupg")))
        command = ["gpg", "--batch", "--passphrase", "", "--quick-generate-key", "release@example.org"]
        subprocess.run(command, check=True, capture_output=True)
        release = build(ROOT, dist, Wanted(engine="no-engine", platforms=(), signing_key="release@example.org"))
        yield release, dist / release.version.semantic
        subprocess.run(["gpgconf", "--kill", "gpg-agent"], check=True)


def test_a_second_build_has_the_same_bytes(
    built: tuple[Release, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    before = os.umask(0o077)
    try:
        again = build(ROOT, tmp_path, NOTHING_FOREIGN)
    finally:
        os.umask(before)
    sums = (tmp_path / again.version.semantic / "SHA256SUMS").read_text()
    assert sums == (built[1] / "SHA256SUMS").read_text()
    assert len(sums.splitlines()) == len(again.made) - 1 >= 5


def test_a_version_is_built_once(built: tuple[Release, Path]) -> None:
    before = {path: path.stat().st_mtime_ns for path in built[1].iterdir()}
    with pytest.raises(FileExistsError, match="a version is built once"):
        build(ROOT, built[1].parent, NOTHING_FOREIGN)
    assert {path: path.stat().st_mtime_ns for path in built[1].iterdir()} == before
    assert [path.name for path in built[1].parent.iterdir()] == [built[1].name]


def test_what_is_not_made_is_said(built: tuple[Release, Path]) -> None:
    assert built[0].missing["images, air-gapped archive"] == "neither podman nor buildah works here"


def test_an_image_that_is_not_built_is_missing_with_the_cause(
    built: tuple[Release, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = tmp_path / "podman"
    engine.write_text(
        "#!/bin/sh\n[ $1 = info ] && exit\necho 'sh: python: not found' >&2\necho 'Error: at STEP' >&2\nexit 1"
    )
    engine.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    release = replace(built[0], work=tmp_path, target=tmp_path, made={}, missing={})
    _build_images(release, Wanted(engine="podman", image_platforms=("arm64",)))
    reason = release.missing["numa-extender for linux/arm64"]
    assert reason.endswith("sh: python: not found; Error: at STEP")
    assert not release.made


def test_what_is_not_made_is_printed_in_lines_of_120_characters(
    built: tuple[Release, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    reason = "ERROR: " + "no version of a package for this platform, " * 5
    _print(replace(built[0], missing={"kubectl-numa for linux-arm64": reason}), built[1])
    _, _, last = capsys.readouterr().out.rpartition("NOT MADE: ")
    assert " ".join(last.split()) == f"kubectl-numa for linux-arm64: {reason.strip()}"
    assert len(f"NOT MADE: {last}".splitlines()[0]) <= 120
    assert len(last.splitlines()) > 1
    assert max(map(len, last.splitlines())) <= 120


def test_the_checksums_and_their_signature_are_right(built: tuple[Release, Path]) -> None:
    for line in (built[1] / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert sha256(built[1] / name) == digest
    assert {path.name for path in built[1].iterdir()} == {*built[0].made}
    verify = ["gpg", "--batch", "--verify", "SHA256SUMS.asc", "SHA256SUMS"]
    assert subprocess.run(verify, cwd=built[1], capture_output=True, check=False).returncode == 0


def test_wheel_source_and_bill_of_materials_have_the_version(built: tuple[Release, Path]) -> None:
    version = built[0].version.python
    (wheel,) = built[1].glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        assert f"\nVersion: {version}\n" in archive.read(metadata).decode()
    (source,) = built[1].glob("numa_extender-*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"PKG-INFO", "manifests/base/extender/deployment.yaml", "tests/release/test_release.py"} <= names
    (sbom,) = built[1].glob("*.cdx.json")
    listed = {each["name"].lower(): each["version"] for each in json.loads(sbom.read_text())["components"]}
    assert listed["numa-extender"] == version
    assert {"kubernetes", "grpcio", "opentelemetry-sdk"} <= listed.keys()
    assert not listed.keys() & {"pytest", "mypy", "hatchling"}


@pytest.mark.skipif(HELM is None, reason="helm is not installed")
def test_the_packed_chart_and_the_packed_recipes_name_images_of_the_version(
    built: tuple[Release, Path], tmp_path: Path
) -> None:
    assert HELM
    version = built[0].version.semantic
    (chart,) = built[1].glob("*.tgz")
    command = [HELM, "template", "numa", str(chart), "--set=extender.image.repository=r.example.org/numa-extender"]
    rendered = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert f"image: r.example.org/numa-extender:{version}" in rendered
    assert f"image: numa-node-exporter:{version}" in rendered
    (manifests,) = built[1].glob("*-manifests.tar.gz")
    with tarfile.open(manifests) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
        archive.extractall(tmp_path)
    tag = f"newTag: {version}"
    assert tag in next(tmp_path.glob("*/manifests/overlays/standalone/kustomization.yaml")).read_text()


def test_a_krew_manifest_is_as_krew_wants_it(tmp_path: Path) -> None:
    archive = tmp_path / "kubectl-numa-1.2.3-linux-amd64.tar.gz"
    archive.write_bytes(b"content")
    document = krew.manifest(read_version("1.2.3"), "https://example.org/numa", {"linux-amd64": archive})
    krew.write(document, tmp_path / "numa.yaml")
    assert yaml.safe_load((tmp_path / "numa.yaml").read_text()) == document
    jsonschema.validate(document, KREW)
    (platform,) = document["spec"]["platforms"]
    assert platform["uri"] == "https://example.org/numa/releases/download/v1.2.3/kubectl-numa-1.2.3-linux-amd64.tar.gz"
    assert platform["sha256"] == sha256(archive)
    assert platform["selector"]["matchLabels"] == {"os": "linux", "arch": "amd64"}


def test_an_archive_does_not_depend_on_times_owners_and_order(tmp_path: Path) -> None:
    sums = []
    for order, mode in (("ab", 0o600), ("ba", 0o664)):
        folder = tmp_path / order
        folder.mkdir()
        for name in order:
            (folder / name).write_text(name)
            (folder / name).chmod(mode)
        os.utime(folder / "a", (mode, mode))
        for target in (tmp_path / f"{order}.tar", tmp_path / f"{order}.tgz"):
            pack(folder, "top", target, 1_700_000_000)
            sums.append(sha256(target))
    assert sums[:2] == sums[2:]
    with tarfile.open(tmp_path / "ab.tgz") as archive:
        assert [(each.name, each.mtime, each.mode) for each in archive] == [
            ("top/a", 1_700_000_000, 0o644),
            ("top/b", 1_700_000_000, 0o644),
        ]


def _single_file(wheels: Path, work: Path, epoch_seconds: int) -> Path:
    work.mkdir()
    single_file.build(wheels, work / "kubectl-numa", work, epoch_seconds)
    return work / "kubectl-numa"


def test_a_second_single_file_has_the_same_bytes(built: tuple[Release, Path], tmp_path: Path) -> None:
    """Of our wheel alone: how many there are makes no difference."""
    first, second = (_single_file(built[1], tmp_path / name, built[0].epoch_seconds) for name in ("first", "second"))
    assert sha256(first) == sha256(second)


def test_kubectl_numa_is_one_file_that_answers_from_files(built: tuple[Release, Path], tmp_path: Path) -> None:
    """Downloads the wheels of this Python from the index that pip uses."""
    (wheel,) = built[1].glob("*.whl")
    python = f"{sys.version_info.major}.{sys.version_info.minor}"
    if os.uname().machine != "x86_64":
        pytest.skip("this test downloads wheels for linux-amd64")
    single_file.download(wheel, ROOT / "constraints.txt", "linux-amd64", (python,), tmp_path / "wheels")
    program = _single_file(tmp_path / "wheels", tmp_path / "first", built[0].epoch_seconds)

    (tmp_path / "report.json").write_text(json.dumps(report_of(sample())))
    (tmp_path / "pod.json").write_text(json.dumps(pod_of(4)))
    environment = {"PATH": os.environ["PATH"], "SHIV_ROOT": str(tmp_path / "unpacked"), "HOME": str(tmp_path)}
    command = [sys.executable, "-I", str(program)]
    asked = subprocess.run(
        [*command, "what-if", "-f", "pod.json", "--report", "report.json"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert asked.returncode == 0, asked.stderr
    assert "1 aligned" in asked.stdout
    told = subprocess.run([*command, "--version"], env=environment, capture_output=True, text=True, check=True).stdout
    assert re.search(rf"version {re.escape(built[0].version.python)}$", told.strip())
    shutil.rmtree(tmp_path / "unpacked")
