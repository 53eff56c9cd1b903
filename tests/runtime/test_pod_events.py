"""Events on pods that fit on no node: in a (fake) API server, with the real filter before them."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from extender.kube.access import plain
from extender.kube.client import KubeClient, Requester
from extender.runtime import pod_events
from extender.runtime.pod_events import AGAIN_SECONDS, RECENT_SECONDS, PodEvents
from extender.wire.node_names import NodeNames
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of
from tests.scheduling.test_bind import World


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as running:
        yield running


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[KubeClient]:
    opened = KubeClient(plain(server.url), connect_seconds=2.0)
    yield opened
    opened.close()


class Stage:
    """One node with 2 NUMA nodes of 16 CPUs, and the writer of events."""

    def __init__(self, client: Requester) -> None:
        self.world, self.leads = World(), True
        self.events = PodEvents(self.world.service, client, lambda: self.leads, wall=lambda: 1_800_000_000.0)

    async def filter(self, name: str, cpus: int) -> None:
        args = SchedulerArgs(pod=pod_from_json(pod_of(cpus, name=name)), names=NodeNames.of(["node-a"]), nodes=None)
        await self.world.service.scheduling.filter.filter(args)

    async def fill(self) -> None:
        """Two pods take 12 of the 16 CPUs of each NUMA node."""
        for name in ("a", "b"):
            await self.world.describe(name, 12)
            await self.world.bind(name)

    def counted(self, outcome: str) -> float:
        registry = self.world.service.metrics.registry
        return registry.get_sample_value("numa_extender_pod_events_total", {"outcome": outcome}) or 0.0


async def write_an_event(client: Requester) -> None:
    """For the test of rights."""
    stage = Stage(client)
    await stage.filter("p", 64)
    assert await stage.events.step() is not None
    assert stage.counted("written") == 1


def events_of(server: FakeApiServer) -> list[dict[str, Any]]:
    return server.events.list()


def test_the_event_names_the_reasons_and_the_nearest_request(server: FakeApiServer, client: KubeClient) -> None:
    stage = Stage(client)

    async def story() -> str | None:
        await stage.fill()
        await stage.filter("p", 8)
        return await stage.events.step()

    message = asyncio.run(story())
    assert message == (
        "0 of 1 candidate nodes fit: NUMA alignment is not possible on the node now (1 node). "
        "On node-a the pod would fit with 4 CPUs instead of 8 in container app."
    )
    (event,) = events_of(server)
    assert event["involvedObject"] == {
        "apiVersion": "v1",
        "kind": "Pod",
        "namespace": "default",
        "name": "p",
        "uid": "uid-p",
    }
    assert (event["type"], event["reason"], event["message"]) == ("Warning", "NoNUMANodeFits", message)
    assert (event["firstTimestamp"], event["source"]) == ("2027-01-15T08:00:00Z", {"component": "numa-extender"})
    assert stage.counted("written") == 1


def test_a_pod_gets_one_event_until_some_minutes_have_passed(client: KubeClient) -> None:
    stage = Stage(client)

    async def story() -> list[bool]:
        written = []
        for wait in (0.0, 1.0, AGAIN_SECONDS - 2, 1.0):
            stage.world.clock.now += wait
            await stage.filter("p", 64)
            written.append(await stage.events.step() is not None)
        return written

    assert asyncio.run(story()) == [True, False, False, True]


def test_a_pod_that_some_node_takes_gets_none(server: FakeApiServer, client: KubeClient) -> None:
    stage = Stage(client)

    async def story() -> str | None:
        await stage.filter("p", 2)
        return await stage.events.step()

    assert asyncio.run(story()) is None
    assert events_of(server) == []


def test_a_pod_that_the_scheduler_does_not_send_any_more_gets_none(client: KubeClient) -> None:
    stage = Stage(client)

    async def story() -> str | None:
        await stage.filter("p", 64)
        stage.world.clock.now += RECENT_SECONDS + 1
        return await stage.events.step()

    assert asyncio.run(story()) is None


def test_a_standby_writes_nothing_and_the_next_leader_does(server: FakeApiServer, client: KubeClient) -> None:
    stage = Stage(client)
    stage.leads = False

    async def story() -> tuple[str | None, str | None]:
        await stage.filter("p", 64)
        first = await stage.events.step()
        stage.leads = True
        return first, await stage.events.step()

    first, second = asyncio.run(story())
    assert first is None
    assert second is not None
    assert len(events_of(server)) == 1


def test_a_refused_write_is_counted_and_not_repeated_at_once(server: FakeApiServer, client: KubeClient) -> None:
    stage = Stage(client)
    server.faults.fail(1, 403)

    async def story() -> tuple[str | None, str | None]:
        await stage.filter("p", 64)
        return await stage.events.step(), await stage.events.step()

    first, second = asyncio.run(story())
    assert first is not None
    assert second is None
    assert stage.counted("failed") == 1


def test_what_is_kept_is_bounded(client: KubeClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pod_events, "MAX_KEPT", 3)
    stage = Stage(client)

    async def story() -> None:
        for number in range(6):
            await stage.filter(f"p{number}", 64)
            await stage.events.step()

    asyncio.run(story())
    assert len(stage.events._written_at) == 3
