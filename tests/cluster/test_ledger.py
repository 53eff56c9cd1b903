"""The ledger: whatever the order in which reports, bindings and the watch tell, the same truth follows."""

from dataclasses import replace
from math import inf
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.events import (
    AdmissionResult,
    PodFinished,
    PodForgotten,
    PodGone,
    PodRefused,
    PodSeen,
    PodTerminating,
    SettledPod,
    Watching,
)
from extender.cluster.ledger import LEFT_REMEMBERED_SECONDS, MAX_LEFT, Ledger, end, expire
from extender.cluster.node import NodeRecord, Restarts
from extender.cluster.pod_tracker import Timeouts
from extender.cluster.store import NodeStore
from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.resolve import resolve
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Certainty
from extender.replay.pod import Pod
from extender.samples.nodes import SampleNode
from extender.wire.pods import pod_from_json
from tests.cluster.reading import classes_at
from tests.observations import observation_of
from tests.reports import pod_of, sample

GPU = "vendor.example/gpu"
EMPTY = sample(devices={GPU: [0, 1]})
TIMEOUTS = Timeouts(assume=60, finish=3, ghost=30, absence=120)


class World:
    """One node, its kubelet as the replay has it, and a cluster that is told of it."""

    def __init__(self, node: SampleNode = EMPTY) -> None:
        self.node = node
        self.settled: list[SettledPod] = []
        self.cluster = NodeStore(stale_after_seconds=1000, max_nodes=10, timeouts=TIMEOUTS, settled=self.settled.append)
        self.truth = node.state
        self.sequence = 0

    def admits(self, pod: Pod) -> ManagerState:
        """The kubelet admits the pod; returns its state after that."""
        outcome = admit(self.node.kubelet, self.truth, resolve(pod, self.node.kubelet.rules))
        assert isinstance(outcome.verdict, Admitted)
        self.truth = outcome.state
        return self.truth

    def releases(self, pod: Pod) -> ManagerState:
        self.truth = release_pods(self.truth, (pod.uid,))
        return self.truth

    def report(self, state: ManagerState, now: float, **known: Any) -> NodeRecord:
        """An exporter's report of *state* arrives."""
        self.sequence += 1
        observation = observation_of("n", self.node, self.sequence, state)
        return self.cluster.observe(replace(observation, **known), now)

    def states(self, now: float) -> set[object]:
        """What the next pod can meet."""
        (node_class,) = classes_at(self.cluster, ["n"], now)
        return {state.key for state in node_class.states}

    @property
    def results(self) -> list[tuple[str, AdmissionResult]]:
        return [(each.pod.uid, each.result) for each in self.settled]


def _pod(name: str = "p", cpu: int = 4, **more: Any) -> Pod:
    return pod_from_json(pod_of(cpu, name=name, **more))


def _with_init(name: str, cpu: int, init: dict[str, str]) -> Pod:
    document = pod_of(cpu, name=name)
    document["spec"]["initContainers"] = [
        {"name": "init", "image": "i", "resources": {"limits": init, "requests": init}}
    ]
    return pod_from_json(document)


def test_an_assumed_pod_takes_its_room_at_once_and_is_confirmed_by_its_uid() -> None:
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", pod, 1)
    assert world.states(1) == {world.admits(pod).key}

    world.report(world.truth, 2)

    assert world.states(2) == {world.truth.key}
    assert world.cluster.pods_in_flight == 0
    assert world.results == [(pod.uid, AdmissionResult.ADMITTED)]


def test_a_report_from_before_the_binding_is_no_proof_of_absence() -> None:
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", pod, 1)
    world.report(EMPTY.state, 2)
    world.cluster.apply(PodSeen("n", pod, started=True), now=3)
    world.report(EMPTY.state, 4)

    assert world.states(4) == {world.admits(pod).key}


def test_a_pod_that_runs_and_holds_nothing_is_believed_in_the_end() -> None:
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.apply(PodSeen("n", pod, started=True), now=1)

    world.report(EMPTY.state, 122)

    assert world.states(122) == {EMPTY.state.key}


