"""Reports in order, heartbeats, and nodes as people see them."""

import asyncio
import hashlib
from collections.abc import Callable
from typing import Any

import httpx
import orjson
import pytest
from fastapi import Request
from starlette.testclient import TestClient

from extender.api.nodes.models import NodeDetail, NodeSummary
from extender.api.reports import ReportEndpoints
from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.identity import EVERYTHING
from extender.samples.nodes import Workload
from tests.replies import read_exactly
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock

GPU = "vendor.example/gpu"
NODE = sample(workloads=[Workload(name="w", resources={"cpu": 4, "memory": "2Gi", GPU: 1})], devices={GPU: [0, 1]})
PATH = "/v1/nodes/node-a/report"


def _put(client: TestClient, document: dict[str, Any]) -> tuple[int, bytes]:
    body = orjson.dumps(document)
    return client.put(PATH, content=body).status_code, body


def _beat(client: TestClient, body: bytes, **changed: object) -> int:
    report = orjson.loads(body)
    heartbeat = {
        "boot_id": report["boot_id"],
        "sequence": report["sequence"],
        "digest": hashlib.sha256(body).hexdigest(),
        "observed_at": 1.0,
    }
    return client.post("/v1/nodes/node-a/heartbeat", json={**heartbeat, **changed}).status_code


def test_older_and_contradicting_reports_are_conflicts(client: TestClient) -> None:
    assert _put(client, report_of(NODE, sequence=5))[0] == 200
    assert _put(client, report_of(NODE, sequence=4))[0] == 409
    assert _put(client, {**report_of(NODE, sequence=5), "observed_at": 3.0})[0] == 409
    assert _put(client, report_of(NODE, sequence=5))[0] == 200
    assert _put(client, report_of(NODE, sequence=1, boot_id="boot-2"))[0] == 200
    assert _put(client, report_of(NODE, sequence=9))[0] == 409

    held = client.get("/v1/nodes/node-a").json()

    assert (held["boot_id"], held["sequence"]) == ("boot-2", 1)


def test_a_heartbeat_counts_only_for_the_very_report_that_is_held(client: TestClient, clock: Clock) -> None:
    _, body = _put(client, report_of(NODE))
    clock.now += 100

    assert _beat(client, body) == 204
    assert _beat(client, body, sequence=2) == 409
    assert _beat(client, body, digest="0") == 409
    assert _beat(client, body, boot_id="boot-0") == 409

    clock.now += 100
    assert client.get("/v1/nodes/node-a").json()["certainty"] == "exact"
    clock.now += 21
    assert client.get("/v1/nodes/node-a").json()["certainty"] == "stale"
    assert _beat(client, body) == 204
    assert client.get("/v1/nodes/node-a").json()["certainty"] == "exact"


def test_a_node_is_told_in_full(client: TestClient) -> None:
    _put(client, report_of(NODE))

    node = client.get("/v1/nodes/node-a").json()

    read_exactly(NodeDetail, orjson.dumps(node))
    assert node["kubelet_version"] == "v1.36.2"
    assert (node["topology_policy"], node["topology_scope"]) == ("single-numa-node", "container")
    assert (node["cpu_policy"], node["memory_policy"]) == ("static", "Static")
    assert (node["cpus"], node["numa_nodes"], node["free_cpus"], node["pods"]) == (32, 2, 26, 1)
    first, second = node["topology"]
    assert (first["free_cpus"], second["free_cpus"]) == ("3-7,19-23", "8-15,24-31")
    assert first["memory"]["memory"] == {"total": 32 << 30, "allocatable": 31 << 30, "free": 29 << 30}
    assert first["free_room"] == {"cpus": 10, "memory": {"memory": 29 << 30}, "devices": {GPU: 0}}
    assert second["free_room"] == {"cpus": 16, "memory": {"memory": 31 << 30}, "devices": {GPU: 1}}
    assert first["cores"][:2] == [[0, 16], [1, 17]]
    assert (node["reserved_cpus"], node["sockets"]) == ("0,16", [{"id": 0, "numa": [0]}, {"id": 1, "numa": [1]}])
    uid = NODE.pods[0]["metadata"]["uid"]
    assert node["holders"] == [
        {
            "pod_uid": uid,
            "namespace": "demo",
            "pod": "w-0",
            "container": "app",
            "cpus": "1-2,17-18",
            "memory": [{"numa": [0], "type": "memory", "size": 2 << 30}],
            "devices": {GPU: ["gpu-0"]},
        }
    ]
    assert node["device_list"][GPU] == [
        {"id": "gpu-0", "numa": [0], "healthy": True, "held_by": uid},
        {"id": "gpu-1", "numa": [1], "healthy": True, "held_by": None},
    ]
    (summary,) = client.get("/v1/nodes").json()["nodes"]
    read_exactly(NodeSummary, orjson.dumps(summary))
    assert summary == {key: node[key] for key in summary}
    assert summary["devices"] == {GPU: {"total": 2, "free": 1}}
    assert summary["numa"][0] == {
        "id": 0,
        "socket": 0,
        "cpus": 16,
        "reserved_cpus": 2,
        "free_cpus": 10,
        "memory_bytes": 31 << 30,
        "free_memory_bytes": 29 << 30,
    }


