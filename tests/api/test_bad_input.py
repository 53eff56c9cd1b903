"""Bad input: the right status, the field, the reason; nothing changes."""

import copy
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.samples.nodes import Workload
from extender.scheduling.reasons import RefusalReason
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.exporters import report_all

NODE = sample(
    workloads=[Workload(name="w", resources={"cpu": 2, "memory": "1Gi", "vendor.example/gpu": 1})],
    devices={"vendor.example/gpu": [0, 1]},
)
UID = NODE.pods[0]["metadata"]["uid"]
PATH = "/v1/nodes/node-a/report"
Change = Callable[[dict[str, Any]], object]


def _set(*keys: str | int, to: object) -> Change:
    def change(document: dict[str, Any]) -> None:
        place: Any = document
        for key in keys[:-1]:
            place = place[key]
        place[keys[-1]] = to

    return change


REPORT_FAULTS: dict[str, tuple[Change, str, str]] = {
    "unknown schema version": (_set("schema_version", to=2), "schema_version", "2 is unknown"),
    "no schema version": (lambda d: d.pop("schema_version"), "schema_version", "missing"),
    "schema version as text": (_set("schema_version", to="1"), "schema_version", "an integer is expected"),
    "node name of another node": (_set("node_name", to="node-b"), "node_name", "the path names 'node-a'"),
    "node name that no node can have": (_set("node_name", to="Node A"), "node_name", "Kubernetes node"),
    "negative sequence": (_set("sequence", to=-1), "sequence", "outside"),
    "sequence as text": (_set("sequence", to="7"), "sequence", "an integer is expected"),
    "time that is none": (_set("observed_at", to=-5.0), "observed_at", "Unix seconds"),
    "no machine": (lambda d: d.pop("machine"), "machine", "missing"),
    "cpu row too short": (_set("machine", "cpus", 0, to=[0, 0]), "machine.cpus[0]", "a list of length 5 is expected"),
    "cpu id as text": (_set("machine", "cpus", 3, 0, to="3"), "machine.cpus[3][0]", "an integer is expected"),
    "cpu on an unknown NUMA node": (_set("machine", "cpus", 5, 3, to=9), "machine.cpus[5]", "NUMA node 9"),
    "cpu twice": (_set("machine", "cpus", 5, 0, to=4), "machine.cpus[5]", "listed twice"),
    "NUMA node twice": (_set("machine", "numa", 1, "id", to=0), "machine.numa[1].id", "listed twice"),
    "NUMA node gone": (lambda d: d["machine"]["numa"].pop(), "machine.cpus[8]", "NUMA node 1"),
    "negative memory": (_set("machine", "numa", 0, "memory", to=-1), "machine.numa[0].memory", "not an integer"),
    "page size": (_set("machine", "numa", 0, "hugepages", to={"2M": 1}), "machine.numa[0].hugepages", "page size"),
    "policy of the wrong type": (
        _set("kubelet", "cpuManagerPolicy", to=1),
        "kubelet.cpuManagerPolicy",
        "a string is expected",
    ),
    "quantity": (_set("kubelet", "reservation", "memory", to="2Gx"), "kubelet.reservation.memory", "'2Gx'"),
    "cpu list": (_set("kubelet", "reservedSystemCPUs", to="0-"), "kubelet.reservedSystemCPUs", "'0-'"),
    "device without id": (lambda d: d["devices"]["vendor.example/gpu"][0].pop("id"), "devices", "missing"),
    "device twice": (
        lambda d: d["devices"]["vendor.example/gpu"].append(d["devices"]["vendor.example/gpu"][0]),
        "devices.vendor.example/gpu[2].id",
        "listed twice",
    ),
    "shared pool that does not parse": (
        _set("state", "cpu_manager_state", "defaultCpuSet", to="x"),
        "state.cpu_manager_state.defaultCpuSet",
        "'x'",
    ),
    "entries of the wrong type": (
        _set("state", "cpu_manager_state", "entries", to=[]),
        "state.cpu_manager_state.entries",
        "an object or null is expected",
    ),
    "memory of a NUMA node that is none": (
        lambda d: d["state"]["memory_manager_state"]["machineState"].update({"x": {}}),
        "state.memory_manager_state.machineState",
        "",
    ),
    "memory amounts of the wrong type": (
        _set("state", "memory_manager_state", "machineState", "0", "memoryMap", "memory", "free", to="1"),
        "state.memory_manager_state.machineState.0.memoryMap.memory.free",
        "an integer is expected",
    ),
    "device checkpoint without data": (
        _set("state", "kubelet_internal_checkpoint", to={}),
        "state.kubelet_internal_checkpoint.Data",
        "missing",
    ),
    "pods of the wrong type": (_set("pods", to={}), "pods", ""),
}


