"""Following late and step by step is the same as following at once and from the beginning; and it is less work."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from random import Random
from typing import Any

import orjson
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster.in_flight import Settled, Timeouts
from extender.cluster.ledger import EMPTY as NOTHING
from extender.cluster.ledger import assume, see
from extender.cluster.node import Observation
from extender.cluster.projection import follow
from extender.cluster.steps import MAX_STEPS, Steps
from extender.cluster.store import NodeStore, Watching
from extender.replay.admission import admit
from extender.replay.pod import Pod, resolve
from extender.replay.verdict import Rejected
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.cluster.reading import classes_at
from tests.cluster.test_truth import EMPTY, FRAGILE, STRICT, Play
from tests.faults.hostile_nodes import uneven_numa_nodes
from tests.reports import pod_of


class Both:
    """Two clusters that hear the same: `eager` is looked at after every event, `late` only where it must be."""

    def __init__(self) -> None:
        self.settled: tuple[list[Settled], list[Settled]] = ([], [])
        self.eager, self.late = (
            NodeStore(
                stale_after_seconds=1e6,
                max_nodes=1,
                timeouts=Timeouts(assume=7, finish=0.5, ghost=2, absence=4),
                settled=settled.append,
            )
            for settled in self.settled
        )

    def classes_of(self, names: list[str]) -> object:
        return self.eager.classes_of(names)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        return partial(self._both, name)

    def _both(self, name: str, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - whatever the cluster returns
        getattr(self.late, name)(*args, **kwargs)
        result = getattr(self.eager, name)(*args, **kwargs)
        list(self.eager)
        return result


@dataclass
class Twins(Play):
    """A story that is told to two clusters."""

    watching: Watching = Watching.LIVE

    def begin(self) -> None:
        self.both = Both()
        self.cluster = self.both  # type: ignore[assignment] # it answers to the same calls
        self.truth = self.node.state
        self.both.set_watching(self.watching, 0)
        self.report(self.truth)

    def compare(self) -> None:
        seen = [
            ({state.key for state in each.states}, each.complete)
            for cluster in (self.both.late, self.both.eager)
            for each in classes_at(cluster, ["n"], self.now)
        ]
        assert seen[0] == seen[1]
        told, told_at_once = ([(s.pod.uid, s.fate, s.verdicts) for s in settled] for settled in self.both.settled)
        assert told == told_at_once

    def compare_from_scratch(self) -> None:
        record, ledger = self.both.eager.get("n"), self.both.eager.ledger("n")
        assert record is not None
        observation: Observation = record.observation
        assert observation.kubelet is not None
        assert observation.state is not None
        fresh = follow(observation.kubelet, observation.state, ledger, self.now)
        assert {state.key for state in fresh.states} == {state.key for state in record.states}
        assert fresh.complete == record.node_class.complete

    def step(self, number: int) -> None:
        super().step(number)
        self.both.expire(self.now)

    def _kubelet_hears(self, kind: str, pod: Pod) -> None:
        """Here times are as short as they are arbitrary: pods may be refused."""
        if kind == "bind":
            outcome = admit(self.node.kubelet, self.truth, resolve(pod, self.node.kubelet.rules))
            if isinstance(outcome.verdict, Rejected):
                self.cluster.see_refusal("n", pod.uid, outcome.verdict.reason, self.now)
                return
        super()._kubelet_hears(kind, pod)

    def hear_finish(self) -> None:
        """What the other stories leave out: a pod that is finished, and counts a little longer."""
        for uid in sorted(self.active)[:1]:
            self.cluster.see_finish("n", uid, self.now)


@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 2**32), strict=st.booleans())
def test_who_looks_late_sees_the_same(seed: int, strict: bool) -> None:  # noqa: FBT001
    random = Random(seed)
    play = Twins(Random(seed), node=STRICT if strict else EMPTY, shapes=FRAGILE if strict else Twins.shapes)
    play.begin()
    for number in range(50):
        play.step(number)
        if number % 20 == 19:
            play.hear_finish()
        if random.random() < 0.15:
            play.compare()
    play.compare()


@settings(max_examples=12, deadline=None)
@given(seed=st.integers(0, 2**32))
def test_one_event_more_is_the_same_as_all_of_them_again(seed: int) -> None:
    """Nobody watches: then no pod of a report is in doubt, and the ledger tells all that is followed."""
    play = Twins(Random(seed), watching=Watching.NOT)
    play.begin()
    for number in range(50):
        play.step(number)
        classes_at(play.both.eager, ["n"], play.now)
        play.compare_from_scratch()


def test_one_pod_more_costs_one_replay_and_a_known_one_none() -> None:
    steps, ledger = Steps(), NOTHING
    kubelet, state = EMPTY.kubelet, EMPTY.state
    pods = [replace(pod_from_json(pod_of(2, name=f"p{i}")), created_at=i) for i in range(5)]
    costs = []
    for i, pod in enumerate(pods):
        for change in (assume(ledger, pod, i), see(assume(ledger, pod, i), pod, i, started=False)):
            ledger, before = change, steps.admissions
            follow(kubelet, state, ledger, i, steps=steps)
            costs.append(steps.admissions - before)

    assert costs == [1, 0] * 5


def test_what_is_kept_is_bounded() -> None:
    steps, kubelet, state = Steps(), EMPTY.kubelet, EMPTY.state
    sizes = set()
    for i in range(MAX_STEPS // 2):
        follow(kubelet, state, assume(NOTHING, pod_from_json(pod_of(2, name=f"p{i}")), 0), 1, steps=steps)
        sizes.add(len(steps))

    assert max(sizes) > MAX_STEPS
    assert max(sizes) < 1.1 * MAX_STEPS
    assert min(sizes) < 20


def test_after_one_replay_that_was_given_up_no_other_is_tried() -> None:
    """Pods on their way to a node whose replay takes too long: the node is in doubt, and the event loop goes on."""
    report = read_report(orjson.dumps(uneven_numa_nodes("n")))
    assert report.kubelet is not None
    assert report.state is not None
    steps, ledger = Steps(), NOTHING
    for i in range(5):
        ledger = assume(ledger, pod_from_json(pod_of(60, name=f"p{i}")), i)
        following = follow(report.kubelet, report.state, ledger, i, steps=steps)
        assert not following.complete
        assert following.states == (report.state,)
        assert following.refused == frozenset(), "nothing is known of what the kubelet does"

    assert steps.admissions <= 2, "what was given up is not paid for with each event"
