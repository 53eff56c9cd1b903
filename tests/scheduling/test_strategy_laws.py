"""Laws of all strategies on random small nodes: bounds, order, and scores that use the whole range."""

from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.cluster.node_class import ClassTable
from extender.kubelet.admission import admit, release_pods
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.possible_states import PossibleStates
from extender.scheduling.judge import BoundedJudge, judge_all
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.headrooms import headrooms_of
from extender.scheduling.ranking.placement import AdmissionOutcome
from extender.scheduling.ranking.strategies import FULL, STRATEGIES, Weights, make_strategy
from extender.scheduling.scoring import score_nodes
from extender.wire.scenarios import scenario_from_json
from tests.replay.strategies import scenarios

DRAWN = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
ALIKE = Weights({})
LEAST, MOST = make_strategy("least-allocated", ALIKE), make_strategy("most-allocated", ALIKE)
BOUNDS = {
    "least-numa": (-10 * 1000 * 1000, 0),
    "least-numa-fragmentation": (-12 * 10 * 1000 * 1000 - 11_000, 0),
    "least-fragmentation": (-11_000, 0),
    "least-allocated": (0, FULL),
    "most-allocated": (0, FULL),
    "balanced": (FULL // 2 - 1, FULL),
}


def _admissions(document: dict[str, Any]) -> Iterator[tuple[Kubelet, ManagerState, PodRequest]]:
    """Every pod of the history with the state that it meets."""
    scenario = scenario_from_json(document)
    try:
        kubelet = start(scenario.machine, scenario.config)
    except KubeletConfigError:
        return
    state = initial_state(kubelet, scenario.devices)
    for step in scenario.steps:
        if step.pod is not None:
            request = resolve(step.pod, kubelet.rules)
            yield kubelet, state, request
            state = admit(kubelet, state, request).state
        elif step.op == "remove":
            state = release_pods(state, [step.uid])


def _outcome(kubelet: Kubelet, state: ManagerState, request: PodRequest) -> AdmissionOutcome | None:
    outcome = admit(kubelet, state, request)
    if not isinstance(outcome.verdict, Admitted):
        return None
    return AdmissionOutcome(kubelet=kubelet, before=state, after=outcome.state, admitted=outcome.verdict)


def _outcomes(document: dict[str, Any]) -> Iterator[AdmissionOutcome]:
    return filter(None, (_outcome(*admission) for admission in _admissions(document)))


@DRAWN
@given(scenarios(), st.dictionaries(st.sampled_from(["cpu", "memory", "gpu.example/gpu"]), st.integers(0, 100)))
def test_merits_are_bounded_whatever_the_weights(document: dict[str, Any], named: dict[str, int]) -> None:
    weights = Weights(named)
    for outcome in _outcomes(document):
        counted = any(weights[name] for name, *_ in outcome.taken())
        for name, (worst, best) in BOUNDS.items():
            merit = make_strategy(name, weights)(outcome)

            assert worst <= merit <= best or (merit == 0 and not counted)


@DRAWN
@given(scenarios())
def test_room_is_consistent(document: dict[str, Any]) -> None:
    for kubelet, state, _ in _admissions(document):
        for room in headrooms_of(kubelet, state).values():
            assert 0 <= room.free <= room.capacity
            assert 0 <= room.largest <= room.free


@DRAWN
@given(scenarios(), st.integers(2, 100))
def test_weights_count_by_their_proportion(document: dict[str, Any], factor: int) -> None:
    scaled = Weights(dict.fromkeys(("cpu", "memory", "hugepages-2Mi", "gpu.example/gpu", "nic.example/vf"), factor))
    for outcome in _outcomes(document):
        for name in STRATEGIES:
            assert make_strategy(name, scaled)(outcome) == make_strategy(name, ALIKE)(outcome)


@settings(DRAWN, max_examples=150)
@given(scenarios())
def test_an_emptier_node_is_never_worse_under_least_allocated_nor_better_under_most(document: dict[str, Any]) -> None:
    """Init containers are left out: how much later containers reuse of them depends on where they land."""
    for kubelet, state, request in _admissions(document):
        if any(c.reusable for c in request.containers):
            continue
        fuller = _outcome(kubelet, state, request)
        for uid in sorted(state.pod_uids):
            emptier = _outcome(kubelet, release_pods(state, [uid]), request)
            if fuller is not None and emptier is not None:
                assert LEAST(emptier) >= LEAST(fuller)
                assert MOST(emptier) <= MOST(fuller)


@DRAWN
@given(scenarios())
def test_least_and_most_allocated_are_opposites(document: dict[str, Any]) -> None:
    for outcome in _outcomes(document):
        if any(outcome.taken()):
            assert 0 <= FULL - LEAST(outcome) - MOST(outcome) <= 1


@DRAWN
@given(scenarios())
def test_keeping_the_largest_room_beats_everything_else(document: dict[str, Any]) -> None:
    """What costs no largest room costs at most 1,000; what costs all that is taken costs at least 10,000."""
    fragmentation = make_strategy("least-fragmentation", ALIKE)
    for outcome in _outcomes(document):
        rooms = [(b.largest - a.largest, b.free - a.free, b.largest) for _, b, a in outcome.taken()]
        if all(lost <= 0 for lost, *_ in rooms):
            assert fragmentation(outcome) >= -1000
        if rooms and all(largest and lost >= taken for lost, taken, largest in rooms):
            assert fragmentation(outcome) <= -10_000


@pytest.mark.parametrize("name", STRATEGIES)
@settings(DRAWN, max_examples=40)
@given(scenarios())
def test_scores_are_ints_that_use_the_whole_range_in_the_order_of_merits(name: str, document: dict[str, Any]) -> None:
    """The states of one node in its history, as if they were so many nodes."""
    table = ClassTable()
    admissions = list(_admissions(document))
    classes = [
        table.hold(kubelet, PossibleStates((state,)), frozenset(), stale=False) for kubelet, state, _ in admissions
    ]
    judge = BoundedJudge(make_strategy(name, ALIKE), UncertaintyPolicy())
    for step in (s for s in scenario_from_json(document).steps if s.pod is not None):
        assert step.pod is not None
        judgements = judge_all(judge, PodShape(step.pod), set(classes)).judgements

        scores = score_nodes([judgements[each.id] for each in classes])

        assert all(type(score) is int and 0 <= score <= 10 for score in scores)
        merits = {c: judgements[c.id].merit for c in classes if judgements[c.id].refusal is None}
        ranked = sorted((m, s) for c, s in zip(classes, scores, strict=True) if (m := merits.get(c)) is not None)
        assert [s for _, s in ranked] == sorted(s for _, s in ranked)
        if ranked:
            assert ranked[-1][1] == 10
            assert ranked[0][1] == (0 if ranked[0][0] < ranked[-1][0] else 10)
