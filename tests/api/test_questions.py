"""What-if, capacity, plan and decisions over HTTP."""

import asyncio
from collections.abc import Iterator
from typing import Any

import httpx
import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.questions.machines import MachineIndex
from extender.api.records.models import DecisionIndex, PodDecision
from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.samples.machines import GPU
from extender.samples.nodes import Workload
from extender.scheduling.records.decisions import NAME_BYTES, Call, DecisionLog
from extender.wire.pod_replies import CapacityReply, NodeCapacity, PlanEnd, PlannedPod, WhatIfReply
from extender.wire.pods import pod_from_json
from extender.wire.replies import ReplyBody
from tests.replies import read_exactly
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock
from tests.world.exporters import report_all

LOOPBACK = ("127.0.0.1", 50_000)
BUSY = sample(
    "node-a",
    workloads=[Workload(name="w", copies=2, resources={"cpu": 8, "memory": "2Gi"})],
    devices={GPU: [0, 1]},
)
EMPTY = sample("node-b", devices={GPU: [0, 1]})
YAML = """
apiVersion: apps/v1
kind: Deployment
metadata: {name: solver, namespace: hpc}
spec:
  replicas: 3
  template:
    spec:
      containers:
        - name: app
          resources: {limits: {cpu: 12, memory: 2Gi}}
"""


@pytest.fixture
def service(clock: Clock) -> Service:
    return make_service(Settings(question_workers=0), clock)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(make_app(service), client=LOOPBACK) as client:
        report_all(client, report_of(BUSY), report_of(EMPTY))
        yield client


def _checked(model: type[ReplyBody], reply: Any) -> Any:  # noqa: ANN401 - JSON
    """The reply, which has exactly the fields and types of *model*."""
    assert reply.status_code == 200, reply.text
    read_exactly(model, reply.content)
    return reply.json()


def test_what_if_tells_everything_about_every_node(client: TestClient) -> None:
    reply = _checked(WhatIfReply, client.post("/v1/what-if", json={"pod": pod_of(12), "explain": True}))

    refused, fits = reply["nodes"]
    assert (refused["node"], refused["outcome"], refused["score"]) == ("node-a", "topology", None)
    assert refused["explanation"]["first_fault"].startswith("Container app wants 12 CPUs from one NUMA node")
    assert refused["explanation"]["nearest"][0]["instead"] == "8"
    assert (fits["outcome"], fits["score"], fits["certainty"]) == ("fits", 10, "exact")
    assert (fits["alignment"], fits["alignment_certain"], fits["numa"]) == ("aligned", True, [0])
    assert fits["verdict"]["containers"]["app"]["cpus"] == "1-6,17-22"
    assert fits["explanation"]["steps"][0]["step"] == "hints"
    assert reply["summary"] == {
        "nodes": 2,
        "fits": 1,
        "aligned": 1,
        "split": 0,
        "not_managed": 0,
        "topology": 1,
        "scheduler": 0,
        "unknown": 0,
        "reasons": {"NUMA alignment is not possible on the node now": 1},
    }
    assert reply["pod"]["requests"] == {"cpu": "12", "memory": "1Gi"}
    assert reply["explanations_left_out"] == 0


@pytest.mark.parametrize("explain", [False, True])
def test_a_compact_answer_groups_the_nodes_of_a_whole_one(client: TestClient, explain: bool) -> None:  # noqa: FBT001
    copies = [{"name": f"copy-{i}", "copy_of": "node-a"} for i in range(30)]
    question = {"pod": pod_of(12), "hypothetical": copies, "nodes": ["node-b"], "explain": explain}
    whole = _checked(WhatIfReply, client.post("/v1/what-if", json=question))
    compact = _checked(WhatIfReply, client.post("/v1/what-if?compact=true", json=question))

    groups = compact.pop("groups")
    assert [len(group["nodes"]) for group in groups] == [30, 1]
    for node in whole["nodes"]:
        (group,) = [each for each in groups if node["node"] in each["nodes"]]
        assert {key: node[key] for key in group if key != "nodes"} == {k: v for k, v in group.items() if k != "nodes"}
    assert compact["nodes"] == [each for each in whole["nodes"] if each["explanation"] is not None]
    assert bool(compact["nodes"]) is explain
    assert {**compact, "nodes": None} == {**whole, "nodes": None}