def test_a_failed_binding_gives_the_room_back_unless_the_watch_has_shown_the_pod() -> None:
    world, first, second = World(), _pod("a"), _pod("b")
    world.report(EMPTY.state, 0)
    for pod in (first, second):
        world.cluster.assume("n", pod, 1)
    world.cluster.apply(PodSeen("n", second, started=False), now=2)
    for pod in (first, second):
        world.cluster.apply(PodForgotten("n", pod.uid), now=3)

    assert world.states(3) == {world.admits(second).key}


def test_an_assumption_that_nobody_confirms_expires() -> None:
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", pod, 1)

    assert world.states(60) != {EMPTY.state.key}
    assert world.states(61.5) == {EMPTY.state.key}
    assert world.results == [(pod.uid, AdmissionResult.LOST)]


def test_the_order_of_the_watch_is_the_kubelets() -> None:
    """We bound `ours` first, but another scheduler's pod was bound before it."""
    world, ours, other = World(), _pod("ours", 6), _pod("other", 3)
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", ours, 1)
    world.cluster.apply(PodSeen("n", other, started=False), now=2)
    world.cluster.apply(PodSeen("n", ours, started=False), now=3)

    world.admits(other)
    assert world.states(3) == {world.admits(ours).key}


def test_a_pod_that_the_kubelet_refuses_is_not_charged() -> None:
    world = World()
    world.report(EMPTY.state, 0)
    world.cluster.apply(PodSeen("n", _pod("huge", 17), started=False), now=1)
    assert world.states(1) == {EMPTY.state.key}

    world.cluster.apply(PodRefused("n", "uid-huge", "TopologyAffinityError"), now=2)

    assert world.states(2) == {EMPTY.state.key}
    assert world.results == [("uid-huge", AdmissionResult.REFUSED)]
    assert world.settled[0].reason == "TopologyAffinityError"


def test_part_of_an_admission_is_replayed_whole() -> None:
    world, pod = World(), _pod(devices={GPU: 1})
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", pod, 1)
    whole = world.admits(pod)
    torn = replace(whole, cpu=EMPTY.state.cpu, memory=EMPTY.state.memory)

    world.report(torn, 2)

    assert world.states(2) == {whole.key}
    assert world.cluster.pods_in_flight == 1


def test_a_pod_that_left_before_its_report_leaves_nothing_behind() -> None:
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", pod, 1)
    held = world.admits(pod)
    world.cluster.apply(PodGone("n", pod.uid), now=2)
    assert world.states(2) == {EMPTY.state.key}

    world.report(held, 3)
    world.cluster.apply(PodSeen("n", pod, started=True), now=4)

    assert world.states(4) == {EMPTY.state.key}


def test_the_last_pods_that_left_are_remembered_for_a_while_and_those_of_the_report_for_longer() -> None:
    ledger = Ledger()
    for number in range(MAX_LEFT + 2):
        ledger = end(ledger, {f"p{number}"}, float(number))
    assert list(ledger.left) == [f"p{number}" for number in range(2, MAX_LEFT + 2)]

    later = expire(ledger, {"p2", "p9"}, LEFT_REMEMBERED_SECONDS + 5.5, assume_seconds=60)
    assert list(later.left) == ["p2", *(f"p{number}" for number in range(6, MAX_LEFT + 2))]
    assert list(expire(later, (), inf, assume_seconds=60).left) == []


def test_a_report_that_counts_a_pod_no_more_ends_its_admission() -> None:
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", pod, 1)

    world.report(EMPTY.state, 2, left=frozenset({pod.uid}))
    world.cluster.apply(PodSeen("n", pod, started=True), now=3)

    assert world.states(3) == {EMPTY.state.key}
    assert world.results == [(pod.uid, AdmissionResult.LEFT)]


@pytest.mark.parametrize("watching", [Watching.LIVE, Watching.SILENT])
def test_a_running_pod_that_its_kubelet_does_not_list_yet_is_in_doubt_and_not_gone(watching: Watching) -> None:
    """A kubelet that has started cannot list pods before the API server answers it, however long that takes."""
    world, pod = World(), _pod()
    held = world.admits(pod)
    world.cluster.set_watching(Watching.LIVE, 0)
    world.cluster.apply(PodSeen("n", pod, started=True), now=0)
    world.report(held, 0)

    world.cluster.set_watching(watching, 50)
    world.report(held, 60, left=frozenset({pod.uid}))
    assert world.states(61) == {held.key, EMPTY.state.key}
    assert world.cluster.pods_of("n").may_be_gone(61) == {pod.uid}

    world.report(held, 70, listed=frozenset({pod.uid}))
    assert world.states(71) == {held.key}

    world.report(held, 80, left=frozenset({pod.uid}))
    world.cluster.apply(PodGone("n", pod.uid), now=81)
    assert world.states(81) == {EMPTY.state.key}


