"""The replay answers what the real kubelet answered: every version, every option, nothing left out."""

from pathlib import Path

import pytest

from extender.conformance.agreement import Agreement, check
from extender.wire.scenarios import scenario_from_json
from tests.replay.vectors import VERSIONS, scenarios

README = Path(__file__).parents[2] / "README.md"
PARTS = [(v, part, 5 if v == "1.36" else 1) for v in VERSIONS for part in range(5 if v == "1.36" else 1)]


@pytest.mark.parametrize(("version", "part", "parts"), PARTS)
def test_replay_equals_the_recorded_kubelet(version: str, part: int, parts: int) -> None:
    agreement = Agreement()
    differences = [
        difference
        for document in scenarios(version, part, parts)
        for difference in check(scenario_from_json(document), agreement)
    ]

    assert differences == []
    assert agreement.compared["admit"] > 1000
    assert agreement.compared["placement"] > 500
    assert agreement.compared["kubelet_error"] > 15
    if parts == 1:
        figures = " | ".join(f"{count:,}" for count in agreement.row())
        assert f"| {version} | {figures} |" in README.read_text(), "the table of README.md is out of date"


def test_a_changed_recording_is_noticed() -> None:
    document = next(s for s in scenarios("1.36") if "kubelet_error" not in s)
    step = next(s for s in document["steps"] if s.get("expect", {}).get("admit"))
    step["expect"] = {"admit": False, "reason": "TopologyAffinityError", "message": "no"}

    paths = {d.path for d in check(scenario_from_json(document), Agreement())}

    assert {"admit", "reason", "message"} <= paths
