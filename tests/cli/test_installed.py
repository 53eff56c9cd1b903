"""The wheel, installed without extras, has no server, and its commands answer questions from files.

The environment holds what the wheel requires and nothing else: links to the distributions of the tests' environment.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import distribution
from pathlib import Path
from typing import Final

import pytest

from extender.__main__ import COMMANDS
from release.sbom import required
from tests.manifests.rendering import MANIFESTS
from tests.reports import pod_of, report_of, sample

ROOT: Final = MANIFESTS.parent
BUILT_FROM: Final = ("extender", "node_exporter", "pyproject.toml", "hatch_build.py", "README.md", "LICENSE")
HEAVY: Final = ("kubernetes", "uvicorn", "grpcio", "protobuf")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy: a build writes into the tree."""
    tree, made = tmp_path_factory.mktemp("tree"), tmp_path_factory.mktemp("wheel")
    for name in BUILT_FROM:
        if (ROOT / name).is_dir():
            shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy(ROOT / name, tree)
    subprocess.run([sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made], cwd=tree, check=True)
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that has the wheel without extras."""
    environment = tmp_path_factory.mktemp("environment")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True)
    (packages,) = environment.glob("lib/python*/site-packages")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(packages)
    for name in required(wheel, ()):
        for file in distribution(name).files or ():
            top = file.parts[0]
            if top not in ("..", "__pycache__") and not (packages / top).exists():
                (packages / top).symlink_to(Path(str(distribution(name).locate_file(top))))
    return environment / "bin/python"


def _run(python: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
    command = [str(python), "-m", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd="/", timeout=120)


def test_nothing_of_a_server_is_required(wheel: Path) -> None:
    assert not required(wheel, ()) & {*HEAVY}
    assert required(wheel, ("server", "exporter")) >= {*HEAVY}


def test_commands_for_people_work(installed: Path, tmp_path: Path) -> None:
    report, pod = tmp_path / "report.json", tmp_path / "pod.json"
    report.write_text(json.dumps(report_of(sample())))
    pod.write_text(json.dumps(pod_of(4)))

    helped = _run(installed, "extender", "--help")
    assert helped.returncode == 0, helped.stderr
    assert all(command in helped.stdout for command in COMMANDS)
    fits = _run(installed, "extender", "what-if", "-f", str(pod), "--report", str(report))
    assert fits.returncode == 0, fits.stderr
    assert "1 aligned" in fits.stdout
    assert _run(installed, "node_exporter", "--help").returncode == 0


def test_a_program_without_its_extra_says_what_to_install(installed: Path) -> None:
    run = _run(installed, "extender", "serve", "--port", "0")
    assert run.returncode == 1
    assert "pip install 'numa-extender[exporter,server]'" in run.stderr
    assert "Traceback" not in run.stderr
