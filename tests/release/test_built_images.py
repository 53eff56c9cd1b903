"""Both images, built by podman on a stand-in for their base, and run with the rights that the manifests give them.

The wheels are those of the installed packages, which have the versions of constraints.txt: the build sees no index.
"""

import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from extender.samples.files import write_node
from extender.samples.nodes import sample_cluster
from release import images
from tests.manifests.rendering import MANIFESTS
from tests.release import base_image
from tests.release.installed import write_wheels
from tests.reports import pod_of
from tests.waiting import until

ROOT: Final = MANIFESTS.parent
ENGINE: Final = "podman"
TAG: Final = f"test-{os.getpid()}"
"""Each test process builds images of its own: one that is done removes its images and their containers."""
BASE: Final = f"localhost/numa-extender-test-base:{TAG}"
VERSION: Final = "1.2.3"
REVISION: Final = "0123456789abcdef"
SOURCE: Final = "https://example.org/numa"
BUILD_TOOLS: Final = ("hatchling", "hatch-vcs", "grpcio-tools")
RUNTIMES: Final[Sequence[Sequence[str]]] = ([], ["--runtime=runc"])
"""Not every kernel's groups suit podman's default runtime."""
LIMITS: Final = ("--ulimit=nofile=1024:1024", "--ulimit=nproc=1024:1024")
"""The default ones are above what a machine may give."""


def _podman(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([ENGINE, *arguments], capture_output=True, text=True, check=False)


def _run(runtime: Sequence[str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """Start a container with the securityContext of the manifests, without network."""
    return _podman(*runtime, "run", "--network=none", "--read-only", "--cap-drop=all", *LIMITS, *arguments)


@pytest.fixture(scope="module")
def runtime(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[str]]:
    """Both images are built. The option of podman with which containers start here."""
    if images.find_engine(ENGINE) is None:
        pytest.skip("podman does not work here")
    if os.uname().machine != "x86_64":
        pytest.skip("the stand-in for the base is made for linux/amd64 only")
    wheels = tmp_path_factory.mktemp("wheels")
    write_wheels([*BUILD_TOOLS, "numa-extender[exporter,expander,server,tracing]"], wheels)
    for own in wheels.glob("numa_extender-*"):
        own.unlink()
    work = tmp_path_factory.mktemp("base")
    base_image.make(ENGINE, BASE, work, {"PIP_NO_INDEX": "1", "PIP_FIND_LINKS": "/wheels"})
    (work / "base.tar").unlink()
    started = [runtime for runtime in RUNTIMES if _run(runtime, BASE, "python", "--version").returncode == 0]
    if not started:
        pytest.skip("podman cannot start a container here")
    options = ("--isolation=chroot", f"--volume={wheels}:/wheels:ro")
    what = images.Build(VERSION, REVISION, SOURCE, 1_700_000_000, BASE, options)
    for image in images.IMAGES:
        images.build(ENGINE, ROOT, _name(image), image, what)
    yield started[0]
    _podman("rmi", "--force", BASE, *map(_name, images.IMAGES))


def _name(image: str) -> str:
    return f"localhost/{image}:{TAG}"


@pytest.mark.parametrize("image", images.IMAGES)
def test_an_image_says_what_it_is(runtime: Sequence[str], image: str) -> None:
    (about,) = json.loads(_podman("image", "inspect", _name(image)).stdout)
    labels = {
        key.rpartition(".")[2]: value for key, value in about["Config"]["Labels"].items() if "opencontainers" in key
    }
    assert labels["title"] == image
    assert (labels["version"], labels["revision"], labels["source"]) == (VERSION, REVISION, SOURCE)
    assert about["Config"]["User"] == "65532:65532"
    assert about["Created"].startswith("2023-11-14T22:13:20"), "the time of the commit, not of the build"
    assert _run(runtime, "--rm", _name(image), "--version").stdout.strip() == f"{image}, version {VERSION}"
    assert _run(runtime, "--rm", "--entrypoint=pip", _name(image)).returncode == 127, "nothing can be installed"


def test_the_exporter_reads_a_node_as_root_without_capabilities_and_the_extender_answers_from_it(
    runtime: Sequence[str], tmp_path: Path
) -> None:
    (node,) = [each for each in sample_cluster() if each.name == "xeon-b"]
    write_node(tmp_path / "node", node)
    read = ["--rm", "--user=0:0", f"--volume={tmp_path / 'node'}:/node:ro", _name("numa-node-exporter"), "report"]
    run = _run(runtime, *read, "--root=/node", f"--node-name={node.name}", "--kubelet-version=v1.36.2")
    assert run.returncode == 0, run.stderr
    given = tmp_path / "given"
    given.mkdir()
    given.chmod(0o755)  # the image's user is not root
    (given / "report.json").write_text(run.stdout)
    (given / "pod.json").write_text(json.dumps(pod_of(2)))
    ask = ["--rm", f"--volume={given}:/given:ro", _name("numa-extender"), "what-if", "-f", "/given/pod.json"]
    run = _run(runtime, *ask, "--report=/given/report.json")
    assert run.returncode == 0, run.stderr
    assert f"{node.name}" in run.stdout
    assert "1 aligned" in run.stdout


def test_the_extender_serves_and_ends_when_it_is_told_to(runtime: Sequence[str]) -> None:
    container = _run(runtime, "--detach", _name("numa-extender")).stdout.strip()
    try:
        get = "import urllib.request; print(urllib.request.urlopen('http://127.0.0.1:9600/readyz').status)"
        asked = [*runtime, "exec", container, "python", "-c", get]
        until(lambda: _podman(*asked).stdout.strip() == "200", "the extender is ready")
        _podman("stop", "--time=20", container)
        assert _podman("inspect", container, "--format={{.State.ExitCode}}").stdout.strip() == "0"
        assert "Application shutdown complete" in _podman("logs", container).stderr
    finally:
        _podman("rm", "--force", container)