def test_a_pod_on_its_way_that_a_started_kubelet_does_not_list_yet_stays_on_its_way() -> None:
    world, pod = World(), _pod()
    world.cluster.set_watching(Watching.LIVE, 0)
    world.report(EMPTY.state, 0)
    world.cluster.apply(PodSeen("n", pod, started=False), now=1)

    world.report(EMPTY.state, 2, left=frozenset({pod.uid}))

    assert world.states(3) == {world.admits(pod).key}
    assert world.results == []


def test_a_running_pod_that_a_starting_kubelet_refuses_holds_nothing_though_the_report_still_shows_it() -> None:
    """Kubelets up to 1.36 with full-pcpus-only refuse running pods after a restart if few cores are free."""
    world, pod = World(), _pod()
    world.cluster.set_watching(Watching.LIVE, 0)
    held = world.admits(pod)
    world.report(held, 0)
    world.cluster.apply(PodSeen("n", pod, started=True), now=0)

    world.cluster.apply(PodRefused("n", pod.uid, "SMTAlignmentError"), now=10)
    assert world.states(10) == {EMPTY.state.key}

    world.report(held, 11, left=frozenset({pod.uid}))
    assert world.states(11) == {EMPTY.state.key}


def test_the_refusal_of_a_pod_that_had_started_says_nothing_of_its_admission() -> None:
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.apply(PodSeen("n", pod, started=True), now=1)

    world.cluster.apply(PodRefused("n", pod.uid, "SMTAlignmentError"), now=2)

    assert world.results == [(pod.uid, AdmissionResult.LEFT)]


@pytest.mark.parametrize(
    ("at", "reported", "result"),
    [
        (20, {"kubelet_listens": False, "kubelet_seconds": 0.5}, AdmissionResult.LEFT),
        (20, {"kubelet_listens": False, "kubelet_seconds": 15.0}, AdmissionResult.LEFT),
        (20, {"kubelet_listens": True, "kubelet_seconds": 1.0}, AdmissionResult.LEFT),
        (11, {"kubelet_listens": True, "kubelet_seconds": 2.0}, AdmissionResult.REFUSED),
        (20, {}, AdmissionResult.REFUSED),
    ],
)
def test_the_refusal_of_a_pod_whose_kubelet_has_stopped_since_says_nothing_of_its_admission(
    at: float, reported: dict[str, Any], result: AdmissionResult
) -> None:
    """Seen red: nodes counted as ones of wrong predictions after their kubelets had been restarted under load."""
    world, pod = World(), _pod()
    world.report(EMPTY.state, 0, kubelet_listens=True, kubelet_seconds=1.0)
    world.cluster.assume("n", pod, 10)
    world.report(EMPTY.state, at, **reported)

    world.cluster.apply(PodRefused("n", pod.uid, "TopologyAffinityError"), now=at + 1)

    assert world.results == [(pod.uid, result)]


def test_a_started_kubelet_counts_as_starting_until_its_reports_have_the_pods_of_its_first_list() -> None:
    """At most for as long as a stopped one counts."""
    world, runs, coming = World(), _pod("runs"), _pod("coming")
    world.cluster.set_watching(Watching.LIVE, 0)
    held = world.admits(runs)
    world.cluster.apply(PodSeen("n", runs, started=True), now=0)
    world.report(held, 0, pod_uids=frozenset({runs.uid}), listed=frozenset({runs.uid}))
    world.cluster.apply(PodSeen("n", coming, started=False), now=90)
    just_started = {"kubelet_listens": True, "kubelet_seconds": 1.0}

    world.report(held, 101, pod_uids=frozenset({runs.uid}), **just_started)
    assert [bool(world.cluster.starting(now)) for now in (102, 111, 149, 151)] == [True, True, True, False]

    world.report(held, 101, pod_uids=frozenset({runs.uid}), listed=frozenset({runs.uid}), **just_started)
    assert [bool(world.cluster.starting(now)) for now in (102, 111)] == [True, True]

    both = frozenset({runs.uid, coming.uid})
    world.report(world.admits(coming), 101, pod_uids=both, listed=both, **just_started)
    assert [bool(world.cluster.starting(now)) for now in (102, 111)] == [True, False]


