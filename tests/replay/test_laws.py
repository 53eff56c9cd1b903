"""Laws of the replay, on random small nodes: equal to the naive restatement, pure, repeatable, reversible."""

import copy
import itertools
from collections import Counter
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from extender.conformance.agreement import check
from extender.kubelet.admission import Outcome, admit, release_pods
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.hints import Distances, Hints, merge
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.observed import contradictions
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import (
    at_least,
    bits_of,
    fold,
    format_list,
    iter_bits,
    parse_list,
    touching_at_least,
    universe,
)
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Certainty, RecordingTrace, Rejected, Verdict, When
from extender.wire.scenarios import scenario_from_json
from tests.oracle import NaiveKubelet, NaiveKubeletError
from tests.replay.strategies import machines, scenarios

DRAWN = settings(max_examples=150)
IDS = (0, 1, 3, 4)
masks = st.sets(st.sampled_from(IDS), min_size=1).map(lambda ids: sum(1 << i for i in ids))


def _recorded_by_oracle(document: dict[str, Any]) -> dict[str, Any]:
    """The scenario with what the naive kubelet answers as its recording.

    A refused pod holds its memory until a manager looks next. Up to 1.31, the order in which the memory of several
    ended pods is released can decide what is free, and kubelets choose it at random: no such scenario is drawn. See
    test_release_orders.py for reports of such nodes.
    """
    document = copy.deepcopy(document)
    try:
        naive = NaiveKubelet.of(document, Random(7))
    except NaiveKubeletError as error:
        document["kubelet_error"] = str(error)
        return document
    for step in document["steps"]:
        if step["op"] == "admit":
            assume(len(naive.memory.collected(naive.active, limit=50)) == 1)
            step["expect"] = naive.admit(step["pod"])
        else:
            getattr(naive, step["op"])(step["uid"])
    return document


@settings(DRAWN, max_examples=400)
@given(scenarios())
def test_the_engine_equals_the_naive_kubelet(document: dict[str, Any]) -> None:
    recorded = _recorded_by_oracle(document)

    differences = check(scenario_from_json(recorded), Counter())
    assume(
        "KubeletHang" not in (d.replayed for d in differences)
    )  # the naive kubelet gives up where the real one loops

    # where both refuse to start the words may differ: only the vectors hold the kubelet's own
    assert [d for d in differences if d.path != "kubelet_error" or None in (d.recorded, d.replayed)] == []


History = tuple[Kubelet, list[tuple[ManagerState, PodRequest]]]
"""A kubelet, and every admission on it with the state it starts from."""


def _history(document: dict[str, Any]) -> History | None:
    """The history of a scenario; None when no kubelet starts."""
    scenario = scenario_from_json(document)
    try:
        kubelet = start(scenario.machine, scenario.config)
    except KubeletConfigError:
        return None
    state = initial_state(kubelet, scenario.devices)
    admissions = []
    for step in scenario.steps:
        if step.pod is not None:
            request = resolve(step.pod, kubelet.rules)
            admissions.append((state, request))
            state = admit(kubelet, state, request).state
        elif step.op == "remove":
            state = release_pods(state, [step.uid])
    return kubelet, admissions


histories: st.SearchStrategy[History] = scenarios().map(_history).filter(lambda h: h is not None)  # type: ignore[assignment]


@settings(DRAWN, max_examples=300)
@given(histories)
def test_laws_of_every_admission(history: History) -> None:
    """All of them on the same histories: drawing one costs more than most laws."""
    kubelet, admissions = history
    for state, request in admissions:
        outcome = _repeatable_admission(kubelet, state, request)
        _is_given_back(state, release_pods(outcome.state, [request.uid]))
        _is_consistent(kubelet, request, outcome)
        _is_never(outcome.verdict, [admit(kubelet, other, request).verdict for other, _ in admissions])
        _is_the_quick_verdict(outcome, admit(kubelet, state, request, verdict_only=True).verdict)
        # The kubelet takes a whole socket, reserved CPUs included, if as many of its CPUs are free as sockets have on
        # average. That can only be where sockets differ in size.
        if len({cpus.bit_count() for cpus in kubelet.machine.socket_cpus.values()}) == 1:
            _is_disjoint_and_as_asked(kubelet, request, outcome.verdict)


