"""No parser ends in anything but a value or its own clean error, whatever is fed to it."""

import json
import random

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.intake import report_facts
from extender.wire.errors import WireError
from extender.wire.reports import read_report
from tests.faults.author import valid_pod
from tests.faults.declared import Maker
from tests.faults.hostile_inputs import TARGETS, Tally, bend, hail, try_one
from tests.faults.kinds import asked, each_field_bent, read_by_calls, read_by_watch, sources
from tests.faults.typed import bent
from tests.nri_samples import nri_report, placed_pod

BOUND_PODS = "/api/v1/pods spec.nodeName!="
OF_EVERY_KIND: tuple[object, ...] = (
    None,
    True,
    -1,
    10**40,
    0.5,
    "",
    "a" * 5000,
    [],
    {},
    [[]],
    [None],
    {"": None},
    {"a": {"a": []}},
)


@pytest.mark.parametrize("name", sorted(TARGETS))
def test_the_good_documents_are_taken(name: str) -> None:
    for body in TARGETS[name].seeds:
        TARGETS[name].parse(body)


def test_a_hail() -> None:
    tally = hail(20_000, seed=20_261_121)

    assert tally.broken == []
    assert tally.total == 20_000
    assert set(tally.taken) == set(TARGETS), "some input gets through everywhere, or the bending is too hard"


@pytest.mark.parametrize("path", sorted(sources()))
def test_every_field_that_a_reader_of_the_api_asks_for_with_every_kind_of_value(path: str) -> None:
    read, broken = read_by_watch(path), {}
    for field, document in each_field_bent(path, OF_EVERY_KIND):
        raw = json.dumps(document).encode()
        try:
            read(raw)
            if path == BOUND_PODS:
                read_by_calls(orjson.loads(raw))
        except Exception as error:  # noqa: BLE001 - that is what is looked for
            broken[".".join(field)] = repr(error)

    assert broken == {}


@pytest.mark.parametrize("name", sorted(TARGETS))
@given(seed=st.integers(0, 2**32), raw=st.binary(max_size=200))
@settings(max_examples=30, deadline=None)
def test_what_hypothesis_finds(name: str, seed: int, raw: bytes) -> None:
    tally, chance = Tally(), random.Random(seed)
    for body in (raw, bend(chance.choice(TARGETS[name].seeds), chance)):
        try_one(name, body, tally)

    assert tally.broken == []


def test_what_the_types_of_a_report_allow_is_taken_or_refused_in_words() -> None:
    chance, taken, refused = random.Random(28), 0, 0
    good = orjson.dumps(nri_report("n", [placed_pod("p", "1", "1Gi")], devices={"vendor.example/gpu": [0]}))
    for _ in range(400):
        report = orjson.dumps(bent(orjson.loads(good), chance, places=chance.choice((1, 2, 4))))
        try:
            report_facts(read_report(report))
            taken += 1
        except WireError:
            refused += 1

    assert taken > 100
    assert refused > 50


def test_objects_of_the_author_are_read_and_differ() -> None:
    """The generator says nothing if everything it makes is skipped, or is one and the same."""
    chance = random.Random(28)
    maker = Maker("pod-v1", asked("pod-v1"), chance)
    pods = [valid_pod(maker, f"p{i}", chance, "node-0") for i in range(300)]
    read = read_by_watch(BOUND_PODS)

    for pod in pods:
        pod["metadata"]["uid"] = pod["metadata"]["name"]
    assert sum(read(orjson.dumps(pod)) is not None for pod in pods) > 270
    used = {key for pod in pods for key in pod["metadata"]["annotations"]}
    assert used >= {"numa-extender.io/group", "resource-policy.nri.io/affinity", "kubernetes.io/config.mirror"}
    spec = {key for pod in pods for key in pod["spec"]}
    assert spec >= {"tolerations", "affinity", "schedulingGroup", "resourceClaims", "overhead", "resources"}
