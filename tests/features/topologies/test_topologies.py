"""Objects in the API server as the source of truth: of several services at once, of our exporters and of others."""

import asyncio
import itertools
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

import orjson
import pytest
from pydantic import TypeAdapter

from extender.api.http.slices import SLICE_SECONDS, Slices
from extender.api.service import Service
from extender.app import make_service
from extender.config.settings import Settings
from extender.features.topologies.feature import TOPOLOGIES, TopologyFeed, TopologyRecord, decode_topology
from extender.kube.access import plain
from extender.kube.changes import Batch, Gone, Seen
from extender.kube.client import KubeClient
from extender.kube.watch import Watch, WatchSettings
from extender.kubelet.verdict import Certainty
from extender.runtime.api_server import connected, watch_settings
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.wire.pods import pod_from_json
from node_exporter.bounded_http import Connection, CredentialFiles
from node_exporter.report import NodeReport
from node_exporter.sinks import Delivery
from node_exporter.sinks.nrt import NrtSink, to_nrt
from tests import waiting
from tests.cluster.reading import classes_at
from tests.fakes.apiserver import FakeApiServer
from tests.kube.watching import QUICK
from tests.reports import pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS
from tests.world.clock import Clock

EMPTY = sample("n1")
FULL = sample("n1", workloads=[Workload(name="w", copies=2, resources={"cpu": 14, "memory": "1Gi"})])
SETTINGS = Settings(kubernetes="on", topologies="on", port=0)


def report(node: SampleNode, sequence: int = 1, **changes: Any) -> NodeReport:
    found: NodeReport = TypeAdapter(NodeReport).validate_python(report_of(node, sequence=sequence))
    return replace(found, **changes)


def publish(server: FakeApiServer, content: NodeReport) -> Delivery:
    """Write the object as the exporter does."""
    sink = NrtSink(Connection(server.url, timeout_seconds=5, credentials=CredentialFiles()), content.node_name)
    try:
        return sink.put_report(content, orjson.dumps(content)).outcome
    finally:
        sink.close()


def answer(service: Service, cpus: int, name: str = "n1") -> Judgement:
    (node_class,) = classes_at(service.known.nodes, [name], service.clock())
    return service.judging.judge(PodShape(pod_from_json(pod_of(cpus))), node_class)


def test_two_rights_are_enough(server: FakeApiServer) -> None:
    resource = "topology.node.k8s.io/noderesourcetopologies"
    server.access.grants = {"system:anonymous": {("list", resource), ("watch", resource)}}
    server.topologies.create(_of_nfd(available=3))
    told: list[Batch[TopologyRecord]] = []
    client = KubeClient(plain(server.url))
    watch = Watch(client, TOPOLOGIES, told.append, QUICK)
    watch.start()
    waiting.until(lambda: watch.status().synced)
    assert watch.stop(PATIENCE_SECONDS)
    client.close()

    assert [change.value.name for batch in told for change in batch.changes] == ["n1"]
    assert server.access.used() == {("list", resource), ("watch", resource)}


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not condition():  # noqa: ASYNC110 - what is waited for knows no events
            await asyncio.sleep(0.01)


@asynccontextmanager
async def replica(
    server: FakeApiServer, settings: Settings = SETTINGS, watching: WatchSettings = QUICK
) -> AsyncIterator[Service]:
    """A service that watches the API server."""
    service = make_service(settings)
    async with connected(service, plain(server.url), watching):
        yield service


def test_replicas_share_one_truth_through_the_api_server(server: FakeApiServer) -> None:
    async def story() -> None:
        server.nodes.create({"metadata": {"name": "n1"}})
        assert publish(server, report(EMPTY)) is Delivery.ACCEPTED
        async with replica(server) as first, replica(server) as second:
            both = (first, second)
            await until(lambda: all(answer(each, 14).certainty is Certainty.EXACT for each in both))
            assert [answer(each, 14).refusal for each in both] == [None, None]

            for pod in FULL.pods:
                server.pods.create({**pod, "spec": {**pod["spec"], "nodeName": "n1"}})
            assert publish(server, report(FULL, sequence=2)) is Delivery.ACCEPTED
            await until(lambda: all(answer(each, 14).refusal is RefusalReason.ALIGNMENT_NOW for each in both))
            keys = [record.state.key for each in both if (record := each.known.nodes.get("n1")) and record.state]
            assert keys == [FULL.state.key] * 2

        async with replica(server) as third:
            await until(lambda: answer(third, 14).refusal is RefusalReason.ALIGNMENT_NOW)

    asyncio.run(story())


