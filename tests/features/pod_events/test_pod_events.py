"""Events on pods that fit on no node: in a (fake) API server, with the real filter before them."""

import asyncio
import copy
import re
from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from extender.cluster.node import Observation
from extender.features.pod_events import feature as events
from extender.features.pod_events.feature import AGAIN_SECONDS, RECENT_SECONDS, PodEvents
from extender.kube.access import plain
from extender.kube.client import KubeClient, Requester
from extender.samples.nodes import SampleNode, Workload
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of, sample
from tests.world.cluster import World


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
        self.world, self.leads = World("node-a"), True
        self.events = PodEvents(self.world.service, client, lambda: self.leads, wall=lambda: 1_800_000_000.0)

    async def filter(self, name: str, cpus: int) -> list[str]:
        return await self.filter_pod(pod_of(cpus, name=name), "node-a")

    async def filter_pod(self, pod: dict[str, Any], *names: str) -> list[str]:
        """The nodes that are offered."""
        args = SchedulerArgs(pod=pod_from_json(pod), names=names, nodes=None)
        return list((await self.world.service.scheduling.filter.filter(args)).feasible)

    def add(self, node: SampleNode) -> None:
        observation = Observation(node_name=node.name, boot_id="b2", kubelet=node.kubelet, state=node.state)
        self.world.service.known.nodes.observe(observation, self.world.clock())

    async def fill(self) -> None:
        """Two pods take 12 of the 16 CPUs of each NUMA node."""
        for name in ("a", "b"):
            await self.world.describe(name, 12)
            await self.world.bind_named(name)

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
        "The only node that passed kube-scheduler's own filters cannot take the pod: "
        "NUMA alignment is not possible on the node now. "
        "With 4 CPUs instead of 8 in container app, the pod would fit on node-a now."
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
    monkeypatch.setattr(events, "MAX_KEPT", 3)
    stage = Stage(client)

    async def story() -> None:
        for number in range(6):
            await stage.filter(f"p{number}", 64)
            await stage.events.step()

    asyncio.run(story())
    assert len(stage.events._written_at) == 3


ADVICE = re.compile(r"With (.+) instead of .+ in container (\S+), the pod would fit on (\S+) now")
RESOURCES = {"CPUs": "cpu", "of memory": "memory"}


def as_advised(pod: dict[str, Any], message: str) -> tuple[dict[str, Any], str] | None:
    """Another pod with the request that the message names, and the node. None: it names none."""
    found = ADVICE.search(message)
    if found is None:
        return None
    changed = copy.deepcopy(pod)
    changed["metadata"] |= {"name": "advised", "uid": "uid-advised"}
    (container,) = (each for each in changed["spec"]["containers"] if each["name"] == found[2])
    for part in found[1].split(" and "):
        amount, what = part.split(" ", 1)
        for amounts in container["resources"].values():
            amounts[RESOURCES.get(what, what)] = amount
    return changed, found[3]


def a_node(name: str, random: Random) -> SampleNode:
    wanted = {"cpu": random.choice((2, 4, 6, 8)), "memory": random.choice(("1Gi", "9Gi", "15Gi"))}
    return sample(
        name,
        workloads=[Workload(name="w", copies=random.choice((0, 1, 2)), resources=wanted)],
        devices=random.choice(({}, {"gpu.example/gpu": [0, 0, 1]})),
        topologyManagerPolicy=random.choice(("single-numa-node", "restricted", "best-effort")),
        topologyManagerScope=random.choice(("pod", "container")),
        cpuManagerPolicyOptions=random.choice(({}, {"full-pcpus-only": "true"})),
    )


def a_pod(random: Random) -> dict[str, Any]:
    devices = random.choice(({}, {"gpu.example/gpu": random.choice((1, 2, 3))}))
    cpus, memory = random.choice((3, 5, 9, 12, 16, 20)), random.choice(("1Gi", "20Gi", "30Gi", "40Gi"))
    pod = pod_of(cpus, memory, devices=devices)
    if random.random() < 0.3:
        pod["spec"]["containers"].append(pod_of(2)["spec"]["containers"][0] | {"name": "side"})
    if random.random() < 0.3:
        pod["metadata"]["annotations"] = {"numa-extender.io/alignment": "single-numa-node"}
    return pod