@pytest.mark.parametrize("content_type", ["application/yaml", "text/yaml", "application/x-www-form-urlencoded", ""])
def test_a_bare_manifest_is_a_question(client: TestClient, content_type: str) -> None:
    headers = {"Content-Type": content_type} if content_type else {}

    reply = client.post("/v1/what-if?node=node-b&explain=true", content=YAML, headers=headers)

    body = _checked(WhatIfReply, reply)
    assert (body["pod"]["kind"], body["pod"]["namespace"], body["pod"]["replicas"]) == ("Deployment", "hpc", 3)
    assert [each["node"] for each in body["nodes"]] == ["node-b"]
    capacity = _checked(CapacityReply, client.post("/v1/capacity", content=YAML, headers=headers))
    assert capacity["summary"]["copies"] == 2
    plan = client.post("/v1/plan", content=YAML, headers=headers).text.splitlines()
    summary = orjson.loads(plan[-1])["summary"]
    assert (summary["pods"], summary["placed"], summary["unplaced"]) == (3, 2, 1)
    assert (summary["aligned"], summary["split"], summary["not_managed"]) == (2, 0, 0)
    assert summary["per_node"] == {"node-b": 2}
    assert summary["notes"]


def test_faults_name_the_path_in_the_document_as_sent(client: TestClient) -> None:
    bad = YAML.replace("cpu: 12", "cpu: twelve")
    path = "spec.template.spec.containers[0].resources.limits.cpu"

    bare = client.post("/v1/what-if", content=bad, headers={"Content-Type": "application/yaml"})
    asked = client.post("/v1/what-if", content=f"pod:\n{_indented(bad)}", headers={"Content-Type": "application/yaml"})
    broken = client.post("/v1/what-if", content="a: [", headers={"Content-Type": "application/yaml"})
    planned = client.post("/v1/plan", json={"pods": [{"pod": pod_of(1)}, {"pod": pod_of("x")}]})
    typo = client.post("/v1/capacity", json={"pods": [pod_of(1)], "max_copy": 3})

    assert (bare.status_code, bare.json()["field"]) == (422, path)
    assert (asked.status_code, asked.json()["field"]) == (422, f"pod.{path}")
    assert (broken.status_code, "line 1" in broken.json()["detail"]) == (400, True)
    assert planned.json()["field"] == "pods[1].pod.spec.containers[0].resources.limits.cpu"
    assert (typo.json()["field"], typo.json()["detail"]) == ("max_copy", "max_copy: unknown field")


def _indented(text: str) -> str:
    return "\n".join(f"  {line}" for line in text.strip().splitlines())


def test_hypothetical_nodes_stand_beside_live_ones(client: TestClient) -> None:
    hypothetical = [
        {"copy_of": "node-a", "empty": True},
        {"copy_of": "node-a", "kubelet": {"topologyManagerPolicy": "best-effort"}, "name": "relaxed"},
        {"machine": "dual-64"},
    ]
    question = {"pod": pod_of(12), "nodes": ["node-a"], "hypothetical": hypothetical}

    reply = _checked(WhatIfReply, client.post("/v1/what-if", json=question))
    capacity = _checked(
        CapacityReply, client.post("/v1/capacity", json={"pods": [pod_of(12)], **_without_pod(question)})
    )

    assert [each["outcome"] for each in reply["nodes"]] == ["topology", "fits", "fits", "fits"]
    assert [each["hypothetical"] for each in reply["nodes"]] == [False, True, True, True]
    assert reply["nodes"][2]["node"] == "relaxed"
    assert [each["copies"] for each in capacity["nodes"]] == [0, 2, 1, 10]
    assert _checked(MachineIndex, client.get("/v1/machines"))["machines"][0]["name"] == "arm-80"


def _without_pod(question: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in question.items() if key != "pod"}


def test_no_question_changes_anything(client: TestClient, service: Service) -> None:
    hypothetical = [
        {"copy_of": "node-a", "empty": True, "add_pods": [pod_of(4)]},
        {"copy_of": "node-a", "remove_pods": ["demo/w-0"]},
        {"report": report_of(BUSY)},
    ]
    about = {"nodes": ["node-a", "node-b"], "hypothetical": hypothetical}
    records = {name: service.known.nodes.get(name) for name in ("node-a", "node-b")}
    before = client.get("/v1/nodes").json()
    ready = client.get("/readyz").json()

    client.post("/v1/what-if", json={"pod": pod_of(4), "explain": True, **about}).raise_for_status()
    client.post("/v1/capacity", json={"pods": [pod_of(4)], **about}).raise_for_status()
    client.post("/v1/plan", json={"pods": [{"pod": pod_of(4), "copies": 20}], **about}).raise_for_status()

    assert {name: service.known.nodes.get(name) for name in records} == records
    assert client.get("/v1/nodes").json() == before
    assert client.get("/readyz").json() == ready


