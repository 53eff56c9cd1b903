"""The same names in another order are known again, with what was judged of their nodes; other names never are."""

from random import Random

import orjson

from extender.api.scheduler import SchedulerEndpoints
from extender.app import make_service
from extender.cluster.name_table import NameTable
from extender.config.settings import Settings
from extender.samples.nodes import Workload
from extender.scheduling.known_names import MAX_KNOWN, KnownNames
from extender.wire.node_names import NodeNames
from tests.asking import ask
from tests.observations import observation_of
from tests.reports import args_of, pod_of, sample

NAMES = [f"ip-10-{i // 9}-{i % 9}-17.example.internal" for i in range(40)]


def names_of(*names: str) -> NodeNames:
    read = NodeNames.proven(orjson.dumps(names))
    assert read is not None
    return read


def table_of(*names: str) -> NameTable:
    table = NameTable()
    for name in names:
        table.add(name)
    return table


def test_the_same_names_in_another_order_are_one_object_with_the_slots_of_its_order() -> None:
    table = table_of(*NAMES)
    known, first = KnownNames(table), names_of(*NAMES, "unknown")

    assert known.of(first) is first
    for seed in range(5):
        shuffled = [*NAMES, "unknown"]
        Random(seed).shuffle(shuffled)
        assert known.of(names_of(*shuffled)) is first
    assert first.slots is not None
    assert first.slots[1].tolist() == [*map(table.get, NAMES), -1]


def test_other_names_are_never_taken_for_known_ones() -> None:
    known, first = KnownNames(table_of(*NAMES)), names_of(*NAMES)
    known.of(first)
    others = [
        NAMES[1:],
        [*NAMES, "unknown"],
        [*NAMES[:-1], "unknown"],
        [*NAMES[:-1], NAMES[0]],  # one of them twice
        [*NAMES[:-1], NAMES[-1].replace("7", "8")],
        [*NAMES[:-2], NAMES[-2][:-1] + NAMES[-1][-2], NAMES[-1][:-2] + NAMES[-2][-1]],
        [*NAMES[:-1], "x" * 400],
    ]

    for names in others:
        found = known.of(names_of(*names))
        assert list(found) == names
        assert found.slots is not None
        assert len(found.slots[1]) == len(names)


def test_names_are_looked_up_again_when_a_node_came_or_went_and_few_are_kept() -> None:
    table = table_of(*NAMES)
    known, first = KnownNames(table), names_of(*NAMES, "late")
    known.of(first)
    slot = table.add("late")

    again = known.of(names_of("late", *NAMES))

    assert again is not first
    assert again.slots is not None
    assert again.slots[1][0] == slot
    assert known.of(first) is again
    for size in range(1, MAX_KNOWN + 1):
        known.of(names_of(*NAMES[:size]))
    assert known.of(names_of("late", *NAMES)) is not again


def test_a_repeated_call_is_answered_by_what_was_kept_until_a_node_changes_its_answer() -> None:
    service = make_service(Settings())
    calls = SchedulerEndpoints(
        service.scheduling, service.metrics, max_bytes=1 << 20, max_binding_bytes=0, clock=service.clock
    )
    full = sample(workloads=[Workload(name="w", copies=2, resources={"cpu": 13, "memory": "1Gi"})])
    for number, name in enumerate(NAMES):
        service.known.nodes.observe(observation_of(name, full if number % 2 else sample(), 1), service.clock())
    dice, refused = Random(3), set(NAMES[1::2])

    def asked() -> set[str]:
        dice.shuffle(names := [*NAMES])
        reply = ask(calls.filter_, args_of(pod_of(8), *names))
        passed: list[str] = reply["NodeNames"]
        assert len(passed) + len(reply["FailedAndUnresolvableNodes"]) == len(NAMES)
        scores = ask(calls.prioritize, args_of(pod_of(8), *passed))
        assert [each["Host"] for each in scores] == passed
        return set(reply["FailedAndUnresolvableNodes"])

    assert [asked() for _ in range(3)] == [refused] * 3
    (first,) = service.scheduling.filter._separated.values()
    service.known.nodes.observe(observation_of(NAMES[0], sample(topologyManagerPolicy="none"), 2), service.clock())
    assert asked() == refused  # another judgement, and the same answer
    (again,) = service.scheduling.filter._separated.values()
    assert again.codes.tolist() != first.codes.tolist()
    assert again.filtered is first.filtered
    service.known.nodes.observe(observation_of(NAMES[0], full, 3), service.clock())
    assert asked() == {NAMES[0], *refused}


def test_nothing_is_kept_of_the_names_in_node_objects_which_are_never_recognised() -> None:
    service = make_service(Settings())
    calls = SchedulerEndpoints(
        service.scheduling, service.metrics, max_bytes=1 << 20, max_binding_bytes=0, clock=service.clock
    )
    for name in NAMES:
        service.known.nodes.observe(observation_of(name, sample(), 1), service.clock())
    nodes = {"items": [{"metadata": {"name": name}} for name in NAMES]}

    reply = ask(calls.filter_, {**args_of(pod_of(8)), "NodeNames": None, "Nodes": nodes})

    assert reply["Nodes"]["items"] == nodes["items"]
    assert not calls._replied
    assert not service.judging._kept