@pytest.mark.parametrize("seed", range(2))
def test_filter_passes_the_request_that_an_event_names(client: KubeClient, seed: int) -> None:
    random, advised = Random(seed), 0

    async def story() -> None:
        nonlocal advised
        stage = Stage(client)
        for number in range(2):
            stage.add(a_node(f"node-{number}", random))
        pod = a_pod(random)
        if await stage.filter_pod(pod, "node-0", "node-1"):
            return
        message = await stage.events.step()
        assert message is not None
        found = as_advised(pod, message)
        if found is not None:
            changed, node = found
            assert await stage.filter_pod(changed, node) == [node], message
            advised += 1

    for _ in range(25):
        asyncio.run(story())
    assert advised > 3


@pytest.mark.parametrize(("running", "advised"), [(0, "With 4 CPUs instead of 3"), (13, "With 2 CPUs instead of 3")])
def test_more_than_the_totals_of_the_node_allow_is_not_advised(client: KubeClient, running: int, advised: str) -> None:
    """The kubelet gives whole cores of two CPUs, and the Node offers 16 CPUs."""
    stage = Stage(client)
    stage.add(sample("node-a", cpuManagerPolicyOptions={"full-pcpus-only": "true"}))
    other = pod_of(2, name="other")
    other["spec"] |= {"nodeName": "node-a"}
    other["spec"]["containers"][0]["resources"] = {"requests": {"cpu": str(running)}}
    other["status"] |= {"phase": "Running", "qosClass": "Burstable", "startTime": "2026-01-01T00:00:00Z"}
    stage.world.watch(other)

    async def story() -> str | None:
        assert await stage.filter("p", 3) == []
        return await stage.events.step()

    assert advised in (asyncio.run(story()) or "")


def test_a_request_that_has_stopped_fitting_is_not_named(client: KubeClient) -> None:
    stage = Stage(client)

    async def story() -> str | None:
        await stage.fill()
        await stage.filter("p", 8)
        await stage.world.describe("c", 4)
        await stage.world.bind_named("c")
        return await stage.events.step()

    message = asyncio.run(story())
    assert message is not None
    assert message.endswith("NUMA alignment is not possible on the node now.")


def test_nodes_are_counted_by_reason_and_those_just_refused_are_not_named(client: KubeClient) -> None:
    stage = Stage(client)
    stage.add(sample("roomier"))
    service = stage.world.service

    async def story() -> str | None:
        service.records.refusals.note(
            "roomier", pod_from_json(pod_of(2)), "TopologyAffinityError", service.clock(), is_ours=True
        )
        await stage.fill()
        await stage.filter_pod(pod_of(20, name="p"), "node-a", "roomier")
        return await stage.events.step()

    message = asyncio.run(story())
    assert message is not None
    assert message.startswith("None of the 2 nodes that passed kube-scheduler's own filters can take the pod: ")
    assert message.endswith(". With 4 CPUs instead of 20 in container app, the pod would fit on node-a now.")


def test_a_demand_that_is_not_understood_is_named(client: KubeClient) -> None:
    stage = Stage(client)
    pod = pod_of(2)
    pod["metadata"]["annotations"] = {"numa-extender.io/alignment": "one-numa-node"}

    async def story() -> str | None:
        await stage.filter_pod(pod, "node-a")
        return await stage.events.step()

    message = asyncio.run(story())
    assert message is not None
    assert "alignment is not understood: " in message
    assert "one-numa-node" in message
    assert "With" not in message


def test_the_name_of_an_event_is_a_name_wherever_that_of_the_pod_is_cut(
    server: FakeApiServer, client: KubeClient
) -> None:
    stage = Stage(client)

    async def story() -> None:
        await stage.filter(f"{'p' * 199}-tail", 64)
        await stage.events.step()

    asyncio.run(story())
    (event,) = events_of(server)
    assert re.match(r"p{199}\.[a-z0-9]", event["metadata"]["name"])
