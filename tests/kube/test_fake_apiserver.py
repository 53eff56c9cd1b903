"""The fake is held to what the real server does, through a client that is not ours (httpx)."""

from collections.abc import Iterator

import httpx
import orjson
import pytest

from tests.fakes.apiserver import FakeApiServer
from tests.fakes.k8s.access import Call
from tests.kube.watching import pod
from tests.waiting import PATIENCE_SECONDS

PODS = "/api/v1/namespaces/default/pods"
NRT = "/apis/topology.node.k8s.io/v1alpha2/noderesourcetopologies/node-a"
APPLY = {"content-type": "application/apply-patch+yaml"}
MERGE = {"content-type": "application/merge-patch+json"}


@pytest.fixture
def http(server: FakeApiServer) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=server.url, timeout=PATIENCE_SECONDS) as client:
        yield client


def binding(node: str, uid: str = "") -> dict[str, object]:
    return {"metadata": {"name": "a", "uid": uid}, "target": {"kind": "Node", "name": node}}


def test_objects_come_and_go(http: httpx.Client) -> None:
    made = http.post(PODS, json=pod("a"))
    assert made.status_code == 201
    assert http.post(PODS, json=pod("a")).json()["reason"] == "AlreadyExists"
    assert http.get(f"{PODS}/a").json() == made.json()
    assert http.get(f"{PODS}/b").json()["message"] == 'pods "b" not found'
    assert http.get("/api/v1/nonsense").status_code == 404
    assert http.delete(f"{PODS}/a").status_code == 200
    assert http.get(f"{PODS}/a").status_code == 404


@pytest.mark.parametrize(("body", "status"), [(b"{", 400), (b"[]", 400), (b'{"metadata":{}}', 422)])
def test_bad_bodies(http: httpx.Client, body: bytes, status: int) -> None:
    assert http.post(PODS, content=body).status_code == status


def test_binding(http: httpx.Client) -> None:
    uid = http.post(PODS, json=pod("a")).json()["metadata"]["uid"]

    wrong = http.post(f"{PODS}/a/binding", json=binding("n1", "other"))
    assert (wrong.status_code, wrong.json()["reason"]) == (409, "Conflict")
    assert "UID in precondition: other" in wrong.json()["message"]
    assert http.post(f"{PODS}/a/binding", json=binding("n1", uid)).status_code == 201
    again = http.post(f"{PODS}/a/binding", json=binding("n1", uid))
    assert again.status_code == 409
    assert 'pod a is already assigned to node "n1"' in again.json()["message"]
    assert http.post(f"{PODS}/b/binding", json=binding("n1")).status_code == 404


def test_a_bound_pod_is_deleted_in_two_steps(http: httpx.Client) -> None:
    http.post(PODS, json=pod("a", "n1"))

    assert "deletionTimestamp" in http.delete(f"{PODS}/a").json()["metadata"]
    assert http.get(f"{PODS}/a").status_code == 200
    http.delete(f"{PODS}/a", params={"gracePeriodSeconds": "0"})
    assert http.get(f"{PODS}/a").status_code == 404


def test_status_is_its_own_door(http: httpx.Client) -> None:
    http.post(PODS, json=pod("a", "n1"))

    patch = {"status": {"phase": "Failed"}, "spec": {"nodeName": "n2"}}
    changed = http.patch(f"{PODS}/a/status", json=patch, headers=MERGE).json()
    assert (changed["status"]["phase"], changed["spec"]["nodeName"]) == ("Failed", "n1")
    assert http.patch(f"{PODS}/a", json=patch).status_code == 415


def test_leases_lock_optimistically(http: httpx.Client) -> None:
    path = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
    lease = http.post(path, json={"metadata": {"name": "l"}, "spec": {"holderIdentity": "a"}}).json()
    lease["spec"]["holderIdentity"] = "b"
    newer = http.put(f"{path}/l", json=lease)

    assert newer.status_code == 200
    assert newer.json()["metadata"]["resourceVersion"] != lease["metadata"]["resourceVersion"]
    assert http.put(f"{path}/l", json=lease).json()["reason"] == "Conflict"


def test_an_update_that_changes_nothing_is_no_event(http: httpx.Client) -> None:
    node = http.post("/api/v1/nodes", json={"metadata": {"name": "n"}}).json()

    same = http.patch("/api/v1/nodes/n", json={"metadata": {"name": "n"}}, headers=MERGE).json()
    assert same == node