def test_where_the_kubelet_chose_at_random_every_state_is_followed() -> None:
    """One device of either NUMA node: which one is anybody's guess."""
    node = sample(devices={GPU: [0, 1]}, topologyManagerPolicy="none")
    world, pod = World(node), _pod(devices={GPU: 1})
    world.report(node.state, 0)
    world.cluster.assume("n", pod, 1)

    assert len(world.states(1)) == 2


def test_a_finished_pod_may_hold_its_room_a_little_longer() -> None:
    world, pod = World(), _pod()
    held = world.admits(pod)
    world.report(held, 0)
    world.cluster.apply(PodFinished("n", pod.uid), now=1)

    assert world.states(2) == {held.key, EMPTY.state.key}
    assert world.states(4.5) == {EMPTY.state.key}


@pytest.mark.parametrize("known_by", ["", "finished", "released", "left", "asked to leave", "vanished"])
def test_a_prediction_is_not_complete_if_a_report_is_the_first_to_tell_of_an_end(known_by: str) -> None:
    world, ended, coming = World(), _pod("ended"), _pod("coming")
    world.report(world.admits(ended), 0)
    if known_by == "vanished":
        world.cluster.set_watching(Watching.LIVE, 1)
    if known_by == "left":
        world.cluster.apply(PodFinished("n", ended.uid), now=30)
        world.states(39)
    world.cluster.assume("n", coming, 40)
    if known_by in ("finished", "released"):
        world.cluster.apply(PodFinished("n", ended.uid), now=40)
    if known_by == "asked to leave":
        world.cluster.apply(PodTerminating("n", ended.uid), now=40)
    world.releases(ended)
    seconds = 41 if known_by == "finished" else 49  # a finished pod may hold its room for 3 s
    world.states(seconds - 0.1)

    world.report(world.admits(coming), seconds)

    (settled,) = world.settled
    assert (settled.result, settled.complete) == (AdmissionResult.ADMITTED, bool(known_by))


def test_the_prediction_of_a_refused_pod_is_complete_without_a_report() -> None:
    world, coming = World(), _pod()
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", coming, 1)
    world.states(2)

    world.cluster.apply(PodRefused("n", coming.uid, "TopologyAffinityError"), now=3)

    (settled,) = world.settled
    assert (settled.result, settled.complete) == (AdmissionResult.REFUSED, True)


def test_a_pod_asked_to_leave_may_be_gone_at_any_moment() -> None:
    world, leaving, coming = World(), _pod("leaving", 8), _pod("coming", 6)
    held = world.admits(leaving)
    world.report(held, 0)
    world.cluster.apply(PodSeen("n", leaving, started=True), now=1)
    world.cluster.apply(PodTerminating("n", leaving.uid), now=2)
    world.cluster.assume("n", coming, 3)

    stayed = world.admits(coming)
    before = World()
    assert {stayed.key, before.admits(coming).key} <= world.states(3)
    world.cluster.apply(PodSeen("n", coming, started=True), now=4)
    world.cluster.apply(PodGone("n", leaving.uid), now=4)
    assert world.releases(leaving).key in world.states(4)
    world.report(world.truth, 5)
    assert world.states(5) == {world.truth.key}


def test_what_a_report_shows_of_a_pod_that_nobody_knows_is_given_back_in_the_end() -> None:
    world, pod = World(), _pod()
    held = world.admits(pod)
    world.cluster.set_watching(Watching.LIVE, 0)
    world.report(held, 0)

    assert world.states(1) == {held.key, EMPTY.state.key}
    world.report(held, 20)
    assert world.states(29) == {held.key, EMPTY.state.key}
    assert world.states(31) == {EMPTY.state.key}


