"""The audit finds out that a node's kubelet carries a fix: naive kubelets, reports over HTTP."""

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.events import PodSeen
from extender.config.settings import Settings
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, report_of, sample
from tests.waiting import until
from tests.world.clock import Clock
from tests.world.kubelet import Kubelet

NIC = "vendor.example/nic"
QUAD = Hardware(sockets=2, numa_per_socket=2, cores_per_numa=4, threads=2, memory_gib=32, distances=(10, 21))


@pytest.fixture
def service(clock: Clock) -> Service:
    return make_service(Settings(question_workers=0), clock)


@pytest.fixture
def client(service: Service) -> Iterator[TestClient]:
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield client


def _play(client: TestClient, service: Service, kubelets: list[Kubelet], pods: list[dict[str, Any]]) -> None:
    """Each kubelet gets each pod; the extender knows that it does, and then what the kubelet made of it."""
    for kubelet in kubelets:
        assert client.put(f"/v1/nodes/{kubelet.name}/report", json=kubelet.report()).is_success
        for pod in pods:
            service.known.nodes.apply(PodSeen(kubelet.name, pod_from_json(pod), started=False), now=service.clock())
            kubelet.admit(pod)
            assert client.put(f"/v1/nodes/{kubelet.name}/report", json=kubelet.report()).is_success


def _node(name: str, **options: Any) -> SampleNode:
    """Four NUMA nodes of 8 CPUs, two network cards on each."""
    return sample(
        name, hardware=QUAD, devices={NIC: [0, 1, 2, 3, 0, 1, 2, 3]}, topologyManagerPolicy="best-effort", **options
    )


def test_a_kubelet_with_a_fix_is_found_by_what_it_does(
    client: TestClient, service: Service, caplog: pytest.LogCaptureFixture
) -> None:
    """The pod requests network cards of all four NUMA nodes, and CPUs that one of them could give."""
    caplog.set_level(logging.WARNING, logger="extender")
    options = {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}
    kubelets = [
        Kubelet.of(_node("plain", **options)),
        Kubelet.of(_node("fixed", **options), distribute_inside_hint=True),
        Kubelet.of(_node("other", **options), distribute_inside_hint=True),
    ]
    pods = [pod_of(4, "1Gi", name=f"p{number}", devices={NIC: 4}) for number in range(2)]

    _play(client, service, kubelets, pods)
    until(lambda: all(each["agrees_with"] is not None for each in _audit(client)["recent"]))

    audit = _audit(client)
    assert [(each["node_name"], each["agrees_with"]) for each in audit["recent"]] == [
        ("other", ["distribute_inside_hint"]),
        ("other", ["distribute_inside_hint"]),
        ("fixed", ["distribute_inside_hint"]),
        ("fixed", ["distribute_inside_hint"]),
    ]
    assert audit["behaviours"] == [
        {"node_name": name, "rule": "distribute_inside_hint", "value": True, "agreeing": 2, "examined": 2}
        for name in ("fixed", "other")
    ]
    plain, fixed = (client.get(f"/v1/nodes/{name}").json() for name in ("plain", "fixed"))
    assert (plain["behaves_as"], fixed["behaves_as"]) == ([], ["distribute_inside_hint"])
    (problem,) = (each for each in fixed["problem_list"] if each["source"] == "audit")
    assert problem["reason"].startswith("this node's kubelet behaves as with distribute_inside_hint")
    metrics = client.get("/metrics").text
    assert 'numa_extender_kubelet_behaviours{rule="distribute_inside_hint",value="true"} 2.0' in metrics
    lines = [record.getMessage() for record in caplog.records if "behaves as" in record.getMessage()]
    assert lines == [f"kubelet behaves as with distribute_inside_hint node={name}" for name in ("fixed", "other")]


def test_a_rule_that_was_set_and_that_the_kubelet_lacks_is_found(clock: Clock) -> None:
    service = make_service(Settings(question_workers=0, kubelet_switches="distribute_inside_hint"), clock)
    options = {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        _play(client, service, [Kubelet.of(_node("plain", **options))], [pod_of(4, "1Gi", devices={NIC: 4})])
        until(lambda: _audit(client)["behaviours"])

        assert client.get("/v1/nodes/plain").json()["behaves_as"] == ["distribute_inside_hint=false"]


def test_what_no_rule_explains_is_examined_and_said_so(client: TestClient, service: Service) -> None:
    """The kubelet packs CPUs, whatever its configuration says."""
    kubelet = Kubelet.of(_node("odd"))
    kubelet.machine = report_of(_node("odd", cpuManagerPolicyOptions={"distribute-cpus-across-numa": "true"}))

    _play(client, service, [kubelet], [pod_of(12, "1Gi")])
    until(lambda: all(each["agrees_with"] is not None for each in _audit(client)["recent"]))

    audit = _audit(client)
    assert [each["agrees_with"] for each in audit["recent"]] == [[]]
    assert audit["behaviours"] == []
    assert client.get("/v1/nodes/odd").json()["behaves_as"] == []


def test_after_an_upgrade_of_the_kubelet_nothing_is_held_against_it(client: TestClient, service: Service) -> None:
    options = {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}
    kubelet = Kubelet.of(_node("fixed", **options), distribute_inside_hint=True)
    _play(client, service, [kubelet], [pod_of(4, "1Gi", devices={NIC: 4})])
    until(lambda: _audit(client)["behaviours"])

    upgraded = {**kubelet.report(), "sequence": 9, "kubelet_version": "v1.37.1"}
    assert client.put("/v1/nodes/fixed/report", json=upgraded).is_success

    assert client.get("/v1/nodes/fixed").json()["behaves_as"] == []


def _audit(client: TestClient) -> dict[str, Any]:
    reply: dict[str, Any] = client.get("/v1/audit").json()
    return reply
