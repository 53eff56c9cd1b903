"""What the runtime, and so the policy, gets to know of a pod's requests and limits."""

from typing import Any

import pytest

from extender.kubelet.resolve import resolve
from extender.kubelet.rules import Rules
from extender.nri.admission import new_container
from extender.nri.estimates import estimate
from extender.nri.objects import RuntimeResources
from extender.nri.state import NriPodRequest
from extender.replay.nri_pod import nri_pod
from extender.wire.pods import pod_from_json
from tests.replay.nri.vectors import machine

GIB = 1 << 30
MACHINE = machine("s-n4c16")


def container(name: str, requests: dict[str, str], limits: dict[str, str] | None = None, **more: str) -> dict[str, Any]:
    return {"name": name, "image": "x", "resources": {"requests": requests, "limits": limits or {}}, **more}


def policy_pod(spec: dict[str, Any], version: str = "v1.36.2") -> NriPodRequest:
    document = {"metadata": {"name": "p", "uid": "u"}, "spec": spec}
    return nri_pod(resolve(pod_from_json(document), Rules.of(version, {}, {})))


def amounts(pod: NriPodRequest) -> dict[str, RuntimeResources]:
    """What the runtime passes on of each container."""
    return {each.name: new_container(pod.pod, each, MACHINE.memory_total_bytes).resources for each in pod.containers}


def booked(pod: NriPodRequest) -> dict[str, int]:
    """The memory requests that the plugin makes of that, in thousandths of the machine's memory."""
    found, total = {}, MACHINE.memory_total_bytes
    for each in pod.containers:
        new = new_container(pod.pod, each, MACHINE.memory_total_bytes)
        requests = estimate(new.resources, pod.pod.qos, new.oom_score_adj, total).requests
        found[each.name] = round(requests.get("memory", 0) / total * 1000)
    return found


def per_mille(share: int) -> str:
    """A quantity of so many thousandths of the machine's memory."""
    return str(-(-MACHINE.memory_total_bytes * share // 1000))


def test_a_sidecar_has_at_least_the_request_of_the_smallest_app_container() -> None:
    """The kubelet gives it no higher oom_score_adj. Seen red: its own request was booked."""
    pod = {
        "initContainers": [
            container("setup", {"memory": per_mille(10)}),
            container("small", {"memory": per_mille(10)}, restartPolicy="Always"),
            container("large", {"memory": per_mille(400)}, restartPolicy="Always"),
        ],
        "containers": [container("a", {"memory": per_mille(300)}), container("b", {"memory": per_mille(200)})],
    }

    assert booked(policy_pod(pod)) == {"setup": 10, "small": 200, "large": 400, "a": 300, "b": 200}


@pytest.mark.parametrize(("name", "memory"), [("", 100), ("system-node-critical", 0), ("system-cluster-critical", 100)])
def test_of_a_node_critical_pod_no_memory_request_is_known(name: str, memory: int) -> None:
    """Its score is that of a Guaranteed pod. Seen red: its request was booked."""
    pod = {"priorityClassName": name, "containers": [container("a", {"memory": per_mille(100)})]}

    assert booked(policy_pod(pod)) == {"a": memory}


@pytest.mark.parametrize(("version", "memory"), [("v1.36.2", {"a": 200, "b": 100}), ("v1.31.0", {"a": 100, "b": 1})])
def test_what_a_pod_requests_beyond_its_containers_is_divided_among_them(version: str, memory: dict[str, int]) -> None:
    pod = {
        "resources": {"requests": {"memory": per_mille(301)}},
        "containers": [container("a", {"memory": per_mille(100)}), container("b", {})],
    }

    assert booked(policy_pod(pod, version)) == memory


def test_a_container_without_limits_has_those_of_its_pod() -> None:
    pod = {
        "resources": {"limits": {"cpu": "3", "memory": "4Gi"}, "requests": {"cpu": "1"}},
        "containers": [container("a", {"cpu": "500m"}), container("b", {}), container("c", {}, {"cpu": "1"})],
    }

    found = {
        name: (each.cpu_shares, each.cpu_quota_us, each.memory_limit_bytes // GIB)
        for name, each in amounts(policy_pod(pod)).items()
    }

    assert found == {"a": (512, 300_000, 4), "b": (3072, 300_000, 4), "c": (1024, 100_000, 4)}


def test_a_request_of_no_cpu_is_not_the_limit() -> None:
    """Seen red: a container that requests `cpu: 0` and may use 2 was placed as one that requests 2."""
    pod = {"containers": [container("a", {"cpu": "0"}, {"cpu": "2"})]}

    assert amounts(policy_pod(pod))["a"].cpu_shares == 2
