"""One class of nodes that cannot be judged: what the scheduler gets, and what people see."""

import logging
from dataclasses import replace
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.node_class import NodeClass
from extender.kubelet.budget import Budget
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from tests.faults.hostile_nodes import many_numa_nodes, uneven_numa_nodes
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock


def put(client: TestClient, report: dict[str, Any]) -> dict[str, Any]:
    reply = client.put(f"/v1/nodes/{report['node_name']}/report", content=orjson.dumps(report))
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def filtered(client: TestClient, cpu: int, *names: str) -> dict[str, Any]:
    return dict(client.post("/scheduler/filter", json=args_of(pod_of(cpu), *names)).json())


def test_a_replay_that_is_too_long(client: TestClient, caplog: pytest.LogCaptureFixture) -> None:
    put(client, report_of(sample("good")))
    put(client, uneven_numa_nodes("long"))
    with caplog.at_level(logging.WARNING):
        for cpu in (12, 12, 13):
            assert filtered(client, cpu, "good", "long")["Error"] == ""
        replies = [filtered(client, cpu, "good", "long") for cpu in (60, 60, 61)]

    assert all(
        set(reply["NodeNames"] or ()) | set(reply["FailedAndUnresolvableNodes"]) == {"good", "long"}
        for reply in replies
    )
    noted = [r.getMessage() for r in caplog.records if "class of nodes not judged" in r.getMessage()]
    assert len(noted) == 1, "once a class"
    assert "nodes=long" in noted[0]
    assert "pod=default/p" in noted[0]
    assert len(noted[0]) < 3_000
    detail = client.get("/v1/nodes/long").json()
    assert detail["problems"] == 1
    assert "the replay of the kubelet was stopped" in detail["problem_list"][-1]["reason"]
    assert client.get("/v1/nodes/good").json()["problem_list"] == []
    assert "numa_extender_unjudged_total" in client.get("/metrics").text


def test_a_defect_fails_nobody_else(service: Service, clock: Clock, caplog: pytest.LogCaptureFixture) -> None:
    class Broken(BoundedJudge):
        def __call__(self, shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
            bad = node_class.kubelet is not None and len(node_class.kubelet.machine.numa_ids) == 3
            return super().__call__(shape, replace(node_class, kubelet="no kubelet") if bad else node_class, budget)  # type: ignore[arg-type]

    broken = make_service(service.settings, clock, judge=Broken(least_numa, service.settings.uncertainty))
    with TestClient(make_app(broken), client=("127.0.0.1", 1)) as client:
        put(client, report_of(sample("good")))
        put(client, many_numa_nodes("bad", 3))
        reply = filtered(client, 2, "good", "bad")
        filtered(client, 2, "good", "bad")
        problems = client.get("/v1/nodes/bad").json()["problem_list"]
        metrics = client.get("/metrics").text

    assert reply["Error"] == ""
    assert set(reply["NodeNames"]) == {"good", "bad"}, "unknown nodes pass by default"
    assert problems[-1]["reason"].startswith("the replay of the kubelet failed; the log of the service has the details")
    (noted,) = [r.getMessage() for r in caplog.records if "class of nodes not judged" in r.getMessage()]
    assert "AttributeError" in noted
    assert "nodes=bad" in noted
    assert 'numa_extender_unjudged_total{trouble="defect"} 1.0' in metrics


def test_a_node_beyond_a_cap_is_unknown_and_says_why(client: TestClient) -> None:
    accepted = put(client, many_numa_nodes("many", 65))

    assert accepted["certainty"] == "unknown"
    assert any("65 NUMA nodes, more than 64" in problem for problem in accepted["problems"])
    assert client.get("/v1/nodes/many").json()["problems"] >= 1
    assert filtered(client, 2, "many")["NodeNames"] == ["many"]
