"""Advice about nodes with the NRI policy: the policy is replayed, or the answer says that it is not."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.kube.changes import Batch, Seen
from extender.kube.nodes import WatchedSurroundings
from tests.nri_samples import EIGHT, nri_report, placed_pod
from tests.world.clock import Clock
from tests.world.exporters import report_all
from tests.world.watched import pod_record

OWNER = [{"kind": "ReplicaSet", "name": "r", "uid": "o", "controller": True, "apiVersion": "apps/v1"}]
SMALL = [placed_pod("web-0", "4", "6Gi", ownerReferences=OWNER), placed_pod("db", "6500m", "10Gi")]
LARGE = [placed_pod(f"big-{i}", "4", "8Gi", ownerReferences=OWNER) for i in range(8)]
HIDDEN = [placed_pod("other", "4", "6Gi")]


@pytest.fixture
def service() -> Service:
    return make_service(Settings(question_workers=0, max_body_bytes=8 << 20), Clock())


@pytest.fixture(params=[True, False], ids=["watched", "not watched"])
def client(service: Service, request: pytest.FixtureRequest) -> Iterator[TestClient]:
    if request.param:
        service.surroundings.use(watched())
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        report_all(
            client,
            nri_report("node-a", SMALL),
            nri_report("node-b", LARGE, hardware=EIGHT),
            nri_report("node-d", HIDDEN, grants=None),
        )
        yield client


def watched() -> WatchedSurroundings:
    seen = []
    for node, pods in (("node-a", SMALL), ("node-b", LARGE), ("node-d", HIDDEN)):
        for pod in pods:
            status = {"phase": "Running", "qosClass": "Guaranteed"}
            seen.append(Seen(pod_record({**pod, "status": status}, node)))
    known = WatchedSurroundings()
    known.apply_pods(Batch(tuple(seen), complete=True))
    return known


def ask(client: TestClient, name: str, question: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(f"/v1/advice/{name}", json=question)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def test_a_resize_is_replayed_by_the_policy(client: TestClient) -> None:
    """Seen red: the kubelet alone answered, and the container had no CPUs for itself."""
    fits = ask(client, "resize-check", {"pod": "team/web-0", "cpu": "6"})
    refused = ask(client, "resize-check", {"pod": "team/web-0", "cpu": "17"})

    assert (fits["result"], fits["exclusive_cpus"]) == ("fits", "8-9,24-25")
    assert "the NRI policy would give the container these CPUs for itself: 8-10,24-26" in fits["notes"]
    assert refused["result"] == "deferred"
    assert refused["reason"].startswith("the NRI policy refuses it: socket #1: can't slice 17 exclusive CPUs")
    assert "the container would keep its CPUs, and the NRI policy would count them as free" in refused["notes"]


def test_a_resize_on_a_node_whose_grants_are_not_known_is_only_the_kubelets(client: TestClient) -> None:
    reply = client.post("/v1/advice/resize-check", json={"pod": "team/other", "cpu": "6"})
    if reply.status_code == 422:  # pods are not watched, and nothing shows what this one requests
        assert "whose requests are known" in reply.json()["detail"]
        return

    assert any("the grants of the node's NRI policy are not known" in note for note in reply.json()["notes"])


def test_room_is_made_where_the_policy_then_places_the_pod(client: TestClient) -> None:
    pod = placed_pod("new", "14", "2Gi")
    pod["spec"]["priority"] = 100

    answer = ask(client, "make-room", {"pod": {"apiVersion": "v1", "kind": "Pod", **pod}})

    assert answer["result"] == "room"
    plan = answer["plans"][0]
    (evicted,) = plan["evictions"]
    assert (plan["node"], evicted["node"]) == ("node-b", "node-b")
    assert len(plan["numa"]) == 1
    assert any("it is not known what their NRI policy has granted" in note for note in answer["notes"])


def test_defragment_counts_the_cpus_that_the_policy_can_give(client: TestClient) -> None:
    """Seen red: 0 CPUs, as the kubelet gives none."""
    pod = {"apiVersion": "v1", "kind": "Pod", **placed_pod("new", "14", "2Gi")}

    curve = ask(client, "defragment", {"pod": pod})["curve"]

    assert [point["largest_cpus"] for point in curve][:2] == [12, 16]


@pytest.mark.parametrize("name", ["tune", "rightsize"])
def test_questions_about_the_kubelets_managers_leave_such_nodes_out(client: TestClient, name: str) -> None:
    """Seen red: tune proposed a Memory Manager for nodes whose memory the policy pins."""
    answer = ask(client, name, {})

    assert any(note.startswith("3 of 3 nodes: left out, because their NRI") for note in answer["notes"])
    assert answer.get("suggestions", []) == []
    assert all(each["current"] for each in answer.get("configurations", []))


def test_a_restart_says_what_is_not_replayed(client: TestClient) -> None:
    answer = ask(client, "restart-check", {"nodes": ["node-a", "node-d"], "reboot": True})

    assert any("only the kubelet is replayed" in note and "the policy places" in note for note in answer["notes"])
    assert {node["node"]: node["action"] for node in answer["nodes"]} == {"node-a": "restart", "node-d": "unknown"}
