"""The controller moves pods so that a waiting pod gets its place, and stops at whatever it did not expect."""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from extender.features.room.cluster import ACCOUNT, Cluster
from extender.features.room.controller import MAX_GRACE_SECONDS, AbandonError
from extender.kube.errors import ApiError
from extender.wire.advice_replies import EvictedPod
from tests.fakes.apiserver import FakeApiServer
from tests.features.room.room_world import NAMESPACE, RECORD, RoomWorld, fragmented

ROOM_USER = "system:serviceaccount:numa-extender:numa-extender-room"


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as running:
        yield running


def play(server: FakeApiServer, story: Callable[[RoomWorld], Awaitable[None]], *names: str, **parts: Any) -> RoomWorld:
    world = RoomWorld(server, *(names or ("a", "b")), **parts)
    fragmented(world)

    async def run() -> None:
        await world.tick(2)
        world.run("large", 14)
        await story(world)

    asyncio.run(run())
    return world


def evictions(server: FakeApiServer) -> int:
    return sum(count for call, count in server.access.calls.items() if call.resource == "pods/eviction")


def test_without_the_controller_the_pod_waits_and_with_it_the_pod_runs(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        await world.tick(30, controller=False)
        assert world.running("large") == {}
        await world.until_ended()
        (plan,) = world.controller.record.history  # type: ignore[union-attr]
        assert (plan.state, plan.note, plan.subject.partition("-")[0]) == ("done", "", "default/large")
        (move,) = plan.moves
        assert list(world.running("large").values()) == [plan.target]
        assert world.running(move.labels["app"]) == {move.replacement: move.to}

    play(server, story)
    assert {call.user for call in server.access.calls if call.resource in ("pods/eviction", "events")} == {ROOM_USER}
    assert {event["reason"] for event in server.events.list()} == {"MovedForRoom"}
    assert evictions(server) == 1


def test_pods_are_moved_as_well_where_refused_pods_are_not_requeued(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        await world.until_ended()
        assert [plan["state"] for plan in world.stored()["history"]] == ["done"]

    play(server, story, wake_up=False)


def test_an_event_whose_reply_is_lost_ends_no_plan(server: FakeApiServer) -> None:
    server.faults.drop(100, "after", verb="create", resource="events")

    async def story(world: RoomWorld) -> None:
        await world.until_ended()
        assert [plan["state"] for plan in world.stored()["history"]] == ["done"]

    play(server, story)


def test_no_room_is_made_for_a_pod_that_is_being_deleted(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        (pod,) = world.pods("large")
        await world.tick()
        world.server.pods.patch(pod["metadata"]["name"], {"metadata": {"deletionTimestamp": "2026-09-21T14:13:20Z"}})
        for _ in range(10):
            world.clock.now += 1
            world.observe()
            await world.controller.step()
        assert world.stored() == {}

    play(server, story)
    assert evictions(server) == 0


def test_a_dry_run_evicts_nothing_and_records_the_plan(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        await world.tick(20)
        assert [plan["state"] for plan in world.stored()["history"]][:1] == ["dry_run"]
        assert world.running("large") == {}

    play(server, story, room="dry-run")
    assert evictions(server) == 0


def test_what_an_author_writes_into_pods_makes_them_movable_nowhere(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        world.controller.movable = {"another"}
        for pod in world.pods():
            marks = {"numa-extender.io/movable": "true"}
            world.server.pods.patch(pod["metadata"]["name"], {"metadata": {"labels": marks, "annotations": marks}})
        await world.tick(30)
        assert world.running("large") == {}

    play(server, story)
    assert evictions(server) == 0


def test_pods_without_a_controller_and_pods_of_groups_stay(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        for pod in world.pods():
            if pod["metadata"]["labels"]["app"] == "left-0":
                world.server.pods.patch(pod["metadata"]["name"], {"metadata": {"ownerReferences": None}})
            else:
                group = {"numa-extender.io/group": "g", "numa-extender.io/group-size": "3"}
                world.server.pods.patch(pod["metadata"]["name"], {"metadata": {"annotations": group}})
        world.replicas.pop("left-0")
        await world.tick(30)

    play(server, story)
    assert evictions(server) == 0


@pytest.mark.parametrize(
    ("patch", "why"),
    [
        ({"metadata": {"ownerReferences": None}}, "no controller"),
        (
            {"metadata": {"annotations": {"numa-extender.io/group": "g", "numa-extender.io/group-size": "3"}}},
            "must not",
        ),
        ({"metadata": {"deletionTimestamp": "2026-09-21T14:13:20Z"}}, "is not on a"),
        ({"spec": {"terminationGracePeriodSeconds": MAX_GRACE_SECONDS + 1}}, "grace period"),
    ],
)
def test_each_pod_of_a_plan_is_looked_at_again(server: FakeApiServer, patch: dict[str, Any], why: str) -> None:
    world = RoomWorld(server, "a", "b")
    name = world.run("app", 4, "a")["metadata"]["name"]
    asked = EvictedPod(pod=f"default/{name}", node="a", priority=0, owner="", requests={}, to="b", numa=[])
    assert asyncio.run(world.controller._movable(asked))["metadata"]["name"] == name
    server.pods.patch(name, patch)

    with pytest.raises(AbandonError, match=why):
        asyncio.run(world.controller._movable(asked))


def test_only_the_pod_with_the_uid_of_the_plan_is_evicted(server: FakeApiServer) -> None:
    world = RoomWorld(server, "a")
    name = world.run("app", 4, "a")["metadata"]["name"]
    with pytest.raises(ApiError, match="UID"):
        asyncio.run(Cluster(world.client, world.client).evict("default", name, "another"))

    assert [pod["metadata"]["name"] for pod in world.pods()] == [name]


def test_a_disruption_budget_that_allows_none_ends_the_plan_and_nothing_else(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        budget = {"metadata": {"name": "all", "namespace": "default"}, "spec": {"selector": {}}}
        world.server.pdbs.create({**budget, "status": {"disruptionsAllowed": 0}})
        await world.until_ended()
        record = world.controller.record
        assert record is not None
        assert (record.history[0].state, record.stopped) == ("abandoned", "")
        assert "budget" in record.history[0].note

    play(server, story)


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ("elsewhere", "is Running on"),
        ("fails", "is Failed on"),
        ("late", "did not run within"),
        ("refused", "refused a pod"),
    ],
)
def test_the_first_surprise_stops_the_controller_until_the_record_is_deleted(
    server: FakeApiServer, fault: str, why: str
) -> None:
    async def story(world: RoomWorld) -> None:
        owners = {name for name in world.replicas if name != "large"}
        if fault == "elsewhere":
            world.scheduler = lambda pod, offered: back_to_its_node(world, pod, offered)
        elif fault == "fails":
            world.refuses = owners
        elif fault == "late":
            world.waits = owners
        for _ in range(60):
            await world.tick()
            record = world.controller.record
            if fault == "refused" and record is not None and record.plan is not None and evictions(server):
                world.controller.note_refusal(record.plan.nodes[0])
        assert why in world.stored()["stopped"]
        count = evictions(server)
        world.start_controller()
        await world.tick(60)
        assert evictions(server) == count == 1
        world.scheduler, world.refuses, world.waits = lambda _pod, offered: offered, set(), set()
        server.config_maps.delete(RECORD, NAMESPACE)
        await world.tick(3)
        assert world.controller.record is not None
        assert not world.controller.record.stopped

    play(server, story)


def back_to_its_node(world: RoomWorld, pod: dict[str, Any], offered: list[str]) -> list[str]:
    """What a scheduler does that does not ask: the replacement goes to the node that its pod has left."""
    record = world.controller.record
    moves = record.plan.moves if record is not None and record.plan is not None else []
    return next(([each.source] for each in moves if pod["metadata"]["labels"] == each.labels), offered)


class Ending(Cluster):
    """The process ends where it would evict a pod."""

    async def evict(self, *_: str) -> None:
        raise SystemExit


@pytest.mark.parametrize("at", ["written", "evicted"])
def test_a_process_that_ends_between_two_evictions_leaves_no_pod_behind(server: FakeApiServer, at: str) -> None:
    async def story(world: RoomWorld) -> None:
        if at == "written":
            world.controller._cluster = Ending(world.client, world.client.acting_as(NAMESPACE, ACCOUNT))
        with_plan = 0
        for _ in range(30):
            try:
                await world.tick()
            except SystemExit:
                break
            stored = world.stored().get("plan")
            with_plan += stored is not None and stored["moves"][0]["state"] == "evicted"
            if with_plan:
                break
        count = evictions(server)
        world.start_controller()
        await world.until_ended()
        plan = world.controller.record.history[0]  # type: ignore[union-attr]
        assert plan.state in ("abandoned", "done")
        assert evictions(server) == count == (at == "evicted")
        assert all(len(world.running(owner)) == 1 for owner in world.replicas if owner != "large")

    play(server, story)


async def until_planned(world: RoomWorld) -> None:
    """Until there is a plan of which nothing is carried out yet."""
    for _ in range(30):
        await world.tick()
        if world.stored().get("plan"):
            break
    assert evictions(world.server) == 0


def test_a_plan_of_a_process_that_has_ended_is_not_begun(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        await until_planned(world)
        controller = world.start_controller()
        for _ in range(2):  # reads the record, and then works
            await controller.step()
        (plan,) = world.stored()["history"]
        assert (plan["state"], plan["note"]) == ("abandoned", "the process that carried it out has ended")

    play(server, story)
    assert evictions(server) == 0


def test_no_pod_is_evicted_for_a_pod_that_has_found_a_place(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        await until_planned(world)
        (pod,) = world.pods("large")
        world.server.pods.bind(pod["metadata"]["name"], "a")
        await world.controller.step()
        (plan,) = world.stored()["history"]
        assert (plan["state"], plan["note"]) == ("abandoned", "the waiting pod has found a place")

    play(server, story)
    assert evictions(server) == 0


def test_a_node_that_comes_and_goes_ends_the_plan_before_the_next_eviction(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        await until_planned(world)
        target = world.controller.record.plan.target  # type: ignore[union-attr]
        world.service.known.nodes.drop_node(target)
        await world.controller.step()
        plan = world.controller.record.history[0]  # type: ignore[union-attr]
        assert (plan.state, plan.note) == ("abandoned", f"node {target} is not known exactly now")

    play(server, story)
    assert evictions(server) == 0


def test_evictions_are_limited_in_an_hour_and_plans_by_the_cooldown(server: FakeApiServer) -> None:
    async def story(world: RoomWorld) -> None:
        await world.until_ended()
        began = world.clock.now
        world.run("second", 14)
        await world.tick(300)
        assert evictions(server) == 1
        world.clock.now = began + 3601
        await world.tick(60)

    play(server, story, room_per_hour=1)


@pytest.mark.parametrize(("priority", "node"), [(0, "c"), (1, "a")])
def test_pods_of_no_higher_priority_avoid_the_nodes_of_the_plan_while_another_node_fits_them(
    server: FakeApiServer, priority: int, node: str
) -> None:
    async def story(world: RoomWorld) -> None:
        world.run("", 12, "c")  # no room for the pods of the plan
        world.run("", 13, "c")
        await until_planned(world)
        other = world.run("other", 2)
        world.server.pods.patch(other["metadata"]["name"], {"spec": {"priority": priority}})
        await world.tick()
        assert list(world.running("other").values()) == [node]

    play(server, story, "a", "b", "c")


SHAPE = "requests: {cpu: 14, memory: 1Gi}\ncopies: 1"


def test_a_missing_copy_of_a_shape_is_made_in_the_window_only(server: FakeApiServer) -> None:
    async def run(world: RoomWorld, hour: int) -> None:
        await world.tick(2)
        world.clock.now += hour * 3600 - world.clock.now % 86_400 + 86_400
        world.observe()
        await world.tick(30)

    world = RoomWorld(server, "a", "b", shapes={"large": SHAPE}, room_window="02:00-05:00")
    fragmented(world)
    asyncio.run(run(world, 1))
    assert evictions(server) == 0
    asyncio.run(run(world, 2))
    assert evictions(server) == 1
    record = world.controller.record
    assert record is not None
    assert (record.history[-1].state, record.history[-1].before, record.history[-1].after) == (
        "done",
        {"large": 0},
        {"large": 1},
    )


def test_a_plan_of_which_a_shape_would_lose_copies_is_not_carried_out(server: FakeApiServer) -> None:
    async def run() -> None:
        await world.tick(2)
        world.run("large", 14)
        await world.tick(30)

    world = RoomWorld(server, "a", "b", shapes={"small": "requests: {cpu: 10, memory: 1Gi}\ncopies: 4"})
    fragmented(world)
    asyncio.run(run())
    assert evictions(server) == 0