def test_no_node_is_stale_while_nothing_happens(server: FakeApiServer) -> None:
    """Nothing is sent for longer than a stream may be silent. Each new stream is a sign of life."""

    async def story() -> None:
        server.bookmark_seconds = 3600.0
        server.nodes.create({"metadata": {"name": "n1"}})
        assert publish(server, report(EMPTY)) is Delivery.ACCEPTED
        settings = SETTINGS.model_copy(update={"watch_silent_seconds": 3.0})
        async with replica(server, settings, replace(QUICK, idle_seconds=0.2)) as service:
            await until(lambda: answer(service, 14).certainty is Certainty.EXACT)
            end = service.clock() + 4.0
            while service.clock() < end:
                assert answer(service, 14).certainty is Certainty.EXACT
                await asyncio.sleep(0.05)

    asyncio.run(story())


def test_a_stream_is_opened_again_before_its_silence_makes_nodes_stale() -> None:
    for seconds in (10.0, 150.0, 600.0):
        assert watch_settings(Settings(watch_silent_seconds=seconds)).idle_seconds <= 0.8 * seconds


def test_an_object_of_another_publisher_is_degraded_until_a_report_comes(server: FakeApiServer) -> None:
    async def story() -> None:
        server.nodes.create({"metadata": {"name": "n1"}})
        server.topologies.create(_of_nfd(available=3))
        async with replica(server) as service:
            await until(lambda: answer(service, 3).certainty is Certainty.DEGRADED)
            assert answer(service, 3).refusal is None
            assert answer(service, 4).refusal is RefusalReason.ALIGNMENT_NOW
            server.topologies.delete("n1")
            assert publish(server, report(EMPTY)) is Delivery.ACCEPTED
            await until(lambda: answer(service, 4) == answer(service, 3))
            assert answer(service, 4).certainty is Certainty.EXACT

    asyncio.run(story())


def _of_nfd(available: int) -> dict[str, Any]:
    resource = {"name": "cpu", "capacity": "16", "allocatable": "15", "available": str(available)}
    return {
        "metadata": {"name": "n1", "managedFields": [{"manager": "nfd-master"}]},
        "attributes": [
            {"name": "topologyManagerPolicy", "value": "single-numa-node"},
            {"name": "topologyManagerScope", "value": "container"},
        ],
        "zones": [{"name": f"node-{i}", "type": "Node", "resources": [resource]} for i in range(2)],
    }


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> Service:
    return make_service(SETTINGS, clock)


@pytest.fixture
def feed(service: Service) -> TopologyFeed:
    return TopologyFeed(service, lambda name: "uid-1" if name == "n1" else "")


def tell(feed: TopologyFeed, content: dict[str, Any]) -> TopologyRecord:
    decoded = decode_topology(content)
    assert decoded is not None
    feed.apply(Batch((Seen(decoded[1]),)))
    return decoded[1]


def ours(
    node: SampleNode, sequence: int = 1, *, refresh: int = 600, owner: str | None = None, **changes: Any
) -> dict[str, Any]:
    content: dict[str, Any] = to_nrt(report(node, sequence, **changes), node_uid=owner)
    content["metadata"]["annotations"]["numa-extender/refresh-seconds"] = str(refresh)
    return content


def test_a_node_is_fresh_until_its_writer_has_missed_three_words(
    service: Service, feed: TopologyFeed, clock: Clock
) -> None:
    tell(feed, ours(EMPTY, refresh=600))
    for _ in range(89):
        clock.now += 20
        asyncio.run(feed.confirm())
        assert answer(service, 2).certainty is Certainty.EXACT
    for _ in range(8):
        clock.now += 20
        asyncio.run(feed.confirm())

    assert answer(service, 2).certainty is Certainty.STALE
    tell(feed, ours(EMPTY, refresh=600))
    assert answer(service, 2).certainty is Certainty.EXACT


