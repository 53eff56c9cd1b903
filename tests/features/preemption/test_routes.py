"""POST /scheduler/preempt: what comes in, what goes out, and what is told where it cannot be answered."""

from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.preemption.running import WatchedPods, decode_budget
from extender.kube.changes import Batch, Seen
from extender.kube.nodes import WatchedSurroundings
from extender.kube.pods import PodRecord
from extender.samples.nodes import Workload
from tests.reports import pod_of, report_of, sample
from tests.world.clock import Clock
from tests.world.watched import pod_record

NODE = sample(workloads=[Workload(name="w", copies=4, resources={"cpu": 7, "memory": "1Gi"})])
UIDS = [pod["metadata"]["uid"] for pod in NODE.pods]
"""The first two on NUMA node 0, the others on NUMA node 1."""
PATH = "/scheduler/preempt"
EMPTY = {"Pods": [], "NumPDBViolations": 0}


def _meta(*uids: str, violations: int = 0) -> dict[str, Any]:
    return {"Pods": [{"UID": uid} for uid in uids], "NumPDBViolations": violations}


def _args(victims: object, form: str = "NodeNameToMetaVictims", **spec: Any) -> dict[str, Any]:
    pod = pod_of(cpu=12)
    pod["spec"] |= {"priority": 100, **spec}
    return {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": None, form: victims}


def _record(number: int, **spec: object) -> PodRecord:
    labels = {"app": f"app-{number // 2}"}
    pod = {**NODE.pods[number], "metadata": {**NODE.pods[number]["metadata"], "labels": labels}}
    return pod_record(pod, NODE.name, **spec)


def _watched(*records: PodRecord) -> WatchedPods:
    budget = decode_budget(
        {
            "metadata": {"name": "b", "namespace": "demo"},
            "spec": {"selector": {"matchLabels": {"app": "app-1"}}},
            "status": {"disruptionsAllowed": 0},
        }
    )
    assert budget is not None
    pods = WatchedSurroundings()
    pods.apply_pods(Batch(tuple(map(Seen, records))))
    watched = WatchedPods(lambda node_name: pods(node_name).pods)
    watched.apply_budgets(Batch((Seen(budget[1]),)))
    return watched


def _client(service: Service) -> TestClient:
    """A caller on loopback."""
    return TestClient(make_app(service), base_url="http://127.0.0.1", client=("127.0.0.1", 50000))


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    watched = _watched(*map(_record, range(4)))
    service.known.running.on_node, service.known.running.budgets = watched.on_node, watched.budgets
    with _client(service) as client:
        assert client.put(f"/v1/nodes/{NODE.name}/report", json=report_of(NODE)).status_code == 200
        yield client


def _ask(client: TestClient, args: dict[str, Any]) -> dict[str, Any]:
    reply = client.post(PATH, json=args)
    assert reply.status_code == 200, reply.text
    assert reply.json().keys() == {"NodeNameToMetaVictims"}
    nodes: dict[str, Any] = reply.json()["NodeNameToMetaVictims"]
    return nodes


def test_victims_are_added_where_no_budget_is_broken(client: TestClient) -> None:
    """Two pods of either NUMA node would do; those of the second one are under a budget."""
    for nothing in (EMPTY, {"Pods": None, "NumPDBViolations": 0}):
        nodes = _ask(client, _args({NODE.name: nothing}))

        assert nodes.keys() == {NODE.name}
        assert sorted(each["UID"] for each in nodes[NODE.name]["Pods"]) == sorted(UIDS[:2])
        assert nodes[NODE.name]["NumPDBViolations"] == 0


def test_both_forms_are_answered_alike(client: TestClient) -> None:
    full = {"Pods": [dict(NODE.pods[0])], "NumPDBViolations": 0}

    by_object = _ask(client, _args({NODE.name: full}, "NodeNameToVictims"))

    assert by_object == _ask(client, _args({NODE.name: _meta(UIDS[0])}))
    assert {each["UID"] for each in by_object[NODE.name]["Pods"]} == {*UIDS[:2]}


def test_nodes_and_victims_that_are_not_there(client: TestClient) -> None:
    nodes = _ask(client, _args({"unheard-of": EMPTY, NODE.name: _meta(UIDS[0], "no-such-pod")}))

    assert nodes == {"unheard-of": EMPTY}
    assert _ask(client, _args({"unheard-of": _meta("no-such-pod")})) == {}


def test_a_pod_that_may_not_preempt_gets_no_victims(client: TestClient) -> None:
    assert _ask(client, _args({NODE.name: _meta(*UIDS)}, preemptionPolicy="Never")) == {}
    assert _ask(client, _args({NODE.name: _meta(*UIDS)}, priority=0)) == {}


def test_no_node_is_asked_about(client: TestClient) -> None:
    assert _ask(client, _args({})) == {}


def test_a_pod_that_nothing_aligns_takes_any_node(client: TestClient) -> None:
    args = _args({NODE.name: _meta(UIDS[0], violations=2)})
    del args["Pod"]["spec"]["containers"][0]["resources"]["limits"]
    args["Pod"]["status"]["qosClass"] = "Burstable"

    assert _ask(client, args) == {NODE.name: _meta(UIDS[0], violations=2)}


def test_what_became_of_candidates_is_counted(client: TestClient) -> None:
    _ask(client, _args({NODE.name: EMPTY, "a": EMPTY, "b": _meta("x")}))

    text = client.get("/metrics").text
    for result in ("extended", "kept", "unknown_victim"):
        assert f'numa_extender_preemption_candidates_total{{result="{result}"}} 1.0' in text
    assert 'numa_extender_verb_seconds_count{outcome="answered",verb="preempt"} 1.0' in text


def test_asking_changes_nothing(client: TestClient, service: Service) -> None:
    before = service.known.nodes.get(NODE.name)

    first = _ask(client, _args({NODE.name: EMPTY}))

    assert service.known.nodes.get(NODE.name) is before
    assert _ask(client, _args({NODE.name: EMPTY})) == first


Change = Callable[[dict[str, Any]], object]
FAULTS: dict[str, tuple[Change, str]] = {
    "no pod": (lambda d: d.pop("Pod"), "Pod"),
    "pod of the wrong type": (lambda d: d.update(Pod=[]), "Pod"),
    "neither form": (lambda d: d.update(NodeNameToMetaVictims=None), "NodeNameToMetaVictims"),
    "victims as a list": (lambda d: d.update(NodeNameToMetaVictims=[]), "NodeNameToMetaVictims"),
    "no victims object": (lambda d: d.update(NodeNameToMetaVictims={"n": None}), "NodeNameToMetaVictims.n"),
    "pods of the wrong type": (
        lambda d: d.update(NodeNameToMetaVictims={"n": {"Pods": {}}}),
        "NodeNameToMetaVictims.n.Pods",
    ),
    "victim without UID": (
        lambda d: d.update(NodeNameToMetaVictims={"n": {"Pods": [{}]}}),
        "NodeNameToMetaVictims.n.Pods[0].UID",
    ),
    "victim null": (
        lambda d: d.update(NodeNameToMetaVictims={"n": {"Pods": [None]}}),
        "NodeNameToMetaVictims.n.Pods[0]",
    ),
    "UID as a number": (
        lambda d: d.update(NodeNameToMetaVictims={"n": {"Pods": [{"UID": 7}]}}),
        "NodeNameToMetaVictims.n.Pods[0].UID",
    ),
    "negative count": (
        lambda d: d.update(NodeNameToMetaVictims={"n": {"Pods": [], "NumPDBViolations": -1}}),
        "NodeNameToMetaVictims.n.NumPDBViolations",
    ),
    "count as text": (
        lambda d: d.update(NodeNameToMetaVictims={"n": {"Pods": [], "NumPDBViolations": "1"}}),
        "NodeNameToMetaVictims.n.NumPDBViolations",
    ),
    "priority as text": (lambda d: d["Pod"]["spec"].update(priority="high"), "Pod.spec.priority"),
    "victim without metadata": (
        lambda d: d.update(NodeNameToVictims={"n": {"Pods": [{"spec": {}}]}}),
        "NodeNameToVictims.n.Pods[0].metadata",
    ),
    "victim with a priority that is none": (
        lambda d: d.update(NodeNameToVictims={"n": {"Pods": [{"metadata": {"uid": "u"}, "spec": {"priority": True}}]}}),
        "NodeNameToVictims.n.Pods[0].spec.priority",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_faulty_request_is_told_its_fault(client: TestClient, fault: str) -> None:
    """The reply has no place for an error, and an empty one would be an answer."""
    change, field = FAULTS[fault]
    args = _args({NODE.name: EMPTY})
    change(args)

    reply = client.post(PATH, json=args)

    assert reply.status_code == 422, reply.text
    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["field"] == field


@pytest.mark.parametrize(("body", "status"), [(b"", 400), (b"{", 400), (b"[]", 422), (b"null", 422)])
def test_a_body_that_is_no_request(client: TestClient, body: bytes, status: int) -> None:
    assert client.post(PATH, content=body).status_code == status


def test_a_body_over_the_limit(client: TestClient) -> None:
    body = orjson.dumps({**_args({NODE.name: EMPTY}), "filler": "x" * (1 << 20)})

    assert client.post(PATH, content=body).status_code == 413


def test_there_is_an_end_to_searching(clock: Clock) -> None:
    """A request that has no time at all drops every node that it could not look at."""
    settings = Settings(question_workers=0).model_copy(update={"preempt_seconds": -1.0})
    with _client(make_service(settings, clock)) as client:
        assert client.put(f"/v1/nodes/{NODE.name}/report", json=report_of(NODE)).status_code == 200

        assert _ask(client, _args({NODE.name: _meta(UIDS[0])})) == {}
