"""Nominated pods over real sockets: scheduler calls and the watches of an API server."""

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from extender.api.service import Service
from extender.samples.nodes import Workload
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.reports import pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS, until

Json = dict[str, Any]
Live = tuple[FakeApiServer, Service, Client]
SETTLING = "pods coming to or leaving the node decide whether NUMA alignment is possible"
PROMISED = "the free room on the node is reserved for a nominated pod of equal or higher priority"
FINISH_SECONDS = 600.0
"""Longer than any test: what waits for it would fail."""


NODES = {
    name: sample(name, workloads=[Workload(name=f"of-{name}", copies=2, resources={"cpu": 14, "memory": "1Gi"})])
    for name in ("node-a", "node-b")
}
"""Each of their two NUMA nodes is held by one pod of 14 CPUs."""
UIDS = {name: [pod["metadata"]["uid"] for pod in node.pods] for name, node in NODES.items()}
NAMES = {name: [pod["metadata"]["name"] for pod in node.pods] for name, node in NODES.items()}
NAMESPACE = NODES["node-a"].pods[0]["metadata"]["namespace"]


@pytest.fixture
def live(tmp_path: Path) -> Iterator[Live]:
    with cluster(tmp_path, *NODES, finish_seconds=FINISH_SECONDS) as (server, service, client):
        pods = [(name, pod) for name, node in NODES.items() for pod in node.pods]
        for name, pod in pods:
            server.pods.create({**pod, "spec": {**pod["spec"], "nodeName": name}, "status": {"phase": "Running"}})
        until(lambda: all(service.known.pods.get(pod["metadata"]["uid"]).bound_to == name for name, pod in pods))
        for node in NODES.values():
            client.report(report_of(node))
        yield server, service, client


def _preemptor(server: FakeApiServer, name: str = "urgent", priority: int = 100, cpu: int = 12) -> Json:
    pod = pod_of(cpu, name=name)
    pod["spec"]["priority"] = priority
    return server.pods.create(pod)