def test_what_a_restart_forgot_may_have_left_before_or_after_the_next_pod_or_not_at_all() -> None:
    """The report still shows a pod that is gone; with it the next one is placed elsewhere than without it."""
    world = World()
    gone, stays, coming = _pod("gone", 8), _pod("stays", 4), _pod("coming", 8)
    world.admits(gone)
    shown = world.admits(stays)
    world.cluster.set_watching(Watching.LIVE, 0)
    world.cluster.apply(PodSeen("n", stays, started=True), now=0)
    world.report(shown, 1)
    world.cluster.assume("n", coming, 2)

    beside = world.admits(coming)
    left_later = world.releases(gone)
    world.truth = release_pods(shown, (gone.uid,))
    left_before = world.admits(coming)

    assert len({beside.key, left_later.key, left_before.key}) == 3
    assert world.states(2) == {beside.key, left_later.key, left_before.key}


@pytest.mark.parametrize("listed", [True, False])
def test_pods_of_static_manifests_are_nobodys_ghosts(listed: bool) -> None:  # noqa: FBT001
    world, pod = World(), _pod()
    held = world.admits(pod)
    world.cluster.set_watching(Watching.LIVE, 0)
    world.report(held, 0, listed=frozenset({pod.uid}) if listed else frozenset())
    if not listed:
        world.cluster.apply(PodSeen("n", pod, started=True), now=0)

    assert (len(world.states(1)) == 2) is listed
    assert world.states(100) == {held.key}


def test_a_pod_that_the_watch_knows_and_the_kubelet_no_longer_lists_may_be_gone() -> None:
    """It has ended, and the API server has yet to be told."""
    world, pod = World(), _pod()
    held = world.admits(pod)
    world.cluster.set_watching(Watching.LIVE, 0)
    world.cluster.apply(PodSeen("n", pod, started=True), now=0)
    world.report(held, 1, listed=frozenset({pod.uid}))
    assert world.states(1) == {held.key}

    world.report(held, 2, unlisted=frozenset({pod.uid}))
    assert world.states(2) == world.states(1000) == {held.key, EMPTY.state.key}
    world.cluster.apply(PodFinished("n", pod.uid), now=1000)
    assert world.states(1004) == {EMPTY.state.key}


def test_a_reported_pod_that_has_yet_to_start_may_give_the_memory_of_its_init_container_back_at_any_moment() -> None:
    world = World()
    pod = _with_init("early", 2, {"memory": "9Gi", "cpu": "2"})
    request = resolve(pod, world.node.kubelet.rules)
    world.cluster.set_watching(Watching.LIVE, 0)
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", pod, 1)
    world.cluster.apply(PodSeen("n", pod, started=False), now=2)
    admitted = world.admits(pod)
    started = start_pod(admitted, request)
    assert admitted.key != started.key

    world.report(admitted, 3)
    assert world.cluster.pods_in_flight == 0
    assert world.states(3) == {admitted.key, started.key}

    later = _pod("later", 6, memory="20Gi")
    world.cluster.assume("n", later, 4)
    after = resolve(later, world.node.kubelet.rules)
    ways = [admit(world.node.kubelet, state, after).state for state in (admitted, started)]
    both_started = {start_pod(state, request).key for state in ways}
    assert {*(state.key for state in ways), *both_started} <= world.states(4)

    world.cluster.apply(PodForgotten("n", later.uid), now=5)
    world.report(started, 6)
    assert world.states(6) == {started.key}


def test_a_pod_that_ends_before_it_starts_gives_nothing_back_any_more() -> None:
    world, pod = World(), _with_init("early", 2, {"memory": "9Gi", "cpu": "2"})
    world.cluster.set_watching(Watching.LIVE, 0)
    world.report(EMPTY.state, 0)
    world.cluster.apply(PodSeen("n", pod, started=False), now=1)
    world.report(world.admits(pod), 2)
    world.cluster.apply(PodGone("n", pod.uid), now=3)

    assert world.states(3) == {EMPTY.state.key}
    assert not world.cluster.pods_of("n").ledger.starting


def test_a_silent_watch_makes_every_node_stale() -> None:
    world = World()
    world.report(EMPTY.state, 0)
    world.cluster.set_watching(Watching.SILENT, 1)
    assert classes_at(world.cluster, ["n"], 1)[0].stale

    world.cluster.set_watching(Watching.LIVE, 2)
    assert not classes_at(world.cluster, ["n"], 2)[0].stale


