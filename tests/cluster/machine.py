"""The steps of a story as rules that hypothesis chooses, and shortens to the few that show a fault."""

from random import Random
from typing import Final

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from tests.cluster.story import Story

WHICH: Final = st.integers(0, 5)
SHAPE: Final = st.integers(0, 6)
LATER: Final = st.sampled_from((False, False, False, True))
REPLIES: Final = st.sampled_from(("received",) * 5 + ("late", "lost"))


def _machine(machine: RuleBasedStateMachine) -> Story:
    assert isinstance(machine, StoryMachine)
    return machine.story


has_waiting = precondition(lambda machine: bool(_machine(machine).waiting))
has_unread = precondition(lambda machine: _machine(machine).extender_at < len(_machine(machine).log))
is_up = precondition(lambda machine: not _machine(machine).kubelet_is_down)
is_down = precondition(lambda machine: _machine(machine).kubelet_is_down)


class StoryMachine(RuleBasedStateMachine):
    """The rules; a subclass makes the story and adds the laws."""

    def __init__(self) -> None:
        super().__init__()
        self.story = self.make_story()

    def make_story(self) -> Story:
        """How the story begins."""
        return Story()

    def step(self) -> Story:
        """Time goes on; the story."""
        self.story.now += 0.1
        return self.story

    @rule(shape=SHAPE, memory=st.integers(0, 2), later=LATER)
    def create_pod(self, shape: int, memory: int, later: bool) -> None:  # noqa: FBT001 - drawn by name
        self.step().create_pod(shape, memory, later=later)

    @rule(shape=SHAPE, memory=st.integers(0, 2), later=LATER, reply=REPLIES)
    def create_and_bind(self, shape: int, memory: int, later: bool, reply: str) -> None:  # noqa: FBT001
        self.step().create_pod(shape, memory, later=later)
        self.story.bind(len(self.story.waiting) - 1, reply)

    @has_waiting
    @rule(which=WHICH, reply=REPLIES)
    def bind(self, which: int, reply: str) -> None:
        self.step().bind(which, reply)

    @precondition(lambda machine: bool(_machine(machine).on_wire))
    @rule(which=WHICH)
    def bind_late(self, which: int) -> None:
        self.step().bind_late(which)

    @has_unread
    @rule(events=st.integers(1, 3))
    def extender_reads(self, events: int) -> None:
        for _ in range(min(events, len(self.story.log) - self.story.extender_at)):
            self.step().extender_reads()

    @has_unread
    @rule()
    def extender_lists(self) -> None:
        self.step().extender_lists()

    @is_up
    @precondition(lambda machine: _machine(machine).kubelet_at < len(_machine(machine).log))
    @rule(events=st.integers(1, 3))
    def kubelet_reads(self, events: int) -> None:
        for _ in range(min(events, len(self.story.log) - self.story.kubelet_at)):
            self.step().kubelet_reads()

    @is_up
    @rule()
    def kubelet_stops(self) -> None:
        self.step().kubelet_stops()

    @is_down
    @rule(random=st.randoms(use_true_random=False))
    def kubelet_starts(self, random: Random) -> None:
        self.step().kubelet_starts(random)

    @is_up
    @precondition(lambda machine: bool(_machine(machine).unstarted))
    @rule(which=WHICH)
    def start_pod(self, which: int) -> None:
        self.step().start_pod(which)

    @precondition(lambda machine: bool(_machine(machine).active))
    @rule(which=WHICH)
    def delete_pod(self, which: int) -> None:
        self.step().delete_pod(which)

    @is_up
    @precondition(lambda machine: _machine(machine).ending is not None)
    @rule()
    def end_pod(self) -> None:
        self.step().end_pod()

    @rule()
    def write_report(self) -> None:
        self.step().write_report()

    @precondition(lambda machine: bool(_machine(machine).unsent))
    @rule(which=st.sampled_from((0, 0, 1)), lost=st.sampled_from((False, False, False, True)))
    def send_report(self, which: int, lost: bool) -> None:  # noqa: FBT001
        self.step().send_report(which, lost=lost)

    # Rules are drawn alike: those that stand here twice are drawn more often.
    create_and_bind_2 = create_and_bind_3 = create_and_bind
    bind_late_2 = bind_late
    extender_reads_2 = extender_reads_3 = extender_reads
    kubelet_reads_2 = kubelet_reads_3 = kubelet_reads
    kubelet_starts_2 = kubelet_starts
    end_pod_2 = end_pod
