"""The workflow of a tag is a valid one, and calls what exists."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Final

import yaml

from release.__main__ import main
from release.images import IMAGES, PLATFORMS

ROOT: Final = Path(__file__).parents[2]
WORKFLOW: Final = ROOT / ".github/workflows/release.yaml"


def test_the_schema_of_workflows_accepts_it(tmp_path: Path) -> None:
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"]
    run = subprocess.run([*check, str(WORKFLOW)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text(WORKFLOW.read_text().replace("runs-on:", "run-on:"))
    assert subprocess.run([*check, str(wrong)], capture_output=True, check=False).returncode == 1


def test_it_calls_make_with_variables_and_options_that_exist_and_pushes_each_image() -> None:
    text = WORKFLOW.read_text()
    (call,) = re.findall(r"run: make release (.*)", text)
    makefile = (ROOT / "Makefile").read_text()
    for variable in re.findall(r"(\w+)=", call):
        assert re.search(rf"^{variable} +\?=", makefile, re.MULTILINE), variable
    assert "--complete" in {option for parameter in main.params for option in parameter.opts}
    assert f"for image in {' '.join(IMAGES)}; do" in text
    assert f"for architecture in {' '.join(PLATFORMS)}; do" in text
    assert yaml.safe_load(text)[True]["push"]["tags"] == ["v*"]
