"""Nodes with the NRI topology-aware policy of which only the plugin's NodeResourceTopology object is known."""

import asyncio
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from pydantic import TypeAdapter
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.topologies.feature import CONFIRM_SECONDS, MISSED, TopologyFeed, decode_topology
from extender.kube.changes import Batch, Seen
from extender.kubelet.verdict import Certainty
from extender.nri.books import Books
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.wire.nrt import DEFAULT_REFRESH_SECONDS, REPORT
from extender.wire.pods import pod_from_json
from node_exporter.report import NodeReport
from node_exporter.sinks.nrt import to_nrt
from tests.cluster.reading import classes_at
from tests.nri_states import filter_answer, machine_facts, report_with, sampled_creations, section_of
from tests.replay.nri.zones import topology_object
from tests.reports import args_of, pod_of
from tests.scheduling.test_nri_nodes import CONFIG, empty
from tests.world.clock import Clock
from tests.world.exporters import report_all

REPORTS: TypeAdapter[NodeReport] = TypeAdapter(NodeReport)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def service(clock: Clock) -> Service:
    return make_service(Settings(max_nodes=500, max_body_bytes=8 << 20, question_workers=0), clock)


@pytest.fixture
def feed(service: Service) -> TopologyFeed:
    return TopologyFeed(service, lambda _name: "")


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield client


def publish(feed: TopologyFeed, value: dict[str, Any]) -> None:
    decoded = decode_topology(value)
    assert decoded is not None
    feed.apply(Batch((Seen(decoded[1]),)))


def put(client: TestClient, section: dict[str, Any], name: str, sequence: int = 1) -> None:
    report_all(client, report_with(section, name, sequence))


def refusal(client: TestClient, pod: Mapping[str, Any], name: str) -> str:
    return filter_answer(client.post("/scheduler/filter", json=args_of(pod, name)).json(), name)


def hidden(config: dict[str, Any] = CONFIG) -> dict[str, Any]:
    """A section without grants: the exporter cannot read the plugin's state."""
    return {**section_of("s-n4c16", config, empty()), "grants": None}


def drained() -> Books:
    """Of the 15 CPUs that are not reserved, 12 are granted."""
    books = empty().books
    books.take_exclusive(books.setup.tree.root, 0b111111111110)
    return books


def certainty(service: Service, cpus: int, name: str) -> Certainty:
    (node_class,) = classes_at(service.known.nodes, [name], service.clock())
    return service.judging.judge(PodShape(pod_from_json(pod_of(cpus))), node_class).certainty


def test_recorded_states_are_refused_by_counts_only_where_the_plugin_refused(
    client: TestClient, feed: TopologyFeed
) -> None:
    answers = Counter[tuple[str, str, bool]]()
    for i, creation in enumerate(sampled_creations(120)):
        if machine_facts(creation.machine) is None:
            continue
        section = section_of(creation.machine, creation.config, creation.before)
        put(client, {**section, "grants": None}, f"hidden-{i}")
        for kind in ("hidden", "alone"):
            publish(feed, topology_object(creation.before.books, f"{kind}-{i}"))
            answer = refusal(client, creation.pod, f"{kind}-{i}")
            assert not answer or creation.refusal, (creation.name, answer)
            group = "cpu" if creation.refusal in ("slice", "fraction", "take") else creation.refusal or "accepted"
            answers[kind, group, bool(answer)] += 1

    for kind in ("hidden", "alone"):
        assert answers[kind, "accepted", False] > 40
        assert answers[kind, "offer", True] > answers[kind, "offer", False]
    assert answers["hidden", "cpu", True] > 8 * answers["hidden", "cpu", False]
    assert answers["alone", "cpu", True] > answers["alone", "cpu", False]


def test_a_node_that_does_not_report_is_degraded(client: TestClient, feed: TopologyFeed, service: Service) -> None:
    publish(feed, topology_object(drained()))

    assert refusal(client, pod_of(4), "n1") == ""
    assert refusal(client, pod_of(5), "n1") == RefusalReason.NRI_CPUS_NOW.text
    assert certainty(service, 4, "n1") is Certainty.DEGRADED
    best_effort = pod_of(1)
    best_effort["spec"]["containers"][0]["resources"] = {}
    assert refusal(client, best_effort, "n1") == ""


def test_counts_stand_in_for_grants_that_are_not_known(
    client: TestClient, feed: TopologyFeed, service: Service
) -> None:
    put(client, hidden(), "n1")
    before = refusal(client, pod_of(5), "n1"), certainty(service, 5, "n1")
    publish(feed, topology_object(drained()))
    counted = refusal(client, pod_of(5), "n1"), certainty(service, 5, "n1")
    put(client, section_of("s-n4c16", CONFIG, empty()), "n1", sequence=2)
    known = refusal(client, pod_of(5), "n1"), certainty(service, 5, "n1")

    assert before == ("", Certainty.UNKNOWN)
    assert counted == (RefusalReason.NRI_CPUS_NOW.text, Certainty.DEGRADED)
    assert known == ("", Certainty.EXACT)


def test_counts_that_nobody_confirms_no_longer_count(client: TestClient, feed: TopologyFeed, clock: Clock) -> None:
    put(client, hidden(), "n1")
    publish(feed, topology_object(drained()))
    found = []
    for seconds in (MISSED * DEFAULT_REFRESH_SECONDS - 100, 300.0):
        end = clock.now + seconds
        while clock.now < end:
            clock.now += CONFIRM_SECONDS
            asyncio.run(feed.confirm())
            put(client, hidden(), "n1")
        found.append(refusal(client, pod_of(5), "n1"))

    assert found == [RefusalReason.NRI_CPUS_NOW.text, ""]


def test_an_object_of_another_program_is_no_sign_of_life_of_the_exporter(
    client: TestClient, feed: TopologyFeed, service: Service, clock: Clock
) -> None:
    put(client, hidden(), "n1")
    publish(feed, topology_object(drained()))
    for _ in range(10):
        clock.now += CONFIRM_SECONDS
        asyncio.run(feed.confirm())

    record = service.known.nodes.get("n1")
    assert record is not None
    assert record.observation.counts is not None


def test_the_plugin_may_overwrite_the_zones_of_an_object_that_carries_a_report(
    client: TestClient, feed: TopologyFeed
) -> None:
    carried = to_nrt(REPORTS.validate_python(report_with(hidden(), "n1")))
    overwritten = {**topology_object(drained()), "metadata": carried["metadata"]}
    assert REPORT in overwritten["metadata"]["annotations"]
    found = []
    for zones in (overwritten["zones"], overwritten["zones"][:3]):
        publish(feed, {**overwritten, "zones": zones})
        found.append(refusal(client, pod_of(5), "n1"))

    assert found == [RefusalReason.NRI_CPUS_NOW.text] * 2
    assert feed.trouble == {}
