"""`numa-extender replay --policy nri-topology-aware`, as a person calls it."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from extender.cli.replay import replay
from tests.replay.nri.vectors import MACHINES, sample


def call(*arguments: str, lines: str = "") -> Result:
    options = ["--policy", "nri-topology-aware", "--machines", str(MACHINES)]
    return CliRunner().invoke(replay, [*options, *arguments], input=lines)


def scenario() -> dict[str, Any]:
    return sample("basic", 1)[0]


def test_a_line_in_is_a_line_out() -> None:
    document = scenario()
    recorded = document.pop("r")

    answer = json.loads(call("-", lines=json.dumps(document) + "\n\n").stdout)

    assert answer["id"] == document["id"]
    fields = ("ec", "g", "cpus", "mems", "sh", "upd", "z")
    assert [{k: a[k] for k in fields if k in a} for a in answer["r"]] == [
        {k: a[k] for k in fields if k in a} for a in recorded
    ]


def test_a_policy_that_does_not_start_says_why() -> None:
    document = scenario()
    document["cfg"]["reservedResources"] = {}

    answer = json.loads(call("-", lines=json.dumps(document)).stdout)

    assert answer["r"] == []
    assert "reservation" in answer["start"]


def test_check_prints_a_table_by_theme_and_the_first_differences(tmp_path: Path) -> None:
    right, wrong = scenario(), scenario()
    number = next(i for i, answer in enumerate(wrong["r"]) if "cpus" in answer)
    wrong["r"][number]["cpus"] = "1023"
    path = tmp_path / "lines.jsonl"

    path.write_text(json.dumps(right))
    agreeing = call("--check", str(path))
    path.write_text(json.dumps(wrong))
    differing = call("--check", str(path))

    assert agreeing.exit_code == 0
    assert "basic" in agreeing.stdout
    assert differing.exit_code == 1
    assert f"{wrong['id']} step {number}: cpus" in differing.stdout
    assert "recorded: '1023'" in differing.stdout


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"m": "nowhere"}, "machine 'nowhere' is not in the machines file"),
        ({"steps": [{"o": "jump"}]}, "steps[0].o"),
        ({"cfg": {"pinCPU": "yes"}}, "cfg.pinCPU"),
        ({"steps": [{"o": "restart"}, {"o": "cfg", "cfg": {"pinCPU": 5}}]}, "-:1: steps[1].cfg.pinCPU"),
        ({"cfg": {"unlimitedBurstable": "socket"}}, "cfg.unlimitedBurstable"),
    ],
)
def test_a_bad_line_is_reported_with_its_field(change: dict[str, Any], words: str) -> None:
    result = call("-", lines=json.dumps(scenario() | change))

    assert result.exit_code == 1
    assert words in result.output


def test_the_machines_option_and_the_policy_belong_together() -> None:
    assert CliRunner().invoke(replay, ["--policy", "nri-topology-aware", "-"]).exit_code == 2
    assert CliRunner().invoke(replay, ["--machines", str(MACHINES), "-"]).exit_code == 2
