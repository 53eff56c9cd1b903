"""Environment variables of the extender: names, empty values, contradictions."""

import re
from pathlib import Path

import orjson
import pytest

from extender.cli.serve import start_line
from extender.config.settings import Settings, unknown_variables
from tests.faults.parts import Extender, Process
from tests.waiting import until


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("NUMA_EXTENDER_STRATEGI", "NUMA_EXTENDER_STRATEGY"),
        ("NUMA_EXTENDER_LEASE_SECOND", "NUMA_EXTENDER_LEASE_SECONDS"),
        ("NUMA_EXTENDER_UNKNOWN_NODE", "NUMA_EXTENDER_UNKNOWN_NODES"),
        ("NUMA_EXTENDR_STALE_NODES", "NUMA_EXTENDER_STALE_NODES"),
        ("NUMA_EXTENDER_COLOUR_OF_THE_PAGE", None),
    ],
)
def test_a_variable_that_is_no_setting_is_found_with_the_nearest_one(name: str, near: str | None) -> None:
    assert list(unknown_variables(["PATH", "NUMA_EXTENDER_PORT", name])) == [(name, near)]


def test_settings_in_any_case_links_of_services_and_variables_of_others_are_passed_over() -> None:
    links = ("SERVICE_HOST", "SERVICE_PORT", "SERVICE_PORT_HTTPS", "PORT_9643_TCP", "PORT_9643_TCP_ADDR")
    others = ("NUMA_PUSH_URL", "NUMA_INTERVAL", "NUMACTL", "HOME")

    assert list(unknown_variables([f"NUMA_EXTENDER_{link}" for link in links])) == []
    assert list(unknown_variables(["numa_extender_strategy", *others])) == []


def test_an_empty_variable_counts_as_not_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for field in Settings.model_fields:
        monkeypatch.setenv(f"NUMA_EXTENDER_{field.upper()}", "")

    assert Settings() == Settings.model_construct()
    assert not Settings().watches


def test_a_running_extender_says_so_once_and_works(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with Extender(log, strategi="balanced", lease_seconds=3, kubeconfig="") as extender:
        until(extender.is_ready)
    lines = [line for line in log.read_text().splitlines() if "unknown setting" in line]

    assert len(lines) == 1
    assert "WARNING" in lines[0]
    assert lines[0].endswith(
        "unknown setting: NUMA_EXTENDER_STRATEGI has no effect; did you mean NUMA_EXTENDER_STRATEGY?"
    )


def test_one_line_at_the_start_names_version_mode_and_strategy(tmp_path: Path) -> None:
    log = tmp_path / "log"
    settings = {"PORT": "0", "STRATEGY": "balanced", "LOG_FORMAT": "json"}
    environment = {f"NUMA_EXTENDER_{name}": value for name, value in settings.items()}
    with Process(("-m", "extender", "serve"), environment, log):
        until(lambda: '"starting ' in log.read_text())
    (line,) = [orjson.loads(text) for text in log.read_text().splitlines() if '"starting ' in text]

    assert line["level"] == "info"
    assert re.match(r"starting version=\d\S* mode=reports strategy=balanced ", line["message"])


@pytest.mark.parametrize(
    ("settings", "mode"),
    [({}, "reports"), ({"kubernetes": "on"}, "api-server"), ({"kubernetes": "on", "lease": "on"}, "lease")],
)
def test_the_mode_says_whom_the_extender_works_with(settings: dict[str, str], mode: str) -> None:
    assert f" mode={mode} " in start_line(Settings.model_validate(settings))
