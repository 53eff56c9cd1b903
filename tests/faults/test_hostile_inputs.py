"""No parser ends in anything but a value or its own clean error, whatever is fed to it."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.hostile_inputs import TARGETS, Tally, bend, hail, try_one


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_good_documents_are_taken(name: str) -> None:
    for body in TARGETS[name].seeds:
        TARGETS[name].parse(body)


def test_a_hail() -> None:
    tally = hail(20_000, seed=20_261_121)

    assert tally.broken == []
    assert tally.total == 20_000
    assert set(tally.taken) == set(TARGETS), "some input gets through everywhere, or the bending is too hard"


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(seed=st.integers(0, 2**32), raw=st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_what_hypothesis_finds(name: str, seed: int, raw: bytes) -> None:
    tally, chance = Tally(), random.Random(seed)
    for body in (raw, bend(chance.choice(TARGETS[name].seeds), chance)):
        try_one(name, body, tally)

    assert tally.broken == []
