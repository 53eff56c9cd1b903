"""A running pod that is resized in place: what its node's kubelet holds for it stays, and so does what we show."""

from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.events import PodSeen
from extender.config.settings import Settings
from extender.samples.nodes import Workload
from extender.wire.pods import pod_from_json
from tests.replay.by_hand import M1, Node, container, pod
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock

EXCLUSIVE = {"InPlacePodVerticalScaling": True, "InPlacePodVerticalScalingExclusiveCPUs": True}


def _picture(client: TestClient, service: Service) -> tuple[object, ...]:
    """What the node holds, what is free, and what kube-scheduler is answered for pods of all sizes."""
    node = client.get("/v1/nodes/node-a").json()
    answers = [client.post("/scheduler/filter", json=args_of(pod_of(cpus), "node-a")).json() for cpus in (8, 12, 14)]
    return node["holders"], node["free_cpus"], node["topology"], answers, service.known.nodes.pods_in_flight


@pytest.mark.parametrize("version", ["v1.33.2", "v1.36.2", "v1.37.0"])
def test_a_resize_of_a_running_pod_changes_nothing_that_its_kubelet_holds(version: str, clock: Clock) -> None:
    """Up to 1.36 the kubelet defers a resize that its managers would have to follow; 1.37 leaves them out of it.

    The pod holds 4 CPUs. The API server has it with 6 from then on.
    """
    service = make_service(Settings(question_workers=0), clock)
    node = sample(version=version, workloads=[Workload(name="w", resources={"cpu": 4, "memory": "2Gi"})])
    running: dict[str, Any] = dict(node.pods[0])
    resized = {**running, "spec": pod_of(6, "2Gi")["spec"]}
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        assert client.put("/v1/nodes/node-a/report", json=report_of(node)).is_success
        service.known.nodes.apply(PodSeen("node-a", pod_from_json(running), started=True), now=service.clock())
        before = _picture(client, service)

        for seen in (resized, running, resized):
            service.known.nodes.apply(PodSeen("node-a", pod_from_json(seen), started=True), now=service.clock())
            assert _picture(client, service) == before
        report = {**report_of(node, sequence=2), "kubelet": {**report_of(node)["kubelet"], "featureGates": EXCLUSIVE}}
        assert client.put("/v1/nodes/node-a/report", json=report).is_success
        assert _picture(client, service) == before

    restarted = make_service(Settings(question_workers=0), clock)
    with TestClient(make_app(restarted), client=("127.0.0.1", 50_000)) as client:
        restarted.known.nodes.apply(
            PodSeen("node-a", pod_from_json(resized), started=True, ordered=False), now=restarted.clock()
        )
        assert client.put("/v1/nodes/node-a/report", json=report).is_success
        assert _picture(client, restarted) == before
        assert client.get("/v1/audit").json()["recent"] == []


@pytest.mark.parametrize(
    ("version", "allocated", "again"),
    [
        ("1.33", "4", {"c0": "1-2,9-10"}),
        ("1.33", "6", "TopologyAffinityError"),
        ("1.36", "4", "TopologyAffinityError"),
        ("1.37", "4", "TopologyAffinityError"),
    ],
)
def test_a_restarted_kubelet_compares_what_a_resized_pod_holds_with_its_request(
    version: str, allocated: str, again: object
) -> None:
    """1.33 and 1.34 look at `allocatedResources`, all others at the request. Another size has no hints."""
    node = Node(M1, version, topologyManagerPolicy="restricted")
    assert node.admit(pod("a", container(4))) == {"c0": "1-2,9-10"}
    resized = pod("a", container(6))
    amounts = {"cpu": allocated, "memory": "1Gi"}
    resized["status"] = {"qosClass": "Guaranteed", "containerStatuses": [{"name": "c0", "allocatedResources": amounts}]}

    assert node.admit(resized) == again
