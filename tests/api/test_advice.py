"""Advice over HTTP: what is asked is checked, and what is answered was replayed."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.kube.changes import Batch, Seen
from extender.kube.node_context import WatchedSurroundings
from extender.kube.pods import PodDecoder
from extender.samples.nodes import SampleNode, Workload
from tests.reports import report_of, sample

Json = dict[str, Any]
WORKER = Workload(name="w", resources={"cpu": 4, "memory": "2Gi"}, copies=2)


def _report(client: TestClient, *nodes: SampleNode) -> None:
    for node in nodes:
        client.put(f"/v1/nodes/{node.name}/report", json=report_of(node)).raise_for_status()


def _watch(service: Service, node: SampleNode, **spec: Any) -> None:
    """The API server's view of the node's pods."""
    known = WatchedSurroundings()
    records = []
    for pod in node.pods:
        decoded = PodDecoder()({**pod, "spec": {**pod["spec"], "nodeName": node.name, **spec}})
        assert decoded is not None
        records.append(decoded[1])
    known.apply_pods(Batch(tuple(Seen(each) for each in records), complete=True))
    service.surroundings.use(known)


@pytest.mark.parametrize("is_watched", [False, True])
def test_a_resize_of_exclusive_cpus_is_infeasible_and_the_pod_would_fit_anew(
    client: TestClient, service: Service, *, is_watched: bool
) -> None:
    node = sample(workloads=[WORKER])
    _report(client, node, sample("node-b"))
    if is_watched:
        _watch(service, node)

    reply = client.post("/v1/advice/resize-check", json={"pod": "demo/w-0", "cpu": "6"}).json()

    assert (reply["node"], reply["container"], reply["result"]) == ("node-a", "app", "infeasible")
    assert (reply["before"], reply["after"]) == ({"cpu": "4"}, {"cpu": "6"})
    assert (reply["recreated"]["alignment"], reply["elsewhere"][0]["node"]) == ("aligned", "node-b")
    assert any("not watched" in note for note in reply["notes"]) is not is_watched


def test_the_room_of_the_old_pod_is_free_for_the_new_one(client: TestClient) -> None:
    pods = [Workload(name="w", resources={"cpu": 14, "memory": "2Gi"}, copies=2)]
    _report(client, sample(workloads=pods, reservedSystemCPUs="0,8"))

    reply = client.post("/v1/advice/resize-check", json={"pod": "demo/w-1", "cpu": "15"}).json()

    assert reply["recreated"]["outcome"] == "fits"
    assert reply["other_nodes"] == 0


def test_more_than_the_node_has_is_infeasible_and_more_than_is_left_is_deferred(
    client: TestClient, service: Service
) -> None:
    node = sample(cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none", workloads=[WORKER])
    _report(client, node)
    _watch(service, node)

    results = [
        client.post("/v1/advice/resize-check", json={"pod": "demo/w-0", "cpu": cpu}).json()["result"]
        for cpu in ("26", "27", "31")
    ]

    assert results == ["fits", "deferred", "infeasible"]


@pytest.mark.parametrize(
    ("name", "question", "field"),
    [
        ("resize-check", {"pod": "demo/w-0"}, "cpu"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "0"}, "cpu"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "x"}, "cpu"),
        ("resize-check", {"pod": "demo/w-0", "memory": "-1"}, "memory"),
        ("resize-check", {"pod": "demo/nobody", "cpu": "1"}, "pod"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "1", "container": "c"}, "container"),
        ("resize-check", {"pod": "demo/w-0", "cpu": "1", "cpus": "c"}, "cpus"),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(client: TestClient, name: str, question: Json, field: str) -> None:
    _report(client, sample(workloads=[WORKER]))

    reply = client.post(f"/v1/advice/{name}", json=question)

    assert (reply.status_code // 100, reply.json()["field"]) == (4, field), reply.text
