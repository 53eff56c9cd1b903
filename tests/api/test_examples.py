"""The examples in the OpenAPI document are real answers, and every field of every model is described.

`NUMA_EXAMPLES=write` writes the file anew.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

import extender.api.http.openapi
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.samples.machines import GPU, Hardware
from extender.samples.nodes import Workload
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock

FILE = Path(extender.api.http.openapi.__file__).with_name("examples.json")
SMALL = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=3, threads=2, memory_gib=8, distances=(10, 21))
MODELS = (
    "NodeIndex",
    "NodeDetail",
    "WhatIfReply",
    "CapacityReply",
    "PlannedPod",
    "PlanEnd",
    "DecisionIndex",
    "PodDecision",
    "DefragmentReply",
    "MakeRoomReply",
    "RightsizeReply",
    "TuneReply",
    "ResizeCheckReply",
    "RestartCheckReply",
)
REQUESTS = (
    "WhatIfRequest",
    "CapacityRequest",
    "PlanRequest",
    "DefragmentRequest",
    "MakeRoomRequest",
    "RightsizeRequest",
    "TuneRequest",
    "ResizeCheckRequest",
    "RestartCheckRequest",
)


@pytest.fixture
def client(clock: Clock) -> Iterator[TestClient]:
    """Two small nodes, one of them half full."""
    with TestClient(
        make_app(make_service(Settings(question_workers=0), clock)), client=("127.0.0.1", 50_000)
    ) as client:
        workload = Workload(name="worker", resources={"cpu": 3, "memory": "2Gi", GPU: 1})
        for name, workloads in (("node-a", [workload]), ("node-b", [])):
            node = sample(name, hardware=SMALL, workloads=workloads, devices={GPU: [0, 1]})
            client.put(f"/v1/nodes/{name}/report", json=report_of(node)).raise_for_status()
        yield client


def _answers(client: TestClient) -> dict[str, Any]:
    pod = pod_of(5, name="solver-0")
    client.post("/scheduler/filter", json=args_of(pod, "node-a", "node-b")).raise_for_status()
    line, end = client.post("/v1/plan", json={"pods": [{"pod": pod}]}).text.splitlines()
    return {
        "NodeIndex": client.get("/v1/nodes?limit=1").json(),
        "NodeDetail": client.get("/v1/nodes/node-a").json(),
        "WhatIfReply": client.post("/v1/what-if", json={"pod": pod, "explain": True}).json(),
        "CapacityReply": client.post("/v1/capacity", json={"pods": [pod]}).json(),
        "PlannedPod": orjson.loads(line),
        "PlanEnd": orjson.loads(end),
        "DecisionIndex": client.get("/v1/decisions").json(),
        "MakeRoomReply": client.post(
            "/v1/advice/make-room", json={"pod": pod_of(5, name="solver-0"), "nodes": ["node-a"]}
        ).json(),
        "DefragmentReply": client.post(
            "/v1/advice/defragment", json={"pod": pod_of(5, name="solver-0"), "max_moves": 2}
        ).json(),
        "RightsizeReply": client.post("/v1/advice/rightsize", json={}).json(),
        "TuneReply": client.post("/v1/advice/tune", json={"configurations": 3}).json(),
        "ResizeCheckReply": client.post("/v1/advice/resize-check", json={"pod": "demo/worker-0", "cpu": "4"}).json(),
        "RestartCheckReply": client.post(
            "/v1/advice/restart-check", json={"nodes": ["node-a"], "kubelet": {"memoryManagerPolicy": "None"}}
        ).json(),
        "PodDecision": client.get("/v1/pods/uid-solver-0/decision?node=node-a").json(),
    }


def test_examples_are_real_answers(client: TestClient) -> None:
    answers = _answers(client)
    if os.environ.get("NUMA_EXAMPLES") == "write":
        FILE.write_bytes(orjson.dumps(answers, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE))

    assert orjson.loads(FILE.read_bytes()) == answers


def test_the_document_shows_them(client: TestClient) -> None:
    schemas = client.get("/openapi.json").json()["components"]["schemas"]

    for name in (*MODELS, *REQUESTS):
        assert schemas[name]["examples"], name


def test_every_example_of_a_request_is_accepted(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    schemas, tried = document["components"]["schemas"], set()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            for content in operation.get("requestBody", {}).get("content", {}).values():
                name = content["schema"].get("$ref", "").rpartition("/")[2]
                for example in schemas.get(name, {}).get("examples", ()):
                    reply = client.request(method, path, json=example)
                    assert reply.status_code == 200, (path, reply.text)
                    for line in reply.text.splitlines() if path == "/v1/plan" else [reply.text]:
                        answer = orjson.loads(line)
                        assert isinstance(answer, list) or not (answer.get("Error") or "problem" in answer), path
                    tried.add(name)
    assert tried == {"ExtenderArgs", "ExtenderPreemptionArgs", *REQUESTS}


def test_every_example_of_a_field_of_a_hypothetical_node_is_accepted(client: TestClient) -> None:
    fields = client.get("/openapi.json").json()["components"]["schemas"]["HypotheticalNode"]["properties"]
    shown = [(name, example) for name, field in fields.items() for example in field.get("examples", ())]
    assert {"machine", "copy_of", "kubelet_version", "kubelet", "rules", "devices"} == {name for name, _ in shown}
    for name, example in shown:
        base = {} if name in ("machine", "copy_of") else {"machine": fields["machine"]["examples"][0]}
        question = {"pod": pod_of(1), "nodes": [], "hypothetical": [{**base, name: example}]}
        reply = client.post("/v1/what-if", json=question)
        assert reply.status_code == 200, (name, reply.text)


PEOPLE = (
    "/v1/advice",
    "/v1/what-if",
    "/v1/capacity",
    "/v1/plan",
    "/v1/machines",
    "/v1/nodes",
    "/v1/decisions",
    "/v1/pods",
)


def test_every_field_and_parameter_of_peoples_routes_is_described(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    schemas = document["components"]["schemas"]
    routes = {path: each for path, each in document["paths"].items() if path.startswith(PEOPLE)}

    for path, operations in routes.items():
        for operation in operations.values():
            for parameter in operation.get("parameters", ()):
                assert parameter.get("description") or parameter["schema"].get("description"), (path, parameter)
    for name in _reached({each for each in _names(routes) if each not in REPORTED}, schemas):
        assert schemas[name].get("description"), name
        for field, schema in schemas[name].get("properties", {}).items():
            refers = "$ref" in schema  # to a schema that has a description of its own
            assert refers or schema.get("description"), f"{name}.{field}"


REPORTED = {"NodeReport", "Heartbeat", "Accepted"}
"""Of exporters."""


def _reached(names: set[str], schemas: dict[str, Any]) -> set[str]:
    """The schemas that these lead to; enumerations of one line are left out."""
    found: set[str] = set()
    while names:
        name = names.pop()
        found.add(name)
        names |= _names(schemas[name]) - found
    return {name for name in found if "properties" in schemas[name]}


def _names(value: object) -> set[str]:
    if isinstance(value, dict):
        own = {value["$ref"].rsplit("/", 1)[1]} if "$ref" in value else set()
        return own.union(*map(_names, value.values()))
    return set().union(*map(_names, value)) if isinstance(value, list) else set()
