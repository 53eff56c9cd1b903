"""The service needs no feature: with all folders deleted its core passes its tests, and what is off is not imported.

Features do not import each other (an import contract), so that what the core does without all of them, it does without
each of them.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.listed import LISTED

ROOT = Path(__file__).parents[2]
CORE = (
    "tests/features/without_features.py",
    "tests/scheduling/test_feasibility.py",
    "tests/scheduling/test_reservation.py",
)
"""The tests of the core that run without any feature."""
ON: Mapping[str, Mapping[str, Any]] = {
    "autoscaling": {"autoscaling": "on"},
    "claims": {"dra": "on"},
    "groups": {"gangs": "on"},
    "janitor": {"janitor": "on"},
    "kueue": {"kueue": "on"},
    "namespaces": {"namespace_demands": "on"},
    "pod_events": {"pod_events": "on"},
    "requeue": {"wake_up": True},
    "room": {"room": "dry-run"},
    "shapes": {"shapes": "on"},
    "siblings": {"sibling_labels": "pool"},
    "topologies": {"topologies": "on"},
}
"""The settings that switch a feature on."""
OFF: Mapping[str, Any] = {"wake_up": False, "pod_events": "off"}
"""The settings that switch off what is on by default."""
ALWAYS = {"preemption", "deferrals"}


def imported(**settings: object) -> set[str]:
    """The features of which a new service has imported any module."""
    code = (
        "import sys; from extender.app import make_app, make_service; from extender.config.settings import Settings; "
        f"make_app(make_service(Settings(port=0, **{settings!r}))); print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {found[1] for found in map(re.compile(r"extender\.features\.(\w+)\.").match, done.stdout.split()) if found}


def test_a_feature_that_is_switched_off_is_not_imported() -> None:
    assert imported(**OFF) == ALWAYS


def test_a_feature_that_is_switched_on_is_imported() -> None:
    everything = {name: value for each in ON.values() for name, value in each.items()}
    assert imported(**everything) == ALWAYS | ON.keys()


def test_the_reply_of_a_feature_that_is_off_has_the_fields_of_one_that_is_on() -> None:
    everything = {name: value for each in ON.values() for name, value in each.items()}
    schema = make_app(make_service(Settings.model_validate({"port": 0, **everything}))).openapi()
    replies = {path: reply for each in LISTED for path, reply in each.off.items() if isinstance(reply, Mapping)}
    for path, reply in replies.items():
        content = schema["paths"][path]["get"]["responses"]["200"]["content"]
        name = content["application/json"]["schema"]["$ref"].rpartition("/")[2]
        assert reply.keys() == schema["components"]["schemas"][name]["properties"].keys(), path
    assert len(replies) > 4


@pytest.mark.parametrize("name", ON)
def test_each_feature_has_a_setting_of_its_own(name: str) -> None:
    settings = Settings.model_validate({"port": 0, **OFF, **ON[name]})
    assert {each.name for each in LISTED if each.is_on(settings)} == ALWAYS | {name}


def test_every_folder_is_listed() -> None:
    folders = {path.parent.name for path in (ROOT / "extender/features").glob("*/__init__.py")}
    assert {each.name for each in LISTED} == folders == ALWAYS | ON.keys()


def test_without_the_folders_of_all_features_the_core_passes_its_tests(tmp_path: Path) -> None:
    ignored = shutil.ignore_patterns("__pycache__", "web", "vectors", "recordings", "node_modules")
    for room in ("extender", "node_exporter"):
        shutil.copytree(ROOT / room, tmp_path / room, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "tests", tmp_path / "tests", ignore=ignored)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for each in LISTED:
        shutil.rmtree(tmp_path / "extender/features" / each.name)
        shutil.rmtree(tmp_path / "tests/features" / each.name)
    listed = tmp_path / "extender/features/listed.py"
    text = listed.read_text()
    listed.write_text(re.sub(r"(LISTED: [^\n]* = )\(.*?\n\)", r"\1()", text, flags=re.DOTALL))
    assert len(text) - len(listed.read_text()) > 500

    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *CORE]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-1000:]
    assert "passed" in done.stdout
