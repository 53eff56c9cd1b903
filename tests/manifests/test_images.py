"""The container build files: what they copy exists, what they start exists, what they install is enough."""

import ast
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Final

import pytest

from tests.manifests.rendering import MANIFESTS

ROOT: Final = MANIFESTS.parent
FILES: Final = {"numa-extender": "extender", "numa-node-exporter": "node-exporter"}
TEXTS: Final = {program: (MANIFESTS / f"images/{name}.Containerfile").read_text() for program, name in FILES.items()}
PROJECT: Final = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
DISTRIBUTIONS: Final = {
    "google": "protobuf",
    "grpc": "grpcio",
    "yaml": "PyYAML",
    "prometheus_client": "prometheus-client",
}
HADOLINT: Final = shutil.which("hadolint", path=str(Path(sys.executable).parent)) or shutil.which("hadolint")


@pytest.mark.skipif(HADOLINT is None, reason="hadolint is installed on linux x86_64 only")
@pytest.mark.parametrize("name", FILES.values())
def test_hadolint(name: str) -> None:
    assert HADOLINT
    run = subprocess.run(
        [HADOLINT, str(MANIFESTS / f"images/{name}.Containerfile")], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("program", FILES)
def test_what_is_copied_from_the_repository_exists(program: str) -> None:
    for line in re.findall(r"^COPY (?!--from)(.*)$", TEXTS[program], re.MULTILINE):
        for name in line.split()[:-1]:
            assert (ROOT / name).exists()


@pytest.mark.parametrize("program", FILES)
def test_what_is_started_exists(program: str) -> None:
    assert f'ENTRYPOINT ["{program}"]' in TEXTS[program]
    assert program in PROJECT["scripts"]


@pytest.mark.parametrize("program", FILES)
def test_the_final_stage_is_small_and_nobody_s(program: str) -> None:
    final = TEXTS[program].rpartition("\nFROM ")[2]
    assert "USER 65532:65532" in final
    assert not re.search(r"\b(apt-get|apk|pip install|gcc)\b", final)
    assert re.findall(r"^COPY (.*)$", final, re.MULTILINE) == ["--from=build /opt/numa-extender /opt/numa-extender"]


def test_both_stages_start_from_the_python_that_is_tested() -> None:
    bases = {re.search(r"^ARG PYTHON=(\S+)$", text, re.MULTILINE) for text in TEXTS.values()}
    versions = {base[1] for base in bases if base}
    (base,) = versions
    minimum = re.search(r"\d+\.\d+", PROJECT["requires-python"])
    assert minimum
    assert base.startswith(f"python:{minimum[0]}.")


def test_versions_are_pinned() -> None:
    pinned = {
        line.partition("==")[0].lower().replace("_", "-") for line in (ROOT / "constraints.txt").read_text().split()
    }
    extras = PROJECT["optional-dependencies"]
    needed = [*PROJECT["dependencies"], *extras["server"], *extras["exporter"], *extras["tracing"]]
    wanted = {re.split(r"[\[<>=~; ]", d)[0].lower().replace("_", "-") for d in needed}
    assert wanted <= pinned
    for text in TEXTS.values():
        assert "PIP_CONSTRAINT=/src/constraints.txt" in text


def test_the_extender_s_image_can_trace() -> None:
    (installed,) = re.findall(r"python install \\\n +(.*) \\\n", TEXTS["numa-extender"])
    assert installed.startswith('"numa-extender[expander,server,tracing] @ file://')


def test_the_exporter_s_image_has_what_the_exporter_imports() -> None:
    imported: set[str] = set()
    for path in (ROOT / "node_exporter").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import):
                imported |= {alias.name.partition(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
                imported.add(node.module.partition(".")[0])
    third_party = {DISTRIBUTIONS.get(name, name) for name in imported - sys.stdlib_module_names - {"node_exporter"}}
    listed = re.search(r"python install \\\n((?: {6}.*\\\n)+)", TEXTS["numa-node-exporter"])
    assert listed
    assert set(listed[1].replace("\\", "").split()) >= third_party