def test_capacity_can_come_line_by_line(client: TestClient) -> None:
    lines = client.post(
        "/v1/capacity", json={"pods": [pod_of(4)]}, headers={"Accept": "application/x-ndjson"}
    ).text.splitlines()
    whole = client.post("/v1/capacity", json={"pods": [pod_of(4)]}).json()

    for line in lines[:-1]:
        read_exactly(NodeCapacity, line.encode())
    assert [orjson.loads(line) for line in lines[:-1]] == whole["nodes"]
    assert orjson.loads(lines[-1])["summary"]["copies"] == whole["summary"]["copies"] == 10


def test_a_plan_is_one_line_a_pod(client: TestClient) -> None:
    pods = [{"pod": pod_of(12)}, {"pod": pod_of(2, name="small"), "copies": 2}]

    reply = client.post("/v1/plan", json={"pods": pods})

    assert reply.headers["content-type"].startswith("application/x-ndjson")
    *lines, last = reply.text.splitlines()
    placed = [read_exactly(PlannedPod, line.encode()) for line in lines]
    end = read_exactly(PlanEnd, last.encode())
    assert [(each.pod, each.entry, each.name) for each in placed] == [
        (0, 0, "p-0"),
        (1, 1, "small-1"),
        (2, 1, "small-2"),
    ]
    assert placed[0].node == "node-b"
    assert end.summary.placed == 3


def test_what_is_too_much_is_refused_and_says_so(client: TestClient) -> None:
    many = {"pods": [{"pod": pod_of(1), "copies": 10_000}, {"pod": pod_of(1)}]}
    reply = client.post("/v1/plan", json=many)
    nodes = client.post("/v1/what-if", json={"pod": pod_of(1), "hypothetical": [{"machine": "arm-80"}] * 65})
    page = client.get("/v1/nodes?limit=5001")

    assert (reply.status_code, reply.json()["detail"]) == (422, "pods[1]: more than 10000 pods in one question")
    assert (nodes.status_code, nodes.json()["field"]) == (422, "hypothetical")
    assert page.status_code == 422


def test_nodes_come_page_by_page_and_can_be_narrowed_down(client: TestClient) -> None:
    first = client.get("/v1/nodes?limit=1").json()
    second = client.get(f"/v1/nodes?limit=1&after={first['next']}").json()

    assert (first["total"], first["next"], second["next"]) == (2, "node-a", None)
    assert [each["name"] for each in first["nodes"] + second["nodes"]] == ["node-a", "node-b"]
    for query, names in (
        ("name=b", ["node-b"]),
        ("min_free_cpus=20", ["node-b"]),
        ("policy=restricted", []),
        ("certainty=exact", ["node-a", "node-b"]),
        ("certainty=stale", []),
    ):
        assert [each["name"] for each in client.get(f"/v1/nodes?{query}").json()["nodes"]] == names


def test_decisions_tell_what_was_answered_and_why(client: TestClient, clock: Clock) -> None:
    pod = pod_of(12)
    client.post("/scheduler/filter", json=args_of(pod, "node-a", "node-b", "node-c"))
    clock.now += 2
    client.post("/scheduler/prioritize", json=args_of(pod, "node-b", "node-c"))
    clock.now += 1

    index = _checked(DecisionIndex, client.get("/v1/decisions"))
    decision = _checked(PodDecision, client.get("/v1/pods/uid-p/decision?node=node-a"))

    (only,) = index["decisions"]
    prioritize, filter_ = only["calls"]
    assert only["pod"] == {"uid": "uid-p", "namespace": "default", "name": "p"}
    assert (filter_["verb"], filter_["seconds_ago"], filter_["passed"], filter_["refused"]) == ("filter", 3.0, 2, 1)
    assert filter_["reasons"][0]["examples"] == ["node-a"]
    assert filter_["certainty"] == {"exact": 2, "unknown": 1}
    assert prioritize["best"] == [{"node": "node-b", "score": 10}, {"node": "node-c", "score": 0}]
    assert decision["node"]["verdict"]["reason"] == "TopologyAffinityError"
    assert client.get("/v1/pods/uid-p/decision?node=node-x").status_code == 404
    assert client.get("/v1/pods/nobody/decision").status_code == 404
    assert client.get("/v1/decisions?pod=default/p").json()["decisions"]
    assert not client.get("/v1/decisions?pod=other").json()["decisions"]


