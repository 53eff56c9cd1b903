"""The replay answers what the real policy answered, in a sample of every theme."""

from collections import Counter
from typing import Any

import pytest

from extender.conformance.nri_scenario import check, run
from extender.kubelet.sets import format_list
from extender.nri.config import LEVELS
from extender.nri.cpu_allocator import discover
from extender.nri.events import set_up
from extender.nri.pools import Pool
from extender.wire.nri_scenarios import scenario_from_json
from tests.replay.nri.vectors import GAPS, THEMES, machine, sample, scenarios

SAMPLE = 12
"""Scenarios of a theme; `numa-extender replay --check` compares them all."""


def test_every_theme_is_there() -> None:
    assert len(THEMES) == 24


@pytest.mark.parametrize("theme", THEMES)
def test_replay_equals_the_recorded_policy(theme: str) -> None:
    counts: Counter[str] = Counter()
    differences = [
        difference
        for document in sample(theme, SAMPLE)
        for difference in check(scenario_from_json(document), machine(document["m"]), counts)
    ]

    assert differences == []
    assert counts["scenarios"] == SAMPLE
    if theme not in ("pools", "start"):
        assert counts["creations"] > 60


def test_replay_equals_the_policy_where_no_theme_looks() -> None:
    counts: Counter[str] = Counter()
    differences = [
        difference
        for document in scenarios(GAPS)
        for difference in check(scenario_from_json(document), machine(document["m"]), counts)
    ]

    assert differences == []
    assert counts["open"] == 0


@pytest.mark.parametrize(
    ("name", "value"),
    [("ec", "take"), ("cpus", "0"), ("mems", "63"), ("sh", 7), ("un", 99), ("z", {"0": [1, "", 1, ""]})],
)
def test_a_changed_recording_is_noticed(name: str, value: object) -> None:
    document = sample("basic", 1)[0]
    number = next(i for i, answer in enumerate(document["r"]) if "g" in answer)
    document["r"][number][name] = value

    differences = check(scenario_from_json(document), machine(document["m"]), Counter())

    assert [(d.step, d.path, d.recorded) for d in differences] == [(number, name, value)]


def restarted() -> dict[str, Any]:
    """A recorded scenario in which the real policy placed running containers differently from run to run."""
    for document in sample("restart", 68):
        several = [answer["any"] for answer in document["r"] if "any" in answer]
        if several and len(several[0][0]["gs"]) <= 4:
            return document
    raise AssertionError("no such scenario is recorded")


def test_a_restart_has_the_recorded_answers_among_the_possible_ones() -> None:
    document = restarted()
    scenario = scenario_from_json(document)
    answers = run(scenario, machine(document["m"]))
    number = next(i for i, step in enumerate(document["steps"]) if step["o"] == "restart")

    answer = answers[number]

    assert isinstance(answer, dict)
    assert answer["certainty"] == "possible"
    assert "complete" not in answer
    for recorded in document["r"][number]["any"]:
        assert recorded["gs"] in [possible["gs"] for possible in answer["any"]]  # type: ignore[attr-defined]


def test_a_restart_that_cannot_be_is_noticed() -> None:
    document = restarted()
    number = next(i for i, answer in enumerate(document["r"]) if answer.get("varies"))
    grants = document["r"][number]["any"][0]["gs"]
    name = next(id_ for id_, grant in grants.items() if grant)
    grants[name]["part"] += 1

    differences = check(scenario_from_json(document), machine(document["m"]), Counter())

    assert [d.step for d in differences] == [number] * len(differences)
    assert "gs" in {d.path for d in differences}


@pytest.mark.parametrize("theme", ["pools", "start"])
def test_pools_and_settings_equal_the_recorded_ones(theme: str) -> None:
    compared = 0
    for document in sample(theme, 60):
        if "pools" not in document or "start" in document:
            continue
        config = scenario_from_json(document).config
        setup = set_up(discover(machine(document["m"])), config)
        pools = setup.tree.pools

        assert [_pool(pool, pools) for pool in pools] == document["pools"]
        if "info" in document:
            info = document["info"]
            high, normal, low = setup.topology.classes
            classes = {"high": format_list(high), "normal": format_list(normal), "low": format_list(low)}
            assert info["Prio"] == classes
            assert info["Allowed"] == format_list(setup.share.allowed)
            assert info["Isolated"] == format_list(setup.share.isolated)
            assert info["Reserved"] == format_list(setup.share.reserved)
            assert info["ColdStartOff"] is setup.cold_start_off
            assert LEVELS[info["UnlimitedBurstable"]] == setup.unlimited_burstable
        compared += 1

    assert compared > 20


def _pool(pool: Pool, pools: tuple[Pool, ...]) -> dict[str, object]:
    answer: dict[str, object] = {"id": pool.id, "name": pool.name, "kind": pool.kind.value}
    if pool.parent >= 0:
        answer["parent"] = pools[pool.parent].name
    answer["depth"] = pool.depth
    sets = {
        "iso": pool.isolated,
        "res": pool.reserved,
        "shr": pool.sharable,
        "dram": pool.dram,
        "pmem": pool.pmem,
        "hbm": pool.hbm,
    }
    return answer | {name: format_list(bits) for name, bits in sets.items() if bits}
