"""Judging classes, filter, prioritize: what certainty, settings and memory do to the answers."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.app import make_service
from extender.cluster.node_class import UNKNOWN, ClassTable, NodeClass
from extender.cluster.store import NodeStore
from extender.config.settings import Settings
from extender.kubelet.budget import Budget
from extender.kubelet.errors import OutOfStepsError, OutOfTimeError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.verdict import Admitted, Certainty, Provider
from extender.questions.node_context import NOTHING_KNOWN
from extender.questions.what_if import what_if
from extender.replay.pod import Pod
from extender.replay.possible_states import PossibleStates
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.cached_judge import PAUSE_SHARE
from extender.scheduling.filter import PASSED, counts_of, filtered_by_judgements
from extender.scheduling.judge import LOOP_STEPS, SHARES, SLOW, BoundedJudge, judge_all, judge_quickly
from extender.scheduling.judgement import INDIFFERENT, Action, Judgement, Trouble, UncertaintyPolicy
from extender.scheduling.pod_shape import FEW, JudgementCache, Kinds, NodeAnswers, PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.unjudged import UnjudgedClasses
from extender.scheduling.scoring import scale_of, score_nodes, score_of_one
from extender.wire.pods import pod_from_json
from extender.wire.workloads import workload_from_json
from tests.cluster.reading import classes_at
from tests.observations import observation_of
from tests.reports import DUAL, pod_of, sample
from tests.subjects import live

EMPTY = sample()
FULL = sample(workloads=[Workload(name="w", copies=2, resources={"cpu": 14, "memory": "1Gi"})])
SPREADING = sample(
    topologyManagerPolicy="best-effort",
    workloads=[Workload(name="w", copies=2, resources={"cpu": 10, "memory": "1Gi"})],
)
NEWER_FREE = sample(version="v1.99.0")
NEWER_FULL = sample(version="v1.99.0", workloads=[Workload(name="w", copies=2, resources={"cpu": 14, "memory": "1Gi"})])
NONE = sample(cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none")
NO_IDS = np.zeros(0, np.int64)
TABLE = ClassTable()
PASS, REFUSE, REPLAY = Action.PASS, Action.REFUSE, Action.REPLAY


def _class(node: SampleNode, *, stale: bool = False, hidden: frozenset[Provider] = frozenset()) -> NodeClass:
    return TABLE.hold(node.kubelet, PossibleStates((node.state,)), hidden, stale=stale)


def _shape(**wanted: Any) -> PodShape:
    return PodShape(pod_from_json(pod_of(**wanted)))


def _burstable() -> PodShape:
    pod = pod_of()
    pod["status"]["qosClass"] = "Burstable"
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}
    return PodShape(pod_from_json(pod))


def _judge(shape: PodShape, node_class: NodeClass, **doubts: Action) -> Judgement:
    return BoundedJudge(least_numa, UncertaintyPolicy(**doubts))(shape, node_class)


@pytest.mark.parametrize(
    ("node", "cpus", "refusal"),
    [
        (EMPTY, 14, None),
        (EMPTY, 16, None),
        (EMPTY, 17, RefusalReason.ALIGNMENT_NEVER),
        (FULL, 2, None),
        (FULL, 3, RefusalReason.ALIGNMENT_NOW),
        (SPREADING, 8, None),
        (NONE, 8, None),
    ],
)
def test_the_replay_decides(node: SampleNode, cpus: int, refusal: RefusalReason | None) -> None:
    judgement = _judge(_shape(cpu=cpus), _class(node))

    assert judgement.refusal is refusal
    assert judgement.certainty is Certainty.EXACT


def test_a_pod_that_no_manager_aligns_passes_everywhere_known() -> None:
    for node_class in (
        _class(FULL),
        _class(FULL, stale=True),
        _class(EMPTY, hidden=frozenset(Provider) - {Provider.RUNTIME}),
    ):
        assert _judge(_burstable(), node_class, unknown=REFUSE, stale=REFUSE) == INDIFFERENT


@pytest.mark.parametrize(("treatment", "refusal"), [(PASS, None), (REFUSE, RefusalReason.UNKNOWN)])
def test_unknown_nodes_are_treated_as_set(treatment: Action, refusal: RefusalReason | None) -> None:
    for node_class in (UNKNOWN, _class(EMPTY, hidden=frozenset({Provider.CPU}))):
        judgement = _judge(_shape(), node_class, unknown=treatment)

        assert judgement == Judgement(refusal, Certainty.UNKNOWN)


def test_a_hidden_manager_that_the_pod_does_not_need_matters_not() -> None:
    judgement = _judge(_shape(), _class(EMPTY, hidden=frozenset({Provider.DEVICE})), unknown=REFUSE)

    assert judgement.refusal is None
    assert judgement.certainty is Certainty.EXACT


@pytest.mark.parametrize(
    ("treatment", "on_full", "on_empty"),
    [
        (REPLAY, RefusalReason.ALIGNMENT_NOW, None),
        (PASS, None, None),
        (REFUSE, RefusalReason.STALE, RefusalReason.STALE),
    ],
)
def test_stale_nodes_are_treated_as_set(
    treatment: Action, on_full: RefusalReason | None, on_empty: RefusalReason | None
) -> None:
    for node, refusal in ((FULL, on_full), (EMPTY, on_empty)):
        judgement = _judge(_shape(cpu=4), _class(node, stale=True), stale=treatment)

        assert judgement.refusal is refusal
        assert judgement.certainty is Certainty.STALE


@pytest.mark.parametrize(
    ("treatment", "free", "full"),
    [
        (REPLAY, None, RefusalReason.ALIGNMENT_NOW),
        (PASS, None, None),
        (REFUSE, RefusalReason.NEWER, RefusalReason.NEWER),
    ],
)
def test_a_node_with_a_newer_kubelet_is_assumed_and_treated_as_the_setting_says(
    treatment: Action, free: RefusalReason | None, full: RefusalReason | None
) -> None:
    answers = [_judge(_shape(cpu=8), _class(node), newer=treatment) for node in (NEWER_FREE, NEWER_FULL)]

    assert [answer.refusal for answer in answers] == [free, full]
    assert {answer.certainty for answer in answers} == {Certainty.ASSUMED}
    assert _judge(_burstable(), _class(NEWER_FULL), newer=treatment) == INDIFFERENT


def test_filter_keeps_the_order_and_gives_each_node_one_place() -> None:
    names = ["d", "a", "unknown", "c", "b"]
    classes = [_class(FULL), _class(EMPTY), UNKNOWN, _class(FULL), _class(EMPTY)]
    shape = _shape(cpu=4)
    judgements = judge_all(BoundedJudge(least_numa, UncertaintyPolicy()), shape, set(classes)).judgements
    kinds = Kinds()
    codes = np.array([kinds.code(judgements[each.id]) for each in classes])
    entry = JudgementCache(1).entry(shape.pod)
    answers = NodeAnswers(
        names=names, classes=np.array(classes, np.object_), codes=codes, kinds=kinds, version=1, entry=entry
    )

    filtered = filtered_by_judgements(answers)

    assert filtered.feasible == ["a", "unknown", "b"]
    assert filtered.refused == dict.fromkeys("dc", RefusalReason.ALIGNMENT_NOW.text)
    assert counts_of(answers) == {
        (RefusalReason.ALIGNMENT_NOW.text, Certainty.EXACT): 2,
        (PASSED, Certainty.EXACT): 2,
        (PASSED, Certainty.UNKNOWN): 1,
    }


def test_scores_use_the_whole_range_and_rank_what_is_sure_and_aligned_first() -> None:
    classes = [
        _class(EMPTY),
        _class(SPREADING),
        UNKNOWN,
        _class(EMPTY, stale=True),
        _class(FULL),
        _class(NONE),
        _class(EMPTY),
    ]
    shape = _shape(cpu=8)
    judgements = judge_all(BoundedJudge(least_numa, UncertaintyPolicy()), shape, set(classes)).judgements

    scores = score_nodes([judgements[each.id] for each in classes])

    assert scores == [10, 0, 0, 5, 0, 0, 10]
    assert {type(score) for score in scores} == {int}


def test_scores_between_best_and_worst_are_proportional() -> None:
    merits = {1: 0, 2: -250, 3: -1000, 4: -449, 5: -450}
    scores = score_nodes([Judgement(None, Certainty.EXACT, merit) for merit in merits.values()])

    assert scores == [10, 8, 0, 6, 6]


_judgements = st.builds(
    Judgement,
    st.sampled_from([None, None, RefusalReason.CPUS_NOW]),
    st.sampled_from(Certainty),
    st.one_of(st.none(), st.integers(-(10**30), 10**30), st.integers(-3, 3)),
    misses=st.booleans(),
)


@given(st.lists(st.lists(_judgements, min_size=1, max_size=12), max_size=4))
def test_scores_by_column_are_those_of_each_node(requests: list[list[Judgement]]) -> None:
    kinds = Kinds()
    for request in requests:
        codes = np.array([kinds.code(each) for each in request])

        scores = kinds.scores_of(codes, scale_of(request), score_of_one).tolist()

        assert scores == score_nodes(request)


def test_equal_nodes_all_get_the_best_score() -> None:
    judgements = judge_all(BoundedJudge(least_numa, UncertaintyPolicy()), _shape(), [_class(EMPTY)]).judgements

    assert score_nodes([*judgements.values()] * 2) == [10, 10]


def test_spanning_more_and_farther_numa_nodes_costs_more() -> None:
    near = sample(hardware=replace(DUAL, distances=(10, 12)), topologyManagerPolicy="best-effort")
    far = sample(hardware=replace(DUAL, distances=(10, 40)), topologyManagerPolicy="best-effort")
    one, two_near, two_far = (
        _judge(_shape(cpu=cpus, memory=memory), _class(node)).merit
        for cpus, memory, node in ((8, "1Gi", near), (20, "40Gi", near), (20, "40Gi", far))
    )

    assert one == 0
    assert two_near == -1002
    assert two_far == -1030


def test_a_pod_shape_is_judged_once_for_each_class() -> None:
    cache = JudgementCache(1000)
    shape = cache.entry(pod_from_json(pod_of(name="first")))
    classes = [_class(EMPTY), _class(FULL)]
    assert shape.missing(classes) == classes
    cache.store(
        shape, judge_all(BoundedJudge(least_numa, UncertaintyPolicy()), shape.shape, classes).judgements, NO_IDS
    )

    again = cache.entry(pod_from_json(pod_of(name="second")))

    assert again is shape
    assert again.missing([*classes, UNKNOWN]) == [UNKNOWN]


def test_the_next_replica_is_not_taken_for_the_one_that_the_node_holds() -> None:
    cache, held = JudgementCache(1000), FULL.pods[0]["metadata"]["uid"]
    first = pod_of(cpu=14)
    first["metadata"]["uid"] = held
    cache.entry(pod_from_json(first))
    second = cache.entry(pod_from_json(pod_of(cpu=14)))

    judgements = judge_all(BoundedJudge(least_numa, UncertaintyPolicy()), second.shape, [_class(FULL)]).judgements

    assert {judgement.refusal for judgement in judgements.values()} == {RefusalReason.ALIGNMENT_NOW}


def _light(cpus: int) -> Pod:
    """A pod whose shape counts as one judgement."""
    return replace(pod_from_json(pod_of(cpu=cpus)), weight_bytes=0)


def test_a_heavy_shape_counts_as_many_judgements() -> None:
    cache = JudgementCache(4000)
    light = [cache.entry(_light(cpus)) for cpus in range(1, 5)]

    heavy = [cache.entry(replace(_light(cpus), weight_bytes=40_000)) for cpus in range(5, 8)]

    assert [cache._shapes.get(each.key) is each for each in light] == [False] * 4
    assert [cache._shapes.get(each.key) is each for each in heavy] == [False, True, True]
    assert len(cache) == 2 * 401


def test_the_shapes_asked_for_longest_ago_are_forgotten_first() -> None:
    cache = JudgementCache(12)
    shapes = [cache.entry(_light(cpus)) for cpus in (1, 2, 3)]
    cache.entry(shapes[0].shape.pod)
    cache.store(shapes[2], dict.fromkeys(range(10), INDIFFERENT), NO_IDS)

    assert cache.entry(shapes[2].shape.pod) is shapes[2]
    assert len(cache) <= 12
    assert cache.entry(shapes[0].shape.pod) is shapes[0]
    assert cache.entry(shapes[1].shape.pod) is not shapes[1]


def test_memory_stays_bounded_whatever_is_stored() -> None:
    cache = JudgementCache(10)
    for cpus in range(1, 50):
        shape = cache.entry(_light(cpus))
        cache.store(shape, dict.fromkeys(range(cpus), INDIFFERENT), NO_IDS)

        assert len(cache) <= 10
        assert len(shape.codes) == cpus


def test_what_was_forgotten_while_it_was_computed_still_answers() -> None:
    cache = JudgementCache(12)
    first = cache.entry(_light(1))
    for cpus in (2, 3, 4):
        cache.entry(_light(cpus))

    cache.store(first, {1: INDIFFERENT}, NO_IDS)

    assert first.get(1) == INDIFFERENT
    assert len(cache) == 3


def test_a_shape_forgets_the_classes_that_no_node_has_any_more_and_keeps_those_of_now() -> None:
    cache, nodes = JudgementCache(100_000), np.arange(100, dtype=np.int64)
    shape = cache.entry(_light(1))
    cache.store(shape, dict.fromkeys(range(100), INDIFFERENT), nodes)

    for change in range(5_000):  # node 7 changes all the time, and its class with it
        nodes[7] = 1_000 + change
        cache.store(shape, {1_000 + change: INDIFFERENT}, nodes)

        assert shape.codes.keys() >= set(nodes.tolist())
        assert set(range(1_000 + max(0, change - FEW), 1_000 + change)) <= shape.codes.keys()
    assert len(shape.codes) <= 3 * 100
    assert len(cache) == shape.own_weight + len(shape.codes)


def test_a_call_keeps_its_codes_where_the_shape_forgets_judgements_that_no_class_has_any_more() -> None:
    cache, nodes = JudgementCache(100_000), np.arange(100, dtype=np.int64)
    shape = cache.entry(_light(1))
    cache.store(shape, {i: Judgement(None, Certainty.EXACT, i) for i in range(100)}, nodes)
    kinds = shape.kinds

    for change in range(100, 3_000):  # node 7 changes all the time, and its merit with it
        nodes[7] = change
        cache.store(shape, {change: Judgement(None, Certainty.EXACT, change)}, nodes)
        codes = shape.codes_of(nodes, kinds).tolist()
        assert [kinds.judgements[code].merit for code in codes] == nodes.tolist()

    assert shape.kinds is not kinds
    assert len(shape.kinds.judgements) <= 2 * len(shape.codes) + 1_000 + FEW


def test_what_if_names_the_devices_of_the_node_itself() -> None:
    gpu = "vendor.example/gpu"
    cluster = NodeStore(stale_after_seconds=60, max_nodes=10)
    for name, gone in (("a", [0]), ("b", [1])):
        workloads = [Workload(name="w", copies=2, resources={"cpu": 1, "memory": "1Gi", gpu: 1}, gone=gone)]
        node = sample(name, devices={gpu: [0, 0]}, workloads=workloads)
        cluster.observe(
            observation_of(name, node, state=replace(node.state, cpu=EMPTY.state.cpu)),
            0,
        )
    subjects = [live(record, lambda _name: NOTHING_KNOWN) for record in sorted(cluster, key=lambda r: r.name)]

    answers = what_if(
        workload_from_json(pod_of(cpu=1, devices={gpu: 1})), subjects, BoundedJudge(least_numa, UncertaintyPolicy())
    )

    assert cluster.class_count == 1
    placed = [a.verdict.placements["app"].devices[gpu] for a in answers if isinstance(a.verdict, Admitted)]
    assert placed == [("gpu-0",), ("gpu-1",)]


def test_nodes_that_have_not_reported_are_awaited_while_the_service_warms_up() -> None:
    cluster = NodeStore(stale_after_seconds=60, max_nodes=10, awaited_until=30)
    judge = BoundedJudge(least_numa, UncertaintyPolicy())

    early, late = (classes_at(cluster, ["unknown"], now)[0] for now in (29.0, 30.0))

    assert judge(_shape(cpu=4), early).refusal is RefusalReason.AWAITED
    assert judge(_shape(cpu=4), late).refusal is None


# -- what ends without an answer


def test_a_defect_in_one_class_is_that_class_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    broken, good = _class(EMPTY), _class(SPREADING)

    def admit(self: PossibleStates, kubelet: Kubelet, *args: Any, **more: Any) -> Any:  # noqa: ANN401
        if kubelet is broken.kubelet:
            raise ZeroDivisionError("a defect")
        return admit_of(self, kubelet, *args, **more)

    admit_of = PossibleStates.admit
    monkeypatch.setattr(PossibleStates, "admit", admit)
    judged = judge_all(BoundedJudge(least_numa, UncertaintyPolicy(unknown=REFUSE)), _shape(), [broken, good])

    assert judged.judgements[broken.id][:4] == (RefusalReason.UNKNOWN, Certainty.UNKNOWN, None, Trouble.DEFECT)
    assert "ZeroDivisionError: a defect" in judged.judgements[broken.id].detail
    assert judged.judgements[good.id].trouble is None


class NeedsSteps(BoundedJudge):
    """A judge whose replays need this many steps, by class id; others need one. *cpu_seconds*: beyond the steps."""

    def __init__(self, needed: dict[int, int], cpu_seconds: dict[int, float] | None = None) -> None:
        super().__init__(least_numa, UncertaintyPolicy())
        self.needed, self.seconds = needed, cpu_seconds or {}
        self.calls: list[tuple[int, float]] = []
        self.cpu = 0.0
        self.answer = INDIFFERENT

    def __call__(self, _shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        assert budget is not None
        self.calls.append((node_class.id, budget.steps))
        self.cpu += self.seconds.get(node_class.id, 0.0)
        try:
            budget.spend(self.needed.get(node_class.id, 1))
        except OutOfStepsError:
            return Judgement(None, Certainty.UNKNOWN, None, Trouble.STEPS)
        except OutOfTimeError:
            return Judgement(None, Certainty.UNKNOWN, None, Trouble.TIME)
        return self.answer


def test_each_class_has_its_share_and_long_replays_come_last() -> None:
    classes = [_class(EMPTY), _class(SPREADING), _class(FULL)]
    long = classes[0]
    judge = NeedsSteps({long.id: SHARES[1]})
    judged = judge_all(judge, _shape(), classes)
    assert judge.calls == [*((c.id, SHARES[0]) for c in classes), (long.id, SHARES[1])]
    assert judged.judgements == dict.fromkeys([c.id for c in classes], INDIFFERENT)
    assert judged.had == {}


def test_no_class_gets_its_last_share_while_another_is_feasible() -> None:
    classes = [_class(EMPTY), _class(SPREADING), _class(FULL)]
    endless = classes[0]
    judge = NeedsSteps({endless.id: 10**9})
    judged = judge_all(judge, _shape(), classes)
    assert judged.had == {endless.id: 2}
    assert endless.id not in judged.judgements

    judge.calls.clear()
    alone = judge_all(judge, _shape(), [endless], had=judged.had)
    assert judge.calls == [(endless.id, SHARES[2])], "it goes on where it stopped"
    assert alone.judgements[endless.id].trouble is Trouble.STEPS


def test_second_shares_of_a_call_are_limited_once_a_node_is_feasible() -> None:
    classes = [_class(state) for state in (EMPTY, SPREADING, FULL)] + [replace(UNKNOWN, id=900 + i) for i in range(5)]
    judge = NeedsSteps({each.id: 10**9 for each in classes[1:]})
    judged = judge_all(judge, _shape(), classes)
    assert sorted(judged.had.values()) == [1] * 6 + [2]
    judge.answer = Judgement(RefusalReason.CPUS_NOW, Certainty.EXACT)
    assert len(judge_all(judge, _shape(), classes).judgements) == len(classes), "without one all are judged"


def test_a_class_whose_steps_do_not_show_its_time_is_left_out_and_no_other() -> None:
    classes = [_class(EMPTY), _class(SPREADING)]
    judge = NeedsSteps({}, {classes[0].id: 8.0})
    judged = judge_all(judge, _shape(), classes, cpu_clock=lambda: judge.cpu)
    assert judged.judgements == {classes[0].id: SLOW, classes[1].id: INDIFFERENT}


def test_a_pause_of_the_process_in_one_replay_makes_no_node_slow() -> None:
    """Seen red: a collection of garbage in the thread refused the only node, until its state changed."""
    ended = iter([0.0, 8.0, 8.0, 8.1])  # the first replay seems to take 8 s, the second one 0.1 s
    each = _class(EMPTY)
    judged = judge_all(NeedsSteps({}), _shape(), [each], cpu_clock=lambda: next(ended))
    assert judged.judgements == {each.id: INDIFFERENT}


def test_pods_of_one_namespace_take_a_part_of_the_time_for_last_shares() -> None:
    """Each new shape that no node admits could otherwise make kube-scheduler wait for a second."""
    now, judge = [100.0], NeedsSteps({})
    each = _class(EMPTY)
    judge.needed = {each.id: 10**9}

    async def offload(work: Callable[..., Any], /, *args: Any) -> Any:  # noqa: ANN401
        now[0] += 1.0
        return work(*args)

    judging = make_service(Settings(), lambda: now[0], judge=judge, offload=offload).judging

    def last_shares(cpu: int, namespace: str) -> int:
        judge.calls.clear()
        pod = replace(pod_from_json(pod_of(cpu)), namespace=namespace)
        asyncio.run(judging.answer(judging.entry(pod), [each]))
        return judge.calls.count((each.id, SHARES[2]))

    assert last_shares(1, "a") == 1
    assert last_shares(2, "a") == 0
    assert last_shares(3, "b") == 1
    now[0] = 100.0 + 1 + PAUSE_SHARE
    assert last_shares(4, "a") == 1


def test_a_replay_that_the_end_of_the_call_stops_late_in_its_share_has_had_it() -> None:
    judge, (long, other) = NeedsSteps({}), [_class(EMPTY), _class(SPREADING)]
    for needed, had in ((SHARES[2] * 6 // 10, {long.id: 3}), (SHARES[2] * 4 // 10, {})):
        judge.needed = {long.id: needed}
        judged = judge_all(judge, _shape(), [long, other], lambda: bool(judge.calls), had={long.id: 2, other.id: 2})
        assert (judged.had, judged.judgements) == (had, {})
        judge.calls.clear()


def test_a_call_without_time_judges_nothing_more() -> None:
    classes = [_class(EMPTY), _class(SPREADING), _class(FULL)]
    judge = NeedsSteps({})
    judged = judge_all(judge, _shape(), classes, lambda: len(judge.calls) >= 2)
    assert list(judged.judgements) == [classes[0].id, classes[1].id]
    assert judged.had == {}


def test_what_takes_many_steps_is_left_to_the_thread() -> None:
    classes = [_class(EMPTY), _class(SPREADING), _class(FULL)]
    judge = NeedsSteps(dict.fromkeys([each.id for each in classes], LOOP_STEPS // 2 + 1))
    assert list(judge_quickly(judge, _shape(), classes)) == [classes[0].id]


def test_troubles_are_noted_once_and_bounded() -> None:
    troubles, pod = UnjudgedClasses(size=2), _shape().pod
    assert troubles.note(1, Trouble.STEPS, pod)
    assert not troubles.note(1, Trouble.DEFECT, pod)
    assert troubles.note(2, Trouble.DEFECT, pod)
    assert troubles.note(3, Trouble.TIME, pod)
    assert troubles.of(1) is None
    note = troubles.of(2)
    assert note is not None
    assert (
        note.reason
        == "the replay of the kubelet failed; the log of the service has the details, first for pod default/p"
    )
