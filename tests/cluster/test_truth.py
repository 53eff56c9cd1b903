"""The laws of the ledger: the kubelet's state is among those that are followed, and no bound pod is ever refused.

Where pods also end suddenly, one at a time, the kubelet's state is not always among those that are followed, and still
no bound pod is refused.
"""

from dataclasses import replace
from random import Random

from hypothesis import settings
from hypothesis.stateful import invariant, precondition, rule, run_state_machine_as_test

from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json
from tests.cluster.machine import WHICH, StoryMachine
from tests.cluster.reading import classes_at
from tests.cluster.story import FRAGILE, STRICT, Story, random_step
from tests.reports import pod_of


class TruthMachine(StoryMachine):
    """Every end is announced."""

    @invariant()
    def the_truth_is_followed(self) -> None:
        self.story.check()


class SuddenExitMachine(StoryMachine):
    """Single pods end before anybody knows of it. The law is in `Story`: what is bound is admitted."""

    def make_story(self) -> Story:
        return Story(node=STRICT, shapes=FRAGILE)

    @precondition(lambda machine: machine.story.may_end_suddenly)
    @rule(which=WHICH)
    def end_suddenly(self, which: int) -> None:
        self.step().end_suddenly(which)

    end_suddenly_2 = end_suddenly


def test_the_truth_is_always_among_the_states_that_are_followed() -> None:
    run_state_machine_as_test(TruthMachine, settings=settings(max_examples=60, stateful_step_count=50, deadline=None))


def test_no_single_sudden_end_gets_a_bound_pod_refused() -> None:
    run_state_machine_as_test(
        SuddenExitMachine, settings=settings(max_examples=100, stateful_step_count=50, deadline=None)
    )


def test_most_of_the_time_all_that_is_possible_can_be_followed() -> None:
    complete = []
    for seed in range(20):
        story, random = Story(), Random(seed)
        for _ in range(60):
            random_step(story, random)
            complete.append(classes_at(story.cluster, ["n"], story.now)[0].complete)
    assert sum(complete) > 0.7 * len(complete)


def test_two_pods_of_one_second_may_be_admitted_in_either_order() -> None:
    first, second = (replace(pod_from_json(pod_of(cpus, name=f"{cpus}")), created_at=7) for cpus in (14, 6))

    def states_after(*pods: Pod) -> set[object]:
        story = Story()
        for at, pod in enumerate(pods, 1):
            story.cluster.assume("n", pod, at)
        return {state.key for state in classes_at(story.cluster, ["n"], 2)[0].states}

    either = states_after(first, second)
    first_leads = states_after(replace(first, created_at=6), second)
    second_leads = states_after(replace(second, created_at=6), first)

    assert len(first_leads) == len(second_leads) == 1
    assert first_leads != second_leads
    assert either == first_leads | second_leads
