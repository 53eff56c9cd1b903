"""Leading and standing by, in one process; tests/faults kills leaders."""

import asyncio
import inspect
from collections.abc import Iterator
from dataclasses import replace
from typing import get_type_hints

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.kube.access import plain
from extender.kube.client import KubeClient
from extender.kube.leases import JITTER, Elector
from extender.runtime import api_server
from extender.runtime.leadership import lease_settings
from extender.scheduling.api_link import ApiServerLink
from extender.scheduling.binder import BindFailure, Binding, BindOutcome, GatedBinder, Leadership, NotBound, PodBound
from extender.wire.binding import ExtenderBindingArgs
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of
from tests.waiting import PATIENCE_SECONDS

LEASE = Settings(lease="on", lease_seconds=15)


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as running:
        running.nodes.create({"metadata": {"name": "node-a"}})
        yield running


@pytest.fixture
def client(server: FakeApiServer) -> Iterator[KubeClient]:
    connected = KubeClient(plain(server.url))
    yield connected
    connected.close()


BINDING = Binding(namespace="n", name="p", uid="u", node_name="node")


class Counting:
    """Where bindings end up. While `go_on` is clear, none comes back."""

    def __init__(self) -> None:
        self.calls, self.at_once, self.most = 0, 0, 0
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def bind(self, _binding: Binding) -> BindOutcome:
        self.calls += 1
        self.at_once += 1
        self.most = max(self.most, self.at_once)
        await self.go_on.wait()
        self.at_once -= 1
        return PodBound()


def test_only_the_leader_binds(client: KubeClient) -> None:
    first, second = (Elector(client, lease_settings(LEASE)) for _ in range(2))
    first.step()
    second.step()
    binds = Counting()

    assert asyncio.run(GatedBinder(binds, first, seconds=3.0).bind(BINDING)) == PodBound()
    refused = asyncio.run(GatedBinder(binds, second, seconds=3.0).bind(BINDING))
    assert isinstance(refused, NotBound)
    assert refused.failure is BindFailure.STANDBY
    assert first.holder in refused.reason
    assert binds.calls == 1


def test_there_is_no_binder_without_a_leadership() -> None:
    """In whatever order the parts are put together, no type and no constructor leads around the lease."""
    assert get_type_hints(ApiServerLink)["binder"] == GatedBinder | None, "what bind sends through"
    assert getattr(GatedBinder, "__final__", False)
    with pytest.raises(TypeError, match="leadership"):
        GatedBinder(Counting(), seconds=3.0)  # type: ignore[call-arg]
    leads = inspect.signature(api_server._binding).parameters["leads"]
    assert (leads.annotation, leads.default) == (Leadership, inspect.Parameter.empty)


def test_a_connected_standby_sends_no_binding(server: FakeApiServer, client: KubeClient) -> None:
    """All parts as the app puts them together, while another process holds the lease."""
    leader = Elector(client, lease_settings(LEASE))
    leader.step()

    async def story() -> BindOutcome:
        service = make_service(LEASE.model_copy(update={"kubernetes": "on", "young_node_seconds": 0.0}))
        async with api_server.connected(service, plain(server.url)), asyncio.timeout(PATIENCE_SECONDS):
            while service.known.link.trouble:  # noqa: ASYNC110 - it knows no events
                await asyncio.sleep(0.01)
            pod = pod_from_json(server.pods.create(pod_of(name="p")))
            await service.scheduling.filter.filter(SchedulerArgs(pod=pod, names=["node-a"], nodes=None))
            args = ExtenderBindingArgs(PodName="p", PodNamespace="default", PodUID=pod.uid, Node="node-a")
            while True:
                outcome = await service.scheduling.bind.bind(args)
                assert isinstance(outcome, NotBound)
                assert outcome.failure is BindFailure.STANDBY
                if "the leader is not known yet" not in outcome.reason:
                    return outcome
                await asyncio.sleep(0.01)

    refused = asyncio.run(story())
    assert isinstance(refused, NotBound)
    assert leader.holder in refused.reason
    assert (server.pods.get("p") or {})["spec"].get("nodeName") is None


def test_a_call_that_had_to_wait_is_not_sent_by_a_former_leader(client: KubeClient) -> None:
    elector = Elector(client, lease_settings(LEASE))
    elector.step()
    binds = Counting()
    binds.go_on.clear()
    leader = GatedBinder(binds, elector, seconds=3.0, at_once=2)

    async def storm() -> list[BindOutcome]:
        calls = [asyncio.ensure_future(leader.bind(replace(BINDING, name=f"p{i}"))) for i in range(6)]
        while binds.calls < 2:  # noqa: ASYNC110 - it knows no events
            await asyncio.sleep(0)
        elector._leads_until = float("-inf")
        binds.go_on.set()
        return await asyncio.gather(*calls)

    outcomes = asyncio.run(storm())
    assert outcomes[:2] == [PodBound(), PodBound()]
    assert all(isinstance(outcome, NotBound) for outcome in outcomes[2:])
    assert (binds.calls, binds.most) == (2, 2)


def test_each_process_is_another_candidate() -> None:
    assert lease_settings(LEASE).identity != lease_settings(LEASE).identity


def test_nothing_is_sent_that_could_outlast_the_leadership(client: KubeClient) -> None:
    seconds = [0.0]
    elector = Elector(client, lease_settings(LEASE), clock=lambda: seconds[0])
    elector.step()
    binds = Counting()
    leader = GatedBinder(binds, elector, seconds=3.0)

    seconds[0] = 6.9
    assert asyncio.run(leader.bind(BINDING)) == PodBound()
    seconds[0] = 7.1  # it leads until 10.0
    assert elector.leads
    refused = asyncio.run(leader.bind(BINDING))
    assert isinstance(refused, NotBound)
    assert "the lease is not renewed" in refused.reason
    assert binds.calls == 1


@pytest.mark.parametrize("lease_seconds", [3, 7, 15, 60])
def test_the_lease_alone_is_enough_to_set(lease_seconds: int) -> None:
    settings = Settings(lease="on", lease_seconds=lease_seconds)
    lease = lease_settings(settings)

    two_looks = 2 * lease.retry_seconds * (1 + JITTER)  # one renewal may fail, and bindings go on
    assert settings.binding_seconds + two_looks < lease.renew_seconds
    assert settings.binding_seconds == min(3.0, 0.4 * lease_seconds)


def test_a_binding_that_is_set_too_long_for_the_lease_is_named() -> None:
    assert Settings(lease="on", lease_seconds=10, bind_seconds=4.0).binding_seconds == 4.0
    assert Settings(lease="off", lease_seconds=3, bind_seconds=4.0).binding_seconds == 4.0
    with pytest.raises(ValidationError, match=r"bind_seconds is 4, but with lease_seconds 9 the limit is 3.6 s"):
        Settings(lease="on", lease_seconds=9, bind_seconds=4.0)


@pytest.mark.parametrize(("standby_ready", "status"), [(True, 200), (False, 503)])
def test_a_standby_is_ready_as_set(*, standby_ready: bool, status: int) -> None:
    service = make_service(Settings(standby_ready=standby_ready))
    service.lifecycle.leads = lambda: False
    with TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        assert client.get("/readyz").status_code == status