def _repeatable_admission(kubelet: Kubelet, state: ManagerState, request: PodRequest) -> Outcome:
    """The same each time, also if it is traced; and the state that it starts from stays as it is."""
    before = copy.deepcopy(state)

    first, second = admit(kubelet, state, request), admit(kubelet, state, request)

    assert state == before
    assert first == second
    assert admit(kubelet, state, request, RecordingTrace()).verdict == first.verdict
    return first


def _is_given_back(state: ManagerState, after: ManagerState) -> None:
    """Once the pod is released, what it took is free as before."""
    assert after.cpu.default == state.cpu.default
    assert after.cpu.entries == state.cpu.entries
    assert after.memory.entries == state.memory.entries
    assert after.devices.held.items() <= {**state.devices.held}.items()
    assert [n.assignments for n in after.memory.nodes] == [n.assignments for n in state.memory.nodes]
    for name in ("memory", "hugepages-2Mi"):
        free = [sum(a.free for n in s.memory.nodes if (a := dict(n.amounts).get(name))) for s in (state, after)]
        assert free[0] == free[1]


def _is_consistent(kubelet: Kubelet, request: PodRequest, outcome: Outcome) -> None:
    """The state after it contradicts nothing, and a refusal leaves nothing of the pod."""
    assert contradictions(kubelet, outcome.state)[0] == {}
    if isinstance(outcome.verdict, Rejected):
        assert request.uid not in outcome.state.pod_uids


def _is_never(verdict: Verdict, in_other_states: list[Verdict]) -> None:
    """A pod that a node can never admit is refused in every other state of that node as well."""
    if isinstance(verdict, Rejected) and verdict.when is When.NEVER:
        assert all(isinstance(other, Rejected) for other in in_other_states)


def _is_the_quick_verdict(full: Outcome, quick: Verdict) -> None:
    """To skip choices that cannot decide changes no verdict."""
    if full.complete:
        assert quick == full.verdict
    else:  # too many choices to try each one, so nothing is certain of placements
        assert not full.undecided or quick.certainty is Certainty.POSSIBLE
        assert quick == replace(full.verdict, certainty=quick.certainty)


def _is_disjoint_and_as_asked(kubelet: Kubelet, request: PodRequest, verdict: Verdict) -> None:
    """Each container gets as many CPUs as it asked for, none of them reserved or of a container beside it."""
    if not isinstance(verdict, Admitted):
        return
    running = 0
    for container in request.containers:
        cpus = verdict.placements[container.name].cpus
        assert cpus.bit_count() == (container.cpus if kubelet.cpu_static else 0)
        assert not cpus & kubelet.reserved_cpus
        if not container.reusable:
            assert not cpus & running
            running |= cpus


@DRAWN
@given(scenarios(), st.integers(0, 5))
def test_equal_keys_answer_alike(document: dict[str, Any], index: int) -> None:
    """Whoever holds what: renaming the pods of a history changes no verdict for a new pod."""
    renamed = copy.deepcopy(document)
    for step in renamed["steps"]:
        if step["op"] == "admit":
            step["pod"]["metadata"]["uid"] += "-renamed"
        else:
            step["uid"] += "-renamed"
    ours, theirs = _history(document), _history(renamed)
    if ours is None or theirs is None:
        return
    kubelet, admissions = ours
    state, request = admissions[index % len(admissions)]
    other = theirs[1][index % len(admissions)][0]

    assert state.key == other.key
    assert admit(kubelet, state, request).verdict == admit(kubelet, other, request).verdict


# -- the algebra


def _literal_merge(lists: list[Hints], default: int, distances: Distances | None) -> tuple[int, bool]:
    """The walk over the cross product, candidate by candidate, as a plain sort."""
    width = max((min((m.bit_count() for m in h.masks), default=0) for h in lists), default=0)
    options: list[list[tuple[int | None, bool]]] = [
        [(m, m in h.preferred_masks) for m in h.masks] or [(None, False)] for h in lists
    ]
    candidates = []
    for choice in itertools.product(*options):
        affinities = {m for m, _ in choice if m is not None}
        mask = default
        for m in affinities:
            mask &= m
        if mask:
            candidates.append((mask, all(p for _, p in choice) and len(affinities) <= 1))
    if not candidates:
        return default, False

    def rank(candidate: tuple[int, bool]) -> tuple[object, ...]:
        mask, preferred = candidate
        size = mask.bit_count()
        tier = (0, 0) if preferred or size == width else (1, -size) if size < width else (2, size)
        return not preferred, tier, size, distances.average(mask) if distances else 0.0, mask

    return min(candidates, key=rank)


