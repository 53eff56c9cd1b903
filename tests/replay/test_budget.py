"""A replay ends when its budget is used up, and some algorithms that made it long are short now."""

import itertools

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kubelet.admission import admit, is_given_up
from extender.kubelet.budget import LOOK_EVERY, Budget
from extender.kubelet.cpu_distribution import distribute
from extender.kubelet.device_manager import MAX_ALTERNATIVES, Choices
from extender.kubelet.errors import DistributionHangError, OutOfStepsError, OutOfTimeError
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import touching_at_least
from extender.kubelet.verdict import Admitted, Certainty, Reason, Rejected
from extender.replay.possible_states import admit_in_all
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.faults.hostile_nodes import NIC, many_kinds_of_devices, many_numa_nodes, uneven_numa_nodes
from tests.oracle.cpu_distribute import walked_combinations
from tests.reports import pod_of, sample

NODE = sample()
POD = resolve(pod_from_json(pod_of(4)), NODE.kubelet.rules)


def test_steps_are_counted_and_end() -> None:
    budget = Budget(10)
    budget.spend(4)
    budget.spend(6)
    assert budget.used == 10
    with pytest.raises(OutOfStepsError, match="after 10 steps"):
        budget.spend()


def test_the_deadline_is_looked_at_now_and_then() -> None:
    looks: list[float] = []

    def is_over() -> bool:
        looks.append(budget.used)
        return len(looks) > 3

    budget = Budget(100 * LOOK_EVERY, is_over)
    for _ in range(3):
        budget.spend(LOOK_EVERY)
        budget.spend(2)
    with pytest.raises(OutOfTimeError):
        budget.spend(2 * LOOK_EVERY)
    assert len(looks) == 4


@given(st.integers(0, 200))
@settings(max_examples=60, deadline=None)
def test_a_replay_has_its_answer_or_says_that_it_has_none(steps: int) -> None:
    whole = admit(NODE.kubelet, NODE.state, POD)
    outcome = admit(NODE.kubelet, NODE.state, POD, budget=Budget(steps))

    if is_given_up(outcome.verdict):
        assert outcome.state is NODE.state
        assert outcome.verdict.certainty is Certainty.UNKNOWN
        assert isinstance(outcome.verdict, Rejected)
        assert outcome.verdict.reason is Reason.REPLAY_STEPS
    else:
        assert outcome == whole


def test_time_ends_all_states_together() -> None:
    budget = Budget(1e9, lambda: True)
    budget.spend(LOOK_EVERY)
    (outcome,) = admit_in_all(NODE.kubelet, (NODE.state,) * 3, POD, budget=budget)
    assert isinstance(outcome.verdict, Rejected)
    assert outcome.verdict.reason is Reason.REPLAY_TIME


def test_more_sets_than_the_kubelet_can_look_at_hang_it() -> None:
    report = read_report(orjson.dumps(many_numa_nodes("n")))
    assert report.kubelet is not None
    assert report.state is not None
    pod = resolve(pod_from_json(pod_of(8)), report.kubelet.rules)
    budget = Budget()
    verdict = admit(report.kubelet, report.state, pod, budget=budget).verdict

    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.KUBELET_HANG
    assert "it would try 3872894697 sets of NUMA nodes" in verdict.message
    assert budget.used < 1000


def test_a_search_that_nothing_makes_short_is_given_up() -> None:
    report = read_report(orjson.dumps(uneven_numa_nodes("n")))
    assert report.kubelet is not None
    assert report.state is not None
    pod = resolve(pod_from_json(pod_of(60)), report.kubelet.rules)
    verdict = admit(report.kubelet, report.state, pod, budget=Budget(20_000)).verdict

    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.REPLAY_STEPS
    assert verdict.message == "the replay was stopped after 20000 steps"


def test_equal_nodes_need_no_search() -> None:
    """C(28, 8) sets, all alike: the first one wins, and is shown as the kubelet's slice shows it at the end."""
    budget = Budget()
    plan = distribute(dict.fromkeys(range(28), 1), 8, 1, machine_cpus=28, machine_numa_nodes=28, budget=budget)
    assert plan is not None
    assert plan.nodes == (0, 1, 2, 3, 4, 25, 26, 27)
    assert budget.used < 100
    with pytest.raises(DistributionHangError, match="4426165368 sets"):
        distribute(dict.fromkeys(range(64), 1), 8, 1, machine_cpus=64, machine_numa_nodes=64)


@pytest.mark.parametrize(("nodes", "size"), [(n, k) for n in range(1, 10) for k in range(1, n + 1)])
def test_what_a_kept_slice_shows_at_the_end_of_the_walk(nodes: int, size: int) -> None:
    """Equal counts: the first combination wins, and the naive walk shows what becomes of its array."""
    first, *_ = list(walked_combinations(range(nodes), size))
    plan = distribute(dict.fromkeys(range(nodes), 3), size, 1, machine_cpus=nodes, machine_numa_nodes=nodes)
    assert plan is not None
    if nodes != size:  # else the balance is perfect, which ends the kubelet's walk
        assert plan.nodes == tuple(first.values())


def test_1500_kinds_of_devices_have_an_answer() -> None:
    report = read_report(orjson.dumps(many_kinds_of_devices("n")))
    assert report.kubelet is not None
    assert report.state is not None
    pod = resolve(pod_from_json(pod_of("500m", devices={NIC: 9})), report.kubelet.rules)
    verdict = admit(report.kubelet, report.state, pod, max_replays=1, budget=Budget(100_000)).verdict

    assert isinstance(verdict, Admitted)
    assert len(verdict.placements["app"].devices[NIC]) == 9


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.data())
@settings(max_examples=100, deadline=None)
def test_splits_come_in_the_order_of_the_kinds(sizes: list[int], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, sum(sizes) - 1))
    every = sorted(
        (s for s in itertools.product(*(range(size + 1) for size in sizes)) if sum(s) == count), reverse=True
    )
    number = data.draw(st.integers(0, min(len(every), MAX_ALTERNATIVES) - 1))
    choices = Choices((number,))

    assert choices.split(count, sizes) == every[number]
    assert choices.alternatives == [min(len(every), MAX_ALTERNATIVES)]


@given(
    st.lists(st.integers(0, 9), min_size=1, max_size=5, unique=True).map(sorted),
    st.dictionaries(st.integers(1, 1023), st.integers(1, 5), max_size=6),
    st.integers(-1, 20),
)
@settings(max_examples=200, deadline=None)
def test_touching_at_least_is_the_count_of_each_subset(ids: list[int], kinds: dict[int, int], wanted: int) -> None:
    family = touching_at_least(tuple(ids), tuple(sorted(kinds.items())), wanted)
    for number in range(1 << len(ids)):
        mask = sum(1 << numa for j, numa in enumerate(ids) if number >> j & 1)
        touched = sum(count for kind, count in kinds.items() if kind & mask)
        assert family >> number & 1 == (touched >= wanted)