def test_a_decision_shows_the_state_of_its_moment(client: TestClient) -> None:
    client.post("/scheduler/filter", json=args_of(pod_of(12), "node-a"))
    emptied = {**report_of(sample("node-a", devices={GPU: [0, 1]}), sequence=2)}
    client.put("/v1/nodes/node-a/report", json=emptied).raise_for_status()

    decision = client.get("/v1/pods/uid-p/decision?node=node-a").json()

    assert decision["node"]["verdict"]["admit"] is False
    assert client.post("/v1/what-if", json={"pod": pod_of(12), "nodes": ["node-a"]}).json()["summary"]["fits"] == 1


def test_a_pod_that_nothing_aligns_is_a_decision_too(client: TestClient) -> None:
    pod = pod_of("500m")
    pod["status"]["qosClass"] = "Burstable"
    client.post("/scheduler/filter", json=args_of(pod, "node-a"))

    (call,) = client.get("/v1/decisions").json()["decisions"][0]["calls"]

    assert (call["aligned"], call["passed"], call["reasons"]) == (False, 1, [])
    assert client.get("/v1/pods/uid-p/decision?node=node-a").json()["node"]["passed"] is True


def test_decisions_are_bounded_by_calls_and_by_names() -> None:
    pods = [pod_from_json(pod_of(1, name=f"p{i}")) for i in range(6)]
    three = 3 * (pods[0].weight_bytes // NAME_BYTES)  # as how many names three of the pods count
    log = DecisionLog(max_calls=3, max_names=10 + three)

    for i, pod in enumerate(pods):
        log.note(Call("filter", pod, b"[]", 2, float(i)))
    assert (len(log), log.forgotten) == (3, 3)
    assert [calls[0].pod.name for calls in log.newest(10)] == ["p5", "p4", "p3"]

    log.note(Call("filter", pods[0], b"[]", 11 + three, 9.0))
    assert len(log) == 1
    log.note(Call("prioritize", pods[0], b"[]", 1, 10.0))
    assert [call.verb for call in log.of_pod(pods[0].uid)] == ["prioritize"]
    assert log.of_pod("nobody") == []


def test_questions_and_the_scheduler_are_answered_at_once(service: Service) -> None:
    """A long question is worked on elsewhere: the loop goes on."""
    for number in range(30):
        node = sample(
            f"node-{number}", workloads=[Workload(name="w", resources={"cpu": 1, "memory": f"{number + 1}Mi"})]
        )
        with TestClient(make_app(service), client=LOOPBACK) as client:
            report_all(client, report_of(node))

    async def both() -> list[str]:
        finished: list[str] = []
        transport = httpx.ASGITransport(app=make_app(service))
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as client:

            async def ask(name: str, path: str, document: object) -> None:
                (await client.post(path, json=document)).raise_for_status()
                finished.append(name)

            await asyncio.gather(
                ask("question", "/v1/what-if", {"pod": pod_of(17), "explain": True}),
                ask("filter", "/scheduler/filter", args_of(pod_of(3), "node-1")),
            )
        return finished

    assert asyncio.run(both()) == ["filter", "question"]


@pytest.mark.parametrize("route", ["what-if", "capacity", "plan"])
def test_a_query_parameter_that_a_route_does_not_have_is_an_error(client: TestClient, route: str) -> None:
    reply = client.post(f"/v1/{route}?nodes=node-b", content=YAML)

    assert reply.status_code == 422
    assert reply.json()["field"] == "query.nodes"
    assert "did you mean node?" in reply.json()["detail"]


def test_a_list_is_a_mix_and_a_plan_but_no_single_question(client: TestClient) -> None:
    several = f"{YAML}\n---\nkind: Service\n---\n{YAML}"

    capacity = client.post("/v1/capacity", content=several).json()
    plan = client.post("/v1/plan", content=several).text.splitlines()
    single = client.post("/v1/what-if", content=several)

    assert len(capacity["summary"]["per_pod"]) == 2
    assert orjson.loads(plan[-1])["summary"]["pods"] == 6
    assert single.status_code == 422
    assert "one workload is expected, not 2" in single.json()["detail"]
