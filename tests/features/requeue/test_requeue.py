"""Refused pods are requeued when, and only when, one would fit: with a (fake) API server to write to."""

import asyncio
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.node_class import NodeClass
from extender.config.settings import Settings
from extender.features.requeue.feature import ANNOTATION, OBJECT, Requeuer, touch
from extender.kube.access import plain
from extender.kube.client import KubeClient
from extender.kubelet.budget import Budget
from extender.samples.nodes import Workload
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement, UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.strategies import Weights, make_strategy
from tests.contract.live import cluster as live_cluster
from tests.fakes.apiserver import FakeApiServer
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.clock import Clock

FULL = [Workload(name="w", copies=2, resources={"cpu": 14, "memory": "1Gi"})]


@pytest.fixture
def server() -> Iterator[FakeApiServer]:
    with FakeApiServer() as running:
        for name in ("node-a", "node-b"):
            running.nodes.create({"metadata": {"name": name}})
        _add_object(running)
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


def _add_object(server: FakeApiServer) -> None:
    metadata = {"name": OBJECT, "namespace": "numa-extender", "annotations": {"theirs": "1"}}
    server.capacities.create({"metadata": metadata, "storageClassName": "none"})


def _annotations(server: FakeApiServer) -> dict[str, str]:
    found = server.capacities.get(OBJECT, "numa-extender")
    assert found is not None
    annotations: dict[str, str] = found["metadata"]["annotations"]
    return annotations


@pytest.fixture
def cluster(server: FakeApiServer) -> Iterator[Cluster]:
    clock = Clock()
    service = make_service(Settings(), clock)
    with TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        made = Cluster(server, client, service, clock)
        for name in ("node-a", "node-b"):
            made.report(name, FULL)
        yield made
        made.kube.close()


def test_the_annotation_is_written_and_the_rest_left_alone(cluster: Cluster) -> None:
    touch(cluster.kube, "numa-extender", "7")

    assert _annotations(cluster.server) == {"theirs": "1", ANNOTATION: "7"}


def test_a_pod_that_would_fit_now_is_requeued(cluster: Cluster) -> None:
    assert cluster.filter(pod_of(8), "node-a", "node-b") == []
    assert cluster.scan() is None
    cluster.report("node-b", FULL[:0])

    assert cluster.scan() == "node-b"
    assert ANNOTATION in _annotations(cluster.server)
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


def test_a_new_leader_writes_once_and_again_until_the_write_has_succeeded(cluster: Cluster) -> None:
    """Pods that the process before it refused are in nobody's memory."""
    cluster.server.faults.fail(1, 503)
    assert cluster.scan() is None
    assert ANNOTATION not in _annotations(cluster.server)
    assert cluster.scan() is None
    written = _annotations(cluster.server)[ANNOTATION]
    assert cluster.scan() is None
    assert _annotations(cluster.server)[ANNOTATION] == written


def test_a_standby_writes_nothing_and_the_new_leader_starts_with_what_is_left(cluster: Cluster) -> None:
    cluster.leads = False
    assert cluster.filter(pod_of(8), "node-a") == []
    cluster.report("node-a", [])
    assert cluster.scan() is None
    assert ANNOTATION not in _annotations(cluster.server)

    cluster.leads = True
    assert cluster.scan() == "node-a"


def test_a_node_that_changes_again_and_again_requeues_one_time_in_two_seconds(cluster: Cluster) -> None:
    """Each requeues every refused pod, and kube-scheduler itself may refuse the pod on this node for ever."""
    for i in range(30):
        assert cluster.filter(pod_of(8, name=f"p{i}"), "node-a") == []

    def is_requeued() -> bool:
        cluster.report("node-a", FULL)
        cluster.report("node-a", [])
        return cluster.scan() is not None

    assert sum(is_requeued() for _ in range(100)) in range(50, 56)
    while is_requeued():
        pass
    assert cluster.scan() == "node-a", "a change over the limit is not forgotten"