def test_a_deleted_node_takes_everything_with_it() -> None:
    world = World()
    world.report(EMPTY.state, 0)
    world.cluster.assume("n", _pod(), 1)

    world.cluster.drop_node("n")

    assert world.cluster.get("n") is None
    assert world.cluster.pods_in_flight == world.cluster.class_count == 0


def test_only_the_node_that_a_pod_was_bound_to_gets_a_new_class() -> None:
    world = World()
    world.report(EMPTY.state, 0)
    other = world.cluster.observe(replace(world.cluster.get("n").observation, node_name="other"), 0)  # type: ignore[union-attr]
    world.cluster.assume("n", _pod(), 1)

    mine, same = classes_at(world.cluster, ["n", "other"], 1)

    assert mine is not other.node_class
    assert same is other.node_class


@settings(max_examples=150, deadline=None)
@given(seed=st.integers(0, 2**32), pods=st.integers(1, 5))
def test_any_order_of_reports_bindings_and_watch_settles_to_the_same_truth(seed: int, pods: int) -> None:
    """A history of the kubelet; who tells of it is late, repeats itself and leaves out, each at random."""
    random = Random(seed)
    world = World()
    told: list[list[tuple[str, Any]]] = [[], [], []]  # the reports, the binder, the watch: each in its own order
    told[0].append(("report", EMPTY.state))
    live: list[Pod] = []
    for i in range(pods):
        pod = _pod(f"p{i}", random.choice((1, 2, 3, 4)))
        if random.random() < 0.7:
            told[1].append(("assume", pod))
        told[2].append(("see", pod))
        live.append(pod)
        told[0].append(("report", world.admits(pod)))
        told[2].append(("started", pod))
        if random.random() < 0.4:
            gone = live.pop(random.randrange(len(live)))
            told[2].append(("finish" if random.random() < 0.3 else "leaving", gone))
            told[0].append(("report", world.releases(gone)))
            told[2].append(("end", gone))
    now = 0.0
    while any(told):
        now += 0.1
        source = random.choice([each for each in told if each])
        kind, value = source[0]
        if random.random() < 0.8:  # else it is said again later
            source.pop(0)
        _tell(world, kind, value, now, is_last_report=source is told[0] and len(source) == 0)
    world.report(world.truth, now + 1)

    assert world.states(now + 200) == {world.truth.key}
    assert world.cluster.pods_in_flight == 0
    assert len(world.results) == len({uid for uid, _ in world.results})


def _tell(world: World, kind: str, value: Any, now: float, *, is_last_report: bool) -> None:  # noqa: ANN401
    cluster = world.cluster
    match kind:
        case "report":
            if is_last_report or now % 3 < 2:  # some reports are lost
                world.report(value, now)
        case "assume":
            if cluster.pods_of("n").ledger.find(value.uid) is None:
                cluster.assume("n", value, now)
        case "see" | "started":
            cluster.apply(PodSeen("n", value, started=kind == "started"), now=now)
        case "leaving":
            cluster.apply(PodTerminating("n", value.uid), now=now)
        case "finish":
            cluster.apply(PodFinished("n", value.uid), now=now)
        case "end":
            cluster.apply(PodGone("n", value.uid), now=now)


def test_the_ledger_of_a_node_that_never_reports_has_what_is_there_and_no_more() -> None:
    """Once it had every pod that was ever there: on a node without an exporter it grew for ever."""
    cluster = NodeStore(stale_after_seconds=1000, max_nodes=10, timeouts=TIMEOUTS)
    cluster.apply(PodSeen("n", _pod("stays"), started=True), now=0)
    for number in range(60):
        now = 10.0 * number
        cluster.apply(PodSeen("n", _pod(f"p{number}"), started=True), now=now)
        cluster.apply(PodGone("n", f"uid-p{number}"), now=now + 1)

    assert len(cluster.pods_of("n").ledger.events) <= 2 * TIMEOUTS.absence / 10 + 2
    assert "uid-stays" in {
        *cluster.pods_of("n").ledger.resolved,
        *(admit.uid for admit in cluster.pods_of("n").ledger.admits),
    }


