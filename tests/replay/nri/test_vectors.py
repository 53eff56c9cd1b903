"""The replay answers what the real policy answered, in a sample of every theme."""

import pytest

from extender.verbs.nri_scenario import NRIAgreement, check
from extender.wire.nri_scenarios import scenario_from_json
from tests.replay.nri.vectors import THEMES, machine, sample

SAMPLE = 12
"""Scenarios of a theme; `numa-extender replay --check` compares them all."""


def test_every_theme_is_there() -> None:
    assert len(THEMES) == 24


@pytest.mark.parametrize("theme", THEMES)
def test_replay_equals_the_recorded_policy(theme: str) -> None:
    agreement = NRIAgreement()
    differences = [
        difference
        for document in sample(theme, SAMPLE)
        for difference in check(scenario_from_json(document), machine(document["m"]), agreement)
    ]

    assert differences == []
    assert agreement.counts["scenarios"] == SAMPLE
    if theme not in ("pools", "start"):
        assert agreement.counts["creations"] > 60


@pytest.mark.parametrize(
    ("name", "value"),
    [("ec", "take"), ("cpus", "0"), ("mems", "63"), ("sh", 7), ("un", 99), ("z", {"0": [1, "", 1, ""]})],
)
def test_a_changed_recording_is_noticed(name: str, value: object) -> None:
    document = sample("basic", 1)[0]
    number = next(i for i, answer in enumerate(document["r"]) if "g" in answer)
    document["r"][number][name] = value

    differences = check(scenario_from_json(document), machine(document["m"]), NRIAgreement())

    assert [(d.step, d.field, d.recorded) for d in differences] == [(number, name, value)]