def test_server_side_apply(http: httpx.Client) -> None:
    def apply(manager: str, value: dict[str, object], **params: str) -> httpx.Response:
        body = orjson.dumps({"metadata": {"name": "node-a"}, **value})
        return http.patch(NRT, params={"fieldManager": manager, **params}, content=body, headers=APPLY)

    assert apply("us", {"zones": [{"name": "node-0"}], "attributes": [1]}).status_code == 200
    assert apply("us", {"zones": [{"name": "node-1"}]}).json()["zones"] == [{"name": "node-1"}]
    assert "attributes" not in http.get(NRT).json()
    refused = apply("them", {"zones": []})
    assert refused.status_code == 409
    assert 'conflict with "us": .zones' in refused.json()["message"]
    assert apply("them", {"zones": []}, force="true").json()["zones"] == []
    assert http.patch(NRT, content=b"{}", headers=APPLY).status_code == 422


def test_lists_select_and_page(http: httpx.Client, server: FakeApiServer) -> None:
    for i in range(5):
        server.pods.create(pod(f"p{i}", "n1" if i % 2 else ""))

    def names(**params: str) -> list[str]:
        return [item["metadata"]["name"] for item in http.get("/api/v1/pods", params=params).json()["items"]]

    assert names(fieldSelector="spec.nodeName!=") == ["p1", "p3"]
    assert names(fieldSelector="spec.nodeName=,metadata.name!=p0") == ["p2", "p4"]
    assert names(labelSelector="app in (demo, x),!tier") == ["p0", "p1", "p2", "p3", "p4"]
    assert names(labelSelector="app!=demo") == []
    assert http.get("/api/v1/pods", params={"fieldSelector": "spec.color=red"}).status_code == 400
    page = http.get("/api/v1/pods", params={"limit": "2"}).json()
    assert page["metadata"]["remainingItemCount"] == 3
    server.pods.delete("p2")
    rest = http.get("/api/v1/pods", params={"limit": "10", "continue": page["metadata"]["continue"]}).json()
    assert [item["metadata"]["name"] for item in rest["items"]] == ["p2", "p3", "p4"]
    server.compact()
    expired = http.get("/api/v1/pods", params={"limit": "2", "continue": page["metadata"]["continue"]})
    assert (expired.status_code, expired.json()["reason"]) == (410, "Expired")


def watched(http: httpx.Client, **params: str) -> list[tuple[str, str]]:
    query = {"watch": "true", "timeoutSeconds": "1", **params}
    with http.stream("GET", "/api/v1/pods", params=query) as stream:
        events = [orjson.loads(line) for line in stream.iter_lines()]
    return [(event["type"], event["object"]["metadata"].get("name", "")) for event in events]


def test_a_watch_sees_what_enters_and_leaves_its_selector(http: httpx.Client, server: FakeApiServer) -> None:
    server.pods.create(pod("a"))
    start = str(server.store.revision)
    server.pods.create(pod("b"))
    server.pods.bind("a", "n1")
    server.pods.patch("a", {"status": {"phase": "Running"}})
    server.pods.delete("a")

    bound = watched(http, resourceVersion=start, fieldSelector="spec.nodeName!=")
    assert bound == [("ADDED", "a"), ("MODIFIED", "a"), ("DELETED", "a")]
    assert watched(http, resourceVersion=start, fieldSelector="spec.nodeName=n2") == []
    assert watched(http, resourceVersion=start, fieldSelector="status.phase=Running")[0] == ("ADDED", "a")


def test_watches_from_too_early_or_too_late(http: httpx.Client, server: FakeApiServer) -> None:
    server.pods.create(pod("a"))
    server.compact()
    early = http.get("/api/v1/pods", params={"watch": "true", "resourceVersion": "1"})
    late = http.get("/api/v1/pods", params={"watch": "true", "resourceVersion": "999"})

    assert (early.status_code, early.json()["reason"]) == (410, "Expired")
    assert late.status_code == 504
    assert late.json()["details"]["causes"][0]["reason"] == "ResourceVersionTooLarge"


def test_bookmarks(http: httpx.Client, server: FakeApiServer) -> None:
    server.bookmark_seconds = 0.3
    events = watched(http, resourceVersion="1", allowWatchBookmarks="true")

    assert 2 <= events.count(("BOOKMARK", "")) <= 4


def test_access_is_checked_and_written_down(server: FakeApiServer) -> None:
    server.access.tokens = {"t": "extender"}
    server.access.grants = {"extender": {("list", "nodes"), ("create", "pods/binding")}}
    server.pods.create(pod("a"))
    with httpx.Client(base_url=server.url, headers={"authorization": "Bearer t"}, timeout=PATIENCE_SECONDS) as http:
        assert http.get("/api/v1/nodes").status_code == 200
        assert http.get("/api/v1/nodes/x").status_code == 403
        assert http.post(f"{PODS}/a/binding", json=binding("n1")).status_code == 201
    assert httpx.get(f"{server.url}/api/v1/nodes", timeout=PATIENCE_SECONDS).status_code == 401

    assert server.access.used("extender") == {("list", "nodes"), ("get", "nodes"), ("create", "pods/binding")}
    assert server.access.calls[Call("extender", "create", "pods/binding", "default")] == 1