def _preempt(client: Client, pod: Json, victims: dict[str, list[str]]) -> Json:
    nodes = {name: {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": 0} for name, uids in victims.items()}
    args = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": nodes}
    status, reply = client.call("POST", "/scheduler/preempt", args)
    assert status == 200, reply
    return dict(reply["NodeNameToMetaVictims"])


def _nominate(server: FakeApiServer, service: Service, pod: Json, node: str) -> Json:
    nominated = server.pods.patch(pod["metadata"]["name"], {"status": {"nominatedNodeName": node}})
    until(lambda: service.known.pods.get(pod["metadata"]["uid"]).nominated(service.clock()) is not None)
    return nominated


def _evict(server: FakeApiServer, service: Service, node: str) -> None:
    """The first pod of the node terminates."""
    server.pods.delete(NAMES[node][0], NAMESPACE, grace_seconds=30)
    until(lambda: bool(service.known.nodes.pods_of(node).may_be_gone(service.clock())))


def _end(server: FakeApiServer, phase: str = "Failed", node: str = "node-a") -> None:
    server.pods.patch(NAMES[node][0], {"status": {"phase": phase}}, NAMESPACE)


def test_a_deleted_pod_that_turns_terminal_has_left_at_once(live: Live) -> None:
    server, service, client = live
    pod = _preemptor(server)
    assert client.filter(pod, "node-a")["NodeNames"] == []
    _evict(server, service, "node-a")
    assert client.filter(pod, "node-a")["FailedAndUnresolvableNodes"] == {"node-a": SETTLING}

    _end(server)

    until(lambda: client.filter(pod, "node-a")["NodeNames"] == ["node-a"])
    assert client.bind(pod, "node-a") == ""


def test_a_pod_that_finishes_by_itself_is_in_doubt_for_a_while(live: Live) -> None:
    server, service, client = live
    _end(server, "Succeeded")
    until(lambda: bool(service.known.nodes.pods_of("node-a").may_be_gone(service.clock())))

    reply = client.filter(_preemptor(server), "node-a")
    assert reply["NodeNames"] is None
    assert (
        "before kubelets release what ended pods held" in reply["Error"]
    )  # after an error, kube-scheduler does not preempt


def test_the_nominated_node_passes_while_it_only_waits_and_bind_waits_for_the_victim(live: Live) -> None:
    server, service, client = live
    pod = _preemptor(server)
    assert _preempt(client, pod, {"node-a": UIDS["node-a"][:1], "node-b": UIDS["node-b"][:1]}).keys() == {
        "node-a",
        "node-b",
    }
    pod = _nominate(server, service, pod, "node-a")
    _evict(server, service, "node-a")

    assert client.filter(pod, "node-a")["NodeNames"] == ["node-a"]
    assert client.filter(pod, "node-b", "node-a")["NodeNames"] == ["node-a"]
    errors: list[str] = []
    binding = threading.Thread(target=lambda: errors.append(client.bind(pod, "node-a")))
    binding.start()
    until(lambda: service.known.nodes.pods_in_flight == 0 and binding.is_alive())
    _end(server)
    binding.join(PATIENCE_SECONDS)

    assert errors == [""]
    bound = server.pods.get("urgent")
    assert bound is not None
    assert bound["spec"]["nodeName"] == "node-a"


def test_bind_does_not_wait_for_ever_and_nobody_else_is_evicted_meanwhile(live: Live) -> None:
    server, service, client = live
    pod = _nominate(server, service, _preemptor(server), "node-a")
    _evict(server, service, "node-a")
    client.filter(pod, "node-a")

    assert SETTLING in client.bind(pod, "node-a")
    cleared = server.pods.patch("urgent", {"status": {"nominatedNodeName": ""}})
    until(lambda: service.known.pods.get(pod["metadata"]["uid"]).nominated(service.clock() + 60) is None)

    assert client.filter(cleared, "node-a")["NodeNames"] == ["node-a"]
    assert _preempt(client, cleared, {"node-b": UIDS["node-b"][:1]}) == {}
    _, metrics = client.call("GET", "/metrics")
    assert b'numa_extender_preemption_candidates_total{result="nominated"} 1.0' in metrics


def test_a_nominated_node_that_would_refuse_the_pod_anyhow_is_not_waited_for(live: Live) -> None:
    server, service, client = live
    pod = _nominate(server, service, _preemptor(server, cpu=16), "node-a")
    _evict(server, service, "node-a")  # holds CPUs of the NUMA node that has 14 of them to give

    assert client.filter(pod, "node-a")["NodeNames"] == []
    assert _preempt(client, pod, {"node-b": UIDS["node-b"]}).keys() == {"node-b"}


@pytest.mark.parametrize(("priority", "kept_away"), [(0, True), (100, True), (101, False)])
def test_room_that_is_promised_to_a_nominated_pod_is_left_alone(live: Live, priority: int, *, kept_away: bool) -> None:
    server, service, client = live
    urgent = _preemptor(server)
    server.pods.delete(NAMES["node-a"][0], NAMESPACE)
    until(lambda: service.known.pods.get(UIDS["node-a"][0]).bound_to is None)
    other = _preemptor(server, "other", priority, cpu=4)
    assert client.filter(other, "node-a")["NodeNames"] == ["node-a"]

    _nominate(server, service, urgent, "node-a")

    reply = client.filter(other, "node-a")
    assert reply["NodeNames"] == ([] if kept_away else ["node-a"])
    assert reply["FailedAndUnresolvableNodes"] == ({"node-a": PROMISED} if kept_away else {})
    assert (PROMISED in client.bind(other, "node-a")) is kept_away
    small = _preemptor(server, "small", 0, cpu=2)
    if kept_away:
        assert client.filter(small, "node-a")["NodeNames"] == ["node-a"], "there is room for both"
        server.pods.patch("urgent", {"status": {"nominatedNodeName": "node-b"}})
        until(lambda: client.filter(other, "node-a")["NodeNames"] == ["node-a"])


def test_a_node_is_not_promised_twice(live: Live) -> None:
    server, service, client = live
    first, second = _preemptor(server, "first"), _preemptor(server, "second")
    _nominate(server, service, first, "node-a")
    _evict(server, service, "node-a")

    plans = _preempt(client, second, {"node-a": UIDS["node-a"][:1], "node-b": UIDS["node-b"][:1]})

    assert {name: [pod["UID"] for pod in plan["Pods"]] for name, plan in plans.items()} == {
        "node-a": UIDS["node-a"],
        "node-b": UIDS["node-b"][:1],
    }
