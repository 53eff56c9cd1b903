"""Advice that is carried out in a small cluster ends as promised; and a promise that is not kept is found."""

import asyncio
from collections import Counter

import pytest

from tests.drill.advising import AdviceOutcome, AdvicePlan, Advising

GOOD = Counter(
    {
        "make-room plans": 5,
        "moves": 9,
        "restarted pods": 40,
        "recreated pods": 5,
        "tuned configurations": 30,
        "smaller requests": 2,
        "pods that may fail": 4,
    }
)


def test_every_plan_ends_as_promised() -> None:
    """What it takes is seconds: two small clusters."""
    outcome = AdviceOutcome()
    for seed in (3, 4):
        outcome.add(asyncio.run(Advising(AdvicePlan(seed=seed, nodes=5, rounds=2)).run()))

    assert outcome.broken == []


@pytest.mark.parametrize(
    ("done", "faults", "outside", "words"),
    [
        ({}, ["seed 1: p lies elsewhere"], 0, "p lies elsewhere"),
        ({"moves": 0}, [], 0, "moves: there were none"),
        ({"smaller requests": 0}, [], 0, "smaller requests: there were none"),
        ({}, [], 4, "4 numbers were outside their range"),
        ({"pods that may fail": 5}, [], 0, "unsure of 5 pods"),
    ],
)
def test_the_drill_fails_on_each_of_its_bounds(
    done: dict[str, int], faults: list[str], outside: int, words: str
) -> None:
    assert AdviceOutcome(done=GOOD, outside=["x"] * 3).broken == []
    (found,) = AdviceOutcome(done=Counter({**GOOD, **done}), faults=faults, outside=["x"] * outside).broken
    assert words in found