@st.composite
def hint_lists(draw: st.DrawFn) -> Hints:
    space = universe(IDS)
    feasible = draw(st.sets(masks, max_size=8))
    preferred = draw(st.sets(st.sampled_from(sorted(feasible)), max_size=4)) if feasible else set()
    return Hints(space, space.family(feasible), space.family(preferred))


@settings(max_examples=500)
@given(st.lists(hint_lists(), max_size=4), st.booleans(), st.randoms(use_true_random=False))
def test_merge_equals_the_walk_in_any_order(lists: list[Hints], closest: bool, random: Random) -> None:  # noqa: FBT001
    default = sum(1 << i for i in IDS)
    distances = Distances({i: [10 if i == j else 10 + abs(i - j) for j in range(5)] for i in IDS}) if closest else None
    shuffled = random.sample(lists, len(lists))

    hint, _ = merge(lists, default, distances)

    assert tuple(hint) == _literal_merge(lists, default, distances)
    assert merge(shuffled, default, distances)[0] == hint


@settings(max_examples=200)
@given(st.lists(st.sets(masks, min_size=1, max_size=10), min_size=1, max_size=3))
def test_fold_equals_all_intersections(families: list[set[int]]) -> None:
    space = universe(IDS)
    expected = set()
    for choice in itertools.product(*families):
        mask = choice[0]
        for m in choice:
            mask &= m
        expected.add(mask)

    folded = fold([space.family(f) for f in families], len(IDS))

    assert set(space.masks(folded)) == expected


@settings(max_examples=300)
@given(st.lists(st.integers(0, 9), min_size=1, max_size=6), st.integers(-2, 30))
def test_at_least_equals_summing(amounts: list[int], wanted: int) -> None:
    expected = {
        number
        for number in range(1 << len(amounts))
        if sum(a for i, a in enumerate(amounts) if number >> i & 1) >= wanted
    }

    family = at_least(tuple(amounts), wanted)

    assert {n for n in range(1 << len(amounts)) if family >> n & 1} == expected


@settings(max_examples=300)
@given(st.dictionaries(st.one_of(masks, st.just(1 << 9)), st.integers(1, 4), max_size=5), st.integers(-1, 10))
def test_touching_equals_counting(kinds: dict[int, int], wanted: int) -> None:
    space = universe(IDS)
    expected = {m for m in (0, *_all_masks()) if sum(n for k, n in kinds.items() if k & m) >= wanted}

    family = touching_at_least(IDS, tuple(sorted(kinds.items())), wanted)

    assert set(space.masks(family)) == expected


def _all_masks() -> list[int]:
    return [sum(1 << i for i in c) for size in range(1, 5) for c in itertools.combinations(IDS, size)]


@given(masks, masks)
def test_universe_laws(a: int, b: int) -> None:
    space = universe(IDS)
    everything = set(space.masks(space.everything))

    assert space.mask(space.number(a)) == a
    assert set(space.masks(space.touching(a))) == {m for m in everything if m & a}
    assert set(space.masks(space.containing(a))) == {m for m in everything if m & a == a}
    assert space.touching(a) | space.touching(b) == space.touching(a | b)
    assert space.containing(a) & space.containing(b) == space.containing(a | b)
    assert space.embed(1, universe((0, 3))) == space.family([0])
    assert set(space.masks(space.embed(universe((0, 3)).everything, universe((0, 3))))) == {0, 1, 8, 9}
    for width in range(5):
        assert set(space.masks(space.by_width[width])) == {m for m in everything if m.bit_count() == width}


@given(st.sets(st.integers(0, 200)))
def test_a_list_names_the_ids_of_its_set(ids: set[int]) -> None:
    bits = bits_of(ids)

    assert set(iter_bits(bits)) == ids
    assert parse_list(format_list(bits)) == bits


@DRAWN
@given(machines())
def test_every_cpu_is_in_one_core_and_one_numa_node(document: dict[str, Any]) -> None:
    machine = scenario_from_json(
        {"id": "m", "kubelet_version": "1.36", "machine": document, "kubelet": {}, "devices": {}, "steps": []}
    ).machine

    for parts in (machine.core_cpus, machine.numa_cpus, machine.socket_cpus, machine.uncore_cpus):
        assert sum(bits.bit_count() for bits in parts.values()) == machine.num_cpus
        assert sum(parts.values()) == machine.all_cpus
