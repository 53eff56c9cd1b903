"""A few rounds of preemption: nobody is evicted on a node that the preemptor does not go to."""

import asyncio

import pytest

from tests.drill.preempting import Preempting, PreemptionPlan


@pytest.mark.parametrize("finish_seconds", [3.0, 0.0])
def test_no_victim_dies_for_nothing(finish_seconds: float) -> None:
    """Of 15 and 14 victims, 2 and 1 died for nothing before nominations were read."""
    plan = PreemptionPlan(rounds=20, seed=2, finish_seconds=finish_seconds)

    outcome = asyncio.run(Preempting(plan).run())

    assert outcome.for_nothing == []
    assert outcome.refusals == []
    assert outcome.victims >= 10
    assert outcome.placed == plan.rounds
