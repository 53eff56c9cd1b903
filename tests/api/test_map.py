"""GET /v1/map: the same facts as the list of nodes, page by page, in few bytes."""

from collections.abc import Collection, Iterator, Mapping

import msgspec
import pytest
from starlette.testclient import TestClient

from extender.api.nodes.map import ClusterMap
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.questions.node_context import NOTHING_KNOWN, NodeContext
from extender.samples.nodes import sample_cluster
from tests.replies import read_exactly
from tests.reports import report_of, sample
from tests.world.exporters import report_all

LABELS = {
    "gpu-a": {"node.kubernetes.io/instance-type": "g5", "karpenter.sh/nodepool": "gpu"},
    "xeon-a": {"cloud.google.com/gke-nodepool": "batch"},
}


class _Labels:
    """As a watch of the API server's nodes would know them."""

    def __call__(self, name: str) -> NodeContext:
        return NodeContext(labels=LABELS[name]) if name in LABELS else NOTHING_KNOWN

    def finished(self, _name: str, _uids: Collection[str]) -> Mapping[str, int]:
        return {}


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """The sample cluster and one node that reports next to nothing; some nodes have labels."""

    service = make_service(Settings(stale_after_seconds=86_400.0))
    service.surroundings.use(_Labels())
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        report_all(client, *map(report_of, sample_cluster()))
        bare = {**report_of(sample("bare")), "kubelet_version": None}
        client.put("/v1/nodes/bare/report", json=bare).raise_for_status()
        for name, devices in (("lost", {"vendor.example/gpu": [0, 1]}), ("stateless", {}), ("twin", {})):
            report = report_of(sample(name, devices=devices))
            client.put(f"/v1/nodes/{name}/report", json=report if name == "twin" else {**report, "state": {}})
        yield client


def test_what_a_manager_holds_whose_state_file_is_missing_is_not_shown_as_free(client: TestClient) -> None:
    """Seen red: all CPUs and the whole memory of such a node counted as free."""
    lost = client.get("/v1/nodes/lost").json()
    (entry,) = client.get("/v1/nodes?name=lost").json()["nodes"]

    for found in (lost, entry):
        assert found["hidden"] == ["cpu", "device", "memory"]
        assert found["free_cpus"] == 0
        assert found["devices"] == {}
        assert [(each["free_cpus"], each["free_memory_bytes"]) for each in found["numa"]] == [(0, None)] * 2
        assert all(each["memory_bytes"] for each in found["numa"])
    assert [each["free_cpus"] for each in lost["topology"]] == ["", ""]
    assert "lost" not in {each["name"] for each in client.get("/v1/nodes?min_free_cpus=1").json()["nodes"]}


def test_the_map_has_the_facts_of_the_list(client: TestClient) -> None:
    summaries = {each["name"]: each for each in client.get("/v1/nodes").json()["nodes"]}

    found = read_exactly(ClusterMap, client.get("/v1/map").content)

    columns = found.nodes
    assert columns.name == sorted(summaries)
    for i, name in enumerate(columns.name):
        expected, shape = summaries[name], found.shapes[columns.shape[i]]
        assert columns.certainty[i] == expected["certainty"]
        assert columns.problems[i] == expected["problems"]
        assert shape.kubelet_version == expected["kubelet_version"]
        assert shape.hidden == expected["hidden"]
        assert (shape.topology_policy, shape.topology_scope) == (
            expected["topology_policy"],
            expected["topology_scope"],
        )
        assert [each.cpus for each in shape.numa] == [each["cpus"] for each in expected["numa"]]
        assert columns.free_cpus[i] == [each["free_cpus"] for each in expected["numa"]]
        memory = [each["free_memory_bytes"] for each in expected["numa"]]
        assert columns.free_memory_mib[i] == ([each >> 20 for each in memory if each is not None] or None)
        free_devices = columns.free_devices[i]
        counts = {key: {"total": n, "free": free_devices[k]} for k, (key, n) in enumerate(shape.devices.items())}
        assert counts == expected["devices"]


def test_nodes_are_grouped_by_their_labels(client: TestClient) -> None:
    found = read_exactly(ClusterMap, client.get("/v1/map").content)

    shapes = {name: found.shapes[found.nodes.shape[i]] for i, name in enumerate(found.nodes.name)}

    assert (shapes["gpu-a"].pool, shapes["gpu-a"].instance_type) == ("gpu", "g5")
    assert (shapes["xeon-a"].pool, shapes["xeon-a"].instance_type) == ("batch", None)
    assert (shapes["xeon-b"].pool, shapes["xeon-b"].instance_type) == (None, None)


def test_pages_follow_each_other(client: TestClient) -> None:
    names: list[str] = []
    after = ""
    while True:
        page = read_exactly(ClusterMap, client.get("/v1/map", params={"limit": 5, "after": after}).content)
        assert len(page.nodes.name) <= 5
        assert all(len(column) == len(page.nodes.name) for column in msgspec.structs.asdict(page.nodes).values())
        names += page.nodes.name
        if page.next is None:
            break
        after = page.next

    assert names == client.get("/v1/map").json()["nodes"]["name"]
    assert page.total == len(names) == 15


def test_a_new_report_has_a_new_number(client: TestClient) -> None:
    def number() -> int:
        columns = client.get("/v1/map").json()["nodes"]
        found: int = columns["report"][columns["name"].index("xeon-a")]
        return found

    before = number()
    node = next(each for each in sample_cluster() if each.name == "xeon-a")
    client.put("/v1/nodes/xeon-a/report", json=report_of(node, sequence=2)).raise_for_status()

    assert number() != before


@pytest.mark.parametrize("limit", [0, 5001])
def test_a_page_is_bounded(client: TestClient, limit: int) -> None:
    reply = client.get("/v1/map", params={"limit": limit})

    assert reply.status_code == 422
    assert "limit" in reply.json()["detail"]


def test_a_selector_of_labels_chooses_nodes(client: TestClient) -> None:
    key, value = next((key, value) for labels in LABELS.values() for key, value in labels.items() if value)
    chosen = sorted(name for name, labels in LABELS.items() if labels.get(key) == value)
    query = {"label_selector": f"{key} in ({value})"}

    assert client.get("/v1/map", params=query).json()["nodes"]["name"] == chosen
    assert [each["name"] for each in client.get("/v1/nodes", params=query).json()["nodes"]] == chosen
    absent = client.get("/v1/map", params={"label_selector": "!no-such-label"}).json()["nodes"]["name"]
    assert absent == sorted(LABELS), "labels that are not known meet nothing"
    for path in ("/v1/map", "/v1/nodes"):
        refused = client.get(path, params={"label_selector": "a in b"})
        assert (refused.status_code, refused.json()["field"]) == (422, "query.label_selector")
