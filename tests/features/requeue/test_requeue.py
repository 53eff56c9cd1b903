"""Refused pods are woken when, and only when, one would fit: with a real (fake) API server to touch nodes in."""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.requeue.feature import ANNOTATION, Requeuer, touch
from extender.kube.access import plain
from extender.kube.client import KubeClient
from extender.samples.nodes import Workload
from tests.api.conftest import Clock
from tests.fakes.apiserver import FakeApiServer
from tests.reports import args_of, pod_of, report_of, sample

FULL = [Workload(name="w", copies=2, resources={"cpu": 14, "memory": "1Gi"})]


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as running:
        for name in ("node-a", "node-b"):
            running.nodes.create({"metadata": {"name": name}})
        yield running


class Cluster:
    """A service, spoken to over HTTP, and its requeue scan, started by the test."""

    def __init__(self, server: FakeApiServer, client: TestClient, service: Service, clock: Clock) -> None:
        self.server, self.client, self.service, self.clock = server, client, service, clock
        self.leads = True
        self.kube = KubeClient(plain(server.url), connect_seconds=2.0)
        self.requeuer = Requeuer(service, self.kube, lambda: self.leads, wall=clock)
        self._sequence = 0

    def report(self, name: str, workloads: list[Workload]) -> None:
        self._sequence += 1
        document = report_of(sample(name, workloads=workloads), sequence=self._sequence)
        assert self.client.put(f"/v1/nodes/{name}/report", content=orjson.dumps(document)).status_code == 200

    def filter(self, pod: dict[str, Any], *names: str) -> list[str]:
        passed: list[str] = self.client.post("/scheduler/filter", json=args_of(pod, *names)).json()["NodeNames"]
        return passed

    def scan(self) -> str | None:
        self.clock.now += 1.0
        return asyncio.run(self.requeuer.scan())

    def touched(self, name: str) -> str | None:
        node = self.server.nodes.get(name)
        assert node is not None
        value: str | None = node["metadata"].get("annotations", {}).get(ANNOTATION)
        return value


@pytest.fixture
def cluster(server: FakeApiServer) -> Iterator[Cluster]:
    clock = Clock()
    service = make_service(Settings(wake_up=True), clock)
    with TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        made = Cluster(server, client, service, clock)
        for name in ("node-a", "node-b"):
            made.report(name, FULL)
        yield made
        made.kube.close()


def test_the_annotation_is_written_and_the_rest_left_alone(cluster: Cluster) -> None:
    cluster.server.nodes.create({"metadata": {"name": "node-c", "annotations": {"theirs": "1"}}})

    touch(cluster.kube, "node-c", "7")

    node = cluster.server.nodes.get("node-c")
    assert node is not None
    assert node["metadata"]["annotations"] == {"theirs": "1", ANNOTATION: "7"}


def test_a_pod_that_would_fit_now_is_requeued(cluster: Cluster) -> None:
    assert cluster.filter(pod_of(8), "node-a", "node-b") == []
    assert cluster.scan() is None
    cluster.report("node-b", FULL[:0])

    assert cluster.scan() == "node-b"
    assert cluster.touched("node-b")
    assert cluster.touched("node-a") is None
    assert cluster.scan() is None, "once for each change"


def test_a_change_that_helps_no_pod_requeues_none(cluster: Cluster) -> None:
    assert cluster.filter(pod_of(15), "node-a", "node-b") == []
    cluster.report("node-b", [Workload(name="w", copies=2, resources={"cpu": 8, "memory": "1Gi"})])

    assert cluster.scan() is None


def test_a_pod_that_can_never_fit_is_not_waited_for(cluster: Cluster) -> None:
    assert cluster.filter(pod_of(64), "node-a") == []
    cluster.report("node-a", [])

    assert cluster.scan() is None
    assert cluster.service.known.pods.refused(cluster.clock()) == []


def test_a_pod_that_was_placed_meanwhile_is_not_requeued(cluster: Cluster) -> None:
    assert cluster.filter(pod_of(8), "node-a") == []
    cluster.report("node-a", [])
    assert cluster.filter(pod_of(8), "node-a") == ["node-a"]

    assert cluster.scan() is None


def test_a_bound_pod_is_not_requeued(cluster: Cluster) -> None:
    assert cluster.filter(pod_of(8), "node-a") == []
    cluster.service.known.pods.bind("uid-p", "elsewhere")
    cluster.report("node-a", [])

    assert cluster.scan() is None


def test_a_standby_touches_nothing_and_the_new_leader_starts_with_what_is_left(cluster: Cluster) -> None:
    cluster.leads = False
    assert cluster.filter(pod_of(8), "node-a") == []
    cluster.report("node-a", [])
    assert cluster.scan() is None
    assert cluster.touched("node-a") is None

    cluster.leads = True
    assert cluster.scan() == "node-a"


def test_a_scan_touches_one_node_and_a_node_is_touched_rarely(cluster: Cluster) -> None:
    for i in range(30):
        assert cluster.filter(pod_of(8, name=f"p{i}"), "node-a") == []
    cluster.report("node-a", [])
    assert cluster.scan() == "node-a"
    cluster.report("node-a", FULL)
    assert cluster.scan() is None
    cluster.report("node-a", [])
    assert cluster.scan() is None, "touched a moment ago"
    cluster.clock.now += 10.0
    assert cluster.scan() == "node-a", "asked again when its pause is over"


def test_a_server_that_is_away_is_asked_again(cluster: Cluster) -> None:
    assert cluster.filter(pod_of(8), "node-a") == []
    cluster.report("node-a", [])
    cluster.server.faults.fail(1, 503)
    assert cluster.scan() is None
    cluster.clock.now += 10.0

    assert cluster.scan() == "node-a"
