"""Reports made of the recorded kubelets' own state files lead to the verdicts that those kubelets gave."""

from collections.abc import Iterator
from typing import Any

import orjson
import pytest

from extender.kubelet.admission import admit, release_pods
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Provider
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from extender.wire.verdicts import verdict_to_json
from tests.replay.vectors import VERSIONS, scenarios


@pytest.mark.parametrize("version", VERSIONS)
def test_a_report_leads_to_the_recorded_verdict(version: str) -> None:
    compared = 0
    for scenario in scenarios(version):
        for step, gone in _recorded(scenario):
            report = read_report(orjson.dumps(_report(scenario, step, gone)))
            assert report.kubelet is not None, scenario["id"]
            assert report.hidden <= {Provider.DEVICE}
            if report.hidden and _wants_devices(step["pod"]):
                continue  # the recordings have no device checkpoint
            assert report.state is not None
            pod = resolve(pod_from_json(step["pod"]), report.kubelet.rules)
            state = release_pods(report.state, sorted(report.not_counted))
            verdict = admit(report.kubelet, state, pod).verdict
            expected = {k: v for k, v in step["expect"].items() if k in ("admit", "reason", "message")}
            answered = verdict_to_json(verdict)
            assert {k: answered[k] for k in expected} == expected, (scenario["id"], expected, verdict)
            compared += 1

    assert compared > 90


def _recorded(scenario: dict[str, Any]) -> Iterator[tuple[dict[str, Any], set[str]]]:
    """The admissions with state files, and the pods named in those that the kubelet no longer counts."""
    if "kubelet_error" in scenario:
        return
    active: set[str] = set()
    seen: set[str] = set()
    for step in scenario["steps"]:
        if step["op"] == "remove":
            active.discard(step["uid"])
        if step["op"] != "admit":
            continue
        if step.get("state_before"):
            yield step, seen - active
        uid = step["pod"]["metadata"]["uid"]
        seen.add(uid)
        if step["expect"].get("admit"):
            active.add(uid)


def _report(scenario: dict[str, Any], step: dict[str, Any], gone: set[str]) -> dict[str, Any]:
    machine = scenario["machine"]
    return {
        "schema_version": 1,
        "node_name": "recorded",
        "boot_id": "b",
        "sequence": 1,
        "observed_at": 0.0,
        "kubelet_version": scenario["kubelet_version"],
        "machine": {"num_sockets": len({cpu[2] for cpu in machine["cpus"]}), **machine},
        "kubelet": scenario["kubelet"],
        "rules": scenario.get("rules") or {},
        "devices": scenario["devices"],
        "state": step["state_before"],
        "pods": [{"namespace": "n", "name": uid, "uid": uid, "counted": False} for uid in sorted(gone)],
    }


def _wants_devices(pod: dict[str, Any]) -> bool:
    containers = [*pod["spec"]["containers"], *pod["spec"].get("initContainers", [])]
    return any("/" in name for c in containers for name in c.get("resources", {}).get("limits", {}))