@pytest.mark.parametrize("fault", REPORT_FAULTS)
def test_a_faulty_report_is_refused_and_the_last_good_one_stays(
    client: TestClient, service: Service, fault: str
) -> None:
    change, field, reason = REPORT_FAULTS[fault]
    assert client.put(PATH, json=report_of(NODE)).status_code == 200
    before = service.known.nodes.get("node-a")
    document = copy.deepcopy(report_of(NODE, sequence=2))
    change(document)

    reply = client.put(PATH, json=document)

    assert reply.status_code == 422, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    problem = reply.json()
    assert problem["field"].startswith(field)
    assert reason in problem["detail"]
    assert problem["status"] == 422
    assert service.known.nodes.get("node-a") == before


CONTRADICTIONS: dict[str, tuple[Change, str, str]] = {
    "shared pool with foreign CPUs": (
        _set("state", "cpu_manager_state", "defaultCpuSet", to="0-99"),
        "CPUs 32-99 are not online on this machine: no verdict for pods that need the cpu manager",
        "",
    ),
    "NUMA node that is none in a group": (
        _set("state", "memory_manager_state", "machineState", "0", "cells", to=[0, 7]),
        "no verdict for pods that need the memory manager",
        "",
    ),
    "CPU in the pool and with a pod": (
        _set("state", "cpu_manager_state", "defaultCpuSet", to="0-31"),
        "belong to pod",
        RefusalReason.CONTRADICTORY.text,
    ),
    "CPU in no set, between two writes": (
        _set("state", "cpu_manager_state", "entries", to={}),
        "are neither in it nor in any entry",
        RefusalReason.CONTRADICTORY.text,
    ),
    "machine state without its blocks, between two writes": (
        _set("state", "memory_manager_state", "entries", to={}),
        "1, but 0 blocks use the node",
        RefusalReason.CONTRADICTORY.text,
    ),
    "device held twice": (
        lambda d: d["state"]["kubelet_internal_checkpoint"]["Data"]["PodDeviceEntries"].append(
            {**d["state"]["kubelet_internal_checkpoint"]["Data"]["PodDeviceEntries"][0], "PodUID": "other"}
        ),
        "belongs to pod",
        RefusalReason.CONTRADICTORY.text,
    ),
}


@pytest.mark.parametrize("kind", CONTRADICTIONS)
def test_a_state_that_contradicts_itself_is_read_and_makes_no_verdict_certain(client: TestClient, kind: str) -> None:
    """A refused report would leave the node with an old state, for as long as the kubelet's own file is like this."""
    change, problem, refusal = CONTRADICTIONS[kind]
    document = copy.deepcopy(report_of(NODE))
    change(document)

    assert client.put(PATH, json=document).status_code == 200

    listed = client.get("/v1/nodes/node-a").json()["problem_list"]
    assert any(problem in each["reason"] for each in listed), listed
    reply = client.post("/scheduler/filter", json=args_of(pod_of(2, "1Gi"), "node-a")).json()
    assert reply["FailedAndUnresolvableNodes"] | reply["FailedNodes"] == ({"node-a": refusal} if refusal else {})


@pytest.mark.parametrize("body", [b"", b"{", b"nonsense", b'{"schema_version": 1', b"\xff\xfe", b'{"a": NaN}'])
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", PATH), ("POST", "/v1/nodes/node-a/heartbeat"), ("POST", "/v1/what-if")]
)
def test_what_is_no_json_is_a_400(client: TestClient, method: str, path: str, body: bytes) -> None:
    reply = client.request(method, path, content=body, headers={"Content-Type": "application/json"})

    assert reply.status_code == 400
    assert reply.json()["detail"].startswith("not JSON") or "not JSON" in reply.json()["detail"]


@pytest.mark.parametrize("body", [b"[]", b"7", b'"text"', b"null", b"{}"])
@pytest.mark.parametrize(
    ("method", "path"), [("PUT", PATH), ("POST", "/v1/nodes/node-a/heartbeat"), ("POST", "/v1/what-if")]
)
def test_json_that_is_no_such_document_is_a_422(client: TestClient, method: str, path: str, body: bytes) -> None:
    reply = client.request(method, path, content=body, headers={"Content-Type": "application/json"})

    assert reply.status_code == 422
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    ("method", "path"), [("PUT", PATH), ("POST", "/v1/nodes/node-a/heartbeat"), ("POST", "/v1/what-if")]
)
@pytest.mark.parametrize("declared", [True, False])
def test_a_body_over_the_limit_is_a_413(client: TestClient, method: str, path: str, *, declared: bool) -> None:
    size = (1 << 20) + 1
    content: Any = b" " * size if declared else iter([b" " * (1 << 16)] * 17)

    reply = client.request(method, path, content=content)

    assert reply.status_code == 413
    assert "larger than 1048576 bytes" in reply.json()["detail"]