def test_nothing_is_kept_of_a_node_that_does_not_exist_when_its_pods_are_gone() -> None:
    """Pods of a deleted node go after it: its name once stayed for ever."""
    cluster = NodeStore(stale_after_seconds=1000, max_nodes=10, timeouts=TIMEOUTS)
    cluster.apply(PodSeen("n", _pod("a"), started=True), PodSeen("n", _pod("b"), started=True), now=0)
    cluster.set_existing(["other"], 1)
    cluster.apply(PodGone("n", "uid-a"), now=2)
    assert cluster.pods_of("n").ledger.find("uid-b") is not None
    cluster.apply(PodFinished("n", "uid-b"), now=3)
    assert cluster.pods_of("n").ledger.events, "the kubelet may still count it"

    cluster.expire(7)

    assert not cluster._trackers


@pytest.mark.parametrize("exists_later", [False, True])
def test_a_report_of_a_node_that_does_not_exist_is_kept_for_a_minute(*, exists_later: bool) -> None:
    world = World()
    world.cluster.set_existing(["other"], 0)
    world.report(EMPTY.state, 1)
    world.cluster.expire(60)
    assert world.cluster.get("n") is not None, "the watch of nodes may be late"
    if exists_later:
        world.cluster.set_existing(["other", "n"], 60)

    world.cluster.expire(61)

    assert (world.cluster.get("n") is not None) is exists_later


def test_reports_that_came_before_the_first_list_of_nodes_are_checked_too() -> None:
    world = World()
    world.report(EMPTY.state, 0)
    world.cluster.set_existing(["other"], 10)

    world.cluster.expire(70)

    assert len(world.cluster) == 0


def test_a_kubelet_becomes_silent_and_has_started_by_the_passing_of_time_alone() -> None:
    world = World()

    def certainty(now: float) -> Certainty:
        world.cluster.expire(now)
        record = world.cluster.get("n")
        assert record is not None
        return record.certainty

    world.report(EMPTY.state, 100, kubelet_listens=False, kubelet_seconds=0.0, kubelet_certain=True)
    assert [certainty(now) for now in (149, 150, 900)] == [Certainty.EXACT, Certainty.STALE, Certainty.STALE]
    assert "n" in world.cluster.starting(900)
    world.report(EMPTY.state, 901, kubelet_listens=True, kubelet_seconds=1.0)
    assert [certainty(now) for now in (902, 909, 911)] == [Certainty.STALE, Certainty.STALE, Certainty.EXACT]
    world.report(EMPTY.state, 950, kubelet_listens=False, kubelet_seconds=0.0, kubelet_certain=True)
    assert certainty(951) is Certainty.EXACT, "the kubelet had started since its last stop, and stopped a second ago"
    assert certainty(1000) is Certainty.STALE
    world.cluster.drop_node("n")
    assert not world.cluster.silent
    assert not world.cluster.starting(1001)


def test_a_kubelet_is_silent_only_as_long_as_messages_say_so() -> None:
    """Its exporter may be gone, as after a reboot: the node is stale as any other, and its last state is used."""
    world = World()
    stopped = {"kubelet_listens": False, "kubelet_certain": True, "kubelet_seconds": 0.5}
    world.report(EMPTY.state, 0, boot_id="b", digest="d", **stopped)

    def is_refused(now: float) -> tuple[bool, bool]:
        world.cluster.expire(now)
        return "n" in world.cluster.silent, "n" in world.cluster.starting(now)

    assert [is_refused(now) for now in (40, 60, 1000)] == [(False, True), (True, True), (True, True)]
    assert is_refused(1001) == (False, False)
    world.cluster.heartbeat("n", boot_id="b", sequence=1, digest="d", now=1002)
    assert is_refused(1002) == (True, True), "the exporter is back, and its report still says so"


def test_a_kubelet_that_answers_is_not_silent_however_long_its_start_is_waited_for() -> None:
    restarts = Restarts(start_seconds=90, down_seconds=50)
    answering = observation_of("n", EMPTY, 1, EMPTY.state)
    list(restarts.observe(replace(answering, kubelet_listens=True, kubelet_seconds=0.0), 100))
    restarts.expire("n", 170, is_fresh=True)
    assert not restarts.silent
    assert [set(restarts.names(now, lambda *_: False)) for now in (170, 190)] == [{"n"}, set()]