def test_other_work_goes_on_while_nodes_are_kept_fresh(service: Service, clock: Clock) -> None:
    """Seen red: 5,000 objects of others held the event loop for 0.28 s every twenty seconds."""
    steps = itertools.count()
    slices = Slices(clock=lambda: next(steps) * 2 * SLICE_SECONDS)  # each look at the clock ends a slice
    feed = TopologyFeed(replace(service, slices=slices), lambda _name: "")
    for number in range(40):
        tell(feed, {**_of_nfd(available=3), "metadata": {"name": f"n{number}"}})

    async def story() -> int:
        confirming, turns = asyncio.create_task(feed.confirm()), 0
        while not confirming.done():
            await asyncio.sleep(0)
            turns += 1
            if turns == 20:  # an object goes meanwhile
                feed.apply(Batch((Gone(decoded("n39")),)))
        return turns

    clock.now += 130
    assert asyncio.run(story()) >= 40
    fresh = {r.name for r in service.known.nodes if r.certainty is Certainty.DEGRADED}
    assert {f"n{number}" for number in range(39)} <= fresh


def decoded(name: str) -> TopologyRecord:
    found = decode_topology({**_of_nfd(available=3), "metadata": {"name": name}})
    assert found is not None
    return found[1]


def test_a_deleted_object_is_no_sign_of_life(service: Service, feed: TopologyFeed, clock: Clock) -> None:
    record = tell(feed, ours(EMPTY))
    feed.apply(Batch((Gone(record),)))
    clock.now += 130
    asyncio.run(feed.confirm())

    assert answer(service, 2).certainty is Certainty.STALE


@pytest.mark.parametrize(("owner", "certainty"), [("uid-1", Certainty.EXACT), ("uid-0", Certainty.UNKNOWN)])
def test_the_object_of_a_node_that_was_deleted_is_not_taken_for_its_successor(
    service: Service, feed: TopologyFeed, clock: Clock, owner: str, certainty: Certainty
) -> None:
    tell(feed, ours(EMPTY, owner=owner))
    service.known.nodes.drop_node("n1")
    clock.now += 20
    asyncio.run(feed.confirm())

    assert answer(service, 2).certainty is certainty


def test_counts_never_replace_a_fresh_report(service: Service, feed: TopologyFeed, clock: Clock) -> None:
    tell(feed, ours(EMPTY))
    tell(feed, _of_nfd(available=0))
    assert answer(service, 2) == Judgement(None, Certainty.EXACT, answer(service, 2).merit)

    clock.now += 130
    tell(feed, _of_nfd(available=0))
    assert answer(service, 2).certainty is Certainty.DEGRADED
    tell(feed, ours(EMPTY, sequence=2))
    assert answer(service, 2).certainty is Certainty.EXACT


def test_an_older_report_changes_nothing(service: Service, feed: TopologyFeed) -> None:
    tell(feed, ours(FULL, sequence=2))
    tell(feed, ours(EMPTY, sequence=1))

    assert answer(service, 14).refusal is RefusalReason.ALIGNMENT_NOW
    assert "older" in feed.trouble["n1"]


def test_what_cannot_be_read_is_told_and_changes_nothing(service: Service, feed: TopologyFeed) -> None:
    tell(feed, ours(FULL))
    tell(feed, {"metadata": {"name": "n1"}, "zones": 3})
    assert feed.trouble["n1"].startswith("zones")
    foreign = ours(EMPTY, sequence=5)
    foreign["metadata"]["name"] = "n2"
    tell(feed, foreign)

    assert answer(service, 14).refusal is RefusalReason.ALIGNMENT_NOW
    assert feed.trouble["n2"] == "node_name: the report is for node 'n1', but the object for 'n2'"
    assert decode_topology({"metadata": {}}) is None


def test_a_version_that_only_the_node_object_knows_is_taken_when_it_comes(
    service: Service, feed: TopologyFeed, clock: Clock
) -> None:
    tell(feed, ours(EMPTY, kubelet_version=None))
    assert answer(service, 2).certainty is Certainty.UNKNOWN

    service.known.nodes.node_objects.see_version("n1", "v1.35.0")
    clock.now += 20
    asyncio.run(feed.confirm())

    assert answer(service, 2).certainty is Certainty.EXACT
