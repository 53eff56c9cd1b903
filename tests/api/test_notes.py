"""What an answer takes for granted is said, in JSON as in the table; and a refusal names what is missing."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from tests.reports import pod_of, report_of, sample
from tests.world.clock import Clock

CASES: dict[str, tuple[dict[str, Any], str]] = {
    "resource claims": ({"resourceClaims": [{"name": "gpu"}]}, "the pod has resource claims"),
    "volumes": ({"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}, "not checked: volumes"),
    "unknown field": ({"nodeselector": {"a": "b"}}, "spec.nodeselector is not a field of Kubernetes"),
}
NODE_CASES: dict[str, tuple[str, dict[str, Any], str]] = {
    "newer kubelet": ("v1.99.0", {}, "1.99"),
    "node selector": ("v1.36.2", {"nodeSelector": {"gpu": "yes"}}, "the pod's nodeSelector"),
    "empty pod-level resources": ("v1.36.2", {"resources": {}}, "treats the pod as BestEffort"),
    "pod-level resources": (
        "v1.34.0",
        {"resources": {"limits": {"cpu": "4", "memory": "1Gi"}}},
        "managers ignore such pods",
    ),
}


def _asked(clock: Clock, version: str, spec: dict[str, Any], route: str = "what-if") -> dict[str, Any]:
    service = make_service(Settings(question_workers=0), clock)
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        client.put("/v1/nodes/node-a/report", json=report_of(sample(version=version))).raise_for_status()
        pod = pod_of(4)
        pod["spec"] = {**pod["spec"], **spec}
        question = {"pod": pod} if route == "what-if" else {"pods": [pod]}
        reply: dict[str, Any] = client.post(f"/v1/{route}", json=question).raise_for_status().json()
        return reply


@pytest.mark.parametrize("case", CASES)
def test_what_is_not_looked_at_in_a_pod_is_said(clock: Clock, case: str) -> None:
    spec, note = CASES[case]

    reply = _asked(clock, "v1.36.2", spec)
    counted = _asked(clock, "v1.36.2", spec, "capacity")

    assert any(each.startswith(note) for each in reply["pod"]["notes"])
    assert any(each.startswith(note) for each in counted["summary"]["notes"])
    assert not any(note in each for each in _asked(clock, "v1.36.2", {})["pod"]["notes"])


@pytest.mark.parametrize("case", NODE_CASES)
def test_what_an_answer_of_a_node_takes_for_granted_is_said(clock: Clock, case: str) -> None:
    version, spec, note = NODE_CASES[case]

    (node,) = _asked(clock, version, spec)["nodes"]
    counted = _asked(clock, version, spec, "capacity")

    assert any(note in each for each in node["notes"]), node["notes"]
    assert any(note in each for each in counted["summary"]["notes"])
    (plain,) = _asked(clock, "v1.36.2", {})["nodes"]
    assert not any(note in each for each in plain["notes"])


def test_a_misspelt_field_of_resources_names_the_right_one(clock: Clock) -> None:
    container = {"name": "app", "resources": {"limit": {"cpu": 4}}}

    notes = _asked(clock, "v1.36.2", {"containers": [container]})["pod"]["notes"]

    assert any("spec.containers[0].resources.limit is not a field" in each and "limits?" in each for each in notes)


def test_a_missing_page_size_is_named_and_is_for_good(clock: Clock) -> None:
    amounts = {"cpu": "4", "memory": "1Gi", "hugepages-1Gi": "1Gi"}
    container = {"name": "app", "resources": {"limits": amounts, "requests": amounts}}

    (node,) = _asked(clock, "v1.36.2", {"containers": [container]})["nodes"]

    assert node["reason"].startswith("The node has no hugepages-1Gi,")
    assert (node["outcome"], node["never"]) == ("topology", True)
    assert "panic" not in node["reason"]


def test_a_refusal_names_the_amounts_without_explain(clock: Clock) -> None:
    container = {"name": "app", "resources": {"limits": {"cpu": 17, "memory": "1Gi"}}}

    (node,) = _asked(clock, "v1.36.2", {"containers": [container]})["nodes"]

    assert node["explanation"] is None
    assert node["reason"] == "Container app wants 17 CPUs, more than any one NUMA node of this machine has."
    assert node["never"]
