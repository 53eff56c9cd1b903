"""What the records of calls keep of the cluster: as it was at each call, and never much more than was asked about."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from itertools import count

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.cluster.node_class import UNKNOWN, NodeClass
from extender.cluster.snapshot import PART, ClassIndex, ClusterSnapshot
from extender.scheduling.records.decisions import SLOTS_PER_CANDIDATE, Call, DecisionLog, call_about
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.reports import pod_of

PARTS = 4
POD = pod_from_json(pod_of(2))


class World:
    """`PARTS` parts of nodes that change their classes, and a log of calls. *max_calls*: of the log."""

    def __init__(self, max_calls: int = 100) -> None:
        self.index, self.ids = ClassIndex(), count(1)
        self.log = DecisionLog(max_calls=max_calls)
        self.calls: list[tuple[str, list[NodeClass]]] = []
        for slot in range(PARTS * PART):
            self.change(slot)

    def change(self, slot: int) -> None:
        self.index.put(f"n{slot}", replace(UNKNOWN, id=next(self.ids)))

    def note(self, slots: Sequence[int]) -> Call:
        """The record of a call about these nodes."""
        snapshot, at, pod = self.index.snapshot(), np.array(slots, np.int64), replace(POD, uid=f"u{next(self.ids)}")
        self.calls.append((pod.uid, snapshot.at(at)))
        self.log.note(Call("filter", pod, b"[]", len(slots), 0.0, seen=snapshot, slots=at))
        return self.log.of_pod(pod.uid)[0]

    def remembered(self) -> list[Call]:
        """The calls that are still recorded, after a check that each tells what was seen then."""
        found = []
        for uid, classes in self.calls:
            for call in self.log.of_pod(uid):
                assert call.classes == classes
                found.append(call)
        return found


def test_a_call_about_a_few_nodes_keeps_the_snapshot_if_little_of_it_is_new() -> None:
    world = World()
    few, many = range(PART // 2), range(PARTS * PART // 2)

    assert not isinstance(world.note(few).seen, ClusterSnapshot)  # no snapshot is kept yet
    whole = world.note(many)
    assert whole.seen is world.index.snapshot()
    assert world.note([5]).seen is whole.seen  # nothing has changed

    world.change(3)
    assert world.note(few).seen is world.index.snapshot()  # one part is new
    for part in range(PARTS):
        world.change(part * PART)
    assert not isinstance(world.note(few).seen, ClusterSnapshot)  # all of them are
    assert len(world.remembered()) == len(world.calls)


ALL_PARTS = range(0, PARTS * PART, PART)
_changed = st.sampled_from([(), (1,), ALL_PARTS])
_step = st.tuples(_changed, st.sampled_from([1, PART // 4, PARTS * PART]))


@settings(max_examples=40, deadline=None)
@example([((1,), PARTS * PART)] * 4 + [(ALL_PARTS, 1)] * 6, 4)
@given(st.lists(_step, max_size=15), st.integers(1, 4))
def test_kept_snapshots_are_no_larger_than_the_calls_together_and_two_whole_ones(
    steps: Sequence[tuple[Sequence[int], int]], max_calls: int
) -> None:
    world = World(max_calls)
    for changed, asked in steps:
        for slot in changed:
            world.change(slot)
        world.note(range(asked))
        calls = world.remembered()
        parts = {id(part) for call in calls if isinstance(call.seen, ClusterSnapshot) for part in call.seen.parts}
        assert len(parts) * PART <= 2 * PARTS * PART + SLOTS_PER_CANDIDATE * sum(call.count for call in calls)


def test_calls_for_one_namespace_displace_none_for_others() -> None:
    """Seen red: whoever creates pods fast enough decided which explanations are kept."""
    log = DecisionLog(max_calls=3)
    log.note(Call("filter", replace(POD, uid="quiet", namespace="quiet"), b"[]", 1, 0.0))

    for number in range(10):
        log.note(Call("filter", replace(POD, uid=f"loud-{number}", namespace="loud"), b"[]", 1, 1.0))

    assert log.of_pod("quiet")
    assert [calls[0].pod.uid for calls in log.newest(10)] == ["loud-9", "loud-8", "quiet"]
    assert log.forgotten == 8


def test_a_pod_that_is_asked_about_again_and_again_keeps_one_call_and_displaces_no_other() -> None:
    """Seen red: each of its calls was kept, 25 MiB of them, and they displaced those of the other pods."""
    log = DecisionLog(max_calls=3)
    log.note(Call("filter", replace(POD, uid="other"), b"[]", 1, 0.0))

    for number in range(10):
        log.note(Call("filter", replace(POD, uid="again"), b"[]", 1, float(number)))
    log.note(Call("prioritize", replace(POD, uid="other"), b"[]", 1, 20.0))

    assert (len(log), log.forgotten) == (3, 0)
    assert [[call.at for call in calls] for calls in log.newest(10)] == [[20.0, 0.0], [9.0]]


def test_the_names_of_a_call_take_no_more_memory_than_they_are_long() -> None:
    """Seen red: 4 KB for each call about few nodes, 20 MiB for a whole log."""
    args = SchedulerArgs(pod=POD, names=[f"node-{i}" for i in range(10)], nodes=None)
    call_about("filter", args, None, 0.0)
    tracemalloc.start()
    calls = [call_about("filter", args, None, 0.0) for _ in range(200)]
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert calls[0].names == args.names
    assert used / len(calls) < 1000
