"""Builds each part of a release from the tree of a commit. Nothing is read from the working tree."""

import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from release import images, krew, single_file
from release.archives import pack, sha256
from release.notes import notes_of
from release.sbom import write_sbom
from release.version import BUILD_VARIABLE, ReleaseVersion, stamp, version_of

IN_MANIFESTS: Final = ("manifests", "docs", "LICENSE", "README.md", "SECURITY.md", "CHANGELOG.md")
SUMS: Final = "SHA256SUMS"
_LOAD: Final = """#!/bin/sh
# Copies the images into a registry: sh load.sh registry.example.org/team
# Needs skopeo. The tag is the version; an image of several platforms is one tag for each of them.
set -eu
registry="${1:?name the registry}"
cd "$(dirname "$0")"
for image in images/*.tar; do
  name="$(basename "$image" .tar)"
  skopeo copy "oci-archive:$image" "docker://$registry/${name%%--*}:${name#*--}"
done
"""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to build.

    `source`: URL of the repository; empty: no krew manifest. `base`: see `images.Build`.
    `platforms`, `pythons`: of the single files. `signing_key`: of gpg; empty: no signature.
    """

    source: str = ""
    engine: str = ""
    base: str = ""
    image_options: tuple[str, ...] = ()
    image_platforms: tuple[str, ...] = images.PLATFORMS
    platforms: tuple[str, ...] = tuple(single_file.TAGS)
    pythons: tuple[str, ...] = single_file.PYTHONS
    signing_key: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """A release while it is built.

    `tree`: the commit's files with the version written into them. `made`: file -> what it is. `missing`: what could not
    be built -> why.
    """

    version: ReleaseVersion
    revision: str
    epoch_seconds: int
    tree: Path
    work: Path
    target: Path
    made: dict[str, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def build(root: Path, dist: Path, wanted: Wanted) -> Release:
    """Build the commit that is checked out in *root* into *dist*/VERSION. Nothing is left there if it fails.

    Raises FileExistsError if that directory exists, and ValueError if the changelog does not have the version.
    """
    dist.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=dist) as temporary:
        work = Path(temporary)
        tree = work / "tree"
        _git(root, "clone", "--quiet", "--shared", str(root), str(tree))
        version = version_of(tree)
        final = dist / version.semantic
        if final.exists():
            raise FileExistsError(f"{final} exists: a version is built once; remove it to build it again")
        epoch_seconds = int(os.environ.get("SOURCE_DATE_EPOCH") or _git(tree, "log", "-1", "--format=%ct"))
        release = Release(version, _git(tree, "rev-parse", "HEAD"), epoch_seconds, tree, work, work / "made")
        shutil.rmtree(tree / ".git")
        stamp(tree, version)
        release.target.mkdir()
        _build_parts(release, wanted)
        if wanted.signing_key:
            _sign(release, wanted.signing_key)
        release.target.rename(final)
    return release


def _build_parts(release: Release, wanted: Wanted) -> None:
    (release.target / "NOTES.md").write_text(notes_of(release.tree / "CHANGELOG.md", release.version))
    release.made["NOTES.md"] = "what changed, from CHANGELOG.md"
    wheel = _build_python(release)
    _build_sbom(release, wheel)
    _build_manifests(release)
    _build_chart(release)
    _build_single_files(release, wheel, wanted)
    _build_images(release, wanted)
    names = sorted(release.made)
    sums = "".join(f"{sha256(release.target / name)}  {name}\n" for name in names)
    (release.target / SUMS).write_text(sums)
    release.made[SUMS] = "checksums of all files above"


def _git(root: Path, *arguments: str) -> str:
    run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=True)
    return run.stdout.strip()


def _environment(release: Release) -> dict[str, str]:
    return {
        **os.environ,
        "SOURCE_DATE_EPOCH": str(release.epoch_seconds),
        BUILD_VARIABLE: release.version.python,
    }


def _build_python(release: Release) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "sdist", "-t", "wheel", "-d", str(release.target)]
    subprocess.run(command, cwd=release.tree, env=_environment(release), check=True, capture_output=True, text=True)
    (wheel,) = release.target.glob("*.whl")
    (source,) = release.target.glob("*.tar.gz")
    release.made[wheel.name] = "wheel: pip install"
    release.made[source.name] = "source distribution"
    return wheel


def _build_sbom(release: Release, wheel: Path) -> None:
    name = f"numa-extender-{release.version.semantic}.cdx.json"
    work = release.work / "sbom"
    work.mkdir()
    write_sbom(wheel, release.target / name, work)
    release.made[name] = "software bill of materials, CycloneDX"


def _build_manifests(release: Release) -> None:
    name = f"numa-extender-{release.version.semantic}"
    folder = release.work / "manifests"
    folder.mkdir()
    for part in IN_MANIFESTS:
        if (release.tree / part).is_dir():
            shutil.copytree(release.tree / part, folder / part)
        else:
            shutil.copy(release.tree / part, folder)
    pack(folder, name, release.target / f"{name}-manifests.tar.gz", release.epoch_seconds)
    release.made[f"{name}-manifests.tar.gz"] = "kustomize recipes and documents"


def _build_chart(release: Release) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ.get("PATH", "")))
    helm = shutil.which("helm", path=path)
    if helm is None:
        release.missing["Helm chart"] = "helm is not installed (make helm gets it)"
        return
    work = release.work / "chart"
    command = [helm, "package", str(release.tree / "charts/numa-extender"), "-d", str(work)]
    subprocess.run(command, check=True, capture_output=True, text=True)
    (packed,) = work.glob("*.tgz")
    with tarfile.open(packed) as archive:
        archive.extraction_filter = getattr(tarfile, "data_filter", None)  # since 3.11.4
        archive.extractall(work / "content")  # noqa: S202 - helm has just made it, and newer versions filter
    pack(work / "content", "", release.target / packed.name, release.epoch_seconds)
    release.made[packed.name] = "Helm chart: helm push … oci://REGISTRY"


def _build_single_files(release: Release, wheel: Path, wanted: Wanted) -> None:
    archives: dict[str, Path] = {}
    for platform in wanted.platforms:
        work = release.work / platform
        (work / "file").mkdir(parents=True)
        try:
            constraints = release.tree / "constraints.txt"
            single_file.download(wheel, constraints, platform, wanted.pythons, work / "wheels")
        except subprocess.CalledProcessError as error:
            release.missing[f"kubectl-numa for {platform}"] = _last_lines(str(error.stderr), 1)
            continue
        single_file.build(work / "wheels", work / "file/kubectl-numa", work, release.epoch_seconds)
        shutil.copy(release.tree / "LICENSE", work / "file")
        archive = release.target / f"kubectl-numa-{release.version.semantic}-{platform}.tar.gz"
        pack(work / "file", "", archive, release.epoch_seconds)
        release.made[archive.name] = f"kubectl numa as one file, Python {', '.join(wanted.pythons)}"
        archives[platform] = archive
    if wanted.source and archives:
        krew.write(krew.manifest(release.version, wanted.source, archives), release.target / "numa.yaml")
        release.made["numa.yaml"] = "krew manifest"
    elif archives:
        release.missing["krew manifest"] = "it needs the URL of the repository: SOURCE=https://…"


def _build_images(release: Release, wanted: Wanted) -> None:
    engine = images.find_engine(wanted.engine)
    if engine not in ("podman", "buildah"):
        release.missing["images, air-gapped archive"] = "neither podman nor buildah works here"
        return
    what = images.Build(
        release.version.python, release.revision, wanted.source, release.epoch_seconds, wanted.base,
        wanted.image_options,
    )  # fmt: skip
    folder = release.work / "airgapped"
    (folder / "images").mkdir(parents=True)
    for image in images.IMAGES:
        for platform in wanted.image_platforms:
            tag = f"{release.version.semantic}-{platform}"
            try:
                images.build(engine, release.tree, f"localhost/{image}:{tag}", image, what, platform)
                layout = release.work / f"{image}-{platform}"
                images.save(engine, f"localhost/{image}:{tag}", layout, tag)
            except images.ImageError as error:
                release.missing[f"{image} for linux/{platform}"] = _last_lines(str(error))
                continue
            pack(layout, "", folder / f"images/{image}--{tag}.tar", release.epoch_seconds)
            shutil.copy(folder / f"images/{image}--{tag}.tar", release.target / f"{image}-{tag}.oci.tar")
            release.made[f"{image}-{tag}.oci.tar"] = f"image for linux/{platform}: skopeo copy oci-archive:…"
    _build_airgapped(release, folder)


def _build_airgapped(release: Release, folder: Path) -> None:
    if not [*(folder / "images").iterdir()]:
        release.missing["air-gapped archive"] = "no image was built"
        return
    (folder / "load.sh").write_text(_LOAD)
    for name in release.made:
        if name.endswith((".tgz", "-manifests.tar.gz")) or name == "NOTES.md":
            shutil.copy(release.target / name, folder)
    name = f"numa-extender-{release.version.semantic}"
    pack(folder, name, release.target / f"{name}-airgapped.tar", release.epoch_seconds)
    release.made[f"{name}-airgapped.tar"] = "images, chart and manifests for clusters without internet"


def _sign(release: Release, key: str) -> None:
    command = ["gpg", "--batch", "--local-user", key, "--armor", "--detach-sign", SUMS]
    subprocess.run(command, cwd=release.target, check=True, capture_output=True, text=True)
    release.made[f"{SUMS}.asc"] = "signature of the checksums: gpg --verify"


def _last_lines(text: str, count: int = 4) -> str:
    """The end of a program's output. An engine ends with the step that failed, and has printed the cause before."""
    return "; ".join(line[:200] for line in text.strip().splitlines()[-count:])
