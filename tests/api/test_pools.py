"""The pools of the NRI policy in the replies about nodes: what is known, and what is not."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.nodes.map import ClusterMap
from extender.api.nodes.models import NodeDetail, NodeIndex
from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.replay.creation import grants_of
from extender.wire.nrt import counted, published_from_json
from tests.nri_samples import EIGHT, nri_report, placed_pod
from tests.replay.nri.zones import topology_object
from tests.replies import read_exactly
from tests.world.clock import Clock

GIB = 1 << 30
PODS = (placed_pod("web", "4", "6Gi"), placed_pod("db", "6500m", "10Gi"), placed_pod("lake", "2", "20Gi", limit=False))


@pytest.fixture
def service() -> Service:
    return make_service(Settings(question_workers=0, max_body_bytes=8 << 20), Clock())


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield client


def put(client: TestClient, report: dict[str, Any]) -> dict[str, Any]:
    """Send the report, and read the node back; the reply is checked against its model."""
    name = report["node_name"]
    assert client.put(f"/v1/nodes/{name}/report", json=report).status_code == 200
    detail = client.get(f"/v1/nodes/{name}")
    read_exactly(NodeDetail, detail.content)
    read_exactly(NodeIndex, client.get("/v1/nodes").content)
    read_exactly(ClusterMap, client.get("/v1/map").content)
    return dict(detail.json())


def publish(service: Service, name: str, source: str) -> None:
    """What the plugin of *source* publishes, under another name."""
    record = service.known.nodes.get(source)
    assert record is not None
    assert record.state is not None
    granted = grants_of(record.state)
    assert granted is not None
    value = topology_object(granted.node.books) | {"metadata": {"name": name}}
    service.known.nodes.observe_counts(counted(published_from_json(value), lambda _: "v1.36.2"), 1000.0)


def test_pools_have_what_is_free_and_who_holds_the_rest(client: TestClient) -> None:
    node = put(client, nri_report("node-a", PODS))

    root, first, second = node["pools"]
    assert (node["resource_policy"], node["certainty"]) == ("topology-aware", "exact")
    assert [(p["name"], p["parent"], p["depth"], p["kind"]) for p in node["pools"]] == [
        ("root", None, 0, "virtual node"), ("socket #0", "root", 1, "socket"), ("socket #1", "root", 1, "socket"),
    ]  # fmt: skip
    held = {g["pod"]: (p["name"], g["cpus"], g["millicpu"]) for p in node["pools"] for g in p["containers"]}
    assert held == {"web": ("socket #1", "8-9,24-25", 0), "db": ("socket #0", "", 6500), "lake": ("root", "", 2000)}
    # 32 CPUs, of which 2 are reserved, 4 exclusive, and 8.5 granted as shares; 2 of these at the root.
    assert (root["capacity_millicpu"], root["free_millicpu"], root["shared_used_millicpu"]) == (32_000, 17_500, 8500)
    assert (first["reserved_cpus"], first["free_millicpu"], second["free_millicpu"]) == ("0,16", 7500, 12_000)
    assert (second["exclusive_cpus"], second["exclusive_count"]) == ("8-9,24-25", 4)
    (memory,) = second["memory"]
    assert (memory["type"], memory["numa"], memory["total_bytes"]) == ("DRAM", [1], 32 * GIB)
    # "lake" has memory of both NUMA nodes: the policy counts it at the root only, and the root has less left.
    assert (memory["free_bytes"], memory["left_bytes"] < memory["free_bytes"]) == (26 * GIB, False)
    assert root["memory"][0]["left_bytes"] == root["memory"][0]["free_bytes"] < 30 * GIB


def test_free_cpus_and_memory_of_a_node_are_those_that_the_policy_counts(client: TestClient) -> None:
    node = put(client, nri_report("node-a", PODS))

    summary = client.get("/v1/nodes", params={"min_free_cpus": 17}).json()["nodes"]
    none = client.get("/v1/nodes", params={"min_free_cpus": 18}).json()["nodes"]
    chart = client.get("/v1/map").json()

    assert node["free_cpus"] == 17
    assert [(numa["free_cpus"], numa["free_memory_bytes"] // GIB) for numa in node["numa"]] == [(7, 22), (12, 26)]
    assert [each["name"] for each in summary] == ["node-a"]
    assert none == []
    assert "containers" not in summary[0]["pools"][0]
    assert chart["shapes"][0]["resource_policy"] == "topology-aware"
    assert chart["nodes"]["free_cpus"] == [[7, 12]]
    assert chart["root_pools"]["node-a"][:2] == [17_500, 30_000]


def test_memory_types_and_caches_are_pools_and_parts_of_them(client: TestClient) -> None:
    node = put(client, nri_report("node-a", PODS, hardware=EIGHT, caches_per_numa=2, cxl_gib=128))

    kinds = {pool["kind"] for pool in node["pools"]}
    by_name = {pool["name"]: pool for pool in node["pools"]}
    every, dram, pmem = by_name["root"]["memory"]

    assert kinds == {"virtual node", "socket", "numa node", "L3 cache"}
    assert by_name["NUMA node #5/L3 cache #10"]["parent"] == "NUMA node #5"
    assert (every["type"], dram["type"], pmem["type"]) == ("", "DRAM", "PMEM")
    assert (pmem["numa"], pmem["total_bytes"]) == ([8], 128 * GIB)
    # Bookings of DRAM and PMEM together are missing in both types, and counted in all together.
    assert every["total_bytes"] - every["left_bytes"] == sum(
        grant["memory_bytes"] for pool in node["pools"] for grant in pool["containers"]
    )


def test_published_pools_say_what_they_leave_open(client: TestClient, service: Service) -> None:
    put(client, nri_report("source", PODS))
    publish(service, "node-a", "source")
    put(client, nri_report("node-b", PODS, grants=None))
    publish(service, "node-b", "source")

    for name in ("node-a", "node-b"):
        node = client.get(f"/v1/nodes/{name}").json()
        read_exactly(NodeDetail, orjson.dumps(node))
        root = node["pools"][0]
        assert (node["resource_policy"], node["certainty"]) == ("topology-aware", "degraded")
        assert (root["free_millicpu"], root["capacity_millicpu"], root["exclusive_count"]) == (17_500, 32_000, 4)
        assert root["memory"][0]["type"] == ""
        unknown = ("cpus", "exclusive_cpus", "shared_used_millicpu", "free_isolated", "containers")
        assert all(root[field] is None for field in unknown)
    assert client.get("/v1/map").json()["root_pools"].keys() == {"source", "node-a", "node-b"}


def test_a_node_whose_grants_are_unknown_has_no_pools_and_is_not_exact(client: TestClient) -> None:
    """Seen red: its certainty was that of the kubelet, exact."""
    node = put(client, nri_report("node-a", PODS, grants=None))

    (answer,) = client.post("/v1/what-if", json={"pod": placed_pod("new", "3", "1Gi")}).json()["nodes"]

    assert (node["resource_policy"], node["certainty"], node["pools"]) == ("topology-aware", "unknown", [])
    assert (answer["outcome"], answer["alignment"]) == ("unknown", None)
    assert "NRI policy" in answer["reason"]


def test_other_nodes_have_no_pools(client: TestClient) -> None:
    report = nri_report("node-a")
    node = put(client, {**report, "nri": None})

    assert (node["resource_policy"], node["pools"], node["certainty"]) == (None, [], "exact")
    assert client.get("/v1/map").json()["root_pools"] == {}


def test_isolated_cpus_that_are_free_are_counted(client: TestClient) -> None:
    """The mask of these CPUs was shown as their number: "50380 of 7 isolated free"."""
    report = nri_report("node-a", ())
    report["nri"]["machine"]["isolated"] = "9-11,25-27"

    root, first, second = put(client, report)["pools"]

    assert [(pool["isolated_cpus"], pool["free_isolated"]) for pool in (root, first, second)] == [
        ("9-11,25-27", 6), ("", 0), ("9-11,25-27", 6),
    ]  # fmt: skip
