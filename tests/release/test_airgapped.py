"""The archive for clusters without internet: what is in it, and that its script copies each image into a registry."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
from pathlib import Path
from typing import Any, Final

import pytest

from release import images
from release.archives import pack
from release.building import Release, _build_airgapped
from release.version import read_version
from tests.manifests.rendering import MANIFESTS

SKOPEO: Final = shutil.which("skopeo")
FOREIGN: Final = {"registry.k8s.io/kube-scheduler"}
"""Images of manifests that no release builds. docs/install.md says that they have to be mirrored."""


def _layout(folder: Path, tag: str) -> None:
    """An OCI image layout with one image without layers."""
    blobs = folder / "blobs/sha256"
    blobs.mkdir(parents=True)

    def blob(kind: str, document: dict[str, Any]) -> dict[str, Any]:
        content = json.dumps(document).encode()
        digest = hashlib.sha256(content).hexdigest()
        (blobs / digest).write_bytes(content)
        return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": f"sha256:{digest}", "size": len(content)}

    platform = {"architecture": tag.rpartition("-")[2], "os": "linux"}
    config = blob("config.v1+json", {**platform, "rootfs": {"type": "layers", "diff_ids": []}})
    manifest = blob("manifest.v1+json", {"schemaVersion": 2, "config": config, "layers": []})
    manifest["annotations"] = {"org.opencontainers.image.ref.name": tag}
    (folder / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [manifest]}))
    (folder / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')


@pytest.fixture
def unpacked(tmp_path: Path) -> Path:
    """The archive of a release of two images for two platforms, unpacked."""
    target, folder = tmp_path / "made", tmp_path / "work"
    target.mkdir()
    (folder / "images").mkdir(parents=True)
    release = Release(read_version("1.2.3"), "revision", 1, tmp_path, tmp_path, target)
    for name in ("numa-extender-1.2.3.tgz", "numa-extender-1.2.3-manifests.tar.gz", "NOTES.md"):
        (target / name).write_text(name)
        release.made[name] = ""
    for image in images.IMAGES:
        for platform in images.PLATFORMS:
            tag = f"1.2.3-{platform}"
            _layout(tmp_path / image / tag, tag)
            pack(tmp_path / image / tag, "", folder / f"images/{image}--{tag}.tar", 1)
    _build_airgapped(release, folder)
    with tarfile.open(target / "numa-extender-1.2.3-airgapped.tar") as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
        archive.extractall(tmp_path / "there")
    return tmp_path / "there/numa-extender-1.2.3"


def test_it_has_every_image_the_chart_the_recipes_and_a_script(unpacked: Path) -> None:
    tags = [f"{image}--1.2.3-{platform}.tar" for image in images.IMAGES for platform in images.PLATFORMS]
    files = {path.relative_to(unpacked).as_posix() for path in unpacked.rglob("*") if path.is_file()}
    assert files == {
        *(f"images/{tag}" for tag in tags),
        "NOTES.md", "load.sh", "numa-extender-1.2.3.tgz", "numa-extender-1.2.3-manifests.tar.gz",
    }  # fmt: skip


def test_manifests_name_no_other_image() -> None:
    lines = [line.split("image: ") for path in MANIFESTS.rglob("*.yaml") for line in path.read_text().splitlines()]
    named = {line[1].strip().rpartition(":")[0] for line in lines if len(line) == 2 and line[0].strip() in ("", "-")}
    assert named == {*images.IMAGES, *FOREIGN}
    assert all(name in (MANIFESTS.parent / "docs/install.md").read_text() for name in FOREIGN)


@pytest.mark.skipif(SKOPEO is None, reason="skopeo is not installed")
def test_the_script_copies_each_image_into_the_registry(unpacked: Path, tmp_path: Path) -> None:
    """The program skopeo copies into a folder in place of a registry."""
    registry, stand_in = tmp_path / "registry", tmp_path / "bin/skopeo"
    stand_in.parent.mkdir()
    stand_in.write_text(
        f'#!/bin/sh\nset -eu\nto="{registry}/${{3#docker://registry.example.org/team/}}"\n'
        f'mkdir -p "$to"\nexec {SKOPEO} --insecure-policy "$1" "$2" "dir:$to"\n'
    )
    stand_in.chmod(0o755)
    environment = {**os.environ, "PATH": f"{stand_in.parent}:/usr/bin:/bin", "TMPDIR": str(tmp_path)}
    command = ["sh", str(unpacked / "load.sh"), "registry.example.org/team"]
    run = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/")
    assert run.returncode == 0, run.stderr
    for image in images.IMAGES:
        for platform in images.PLATFORMS:
            manifest = json.loads((registry / f"{image}:1.2.3-{platform}/manifest.json").read_text())
            digest = manifest["config"]["digest"].removeprefix("sha256:")
            config = json.loads((registry / f"{image}:1.2.3-{platform}" / digest).read_text())
            assert config["architecture"] == platform
    refused = subprocess.run(command[:2], capture_output=True, text=True, check=False, env=environment)
    assert "name the registry" in refused.stderr
