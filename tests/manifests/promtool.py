"""Prometheus' own `promtool`: runs our alerts over series that we write down, and checks pages of metrics."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

PROMTOOL: Final = shutil.which("promtool", path=str(Path(sys.executable).parent)) or shutil.which("promtool")


def promtool(*arguments: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
    """A finished run. Without promtool the test is skipped; in CI it fails."""
    if PROMTOOL is None:
        message = "promtool is not installed (make promtool gets it from Debian's package prometheus)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    return subprocess.run([PROMTOOL, *arguments], input=stdin, capture_output=True, check=False)


class Expectation(NamedTuple):
    """Whether the alert fires at `minute`, if the series have these values, one a minute, as promtool writes them."""

    series: dict[str, str]
    minute: int
    fires: bool


def check_alert(rules: dict[str, Any], alert: str, expectations: list[Expectation], folder: Path) -> None:
    """Run the rules over each of the series."""
    firing = f'count(ALERTS{{alertname="{alert}", alertstate="firing"}}) > bool 0 or vector(0)'
    tests = [
        {
            "name": f"{alert} fires: {fires}",
            "interval": "1m",
            "input_series": [{"series": name, "values": values} for name, values in series.items()],
            "promql_expr_test": [
                {"expr": firing, "eval_time": f"{minute}m", "exp_samples": [{"labels": "{}", "value": int(fires)}]}
            ],
        }
        for series, minute, fires in expectations
    ]
    (folder / "rules.json").write_text(json.dumps(rules))
    test = {"rule_files": ["rules.json"], "evaluation_interval": "1m", "tests": tests}
    (folder / "test.json").write_text(json.dumps(test))
    run = promtool("test", "rules", str(folder / "test.json"))
    assert run.returncode == 0, (run.stdout + run.stderr).decode()