def test_a_report_of_one_node_too_many_is_a_507(client: TestClient) -> None:
    report_all(client, *({**report_of(NODE), "node_name": name} for name in ("a", "b", "c")))

    reply = client.put("/v1/nodes/d/report", json={**report_of(NODE), "node_name": "d"})

    assert reply.status_code == 507


@pytest.mark.parametrize(
    ("method", "path", "status", "detail"),
    [
        ("GET", "/v1/what-if", 405, "the route does not take GET; use POST"),
        ("GET", "/v1/nodez", 404, "there is no route '/v1/nodez'; /docs lists the routes"),
        ("POST", "/v1/what-if", 400, "not JSON: the text is empty"),
    ],
)
def test_a_request_that_no_route_takes_is_told_what_to_do(
    client: TestClient, method: str, path: str, status: int, detail: str
) -> None:
    reply = client.request(method, path)

    assert (reply.status_code, reply.json()["detail"]) == (status, detail)


SCHEDULER_FAULTS: dict[str, tuple[bytes, str]] = {
    "nothing": (b"", "not JSON"),
    "no JSON": (b"{", "not JSON"),
    "a list": (b"[]", "an object is expected, not []"),
    "no pod": (orjson.dumps({"NodeNames": ["a"]}), "Pod: missing"),
    "no candidates": (orjson.dumps({"Pod": pod_of(), "Nodes": None, "NodeNames": None}), "neither NodeNames nor"),
    "names of the wrong type": (orjson.dumps({"Pod": pod_of(), "NodeNames": "a"}), "NodeNames: a list"),
    "a name of the wrong type": (orjson.dumps({"Pod": pod_of(), "NodeNames": ["a", 7]}), "NodeNames[1]"),
    "a node without a name": (orjson.dumps({"Pod": pod_of(), "Nodes": {"items": [{}]}}), "Nodes.items[0].metadata"),
    "nodes of the wrong type": (orjson.dumps({"Pod": pod_of(), "Nodes": {"items": {}}}), "Nodes.items"),
    "a quantity": (orjson.dumps(args_of(pod_of(cpu="two"), "a")), "Pod.spec.containers[0].resources.limits.cpu"),
    "a pod without containers": (
        orjson.dumps(args_of({"metadata": {}, "spec": {"containers": []}}, "a")),
        "Pod.spec.containers",
    ),
    "a body over the limit": (b" " * ((1 << 20) + 1), "larger than 1048576 bytes"),
}


@pytest.mark.parametrize("fault", SCHEDULER_FAULTS)
def test_prioritize_answers_what_is_wrong_with_a_status(client: TestClient, fault: str) -> None:
    """kube-scheduler logs it and goes on without our scores; a list has no place for an error."""
    body, reason = SCHEDULER_FAULTS[fault]

    reply = client.post("/scheduler/prioritize", content=body)

    assert reply.status_code == (413 if fault == "a body over the limit" else 422)
    assert reply.headers["content-type"] == "application/problem+json"
    assert reason in reply.json()["detail"]


@pytest.mark.parametrize("fault", SCHEDULER_FAULTS)
def test_filter_is_always_answered_with_200(client: TestClient, fault: str) -> None:
    body, reason = SCHEDULER_FAULTS[fault]

    reply = client.post("/scheduler/filter", content=body)

    assert reply.status_code == 200
    assert reply.json()["Error"].startswith("numa-extender: ")
    assert reason in reply.json()["Error"]
    assert reply.json().get("NodeNames") is None


def test_an_unknown_node_is_a_404(client: TestClient) -> None:
    for reply in (
        client.get("/v1/nodes/nobody"),
        client.post(
            "/v1/nodes/nobody/heartbeat", json={"boot_id": "b", "sequence": 1, "digest": "d", "observed_at": 1.0}
        ),
        client.post("/v1/what-if", json={"pod": pod_of(), "nodes": ["nobody"]}),
        client.get("/no/such/path"),
    ):
        assert reply.status_code == 404
        assert reply.headers["content-type"] == "application/problem+json"


def test_no_path_is_redirected(client: TestClient) -> None:
    assert client.post("/scheduler/filter/", json={}, follow_redirects=False).status_code == 404
    assert client.get("/v1/nodes/", follow_redirects=False).status_code == 404