def test_a_server_that_is_away_is_asked_again(cluster: Cluster) -> None:
    assert cluster.scan() is None, "the first write of a leader"
    assert cluster.filter(pod_of(8), "node-a") == []
    cluster.report("node-a", [])
    cluster.server.faults.fail(1, 503)
    assert cluster.scan() is None
    cluster.clock.now += 10.0

    assert cluster.scan() == "node-a"


def test_a_scan_of_nodes_that_have_not_changed_takes_no_step_for_each(cluster: Cluster) -> None:
    """Seen red: with 20,000 nodes the event loop stood still for 50 ms of every second."""

    def calls_of_a_scan() -> int:
        calls = 0

        def count(_frame: object, event: str, _argument: object) -> None:
            nonlocal calls
            calls += event == "call"

        for _ in range(3):
            cluster.scan()
        coroutine = cluster.requeuer.scan()
        sys.setprofile(count)
        try:
            asyncio.run(coroutine)
        finally:
            sys.setprofile(None)
        return calls

    assert cluster.filter(pod_of(8), "node-a") == []
    few = calls_of_a_scan()
    for number in range(100):
        cluster.report(f"node-{number}", FULL)

    assert calls_of_a_scan() < few + 50


class HeldJudge(BoundedJudge):
    """The real judge, that goes on only when a test says so."""

    def __init__(self) -> None:
        super().__init__(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())
        self.has_begun, self.may_go_on = threading.Event(), threading.Event()

    def __call__(self, shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        self.has_begun.set()
        assert self.may_go_on.wait(PATIENCE_SECONDS)
        return super().__call__(shape, node_class, budget)


def test_a_pod_that_is_refused_for_what_a_node_was_before_the_last_scan_is_requeued(server: FakeApiServer) -> None:
    """Seen red: the node counted as scanned, and no later scan looked at it."""
    clock, judge = Clock(), HeldJudge()
    service = make_service(Settings(), clock, judge=judge)
    with TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        made = Cluster(server, client, service, clock)
        made.report("node-a", FULL)
        found: list[list[str]] = []
        call = threading.Thread(target=lambda: found.append(made.filter(pod_of(8), "node-a")))
        call.start()
        assert judge.has_begun.wait(PATIENCE_SECONDS)
        made.report("node-a", [])
        assert made.scan() is None, "no pod is known to wait"
        judge.may_go_on.set()
        call.join(PATIENCE_SECONDS)

        assert found == [[]]
        assert made.scan() == "node-a"
        assert made.scan() is None
        made.kube.close()


@pytest.mark.parametrize("wake_up", [True, False])
def test_a_pod_that_was_refused_before_the_watch_showed_the_end_of_another_is_requeued(
    tmp_path: Path, *, wake_up: bool
) -> None:
    """kube-scheduler saw the end first. Nothing that it watches follows: without a write it tries again in minutes."""
    with live_cluster(tmp_path, "node-a", wake_up=wake_up, wake_up_seconds=0.05, finish_seconds=0.5) as live:
        server, service, client = live
        _add_object(server)
        node = sample("node-a", workloads=FULL)
        client.report(report_of(node))
        for pod in node.pods:
            server.pods.create({**pod, "spec": {**pod["spec"], "nodeName": "node-a"}})
        (first, _) = [pod["metadata"] for pod in node.pods]
        until(lambda: service.known.pods.get(first["uid"]).bound_to == "node-a")
        refused = client.filter(pod_of(8, name="waiting"), "node-a")
        assert (refused["NodeNames"], refused["Error"]) == ([], ""), "an error would be tried again"

        server.pods.patch(first["name"], {"status": {"phase": "Succeeded"}}, namespace=first["namespace"])
        if wake_up:
            until(lambda: ANNOTATION in _annotations(server))
        until(lambda: client.filter(pod_of(8, name="waiting"), "node-a")["NodeNames"] == ["node-a"])
        assert (ANNOTATION in _annotations(server)) is wake_up
