"""Whatever stands in place of a part of a question, it is answered, or a problem names the place."""

import copy
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.samples.machines import GPU
from extender.samples.nodes import Workload
from tests.reports import pod_of, report_of, sample

NODE = sample(
    "node-a", devices={GPU: [0, 1]}, workloads=[Workload(name="w", resources={"cpu": 3, "memory": "2Gi", GPU: 1})]
)
POD = pod_of(2, devices={GPU: 1})
POD["spec"] |= {
    "nodeSelector": {"a": "b"},
    "tolerations": [{"key": "k", "operator": "Exists"}],
    "overhead": {"cpu": "1"},
    "resources": {"requests": {"cpu": "4"}},
    "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]}}},
}
DEPLOYMENT = {"kind": "Deployment", "spec": {"replicas": 2, "template": {"spec": POD["spec"]}}}
HYPOTHETICAL = [
    {
        "copy_of": "node-a",
        "kubelet": {"topologyManagerPolicy": "restricted", "reservedSystemCPUs": "0,16", "featureGates": {"A": True}},
        "kubelet_version": "v1.30.0",
        "empty": True,
        "remove_pods": [],
        "add_pods": [pod_of(1)],
        "labels": {"a": "b"},
        "taints": [{"key": "k", "value": "v", "effect": "NoSchedule"}],
    },
    {"machine": "dual-64", "devices": {GPU: [{"id": "g", "numa": [0], "healthy": True}]}},
    {"report": report_of(sample("node-b"))},
]
QUESTIONS: dict[str, dict[str, Any]] = {
    "/v1/what-if": {"pod": POD, "nodes": ["node-a"], "hypothetical": HYPOTHETICAL, "explain": False},
    "/v1/capacity": {"pods": [POD, DEPLOYMENT], "hypothetical": HYPOTHETICAL[:2], "max_copies": 3},
    "/v1/advice/resize-check": {"pod": "demo/w-0", "container": "app", "cpu": "4", "memory": "2Gi"},
    "/v1/advice/restart-check": {
        "nodes": ["node-a"],
        "kubelet_version": "v1.35.0",
        "kubelet": {"topologyManagerPolicy": "restricted"},
        "rules": {"distribute_inside_hint": True},
        "reboot": True,
    },
    "/v1/advice/make-room": {"pod": pod_of(14), "nodes": ["node-a"], "priority": 3, "max_evictions": 2},
    "/v1/advice/defragment": {"pod": pod_of(14), "nodes": ["node-a"], "priority": 3, "max_moves": 2},
    "/v1/advice/tune": {"pods": [{"pod": pod_of(3), "copies": 2}], "nodes": ["node-a"], "seed": 3, "configurations": 2},
    "/v1/advice/rightsize": {"nodes": ["node-a"], "limit": 2},
    "/v1/plan": {"pods": [{"pod": DEPLOYMENT, "copies": 2}, {"pod": POD}], "nodes": ["node-a"]},
}
JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**63), 2**64 - 1),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(max_size=20),
    st.sampled_from(["-1", "1e99", "0", "9" * 50, "NaN", "\x00", "../..", "v1.36.2", "single-numa-node"]),
    st.just([]),
    st.just({}),
    st.just([[]]),
    st.just({"": None}),
)


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    with TestClient(make_app(make_service(Settings(question_workers=0))), client=("127.0.0.1", 50_000)) as client:
        client.put("/v1/nodes/node-a/report", json=report_of(NODE)).raise_for_status()
        yield client


def _places(document: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:  # noqa: ANN401 - JSON
    if path:
        yield path
    entries = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    for key, value in entries:
        if key != "cpus" or not isinstance(value, list):  # of a machine: one is like the other
            yield from _places(value, (*path, key))


def _put(document: Any, path: tuple[str | int, ...], value: object) -> Any:  # noqa: ANN401 - JSON
    changed = copy.deepcopy(document)
    here = changed
    for key in path[:-1]:
        here = here[key]
    here[path[-1]] = value
    return changed


@pytest.mark.parametrize("route", QUESTIONS)
@settings(max_examples=150, deadline=None, derandomize=True)
@given(data=st.data())
def test_junk_anywhere_is_answered_or_named(client: TestClient, route: str, data: st.DataObject) -> None:
    question = QUESTIONS[route]
    place = data.draw(st.sampled_from(list(_places(question))))
    body = orjson.dumps(_put(question, place, data.draw(JUNK)), option=orjson.OPT_NON_STR_KEYS)

    reply = client.post(route, content=body, headers={"Content-Type": "application/json"})

    assert reply.status_code in {200, 404, 422}, reply.text
    if reply.status_code == 422:
        field = reply.json()["field"] or ""
        named = field.replace("[", ".").replace("]", "").split(".")[0]
        assert named == str(place[0]), (place, field)


def test_the_questions_themselves_are_answered(client: TestClient) -> None:
    for route, question in QUESTIONS.items():
        reply = client.post(route, json=question)
        assert reply.status_code == 200, reply.text


def test_a_pod_of_thousands_of_containers_is_answered_or_refused(client: TestClient) -> None:
    many = {"spec": {"containers": [{**POD["spec"]["containers"][0], "name": f"c{i}"} for i in range(1001)]}}

    reply = client.post("/v1/what-if", json={"pod": many})

    assert (reply.status_code, reply.json()["field"]) == (422, "pod.spec.containers")


@pytest.mark.parametrize(("resource", "wanted"), [("cpu", 2**63 - 1), ("memory", None), (GPU, 2**63 - 1)])
def test_amounts_beyond_any_machine_are_answered(client: TestClient, resource: str, wanted: int | None) -> None:
    """Their sum has more than 64 bits, and nothing counts up to them. The memory manager names no amount."""
    amounts = {"cpu": "2", "memory": "1Gi", resource: "1e30"}
    containers = [{"name": f"c{i}", "image": "i", "resources": {"limits": amounts}} for i in range(3)]
    copy_of = {"copy_of": "node-a", "kubelet": {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}}
    question = {"pod": {"spec": {"containers": containers}}, "hypothetical": [copy_of], "explain": True}

    reply = client.post("/v1/what-if", json=question)

    assert reply.status_code == 200, reply.text
    (node,) = reply.json()["nodes"]
    refused_by = node["verdict"]["refused_by"]
    assert (refused_by["resource"], refused_by["wanted"]) == (resource, wanted)
