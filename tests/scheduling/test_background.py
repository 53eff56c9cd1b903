"""The bounds of judging in the background, in virtual time."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from extender.cluster.node_class import UNKNOWN, NodeClass
from extender.replay.verdict import Certainty
from extender.scheduling.background import (
    MAX_SHAPE_SECONDS,
    MAX_SHAPES,
    MAX_SLICE_SECONDS,
    BackgroundJudging,
    Ending,
)
from extender.scheduling.cache import ShapeJudgements
from extender.scheduling.judgement import Judgement
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

CLASSES = [replace(UNKNOWN, id=i) for i in range(1, 4)]
GOOD = Judgement(None, Certainty.EXACT)


class World:
    """Background work whose replays take *seconds* each, by class id; nothing else takes time."""

    def __init__(self, seconds: dict[int, float] | None = None) -> None:
        self.now, self.seconds = 0.0, seconds or {}
        self.held: set[ShapeJudgements] | None = None
        self.current = set(CLASSES)
        self.endings: Counter[Ending] = Counter()
        self.slices: list[Sequence[NodeClass]] = []
        self.begun = asyncio.Event()
        self.background = BackgroundJudging(
            self._slice,
            lambda entry: self.held is None or entry in self.held,
            self.current.__contains__,
            metrics=self,
            clock=lambda: self.now,
        )

    async def _slice(
        self, entry: ShapeJudgements, classes: Sequence[NodeClass], out_of_time: Callable[[], bool]
    ) -> None:
        self.slices.append(classes)
        self.begun.set()
        await asyncio.sleep(0)
        for each in classes:
            needed = self.seconds.get(each.id, 0.001)
            while needed > 0 and not out_of_time():
                self.now, needed = self.now + 0.001, needed - 0.001
            if needed > 0:
                return
            entry.add({each.id: GOOD})

    def in_background(self, shapes: int, classes: int) -> None:
        self.left = shapes, classes

    def background_worked(self, seconds: float) -> None:
        assert seconds > 0

    def background_ended(self, ending: Ending) -> None:
        self.endings[ending] += 1


def _entry(number: int = 0) -> ShapeJudgements:
    return ShapeJudgements(pod_from_json(pod_of(1 + number)), number)


def test_more_shapes_than_fit_displace_the_oldest() -> None:
    async def story() -> None:
        world, entries = World(), [_entry(i) for i in range(MAX_SHAPES + 1)]
        for entry in entries:
            world.background.go_on(entry, CLASSES)
        assert world.left == (MAX_SHAPES, 3 * MAX_SHAPES)
        await world.background.finished()
        assert [len(entry.judgements) for entry in entries] == [0] + [3] * MAX_SHAPES
        assert world.endings == {Ending.DISPLACED: 1, Ending.FINISHED: MAX_SHAPES}
        assert world.left == (0, 0)

    asyncio.run(story())


def test_a_shape_that_left_the_cache_is_given_up_and_a_class_without_nodes_is_skipped() -> None:
    async def story() -> None:
        world, evicted, kept = World(), _entry(0), _entry(1)
        world.held = {kept}
        world.current.discard(CLASSES[1])
        for entry in (evicted, kept):
            world.background.go_on(entry, CLASSES)
        await world.background.finished()
        assert (len(evicted.judgements), sorted(kept.judgements)) == (0, [1, 3])
        assert world.endings == {Ending.EVICTED: 1, Ending.FINISHED: 1}

    asyncio.run(story())


def test_a_class_that_takes_too_long_delays_the_others_for_a_bounded_time() -> None:
    async def story() -> None:
        world, entry = World({1: 1e9, 2: 0.5}), _entry()
        world.background.go_on(entry, CLASSES)
        await world.background.finished()
        assert sorted(entry.judgements) == [2, 3]
        assert world.now < 4 * MAX_SLICE_SECONDS

    asyncio.run(story())


def test_a_shape_ends_after_its_time() -> None:
    async def story() -> None:
        classes = [replace(UNKNOWN, id=i) for i in range(1, 1000)]
        world, entry = World(dict.fromkeys(range(1, 1000), 0.3)), _entry()
        world.current.update(classes)
        world.background.go_on(entry, classes)
        await world.background.finished()
        assert world.endings == {Ending.TIME: 1}
        assert MAX_SHAPE_SECONDS <= world.now < MAX_SHAPE_SECONDS + 2 * MAX_SLICE_SECONDS

    asyncio.run(story())


def test_calls_come_first() -> None:
    async def story() -> None:
        world, entry = World(), _entry()
        with world.background.yielding():
            world.background.go_on(entry, CLASSES)
            for _ in range(10):
                await asyncio.sleep(0)
            assert world.slices == []
        await world.background.finished()
        assert len(entry.judgements) == 3

    asyncio.run(story())


def test_a_call_ends_the_slice_that_has_begun() -> None:
    async def story() -> None:
        world, entry = World(dict.fromkeys(range(1, 4), 0.004)), _entry()
        world.background.go_on(entry, CLASSES)
        await world.begun.wait()
        with world.background.yielding():
            await asyncio.sleep(0)
            await asyncio.sleep(0)
            assert not entry.judgements
        await world.background.finished()
        assert len(entry.judgements) == 3

    asyncio.run(story())


def test_work_can_be_ended_and_begun_again() -> None:
    async def story() -> None:
        world, entry = World(), _entry()
        world.background.go_on(entry, CLASSES)
        await world.background.aclose()
        assert (len(world.background), world.left, len(entry.judgements)) == (0, (0, 0), 0)
        world.background.go_on(entry, CLASSES)
        await world.background.finished()
        assert len(entry.judgements) == 3

    asyncio.run(story())
