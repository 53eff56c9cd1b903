"""The bind gate and the kubelet's own sum over pods: `OutOfcpu` after a pod has finished, over real sockets."""

import threading
from pathlib import Path
from typing import Any

import pytest

from extender.api.service import Service
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS, until

Json = dict[str, Any]
COUNTED = "pods that have ended may still count in the kubelet's totals of the node"
NODES = ("node-a", "node-b")


def _start(server: FakeApiServer, service: Service, client: Client) -> None:
    """Two nodes that can give 16 CPUs in all; a pod on node-a that requests 10 of them and is finished."""
    for name in NODES:
        server.nodes.patch(name, {"status": {"allocatable": {"cpu": "16", "memory": "60Gi", "pods": "110"}}}, "")
        client.report(report_of(sample(name)))
    until(lambda: service.surroundings("node-a").allocatable_milli is not None)
    server.pods.create(_pod("old", aligned=False, node="node-a"))
    until(lambda: service.known.pods.get("uid-old").bound_to == "node-a")
    server.pods.patch("old", {"status": {"phase": "Succeeded"}})
    until(lambda: "uid-old" in service.known.nodes.pods_of("node-a").may_be_gone(service.clock()))


def _pod(name: str, *, aligned: bool, node: str = "") -> Json:
    pod = pod_of(10, name=name)
    pod["metadata"]["uid"] = f"uid-{name}"
    if not aligned:
        container = pod["spec"]["containers"][0]
        container["resources"] = {"requests": container["resources"]["requests"]}
        pod["status"]["qosClass"] = "Burstable"
    if node:
        pod["spec"]["nodeName"] = node
    return pod


@pytest.mark.parametrize("aligned", [True, False])
def test_a_finished_pod_may_still_count_and_filter_prefers_other_nodes(tmp_path: Path, *, aligned: bool) -> None:
    with cluster(tmp_path, *NODES, finish_seconds=600.0, bind_wait_seconds=0.0) as (server, service, client):
        _start(server, service, client)
        pod = server.pods.create(_pod("new", aligned=aligned))
        client.filter(pod, *NODES)

        assert COUNTED in client.bind(pod, "node-a")

        _, metrics = client.call("GET", "/metrics")
        assert b'numa_extender_binds_total{outcome="totals"} 1.0' in metrics
        assert client.filter(pod, *NODES)["NodeNames"] == ["node-b"]
        assert client.bind(pod, "node-b") == ""
        small = pod_of(6, name="small")
        client.filter(small, "node-a")
        assert client.bind(server.pods.create(small), "node-a") == "", "the totals suffice for both"


def test_bind_waits_until_the_finished_pod_counts_no_more(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, finish_seconds=600.0, bind_seconds=20.0, bind_wait_seconds=20.0) as live:
        server, service, client = live
        _start(server, service, client)
        pod = server.pods.create(_pod("new", aligned=False))
        client.filter(pod, "node-a")
        errors: list[str] = []
        binding = threading.Thread(target=lambda: errors.append(client.bind(pod, "node-a")))
        binding.start()
        until(lambda: bool(service.known.pods.get("uid-new").deferred_from))

        server.pods.delete("old")
        binding.join(PATIENCE_SECONDS)

        assert errors == [""]


def test_a_picture_that_stays_wrong_holds_nobody_back_for_long(tmp_path: Path) -> None:
    """Totals that do not suffice even without finished pods: the scheduler knows better, or its own filter refuses."""
    with cluster(tmp_path, *NODES, hold_back_seconds=0.0) as (server, service, client):
        _start(server, service, client)
        server.pods.create(_pod("running", aligned=False, node="node-a"))
        until(lambda: service.known.pods.get("uid-running").bound_to == "node-a")
        pod = server.pods.create(_pod("new", aligned=False))
        client.filter(pod, "node-a")

        assert client.bind(pod, "node-a") == ""


def test_pods_that_are_bound_and_not_yet_seen_count_as_well(tmp_path: Path) -> None:
    with cluster(tmp_path, *NODES, bind_wait_seconds=0.0) as (server, service, client):
        _start(server, service, client)
        server.pods.delete("old")
        first, second = (
            server.pods.create(_pod("first", aligned=False)),
            server.pods.create(_pod("second", aligned=False)),
        )
        for pod in (first, second):
            client.filter(pod, "node-a")
        until(lambda: "uid-old" not in service.known.nodes.pods_of("node-a").may_be_gone(service.clock()))

        assert client.bind(first, "node-a") == ""
        assert COUNTED in client.bind(second, "node-a")
