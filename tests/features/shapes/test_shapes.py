"""Declared shapes are counted, ranked and, if hard, kept: other pods go elsewhere while another node fits them."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence

import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_questions
from extender.config.settings import Settings
from extender.features.shapes.feature import ShapesFeature
from extender.questions.asked import Asked, BusyError
from extender.questions.shapes import read_shapes
from extender.scheduling.binder import BindFailure, NotBound, PodBound
from extender.scheduling.reasons import RefusalReason
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.reports import pod_of, sample
from tests.world.cluster import World

SETTINGS = Settings(shapes="on", bind_wait_seconds=0.0, question_workers=0)
LARGE = "requests: {{cpu: 14, memory: 4Gi}}\ncopies: {copies}\npriority: {priority}\nhard: {hard}"
"""An empty node has two places for it: NUMA nodes of 14 and 16 CPUs."""


def feature_of(world: World) -> ShapesFeature:
    (found,) = [each for each in world.service.features if isinstance(each, ShapesFeature)]
    return found


def play(story: Callable[[World], Awaitable[None]], *, copies: int, hard: str = "true", priority: int = 0) -> World:
    """On node b two pods leave 5 and 7 CPUs, and so no place for the shape. Node a is empty."""
    world = World("a", "b", settings=SETTINGS)
    feature = feature_of(world)
    feature.use(make_questions(world.service))

    async def run() -> None:
        for number in range(2):
            await world.place_on(pod_of(9, name=f"filler-{number}"), "b")
        feature.counts.declare(read_shapes({"large": LARGE.format(copies=copies, hard=hard, priority=priority)}))
        await count(world)
        await story(world)

    asyncio.run(run())
    return world


async def count(world: World) -> None:
    world.clock.now += 15
    shape = await feature_of(world).counts.step()
    assert shape is not None
    assert feature_of(world).counts.shapes["large"].problem == ""


async def offered(world: World, cpus: int, *, priority: int = 0) -> list[str]:
    return list((await world.filter(pod_of(cpus, name=f"p{cpus}"), priority=priority)).feasible)


def test_aligned_copies_are_counted_by_node_and_pool() -> None:
    async def story(world: World) -> None:
        counted = feature_of(world).counts.shapes["large"].count
        assert counted is not None
        assert (counted.nodes, counted.pools, counted.fits, counted.most) == ({"a": 2}, {"none": 2}, 2, 2)

    play(story, copies=1)


def test_a_pod_is_kept_from_the_last_room_of_a_hard_shape_while_another_node_fits_it() -> None:
    async def story(world: World) -> None:
        filtered = await world.filter(pod_of(4, name="small"))
        assert list(filtered.feasible) == ["b"]
        assert filtered.refused == {"a": RefusalReason.SHAPE.text}

    play(story, copies=2)


@pytest.mark.parametrize(("copies", "hard"), [(1, "true"), (2, "false")])
def test_a_pod_is_offered_every_node_if_enough_copies_stay_or_the_shape_is_not_hard(copies: int, hard: str) -> None:
    async def story(world: World) -> None:
        assert await offered(world, 4) == ["a", "b"]

    play(story, copies=copies, hard=hard)


def test_a_pod_that_fits_nowhere_else_gets_the_last_room() -> None:
    async def story(world: World) -> None:
        assert await offered(world, 8) == ["a"]
        assert await world.bind(pod_of(8, name="p8"), "a") == PodBound()

    play(story, copies=2)


def test_a_pod_of_the_shape_or_of_a_higher_priority_gets_the_room() -> None:
    async def story(world: World) -> None:
        assert (await world.filter(pod_of(14, "4Gi", name="own"))).refused.keys() == {"b"}
        assert await offered(world, 4, priority=8) == ["a", "b"]
        assert await offered(world, 4, priority=7) == ["b"]

    play(story, copies=2, priority=7)


def test_pods_that_were_bound_since_the_count_have_taken_copies() -> None:
    async def story(world: World) -> None:
        await world.place_on(pod_of(10, name="first"), "a")
        assert await offered(world, 4) == ["a", "b"]  # beside the first one it takes nothing
        assert await offered(world, 5) == ["b"]  # it would go to the other NUMA node

    play(story, copies=1)


def test_bind_refuses_the_last_room_if_filter_knew_another_node() -> None:
    async def story(world: World) -> None:
        small, other = pod_of(5, name="small"), pod_of(10, name="other")
        assert list((await world.filter(small)).feasible) == ["a", "b"]
        await world.place_on(other, "a")
        refused = await world.bind(small, "a")
        assert isinstance(refused, NotBound)
        assert refused.failure is BindFailure.SHAPE
        assert list((await world.filter(small)).feasible) == ["b"]
        assert await world.bind(small, "b") == PodBound()

    play(story, copies=1)


def test_two_pods_that_are_bound_at_the_same_time_do_not_both_take_a_copy() -> None:
    async def story(world: World) -> None:
        world.add(sample("c"))
        await count(world)
        pods = [pod_of(12, name=f"p{i}") for i in range(2)]
        for pod in pods:
            assert list((await world.filter(pod)).feasible) == ["a", "c"]
        outcomes = await asyncio.gather(*(world.bind(pod, node) for pod, node in zip(pods, "ac", strict=True)))
        assert sorted(isinstance(each, PodBound) for each in outcomes) == [False, True]

    play(story, copies=3)


def test_prioritize_ranks_the_last_room_of_any_shape_lowest() -> None:
    async def story(world: World) -> None:
        assert await scores(world, pod_of(4), "a", "b") == [0, 10]
        assert await scores(world, pod_of(14, "4Gi"), "a", "b") == [10, 0]
        assert await scores(world, pod_of(4), "a") == [10]

    play(story, copies=2, hard="false")


async def scores(world: World, pod: dict[str, object], *names: str) -> Sequence[int]:
    args = SchedulerArgs(pod=pod_from_json(pod), names=names, nodes=None, priority=0, document=pod)
    return list((await world.service.scheduling.prioritize.prioritize(args)).tolist())


class Broken:
    """Answers no question."""

    async def ask(self, asked: Asked, _caller: str) -> AsyncGenerator[bytes, None]:
        if asked.body:
            raise BusyError("no worker", 5, refused=True)
        yield b""


def test_a_count_that_fails_stays_with_its_age_and_reason() -> None:
    async def story(world: World) -> None:
        counts = feature_of(world).counts
        counts.questions = Broken()
        world.clock.now += 100
        await counts.step()
        assert counts.shapes["large"].problem == "no worker"
        assert await offered(world, 4) == ["b"]

    world = play(story, copies=2)
    with TestClient(make_app(world.service), client=("127.0.0.1", 50_000)) as client:
        (shape,) = client.get("/v1/shapes").json()["shapes"]
        page = client.get("/metrics").text
    assert (shape["fits"], shape["copies"], shape["missing"], shape["age_seconds"]) == (2, 2, 0, 100.0)
    assert shape["problem"] == "no worker"
    assert 'numa_extender_shape_fits{pool="none",shape="large"} 2.0' in page
    assert 'numa_extender_shape_missing{shape="large"} 0.0' in page
    assert 'numa_extender_shape_age_seconds{shape="large"} 100.0' in page


def test_counting_takes_a_twentieth_of_the_time_at_most() -> None:
    async def story(world: World) -> None:
        questions = make_questions(world.service)

        class Slow:
            async def ask(self, asked: Asked, caller: str) -> AsyncGenerator[bytes, None]:
                world.clock.now += 10
                async for piece in questions.ask(asked, caller):
                    yield piece

        counts = feature_of(world).counts
        counts.questions = Slow()
        world.clock.now += 15
        assert await counts.step() is not None
        for _ in range(18):
            world.clock.now += 10
            assert await counts.step() is None
        world.clock.now += 10
        assert await counts.step() is not None

    play(story, copies=2)


def test_a_shape_that_is_declared_again_as_before_keeps_its_count() -> None:
    async def story(world: World) -> None:
        counts = feature_of(world).counts
        same, other = (read_shapes({"large": LARGE.format(copies=n, hard="true", priority=0)}) for n in (2, 3))
        counts.declare(same)
        assert counts.shapes["large"].count is not None
        counts.declare(other)
        assert counts.shapes["large"].count is None

    play(story, copies=2)
