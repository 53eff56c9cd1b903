"""A process may end between any two actions, and Kueue may change a Workload between reading and writing."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from extender.features.kueue.places import FoundPlaces
from extender.features.kueue.workloads import PodSet
from extender.kube.client import JSON, KubeClient
from extender.kube.errors import ApiError, NoReplyError
from extender.kube.watch import WatchSettings
from extender.runtime.connection import ApiConnection
from tests.fakes.apiserver import FakeApiServer
from tests.features.kueue.kueue_world import KueueWorld
from tests.features.kueue.test_answers import play


@pytest.mark.parametrize("last", ["lost", "carried out"])
@pytest.mark.parametrize("after", range(3))
def test_a_process_that_ends_at_any_write_is_followed_by_one_that_goes_on(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch, after: int, last: str
) -> None:
    """Of the writes, which are Active, Retry and Ready, the last ones fail; the last one may be carried out."""
    left, real = after, KubeClient.request

    def dies(self: KubeClient, method: str, path: str, **call: Any) -> JSON:
        nonlocal left
        if method == "PATCH":
            left -= 1
            if left < 0 and not (last == "carried out" and left == -1):
                raise ApiError(503, "Killed", "the process has ended")
            if left == -1:
                real(self, method, path, **call)
                raise NoReplyError("the process has ended", maybe_done=True)
        return real(self, method, path, **call)

    async def story(world: KueueWorld) -> None:
        world.run("busy", 9, "n1")
        world.submit("job", (2, 10))
        with monkeypatch.context() as patch:
            patch.setattr(KubeClient, "request", dies)
            await world.tick(2, scheduler=False)
            world.end("busy")
            await world.tick(70, scheduler=False)
        world.start()
        await world.tick(130, scheduler=False)
        assert world.condition("job", "Admitted")
        await world.tick(2)
        assert world.nodes_of("job") == ["n1", "n1"]
        assert len(world.feature.held) == 0

    play(server, story, "n1")


def test_a_new_process_holds_the_places_again_for_pods_that_are_not_bound(server: FakeApiServer) -> None:
    async def story(world: KueueWorld) -> None:
        world.submit("job", (3, 14))
        await world.tick(2, scheduler=False)
        assert world.condition("job", "Admitted")
        (first, *_) = world.pods_of("job")
        (node,) = await world.offered(first)
        assert world.land(first, node)
        world.silent = {"n1", "n2"}
        world.start()
        await world.tick(3, scheduler=False)
        assert len(world.feature.held) == 0, "no node has reported to the new process"
        world.silent = set()
        await world.tick(2, scheduler=False)
        assert len(world.feature.held) == 2
        world.clock.now += 30
        await world.tick(2, scheduler=False)
        assert len(world.feature.held) == 0, "the time counts from the answer"

    play(server, story)


def test_places_are_looked_for_once(server: FakeApiServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(world: KueueWorld) -> None:
        found, planner = list[str](), world.feature.planner
        find = planner.find

        async def counted(pod_sets: Sequence[PodSet], uid: str) -> FoundPlaces:
            found.append(uid)
            return await find(pod_sets, uid)

        monkeypatch.setattr(planner, "find", counted)
        world.submit("job", (2, 14))
        await world.tick(28, scheduler=False)
        assert len(world.feature.held) == 2
        assert len(found) == 1

    play(server, story)


def test_nothing_is_written_if_the_workload_changes_between_reading_and_writing(
    server: FakeApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = KubeClient.request

    async def story(world: KueueWorld) -> None:
        await world.tick(2)
        world.paused = True
        world.reserve(world.submit("job", (2, 14)))

        def changes(self: KubeClient, method: str, path: str, **call: Any) -> JSON:
            read = real(self, method, path, **call)
            if method == "GET" and path.endswith("/workloads/job"):  # meanwhile Kueue admits the Workload
                conditions = [{"type": kind, "status": "True"} for kind in ("QuotaReserved", "Admitted")]
                world.server.kueue_workloads.patch("job", {"status": {"conditions": conditions}}, "team")
            return read

        with monkeypatch.context() as patch:
            patch.setattr(KubeClient, "request", changes)
            await world.tick()
        assert world.check("job")["state"] == "Pending"
        assert len(world.feature.held) == 0
        await world.tick(60)
        assert world.check("job")["state"] == "Pending", "never after admission"

    play(server, story)


def test_over_the_watches_of_a_real_connection(server: FakeApiServer) -> None:
    """Kueue's objects come over HTTP watches, and one of them cannot be read."""

    async def story(world: KueueWorld) -> None:
        connection = ApiConnection(world.service, world.client, WatchSettings())
        assert world.feature.controller is not None
        world.controller = world.feature.controller
        connection.start()
        try:
            server.kueue_workloads.create({"metadata": {"name": "odd", "namespace": "team"}, "spec": 7, "status": [1]})
            world.submit("job", (2, 14))
            while world.check("job")["state"] != "Ready":
                world.clock.now += 1
                world.kueue()
                world.report_all()
                await world.controller.step()
                await asyncio.sleep(0.01)
        finally:
            await connection.stop()
        assert len(world.feature.held) == 2

    play(server, story)
