"""The replay of DRA gives the recorded answers, all of them, and is never unsure about a recorded world."""

from collections import Counter

import pytest

from extender.conformance.agreement import Difference
from extender.conformance.dra_scenario import check, check_cpus, cpu_series_from_json
from tests.replay.dra.vectors import lines, scenarios


@pytest.mark.parametrize(
    ("name", "answers"), [("dra-1.36", 4_000), ("dra-cel-1.36", 1_500), ("dra-extended-1.36", 1_000)]
)
def test_no_answer_of_kube_scheduler_differs(name: str, answers: int) -> None:
    counts = Counter[str]()
    differences: list[Difference] = []

    for scenario in scenarios(name):
        differences += check(scenario, counts)

    assert differences == []
    assert counts["answers"] >= answers
    assert counts["unknown"] == 0


def test_no_cpus_of_the_driver_differ() -> None:
    counts = Counter[str]()
    differences = [each for line in lines("dra-cpu-grouped") for each in check_cpus(cpu_series_from_json(line), counts)]

    assert differences == []
    assert counts["answers"] == 4_778
    assert counts["unknown"] == 0


def test_the_sample_has_every_theme_and_every_world_whose_answer_changed() -> None:
    worlds = list(lines("dra-1.36"))

    assert len({world["theme"] for world in worlds}) == 35
    assert sum("results_1.36.3" in world for world in worlds) == 43
    assert sum("others" in result for world in worlds for result in world["results"]) == 36
