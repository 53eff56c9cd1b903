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
        ("restart-check", {"kubelet_version": "v1.20.0"}, "kubelet_version"),
        ("restart-check", {"kubelet": {"maxPods": 3}}, "kubelet.maxPods"),
        ("restart-check", {"kubelet": {"reservedSystemCPUs": 3}}, "kubelet.reservedSystemCPUs"),
        ("restart-check", {"rules": {"x": True}}, "rules.x"),
        ("restart-check", {"nodes": ["nobody"]}, None),
    ],
)
def test_what_cannot_be_asked_is_refused_by_name(
    client: TestClient, name: str, question: Json, field: str | None
) -> None:
    _report(client, sample(workloads=[WORKER]))

    reply = client.post(f"/v1/advice/{name}", json=question)

    assert (reply.status_code // 100, reply.json()["field"]) == (4, field), reply.text


ODD = Workload(name="w", resources={"cpu": 3, "memory": "2Gi"}, copies=3)
FULL_CORES = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}


def test_a_changed_option_names_the_pods_that_fail_and_where_they_would_go(client: TestClient) -> None:
    _report(client, sample(workloads=[ODD]), sample("node-b"), sample("node-c"))

    reply = client.post("/v1/advice/restart-check", json={"kubelet": FULL_CORES}).json()

    assert [(node["node"], node["action"]) for node in reply["nodes"]] == [
        ("node-b", "restart"),
        ("node-c", "restart"),
        ("node-a", "drain-first"),
    ]
    pods = reply["nodes"][2]["pods"]
    assert {(pod["result"], pod["reason"], pod["elsewhere"]) for pod in pods} == {
        ("fails", "SMTAlignmentError", "node-b")
    }
    assert (reply["summary"]["fails"], reply["summary"]["drained"]) == (3, 3)


def test_a_deleted_file_moves_pods_and_the_order_decides_which_fail(client: TestClient) -> None:
    pods = [
        Workload(name="w", resources={"cpu": 9, "memory": "2Gi"}, copies=2),
        Workload(name="v", resources={"cpu": 5, "memory": "2Gi"}, copies=2),
    ]
    _report(client, sample(workloads=pods))

    reply = client.post("/v1/advice/restart-check", json={"kubelet": {"reservedSystemCPUs": "1-2,17-18"}}).json()

    (node,) = reply["nodes"]
    assert node["action"] == "drain-and-delete-files"
    assert [file["file"] for file in node["refused_files"]] == ["cpu_manager_state"]
    assert {pod["result"] for pod in node["pods"]} & {"fails", "may-fail"}
    assert all(pod["drain_first"] for pod in node["pods"] if pod["result"] != "kept")


def test_a_larger_reservation_fails_the_youngest_pods(client: TestClient, service: Service) -> None:
    """The kubelet's own check of totals, in the order of creation."""
    node = sample(
        cpuManagerPolicy="none",
        memoryManagerPolicy="None",
        workloads=[Workload(name="w", resources={"cpu": 10, "memory": "2Gi"}, copies=3)],
    )
    for age, pod in enumerate(reversed(node.pods)):
        pod["metadata"]["creationTimestamp"] = f"2026-11-22T05:00:0{age}Z"
    _report(client, node)
    _watch(service, node)

    reply = client.post(
        "/v1/advice/restart-check", json={"kubelet": {"reservation": {"cpu": "4", "memory": "2Gi"}}}
    ).json()

    results = {pod["pod"]: pod["reason"] for pod in reply["nodes"][0]["pods"]}
    assert results == {"demo/w-2": "", "demo/w-1": "", "demo/w-0": "OutOfcpu"}


def test_a_configuration_with_which_no_kubelet_starts_is_an_answer(client: TestClient) -> None:
    _report(client, sample(workloads=[WORKER]))
    question = {"kubelet": {"cpuManagerPolicyOptions": {"align-by-socket": "true"}}}

    (node,) = client.post("/v1/advice/restart-check", json=question).json()["nodes"]

    assert (node["action"], node["pods"]) == ("does-not-start", [])
    assert node["error"].startswith("cpuManagerPolicyOptions: ")