def test_what_if_tells_placements_and_reasons_and_changes_nothing(client: TestClient) -> None:
    _put(client, report_of(NODE))
    before = client.get("/v1/nodes/node-a").json()

    (fits,) = client.post("/v1/what-if", json={"pod": pod_of(4, devices={GPU: 1})}).json()["nodes"]
    (large,) = client.post("/v1/what-if", json={"pod": pod_of(20), "nodes": ["node-a"]}).json()["nodes"]

    assert fits["passes"] is True
    assert fits["verdict"]["containers"]["app"]["affinity"] == [1]
    assert fits["verdict"]["containers"]["app"]["cpus"] == "8-9,24-25"
    assert fits["verdict"]["containers"]["app"]["devices"] == {GPU: ["gpu-1"]}
    assert large["passes"] is False
    assert large["why"] == "NUMA alignment can never be possible on the node"
    assert large["verdict"]["reason"] == "TopologyAffinityError"
    assert large["verdict"]["refused_by"]["when"] == "never"
    assert client.get("/v1/nodes/node-a").json() == before


def test_a_newer_kubelet_is_seen_everywhere(client: TestClient) -> None:
    _put(client, report_of(sample(version="v1.99.3")))

    (listed,) = client.get("/v1/nodes").json()["nodes"]
    (asked,) = client.post("/v1/what-if", json={"pod": pod_of(4), "nodes": ["node-a"]}).json()["nodes"]
    metrics = client.get("/metrics").text

    assert listed["certainty"] == "assumed"
    assert (asked["certainty"], asked["verdict"]["certainty"]) == ("assumed", "assumed")
    assert "newer than 1.37" in asked["verdict"]["caveats"][0]
    assert 'numa_extender_nodes{certainty="assumed"} 1.0' in metrics
    assert 'numa_extender_kubelets{certainty="assumed",minor="other"} 1.0' in metrics


def test_metrics_count_what_happened(client: TestClient, clock: Clock) -> None:
    _put(client, report_of(NODE))
    _put(client, report_of(NODE, sequence=0))
    client.post("/scheduler/filter", json=args_of(pod_of(20), "node-a", "node-b"))
    clock.now += 500

    text = client.get("/metrics").text

    assert 'numa_extender_reports_total{kind="report",outcome="accepted"} 1.0' in text
    assert 'numa_extender_reports_total{kind="report",outcome="outdated"} 1.0' in text
    assert 'numa_extender_filter_candidates_total{certainty="unknown",result="passed"} 1.0' in text
    assert 'certainty="exact",result="NUMA alignment can never be possible on the node"} 1.0' in text
    assert 'numa_extender_verb_seconds_count{outcome="answered",verb="filter"} 1.0' in text
    assert 'numa_extender_nodes{certainty="stale"} 1.0' in text


def test_a_switch_of_the_cluster_is_a_rule_of_every_node_and_the_nodes_own_rules_win(clock: Clock) -> None:
    service = make_service(Settings(kubelet_switches="distribute_inside_hint,spread_by_topology"), clock)
    plain, other = report_of(sample("plain")), report_of(sample("other"))
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        assert client.put("/v1/nodes/plain/report", json=plain).is_success
        assert client.put("/v1/nodes/other/report", json={**other, "rules": {"spread_by_topology": False}}).is_success

    rules = {record.name: record.kubelet.rules for record in service.known.nodes if record.kubelet is not None}

    assert {name: rule.distribute_inside_hint for name, rule in rules.items()} == {"plain": True, "other": True}
    assert {name: rule.spread_by_topology for name, rule in rules.items()} == {"plain": True, "other": False}


def test_one_report_of_a_node_is_read_at_a_time_and_other_nodes_do_not_wait_for_it() -> None:
    """The first report of a kubelet is read in another thread, which a node could otherwise keep for itself."""

    async def report_twice() -> tuple[list[int], dict[str, Any], str]:
        may_read = asyncio.Event()

        async def offload(work: Callable[..., Any], /, *args: Any) -> Any:  # noqa: ANN401
            await may_read.wait()
            return work(*args)

        app = make_app(make_service(Settings(loopback_scopes=EVERYTHING), offload=offload))
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as caller:
            first, other = (
                asyncio.create_task(caller.put(f"/v1/nodes/{node.name}/report", json=report_of(node)))
                for node in (NODE, sample("node-b"))
            )
            await asyncio.sleep(0.05)
            second = await caller.put(PATH, json=report_of(NODE, sequence=2))
            may_read.set()
            replies = [await first, await other, await caller.put(PATH, json=report_of(NODE, sequence=2))]
            return [each.status_code for each in replies], second.json(), second.headers["retry-after"]

    statuses, refused, retry_after = asyncio.run(report_twice())

    assert statuses == [200, 200, 200]
    assert (refused["status"], retry_after) == (429, "1")
    assert "a report of the node is being read" in refused["detail"]


def test_a_report_gives_way_before_it_is_read_and_before_it_counts(client: TestClient, service: Service) -> None:
    """A call that has arrived meanwhile waits for a part of a report only."""
    assert _put(client, report_of(NODE))[0] == 200
    body = orjson.dumps(report_of(NODE, sequence=2))

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    work = ReportEndpoints(service).put_report("node-a", Request({"type": "http", "headers": []}, receive))
    assert [work.send(None), work.send(None)] == [None, None]
    record = service.known.nodes.get("node-a")
    assert record is not None
    assert record.observation.sequence == 1
    with pytest.raises(StopIteration) as done:
        work.send(None)
    assert done.value.value.status_code == 200
