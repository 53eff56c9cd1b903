"""The bind verb as a value: real parts, and an API server that answers what the test says."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from extender.config.settings import Settings
from extender.scheduling.binder import (
    BindFailure,
    BindOutcome,
    MaybeBound,
    NotBound,
    PodBound,
)
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.reports import pod_of
from tests.world.cluster import World

Json = dict[str, Any]


def failure_of(outcome: BindOutcome) -> BindFailure:
    assert isinstance(outcome, NotBound)
    return outcome.failure


def test_without_a_binder_nothing_is_bound() -> None:
    world = World("node-a")
    world.service.known.link.binder = None

    assert failure_of(asyncio.run(world.bind_named("p"))) is BindFailure.NO_ACCESS


def test_a_pod_is_bound_once_and_repeats_get_the_same_answer() -> None:
    world = World("node-a")

    async def story() -> None:
        assert failure_of(await world.bind_named("p")) is BindFailure.UNKNOWN_POD
        await world.describe("p")
        assert await world.bind_named("p") == PodBound()
        world.api.outcome = NotBound("not called again")
        assert await world.bind_named("p") == PodBound()
        assert failure_of(await world.bind_named("p", "node-b")) is BindFailure.CONFLICT

    asyncio.run(story())
    assert world.in_flight == 1


def test_what_filter_saw_may_be_over() -> None:
    world = World("node-a")

    async def story() -> None:
        for name in ("a", "b", "c"):
            await world.describe(name, 14)
        assert [await world.bind_named(name) for name in ("a", "b")] == [PodBound(), PodBound()]
        assert failure_of(await world.bind_named("c")) is BindFailure.REFUSED

    asyncio.run(story())
    assert world.in_flight == 2


@pytest.mark.parametrize(
    ("outcome", "in_flight", "is_outage"),
    [
        (MaybeBound("no reply"), 1, True),
        (NotBound("connection refused"), 0, True),
        (NotBound("no such pod", BindFailure.NOT_FOUND), 0, False),
        (NotBound("another one leads", BindFailure.STANDBY), 0, False),
    ],
)
def test_room_is_held_as_long_as_the_pod_may_be_bound(
    outcome: BindOutcome,
    in_flight: int,
    is_outage: bool,  # noqa: FBT001
) -> None:
    world = World("node-a", outcome=outcome)

    async def story() -> BindOutcome:
        await world.describe("p")
        return await world.bind_named("p")

    assert asyncio.run(story()) == outcome
    assert world.in_flight == in_flight
    assert world.service.known.link.may_miss_exits("node-a", world.clock()) is is_outage
    assert not world.service.known.link.may_miss_exits("node-b", world.clock())
    world.service.known.link.note_progress(world.clock() + 0.1)
    assert not world.service.known.link.may_miss_exits("node-a", world.clock() + 0.2)


@pytest.mark.parametrize("back_after", [1.0, 60.0])
def test_a_call_waits_for_an_api_server_that_restarts(back_after: float) -> None:
    """Before, each pod paid kube-scheduler's back-off for each failed call."""

    async def sleep(seconds: float) -> None:
        world.clock.now += seconds
        sent = len(world.api.bindings)
        world.api.outcome = MaybeBound("reset") if sent == 1 else NotBound("refused", BindFailure.AWAY)
        if world.clock() >= began + back_after:
            world.api.outcome = PodBound()

    world = World(
        "node-a",
        outcome=NotBound("connection refused", BindFailure.AWAY),
        settings=Settings(bind_wait_seconds=3.0),
        sleep=sleep,
    )
    began = world.clock()

    async def story() -> BindOutcome:
        await world.describe("p")
        return await world.bind_named("p")

    outcome = asyncio.run(story())
    assert isinstance(outcome, PodBound) is (back_after == 1.0)
    assert world.in_flight == 1, "once in doubt, the pod has its room until an answer settles it"
    assert min(back_after, 3.0) <= world.clock() - began <= min(back_after, 3.0) + 0.5


def test_a_call_that_is_cancelled_after_sending_leaves_the_pod_in_doubt() -> None:
    world = World("node-a", outcome=None)

    async def story() -> None:
        await world.describe("p")
        call = asyncio.ensure_future(world.bind_named("p"))
        await world.api.called.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call

    asyncio.run(story())
    assert world.in_flight == 1
    assert world.service.known.pods.get("uid-p").in_doubt_on == "node-a"
    assert world.service.known.link.may_miss_exits("node-a", world.clock())


def test_a_call_that_fails_before_sending_gives_the_room_back() -> None:
    """The check for sudden exits fails, with the room reserved."""

    async def offload(work: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
        if world.in_flight:
            raise ZeroDivisionError
        return work(*args)

    world = World("node-a", offload=offload)
    pod = pod_of(9, name="p")  # its two containers do not fit on one NUMA node: only a replay can tell
    amounts = {"cpu": "9", "memory": "64Mi"}
    pod["spec"]["containers"].append({"name": "helper", "resources": {"requests": amounts, "limits": amounts}})

    async def story() -> None:
        args = SchedulerArgs(pod=pod_from_json(pod), names=["node-a"], nodes=None)
        await world.service.scheduling.filter.filter(args)
        await world.bind_named("p")

    with pytest.raises(ZeroDivisionError):
        asyncio.run(story())
    assert world.in_flight == 0
    assert not world.api.called.is_set()


def _shared_pod(name: str, node_name: str, phase: str = "Running") -> Json:
    """A pod on a node that requests 10 CPUs and shares them."""
    pod = pod_of(10, name=name)
    pod["spec"]["nodeName"] = node_name
    container = pod["spec"]["containers"][0]
    container["resources"] = {"requests": container["resources"]["requests"]}
    pod["status"] |= {"qosClass": "Burstable", "phase": phase}
    return pod


def test_totals_that_are_too_small_defer_a_pod_however_long_it_was_deferred_elsewhere() -> None:
    """kube-scheduler has learned of the end of `running` already, and its kubelet may still count it.

    In a drill of 30,000 pods one was bound so, 12 s after another node had deferred it, and refused as OutOfcpu.
    """
    world = World("node-a", "node-b")
    world.watch(_shared_pod("running", "node-a"), _shared_pod("finished", "node-b", "Succeeded"))

    async def story() -> None:
        await world.describe("p", 10)
        assert failure_of(await world.bind_named("p", "node-b")) is BindFailure.TOTALS
        world.clock.now += 11.0
        assert failure_of(await world.bind_named("p", "node-a")) is BindFailure.TOTALS
        assert await world.describe("p", 10) == ["node-b"]

    asyncio.run(story())
    assert not world.api.called.is_set()


def test_totals_that_stay_too_small_are_wrong_rather_than_late() -> None:
    world = World("node-a")
    world.watch(_shared_pod("running", "node-a"))

    async def story() -> None:
        await world.describe("p", 10)
        for seconds in (0.0, 9.0):
            world.clock.now += seconds
            assert failure_of(await world.bind_named("p")) is BindFailure.TOTALS
        world.watch(_shared_pod("running", "node-a", "Succeeded"), _shared_pod("next", "node-a"))
        for seconds in (0.0, 9.0):
            world.clock.now += seconds
            assert failure_of(await world.bind_named("p")) is BindFailure.TOTALS, "as much is requested, by another pod"
        world.clock.now += 1.0
        world.service.known.link.note_failure(world.clock())
        assert failure_of(await world.bind_named("p")) is BindFailure.TOTALS, "after an outage the watch can be later"
        world.clock.now += 12.0
        assert await world.bind_named("p") == PodBound()

    asyncio.run(story())
