"""What the records of calls keep of the cluster: as it was at each call, and never much more than was asked about."""

import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from weakref import WeakSet

from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.cluster.class_index import ClassIndex
from extender.cluster.node_class import UNKNOWN, NodeClass
from extender.scheduling.records.decisions import Call, DecisionLog, call_about
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.reports import pod_of

NODES = 1000
POD = pod_from_json(pod_of(2))


class World:
    """Nodes that change their classes, and a log of calls. *max_calls*: of the log."""

    def __init__(self, max_calls: int = 100) -> None:
        self.index, self.ids = ClassIndex(), count(1)
        self.log = DecisionLog(max_calls=max_calls)
        self.calls: list[tuple[str, list[int]]] = []
        self.all: WeakSet[NodeClass] = WeakSet()
        for slot in range(NODES):
            self.change(slot)

    def change(self, slot: int) -> None:
        node_class = replace(UNKNOWN, id=next(self.ids))
        self.all.add(node_class)
        self.index.put(f"n{slot}", node_class)

    def note(self, slots: Sequence[int]) -> None:
        """Record a call about these nodes."""
        pod, seen = replace(POD, uid=f"u{next(self.ids)}"), self.index.classes[list(slots)]
        self.calls.append((pod.uid, [each.id for each in seen]))
        self.log.note(Call("filter", pod, b"[]", len(slots), 0.0, classes=seen))

    def remembered(self) -> set[int]:
        """The class ids of the calls that are still recorded, after a check that each tells what was seen then."""
        found = set()
        for uid, ids in self.calls:
            for call in self.log.of_pod(uid):
                assert call.classes is not None
                assert [each.id for each in call.classes] == ids
                found |= {*ids}
        return found


_changed = st.sampled_from([(), (1,), range(NODES)])
_step = st.tuples(_changed, st.sampled_from([1, NODES // 4, NODES]))


@settings(max_examples=20, deadline=None)
@example([((1,), NODES)] * 4 + [(range(NODES), 1)] * 6, 4)
@given(st.lists(_step, max_size=10), st.integers(1, 4))
def test_a_call_tells_what_was_seen_and_keeps_the_classes_of_its_candidates_alone(
    steps: Sequence[tuple[Sequence[int], int]], max_calls: int
) -> None:
    world = World(max_calls)
    for changed, asked in steps:
        for slot in changed:
            world.change(slot)
        world.note(range(asked))
        alive = {each.id for each in world.all}
        assert alive == world.remembered() | {*world.index.ids[world.index.names.slots_of(_NAMES)].tolist()}


_NAMES = [f"n{slot}" for slot in range(NODES)]


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
