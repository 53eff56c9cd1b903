"""Following late and step by step is the same as projection at once and from the beginning; and it is less work."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import orjson
import pytest
from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from extender.cluster.events import PodFinished, PodRefused, SettledPod, Watching
from extender.cluster.ledger import EMPTY as NOTHING
from extender.cluster.ledger import Ledger, assume, doubt, see
from extender.cluster.node import Observation
from extender.cluster.pod_tracker import Timeouts
from extender.cluster.projection import Projection, ProjectionInput, project
from extender.cluster.steps import MAX_STEPS, Steps
from extender.cluster.store import NodeStore
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.replay.alignment_demand import AlignmentDemand, Demand
from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.cluster.machine import StoryMachine
from tests.cluster.reading import classes_at
from tests.cluster.story import EMPTY, FRAGILE, STRICT, Story
from tests.faults.hostile_nodes import uneven_numa_nodes
from tests.reports import pod_of


def _project(
    kubelet: Kubelet, state: ManagerState, ledger: Ledger, now: float, steps: Steps | None = None
) -> Projection:
    return project(ProjectionInput(kubelet=kubelet, reported=state, ledger=ledger, now=now), steps)


class Both:
    """Two clusters that hear the same: `eager` is looked at after every event, `late` only where it must be."""

    def __init__(self) -> None:
        self.settled: tuple[list[SettledPod], list[SettledPod]] = ([], [])
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


class TwinStory(Story):
    """A story that two stores hear. Its timeouts are short, so bound pods may be refused."""

    cluster: Both  # type: ignore[assignment] # it answers to the same calls

    def kubelet_refuses(self, pod: Pod, verdict: Mapping[str, Any]) -> None:
        self.cluster.apply(PodRefused("n", pod.uid, verdict["reason"]), now=self.now)

    def compare(self) -> None:
        """Both stores say the same."""
        seen = [
            ({state.key for state in each.states}, each.complete)
            for store in (self.cluster.late, self.cluster.eager)
            for each in classes_at(store, ["n"], self.now)
        ]
        assert seen[0] == seen[1]
        late, eager = ([(s.pod.uid, s.result, s.verdicts) for s in settled] for settled in self.cluster.settled)
        assert late == eager

    def compare_from_scratch(self) -> None:
        """What the store says follows from the report and the ledger alone."""
        record, ledger = self.cluster.eager.get("n"), self.cluster.eager.pods_of("n").ledger
        assert record is not None
        observation: Observation = record.observation
        assert observation.kubelet is not None
        assert observation.state is not None
        fresh = _project(observation.kubelet, observation.state, ledger, self.now)
        assert {state.key for state in fresh.possible.states} == {state.key for state in record.states}
        assert fresh.complete == record.node_class.complete


class TwinMachine(StoryMachine):
    """After each step time goes on for both stores."""

    story: TwinStory

    @invariant()
    def time_goes_on(self) -> None:
        self.story.cluster.expire(self.story.now)

    @precondition(lambda machine: bool(machine.story.active))
    @rule()
    def hear_finish(self) -> None:
        """What the other stories leave out: a pod that is finished, and counts a little longer."""
        story = self.step()
        story.cluster.apply(PodFinished("n", min(story.active)), now=story.now)


class LateReaderMachine(TwinMachine):
    """One store is read now and then, the other one after each event."""

    def make_story(self) -> Story:
        return TwinStory(cluster=Both())  # type: ignore[arg-type]

    @rule()
    def read_both(self) -> None:
        self.story.compare()

    def teardown(self) -> None:
        self.story.compare()


class StrictLateReaderMachine(LateReaderMachine):
    """The same where init containers matter more."""

    def make_story(self) -> Story:
        return TwinStory(cluster=Both(), node=STRICT, shapes=FRAGILE)  # type: ignore[arg-type]


class FromScratchMachine(TwinMachine):
    """Nobody watches: then no pod of a report is in doubt, and the ledger has all that is followed."""

    def make_story(self) -> Story:
        return TwinStory(cluster=Both(), watching=Watching.NOT)  # type: ignore[arg-type]

    @invariant()
    def the_projection_follows_from_report_and_ledger(self) -> None:
        classes_at(self.story.cluster.eager, ["n"], self.story.now)
        self.story.compare_from_scratch()


@pytest.mark.parametrize("machine", [LateReaderMachine, StrictLateReaderMachine])
def test_who_looks_late_sees_the_same(machine: type[LateReaderMachine]) -> None:
    run_state_machine_as_test(machine, settings=settings(max_examples=12, stateful_step_count=50, deadline=None))


def test_one_event_more_is_the_same_as_all_of_them_again() -> None:
    run_state_machine_as_test(
        FromScratchMachine, settings=settings(max_examples=12, stateful_step_count=50, deadline=None)
    )


def test_one_pod_more_costs_one_replay_and_a_known_one_none() -> None:
    steps, ledger = Steps(), NOTHING
    kubelet, state = EMPTY.kubelet, EMPTY.state
    pods = [replace(pod_from_json(pod_of(2, name=f"p{i}")), created_at=i) for i in range(5)]
    costs = []
    for i, pod in enumerate(pods):
        for change in (assume(ledger, pod, i), see(assume(ledger, pod, i), pod, i, started=False)):
            ledger, before = change, steps.admissions
            _project(kubelet, state, ledger, i, steps=steps)
            costs.append(steps.admissions - before)

    assert costs == [1, 0] * 5


def test_nothing_is_followed_again_when_the_watch_shows_a_pod_unless_its_binding_was_in_doubt() -> None:
    pod = pod_from_json(pod_of(2))
    assumed = assume(NOTHING, pod, 1)
    inputs = {
        name: ProjectionInput(kubelet=EMPTY.kubelet, reported=EMPTY.state, ledger=ledger, now=2)
        for name, ledger in {
            "assumed": assumed,
            "seen": see(assumed, pod, 2, started=False),
            "seen in a list": see(assumed, pod, 2, started=False, ordered=False),
            "started": see(assumed, pod, 2, started=True),
            "in doubt": doubt(assumed, pod.uid),
            "another": assume(NOTHING, replace(pod, demand=Demand(alignment=AlignmentDemand.SAME_SOCKET)), 1),
        }.items()
    }
    alike = {name for name, given in inputs.items() if given.is_alike(inputs["assumed"])}
    assert alike == {"assumed", "seen"}


def test_what_is_kept_is_bounded() -> None:
    steps, kubelet, state = Steps(), EMPTY.kubelet, EMPTY.state
    sizes = set()
    for i in range(MAX_STEPS // 2):
        _project(kubelet, state, assume(NOTHING, pod_from_json(pod_of(2, name=f"p{i}")), 0), 1, steps=steps)
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
        projection = _project(report.kubelet, report.state, ledger, i, steps=steps)
        assert not projection.complete
        assert projection.possible.states == (report.state,)
        assert projection.at_risk == frozenset(), "nothing is known of what the kubelet does"

    assert steps.admissions <= 2, "what was given up is not paid for with each event"
