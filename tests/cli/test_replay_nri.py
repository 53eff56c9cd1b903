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
        ({"r": 5}, "-:1: r: "),
        ({"r": [{}, 5]}, "-:1: r[1]: an object is expected, not 5"),
        ({"r": [{"varies": True}]}, "-:1: r[0]: an answer that varies needs the field any"),
        ({"r": [{"varies": True, "any": []}]}, "-:1: r[0].any"),
        ({"r": [{"gs": {"c1": 5}}]}, "-:1: r[0].gs.c1"),
    ],
)
@pytest.mark.parametrize("options", [(), ("--check",)])
def test_a_bad_line_is_reported_with_its_field(change: dict[str, Any], words: str, options: tuple[str, ...]) -> None:
    """Seen red: a recorded answer that is no object ended `--check` with a traceback."""
    result = call(*options, "-", lines=json.dumps(scenario() | change))

    assert result.exit_code == 1
    assert words in result.output


@pytest.mark.parametrize("line", ["[]", "5", '"x"'])
def test_a_line_that_is_no_object_is_named_by_its_place(line: str) -> None:
    assert call("-", lines=line).output == f"Error: -:1: an object is expected, not {line.replace(chr(34), chr(39))}\n"


@pytest.mark.parametrize("count", [0, 2])
def test_a_recording_with_too_few_answers_is_a_difference(count: int) -> None:
    """Seen red: a line without answers agreed."""
    document = scenario()
    document["r"] = document["r"][:count]

    result = call("--check", "-", lines=json.dumps(document))

    assert result.exit_code == 1
    assert f"recorded: '{count} answers'" in result.output


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe"])
def test_a_machines_file_that_is_not_json_is_named(content: bytes, tmp_path: Path) -> None:
    """Seen red: it ended with a traceback."""
    file = tmp_path / "machines.json"
    file.write_bytes(content)
    options = ["--policy", "nri-topology-aware", "--machines", str(file), "-"]

    result = CliRunner().invoke(replay, options, input=json.dumps(scenario()))

    assert result.exit_code == 1
    assert result.output.startswith(f"Error: {file}: not JSON: ")


def test_the_machines_option_and_the_policy_belong_together() -> None:
    assert CliRunner().invoke(replay, ["--policy", "nri-topology-aware", "-"]).exit_code == 2
    assert CliRunner().invoke(replay, ["--machines", str(MACHINES), "-"]).exit_code == 2
