"""What a kubelet has left after it released the memory of several pods in any order, compared with `tests.oracle`."""

from dataclasses import replace
from random import Random

import orjson
import pytest

from extender.cluster.ledger import EMPTY, assume, leave
from extender.cluster.ledger import expire as forget_ended
from extender.cluster.projection import ProjectionInput, project
from extender.kubelet.restart import MAX_ORDERS, release_in_any_order
from extender.kubelet.state import (
    Block,
    CPUState,
    DeviceState,
    ManagerState,
    MemoryAmounts,
    MemoryState,
    NUMANodeMemory,
)
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.drill import machines
from tests.oracle.kubelet import NaiveKubelet
from tests.reports import pod_of
from tests.world.kubelet import report_of_kubelet

OVERLAPPING = (3, 4)
"""Nodes of the drill with kubelets 1.31 (pod scope) and 1.29 (container scope): groups of NUMA nodes can overlap."""


def _crowded(number: int, random: Random) -> NaiveKubelet:
    """A kubelet with pods on single NUMA nodes, and then some that need several."""
    scenario = machines.scenario(number)
    naive = NaiveKubelet.of(scenario)
    few, small, large = random.randint(1, 5), [(1, 1), (2, 1), (2, 3)], [(8, 12), (10, 16), (12, 20)]
    for each in range(8):
        cpus, gib = random.choice(small if each < few else large)
        naive.admit(pod_of(cpus, f"{gib}Gi", name=f"p{each}"))
    return naive


def _state(number: int, naive: NaiveKubelet) -> ManagerState:
    state = read_report(orjson.dumps(report_of_kubelet("n", machines.scenario(number), naive, "b", 1))).state
    assert state is not None
    return state


def _memory(state: ManagerState) -> tuple[NUMANodeMemory, ...]:
    return state.memory.nodes


@pytest.mark.parametrize("number", OVERLAPPING)
def test_each_state_that_the_kubelet_can_come_to_is_known_and_no_other(number: int) -> None:
    several = 0
    for seed in range(40):
        random = Random(seed)
        naive = _crowded(number, random)
        before, ended = _state(number, naive), random.sample(sorted(naive.active), min(3, len(naive.active)))
        for uid in ended:
            naive.remove(uid)
        states, is_all = release_in_any_order(before, ended)
        possible = set()
        for naive.memory in naive.memory.collected(naive.active):  # noqa: B020 - the list is made once
            possible.add(_memory(_state(number, naive)))

        assert is_all
        assert {_memory(state) for state in states} == possible
        assert len(states) == len(possible)
        several += len(states) > 1
    assert several > 3


def test_a_node_is_possible_where_the_order_of_releases_matters() -> None:
    """All pods have left. In a drill such a node counted as exact, and its kubelet had 2 GiB more."""
    naive = _crowded(3, Random(1))
    reported = _state(3, naive)
    kubelet = read_report(orjson.dumps(report_of_kubelet("n", machines.scenario(3), naive, "b", 1))).kubelet
    assert kubelet is not None
    ledger = EMPTY
    for uid in reported.pod_uids:
        ledger = leave(ledger, uid, 1.0)
    ledger = forget_ended(ledger, reported.pod_uids, 2.0, assume_seconds=120.0)
    possible = project(ProjectionInput(kubelet=kubelet, reported=reported, ledger=ledger, now=2.0)).possible

    states, is_all = release_in_any_order(reported, sorted(reported.pod_uids))
    assert (set(map(_memory, possible.states)), possible.complete) == (set(map(_memory, states)), is_all)
    assert len(states) > 1


@pytest.mark.parametrize("number", OVERLAPPING)
def test_ends_before_and_after_a_binding_are_released_together_in_any_order(number: int) -> None:
    """Seen red: in 19 of 120 such cases the kubelet had another state, and the node counted as exact."""
    for seed in range(20):
        naive = _crowded(number, Random(seed))
        report = read_report(orjson.dumps(report_of_kubelet("n", machines.scenario(number), naive, "b", 1)))
        assert report.kubelet is not None
        assert report.state is not None
        before, after = sorted(naive.active)[:2]
        coming = pod_of(1, "1Gi", name="coming")
        ledger = replace(EMPTY, left={before: 0.5})
        ledger = leave(assume(ledger, pod_from_json(coming), 1.0), after, 1.5)
        given = ProjectionInput(kubelet=report.kubelet, reported=report.state, ledger=ledger, now=2.0)
        possible = project(given).possible

        for uid in (before, after):
            naive.remove(uid)
        for naive.memory in naive.memory.collected(naive.active):  # noqa: B020 - the list is made once
            naive.active.pop("uid-coming", None)
            naive.admit(coming)
            assert _memory(_state(number, naive)) in set(map(_memory, possible.states)) or not possible.complete


def test_a_pod_of_many_containers_does_not_make_every_order_a_list() -> None:
    """Seen red: the orders of 12 containers of one pod took all memory of the process."""
    one, both, containers = 0b01, 0b11, 30
    amounts = MemoryAmounts(total=100, system_reserved=0, allocatable=100, reserved=100, free=0)
    held = {f"c{i}": (Block(both if i % 2 else one, "memory", 5),) for i in range(containers)}
    nodes = (
        NUMANodeMemory(0, containers, both, (("memory", amounts),)),
        NUMANodeMemory(1, containers // 2, both, (("memory", amounts),)),
    )
    memory = MemoryState(nodes=nodes, entries={"many": held, "few": {"c": (Block(both, "memory", 5),)}})
    before = ManagerState(cpu=CPUState(default=0), memory=memory, devices=DeviceState())

    states, is_all = release_in_any_order(before, ["few", "many"])

    assert not is_all
    assert 1 <= len(states) <= MAX_ORDERS + 1
    assert all(not state.memory.entries for state in states)
