"""Devices of DRA drivers: where they are, and whether they are where a pod's demand needs them."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.api.service import Service
from extender.features.claims import feature
from extender.features.claims.feature import ClaimsFeature
from extender.features.claims.forecast import Forecasts
from extender.features.claims.objector import AT_RISK, IN_FLIGHT, ClaimCheck
from extender.features.claims.objects import ClaimObjects
from extender.samples.nodes import Workload
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.plain_http import HTTP
from tests.reports import DUAL, pod_of, report_of, sample
from tests.waiting import until

Json = dict[str, Any]
ON: Json = {"dra": "on", "bind_wait_seconds": 3.0}
DRIVER = "gpu.example.com"
NUMA = "resource.kubernetes.io/numaNode"
ELSEWHERE = "the pod demands alignment and devices of its claims are elsewhere on the node"
WOULD_BE_ELSEWHERE = "the pod demands alignment and kube-scheduler would allocate devices elsewhere on the node"
NOT_SAID = "the pod demands alignment and the driver of a device does not say where it is"
ONE_TAKEN = [Workload(name="w", copies=1, resources={"cpu": 14, "memory": "1Gi"})]


def publish(
    server: FakeApiServer,
    driver: str = DRIVER,
    generation: int = 1,
    node: str = "node-a",
    **numa: int | list[int] | None,
) -> None:
    """A slice of a node with these devices on these NUMA nodes."""
    devices = [
        {
            "name": name.replace("_", "-"),
            "attributes": {} if of is None else {NUMA: {"ints" if isinstance(of, list) else "int": of}},
        }
        for name, of in numa.items()
    ]
    server.slices.create(
        {
            "metadata": {"name": f"{driver}-{generation}-{node}"},
            "spec": {
                "driver": driver,
                "nodeName": node,
                "pool": {"name": node, "generation": generation, "resourceSliceCount": 1},
                "devices": devices,
            },
        }
    )


def allocate(
    server: FakeApiServer,
    *devices: str,
    name: str = "gpu",
    driver: str = DRIVER,
    request: str = "r",
    node: str = "node-a",
) -> None:
    """As kube-scheduler does before it calls bind."""
    results = [{"request": request, "driver": driver, "pool": node, "device": each} for each in devices]
    server.claims.patch(name, {"status": {"allocation": {"devices": {"results": results}}}})


def claiming(name: str = "p", *, demand: str = "single-numa-node") -> Json:
    """A pod of 4 CPUs whose container uses a claim made from a template."""
    pod = pod_of(4, name=name)
    pod["metadata"]["annotations"] = {"numa-extender.io/alignment": demand}
    pod["spec"]["resourceClaims"] = [{"name": "device", "resourceClaimTemplateName": "gpus"}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "device"}]
    pod["status"] = {"resourceClaimStatuses": [{"name": "device", "resourceClaimName": "gpu"}]}
    return pod


def devices_of(service: Service) -> ClaimObjects:
    """What the watches of slices and claims have brought. The setting is on."""
    (feature,) = (each for each in service.features if isinstance(each, ClaimsFeature))
    return feature.objects


def until_allocated(service: Service, claim: str = "gpu", *, node: str = "node-a") -> None:
    """Until the watch has brought the devices of the claim."""
    until(lambda: devices_of(service).devices_of(f"default/{claim}", node) is not None)


def has_totals(service: Service, node_name: str) -> bool:
    """Whether the watch has brought the allocatable amounts of the node."""
    return bool(service.surroundings(node_name).allocatable_milli)


def has_pods(service: Service, node_name: str, number: int) -> bool:
    """Whether the watch has brought so many pods of the node."""
    return len(service.surroundings(node_name).pods or ()) == number


def report(server: FakeApiServer, service: Service, client: Client, *names: str, **sample_of: Any) -> None:
    """Reports of these nodes, whose pods the API server has."""
    for name in names:
        node = sample(name, **sample_of)
        for pod in node.pods:
            server.pods.create({**pod, "spec": {**pod["spec"], "nodeName": name}, "status": {"phase": "Running"}})
        until(partial(has_pods, service, name, len(node.pods)))
        client.report(report_of(node))


def why(client: Client, pod: Json) -> str:
    """The reason of the refusal; empty if the node is offered."""
    reply = client.filter(pod, "node-a")
    return str({**reply["FailedNodes"], **reply["FailedAndUnresolvableNodes"]}.get("node-a", ""))


@pytest.mark.parametrize(
    ("workloads", "device", "reason"),
    [
        ([], "gpu-0", ""),
        ([], "gpu-1", ELSEWHERE),
        (ONE_TAKEN, "gpu-1", ""),
        (ONE_TAKEN, "gpu-0", ELSEWHERE),
        ([], "gpu-x", NOT_SAID),
        ([], "gpu-7", NOT_SAID),
    ],
    ids=["together", "elsewhere", "both on the second", "left on the first", "not said", "in no slice"],
)
def test_filter_refuses_a_node_where_an_allocated_device_is_elsewhere(
    tmp_path: Path, workloads: list[Workload], device: str, reason: str
) -> None:
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        report(server, service, client, "node-a", workloads=workloads)
        publish(server, gpu_0=0, gpu_1=1, gpu_x=None)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        allocate(server, device)
        until_allocated(service)
        until(lambda: len(devices_of(service).devices_on("node-a")) == 3)

        assert why(client, claiming()) == reason
        assert why(client, claiming("q", demand="none")) == "", "only a demand counts"


@pytest.mark.parametrize(("device", "bound"), [("gpu-0", True), ("gpu-1", False)])
def test_bind_waits_for_the_allocation_and_checks_it(tmp_path: Path, device: str, bound: bool) -> None:  # noqa: FBT001
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        client.report(report_of(sample("node-a")))
        publish(server, gpu_0=0, gpu_1=1)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        until(lambda: len(devices_of(service).devices_on("node-a")) == 2)
        pod = server.pods.create(claiming())
        assert why(client, pod) == "", "an allocation is still to come"

        later = threading.Timer(0.3, allocate, (server, device))
        later.start()
        error = client.bind(pod, "node-a")
        later.join()
        assert (error == "") is bound, error
        if not bound:
            assert ELSEWHERE in error
            assert service.known.nodes.pods_in_flight == 0


def test_filter_avoids_a_node_where_bind_has_just_refused_the_devices(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", "node-b", **ON) as (server, service, client):
        for name in ("node-a", "node-b"):
            client.report(report_of(sample(name)))
        publish(server, gpu_0=0, gpu_1=1)
        claim = server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        until(lambda: len(devices_of(service).devices_on("node-a")) == 2)
        pod = server.pods.create(claiming())
        client.filter(pod, "node-a", "node-b")
        allocate(server, "gpu-1")
        assert ELSEWHERE in client.bind(pod, "node-a")
        server.claims.patch(claim["metadata"]["name"], {"status": None})
        until(lambda: devices_of(service).devices_of("default/gpu", "node-a") is None)

        reply = client.filter(pod, "node-a", "node-b")
        assert reply["NodeNames"] == ["node-b"]
        assert {**reply["FailedNodes"], **reply["FailedAndUnresolvableNodes"]} == {"node-a": ELSEWHERE}
        assert why(client, pod) == "", "no other node is there"
        other = server.pods.create(claiming("q"))
        assert client.filter(other, "node-a", "node-b")["NodeNames"] == ["node-a", "node-b"]


@pytest.mark.parametrize(("seconds", "bound"), [(60.0, False), (0.0, True)])
def test_bind_defers_a_pod_that_the_end_of_another_would_move_away_from_its_device(
    tmp_path: Path,
    seconds: float,
    bound: bool,  # noqa: FBT001
) -> None:
    """Its CPUs are on NUMA node 1 because NUMA node 0 is taken."""
    with cluster(tmp_path, "node-a", **ON, hold_back_seconds=seconds) as (server, service, client):
        report(server, service, client, "node-a", workloads=ONE_TAKEN)
        publish(server, gpu_0=0, gpu_1=1)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        allocate(server, "gpu-1")
        until_allocated(service)
        until(lambda: len(devices_of(service).devices_on("node-a")) == 2)
        pod = server.pods.create(claiming())
        assert why(client, pod) == ""

        error = client.bind(pod, "node-a")
        assert (error == "") is bound
        assert bound or "pods coming to or leaving the node decide" in error
        plain = pod_of(4, name="without-claims")
        plain["metadata"]["annotations"] = {"numa-extender.io/alignment": "single-numa-node"}
        plain = server.pods.create(plain)
        client.filter(plain, "node-a")
        assert client.bind(plain, "node-a") == "", "it is on one NUMA node in both cases"


def test_an_allocation_for_another_node_is_an_old_one(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", "node-b", dra="on", bind_wait_seconds=0.2) as (server, service, client):
        for name in ("node-a", "node-b"):
            client.report(report_of(sample(name)))
        publish(server, gpu_0=0)
        publish(server, node="node-b", gpu_0=0)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        until(lambda: bool(devices_of(service).devices_on("node-a")) and bool(devices_of(service).devices_on("node-b")))
        pod = server.pods.create(claiming())
        client.filter(pod, "node-a", "node-b")
        allocate(server, "gpu-0")
        until_allocated(service)

        assert "it is not known yet which devices its claims have" in client.bind(pod, "node-b")
        assert client.bind(pod, "node-a") == ""


def test_bind_gives_up_where_no_allocation_comes(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", dra="on", bind_wait_seconds=0.2) as (server, service, client):
        client.report(report_of(sample("node-a")))
        publish(server, gpu_0=0)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        until(lambda: bool(devices_of(service).devices_on("node-a")))
        pod = server.pods.create(claiming())
        client.filter(pod, "node-a")

        assert "it is not known yet which devices its claims have" in client.bind(pod, "node-a")
        assert service.known.nodes.pods_in_flight == 0


def notes(client: Client, pod: Json) -> list[str]:
    """The notes of what-if on node-a."""
    (answer,) = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": ["node-a"]})[1]["nodes"]
    return list(answer["notes"])


def test_what_if_says_where_devices_are(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        client.report(report_of(sample("node-a")))
        publish(server, gpu_0=0, gpu_1=1, gpu_2=1, gpu_x=None)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        until(lambda: len(devices_of(service).devices_on("node-a")) == 4)
        free = (
            "free devices: 1 of gpu.example.com without a NUMA node, 1 of gpu.example.com on NUMA node 0, "
            "2 of gpu.example.com on NUMA node 1"
        )
        assert notes(client, claiming()) == [
            f"container app has a claim without devices of this node, and the rest is on NUMA node 0; {free}",
            "the claimed devices are likely to be on the NUMA node of the pod's other resources",
        ]

        allocate(server, "gpu-1")
        until_allocated(service)
        assert notes(client, claiming()) == [
            "container app: device gpu-1 of gpu.example.com is on NUMA node 1, and the rest is on NUMA node 0",
            "the claimed devices cannot all be on the NUMA node of the pod's other resources",
        ]


NODES = ("node-a", "node-b", "node-c", "node-d")


def scores(client: Client, pod: Json) -> list[int]:
    """What prioritize returns for `NODES`."""
    args = {"Pod": pod, "Nodes": None, "NodeNames": list(NODES)}
    status, reply = client.call("POST", "/scheduler/prioritize", args)
    assert status == 200
    assert [each["Host"] for each in reply] == list(NODES)
    return [each["Score"] for each in reply]


@pytest.mark.parametrize(("dra", "expected"), [("on", [4, 10, 2, 7]), ("off", [10, 10, 10, 10])])
def test_prioritize_ranks_nodes_by_where_free_devices_are(tmp_path: Path, dra: str, expected: list[int]) -> None:
    """The kubelets are alike and empty. So CPUs are on NUMA node 0 everywhere, and the strategy's scores are equal."""
    with cluster(tmp_path, *NODES, dra=dra) as (server, service, client):
        for name in NODES:
            client.report(report_of(sample(name)))
        publish(server, node="node-b", gpu_0=0)
        publish(server, node="node-c", gpu_0=1)
        publish(server, node="node-d", gpu_1=1, gpu_0=0)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        if dra == "on":
            until(lambda: all(devices_of(service).devices_on(name) for name in NODES[1:]))
            until(lambda: devices_of(service).complete)
        pod = claiming()

        assert scores(client, pod) == expected
        assert scores(client, pod_of(4, name="plain")) == [10, 10, 10, 10], "it has no claims"
        said = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": list(NODES)})[1]["nodes"]
        assert [each["score"] for each in said] == expected
        kept = client.call("GET", f"/v1/pods/{pod['metadata']['uid']}/decision")[1]
        best = {each["node"]: each["score"] for each in kept["calls"][0]["best"]}
        assert [best[name] for name in NODES] == expected


def test_what_if_names_what_is_not_known(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a") as (_, _, client):
        client.report(report_of(sample("node-a")))

        assert any("NUMA_EXTENDER_DRA is off" in note for note in notes(client, claiming()))
        assert why(client, claiming()) == "", "without the setting a demand does not cover claims"


@pytest.mark.parametrize(
    ("policy", "text"),
    [("static", "neither knows of the other's"), ("none", "are allocated by the DRA driver dra.cpu")],
)
def test_a_node_whose_cpus_a_driver_allocates_is_recognised(tmp_path: Path, policy: str, text: str) -> None:
    configuration: Json = {} if policy == "static" else {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        client.report(report_of(sample("node-a", **configuration)))
        publish(server, "dra.cpu", cpudev_0=0, cpudev_1=1)
        until(lambda: len(devices_of(service).devices_on("node-a")) == 2)

        assert any(text in note for note in notes(client, pod_of(4)))


@pytest.mark.parametrize(("near", "reason"), [([0, 1], ""), ([1, 0], ""), ([0], ELSEWHERE), (0, ELSEWHERE)])
def test_a_device_is_local_to_every_numa_node_of_a_list(tmp_path: Path, near: Any, reason: str) -> None:  # noqa: ANN401
    """The room is on NUMA node 1."""
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        report(server, service, client, "node-a", workloads=ONE_TAKEN)
        publish(server, gpu_0=near)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        allocate(server, "gpu-0")
        until_allocated(service)
        until(lambda: len(devices_of(service).devices_on("node-a")) == 1)

        assert why(client, claiming()) == reason


NOT_PLACED = "the pod demands alignment and the node's kubelet would not place it on NUMA nodes"


@pytest.mark.parametrize(("numa", "bound"), [(1, True), (None, False)])
def test_cpus_of_a_claim_meet_a_demand(tmp_path: Path, numa: int | None, bound: bool) -> None:  # noqa: FBT001
    """The driver for CPUs needs a kubelet that places none."""
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        client.report(report_of(sample("node-a", cpuManagerPolicy="none", memoryManagerPolicy="None")))
        assert why(client, claiming()) == NOT_PLACED
        publish(server, "dra.cpu", cpudevnuma001=numa)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        until(lambda: len(devices_of(service).devices_on("node-a")) == 1)
        pod = server.pods.create(claiming())
        plain = pod_of(4, name="plain")
        plain["metadata"]["annotations"] = pod["metadata"]["annotations"]
        (answer,) = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": ["node-a"]})[1]["nodes"]
        assert (answer["outcome"], answer["certainty"]) == ("fits", "possible")

        assert why(client, pod) == "", "the claim is still to be allocated"
        assert why(client, plain) == NOT_PLACED
        assert "not known yet which devices" in client.bind(pod, "node-a")
        allocate(server, "cpudevnuma001", driver="dra.cpu")
        until_allocated(service)
        assert why(client, pod) == ("" if bound else NOT_SAID)
        assert (client.bind(pod, "node-a") == "") is bound


def test_cpus_of_claims_on_two_numa_nodes_break_a_demand(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        client.report(report_of(sample("node-a", cpuManagerPolicy="none", memoryManagerPolicy="None")))
        publish(server, "dra.cpu", cpudevnuma000=0, cpudevnuma001=1)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
        until(lambda: len(devices_of(service).devices_on("node-a")) == 2)
        allocate(server, "cpudevnuma000", "cpudevnuma001", driver="dra.cpu")
        until_allocated(service)

        assert why(client, claiming()) == ELSEWHERE


@pytest.mark.parametrize(("on", "reason"), [((1,), ""), ((0, 1), ELSEWHERE), ((), NOT_SAID)])
def test_a_prepared_claim_has_its_cpus_where_the_report_says(tmp_path: Path, on: tuple[int, ...], reason: str) -> None:
    """The device is a socket, of which the driver names no NUMA node. *on*: the NUMA nodes of the claim's CPUs."""
    report = report_of(sample("node-a", cpuManagerPolicy="none", memoryManagerPolicy="None"))
    cpus = ",".join(str(cpu) for cpu, _, _, numa, _ in report["machine"]["cpus"] if numa in on)
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        claims = {"of-another": "0-3", "broken": "x"} | ({"claim-uid": cpus} if on else {})
        client.report({**report, "claimed_cpus": claims})
        publish(server, "dra.cpu", cpudevsocket000=None)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default", "uid": "claim-uid"}})
        until(lambda: len(devices_of(service).devices_on("node-a")) == 1)
        allocate(server, "cpudevsocket000", driver="dra.cpu")
        until_allocated(service)

        until(lambda: why(client, claiming()) == reason)


def test_cpus_of_a_prepared_claim_are_those_of_the_last_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature, "ROOTS_SECONDS", 0.05)
    none: dict[str, Any] = {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}
    report, other = (report_of(sample("node-a", hardware=replace(DUAL, cores_per_numa=n), **none)) for n in (8, 4))
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        publish(server, "dra.cpu", cpudevsocket000=None)
        server.claims.create({"metadata": {"name": "gpu", "namespace": "default", "uid": "claim-uid"}})
        until(lambda: len(devices_of(service).devices_on("node-a")) == 1)
        allocate(server, "cpudevsocket000", driver="dra.cpu")
        until_allocated(service)
        for sequence, document, cpus, reason in (
            (1, report, "0-15", ELSEWHERE),
            (2, report, "0-7", ""),
            (3, other, "0-7", ELSEWHERE),  # the machine has been replaced: these CPUs are on two of its NUMA nodes
        ):
            client.report({**document, "sequence": sequence, "claimed_cpus": {"claim-uid": cpus}})
            until(lambda reason=reason: why(client, claiming()) == reason)  # type: ignore[misc]
        server.nodes.delete("node-a")
        until(lambda: not devices_of(service).cpus)


def extended(name: str = "p") -> Json:
    """A pod whose second container requests a GPU that no device plugin of the node serves."""
    pod = pod_of(4, name=name)
    pod["metadata"]["annotations"] = {"numa-extender.io/alignment": "single-numa-node"}
    first = pod["spec"]["containers"][0]
    limits = {**first["resources"]["limits"], "dra.example.com/gpu": "1"}
    second = {**first, "name": "second", "resources": {"limits": limits, "requests": limits}}
    pod["spec"]["containers"] = [first, second]
    return pod


@pytest.mark.parametrize(("device", "bound"), [("gpu-0", True), ("gpu-1", False), ("gpu-x", False)])
def test_a_demand_covers_a_device_of_an_extended_resource(tmp_path: Path, device: str, bound: bool) -> None:  # noqa: FBT001
    """kube-scheduler makes the claim between filter and bind."""
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        client.report(report_of(sample("node-a")))
        publish(server, gpu_0=0, gpu_1=1, gpu_x=None)
        until(lambda: len(devices_of(service).devices_on("node-a")) == 3)
        pod = server.pods.create(extended())
        (note,) = notes(client, pod)
        assert "no device plugin of the node serves dra.example.com/gpu" in note

        assert why(client, pod) == "", "an allocation is still to come"
        assert "not known yet which devices" in client.bind(pod, "node-a")
        owner = {"kind": "Pod", "name": "p", "uid": pod["metadata"]["uid"], "apiVersion": "v1"}
        metadata = {
            "name": "p-extended-resources-x",
            "namespace": "default",
            "annotations": {"resource.kubernetes.io/extended-resource-claim": "true"},
            "ownerReferences": [owner],
        }
        server.claims.create({"metadata": metadata})
        allocate(server, device, name="p-extended-resources-x", request="container-1-request-2")
        until(lambda: devices_of(service).devices_for_extended(pod["metadata"]["uid"], "node-a") is not None)
        assert devices_of(service).devices_for_extended(pod["metadata"]["uid"], "node-b") is None
        error = client.bind(pod, "node-a")
        assert (error == "") is bound, error
        if not bound:
            assert (NOT_SAID if device == "gpu-x" else ELSEWHERE) in error
            assert why(client, pod) in (NOT_SAID, ELSEWHERE)


def test_a_resource_of_a_device_plugin_needs_no_claim(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", **ON) as (server, _service, client):
        client.report(report_of(sample("node-a", devices={"dra.example.com/gpu": [0, 1]})))
        pod = server.pods.create(extended())
        assert why(client, pod) == ""
        assert client.bind(pod, "node-a") == ""


def claimed_gpu(server: FakeApiServer, *names: str) -> None:
    """The class `gpu`, and claims for one device of it."""
    server.classes.create({"metadata": {"name": "gpu"}, "spec": {"selectors": [{"cel": {"expression": "true"}}]}})
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    for name in names:
        server.claims.create(
            {"metadata": {"name": name, "namespace": "default"}, "spec": {"devices": {"requests": [request]}}}
        )


def claiming_of(claim: str, *, demand: str = "single-numa-node") -> Json:
    """A pod of this name with the claim of this name."""
    pod = claiming(claim, demand=demand)
    pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = claim
    return pod


def forecasts_of(service: Service, *claims: str, number_of_devices: int = 2) -> Forecasts:
    """The predictions, as soon as these claims and the devices of node-b are known."""
    (feature,) = (each for each in service.features if isinstance(each, ClaimsFeature))
    forecasts = feature.forecasts
    assert forecasts is not None
    until(lambda: len(devices_of(service).devices_on("node-b")) == number_of_devices)
    until(lambda: forecasts.is_complete and all(forecasts.objects.claim(f"default/{each}") for each in claims))
    return forecasts


def refusals(reply: Json) -> Json:
    """The reasons by node."""
    return {**reply["FailedNodes"], **reply["FailedAndUnresolvableNodes"]}


def counted(service: Service) -> Json:
    """Predictions by result."""
    results = ("agrees", "differs", "not_known")
    return {each: service.metrics.claim_forecasts.labels(each)._value.get() for each in results}


TWO_NODES: Json = {**ON, "dra_scheduler": "1.36.3"}
FIRST_ELSEWHERE, FIRST_BESIDE = {"gpu_0": 1, "gpu_1": 0}, {"gpu_0": 0, "gpu_1": 1}
"""The NUMA nodes of two devices. The kubelets of empty nodes place CPUs on NUMA node 0."""


@contextmanager
def two_nodes(
    directory: Path, a: Json = FIRST_ELSEWHERE, b: Json = FIRST_BESIDE, **settings: Any
) -> Iterator[tuple[FakeApiServer, Service, Client]]:
    """Two empty nodes with these devices. What kube-scheduler will allocate is predicted."""
    with cluster(directory, "node-a", "node-b", **TWO_NODES, **settings) as (server, service, client):
        report(server, service, client, "node-a", "node-b")
        publish(server, **a)
        publish(server, node="node-b", **b)
        yield server, service, client


def test_filter_refuses_a_node_where_kube_scheduler_will_take_a_device_elsewhere(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server, "gpu")
        pod = server.pods.create(claiming())
        forecasts_of(service, "gpu")

        reply = client.filter(pod, "node-a", "node-b")
        assert reply["NodeNames"] == ["node-b"]
        assert refusals(reply) == {"node-a": WOULD_BE_ELSEWHERE}
        assert refusals(client.filter(pod, "node-a")) == {"node-a": WOULD_BE_ELSEWHERE}
        assert client.filter(claiming(demand="none"), "node-a")["NodeNames"] == ["node-a"], "only a demand counts"

        assert client.filter(pod, "node-a", "node-b")["NodeNames"] == ["node-b"]
        allocate(server, "gpu-0", node="node-b")
        until_allocated(service, node="node-b")
        assert client.bind(pod, "node-b") == ""
        assert counted(service) == {"agrees": 1, "differs": 0, "not_known": 0}


def test_a_device_that_was_just_released_may_still_be_held(tmp_path: Path) -> None:
    """kube-scheduler's watch can be behind ours."""
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server, "gpu", "ended")
        pod = server.pods.create(claiming())
        forecasts_of(service, "gpu", "ended")
        allocate(server, "gpu-0", name="ended")
        until(lambda: client.filter(pod, "node-a")["NodeNames"] == ["node-a"])

        server.claims.patch("ended", {"status": {"allocation": None}})
        until(lambda: client.filter(pod, "node-a", "node-b")["NodeNames"] == ["node-b"])
        until(lambda: refusals(client.filter(pod, "node-a")) == {"node-a": WOULD_BE_ELSEWHERE})


def test_without_a_demand_such_a_node_ranks_lower(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server, "gpu")
        pod = server.pods.create(claiming(demand="none"))
        forecasts_of(service, "gpu")

        assert client.filter(pod, "node-a", "node-b")["NodeNames"] == ["node-a", "node-b"]
        args = {"Pod": pod, "NodeNames": ["node-a", "node-b"]}
        scores = {each["Host"]: each["Score"] for each in client.call("POST", "/scheduler/prioritize", args)[1]}
        assert scores["node-a"] <= 2
        assert scores["node-b"] >= 8

        allocate(server, "gpu-1")
        until_allocated(service)
        assert client.bind(pod, "node-a") == ""
        assert counted(service) == {"agrees": 0, "differs": 1, "not_known": 0}


@pytest.mark.parametrize("seconds", [60.0, 0.0])
def test_a_pod_in_flight_may_have_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """On node-a the first device is beside the CPUs, and the second is not. The pod in flight has the first one."""
    monkeypatch.setattr("extender.features.claims.objector.AWAIT_SECONDS", seconds)
    with two_nodes(tmp_path, {"gpu_0": 0, "gpu_1": 1}, {"gpu_0": 0, "gpu_1": 0}) as (server, service, client):
        claimed_gpu(server, "first", "second")
        first = server.pods.create(claiming_of("first"))
        second = server.pods.create(claiming_of("second"))
        forecasts_of(service, "first", "second")

        assert client.filter(second, "node-a", "node-b")["NodeNames"] == ["node-a", "node-b"]
        assert client.filter(first, "node-a")["NodeNames"] == ["node-a"]
        assert client.filter(second, "node-a", "node-b")["NodeNames"] == ["node-b"]
        for _ in range(3):
            reply = client.filter(second, "node-a")
            assert reply["Error"].endswith(IN_FLIGHT) if seconds else reply["NodeNames"] == ["node-a"]

        allocate(server, "gpu-0", name="first")
        until_allocated(service, "first")
        assert client.bind(first, "node-a") == ""
        assert refusals(client.filter(second, "node-a")) == {"node-a": WOULD_BE_ELSEWHERE}


def test_an_answer_that_comes_late_is_no_error_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However long kube-scheduler takes for its next try: of two calls after the time limit one passes."""
    monkeypatch.setattr("extender.features.claims.objector.AWAIT_SECONDS", 60.0)
    with two_nodes(tmp_path, FIRST_BESIDE) as (server, service, client):
        claimed_gpu(server, "first", "second")
        first, second = (server.pods.create(claiming_of(name)) for name in ("first", "second"))
        forecasts_of(service, "first", "second")
        client.filter(first, "node-a")
        (check,) = (each for each in service.scheduling.objectors if isinstance(each, ClaimCheck))
        now = [service.clock()]
        check._clock = lambda: now[0]
        passed = []
        for _ in range(4):
            passed.append(client.filter(second, "node-a")["NodeNames"] == ["node-a"])
            now[0] += 1000
        assert passed == [False, True, False, True]


def test_a_pod_in_flight_that_can_be_on_too_many_nodes_makes_filter_unsure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("extender.features.claims.call_forecast.MAX_NEAR", 0)
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server, "first", "second")
        first = server.pods.create(claiming_of("first", demand="none"))
        second = server.pods.create(claiming_of("second"))
        forecasts_of(service, "first", "second")

        assert refusals(client.filter(second, "node-a")) == {"node-a": WOULD_BE_ELSEWHERE}
        assert client.filter(first, "node-a", "node-b")["NodeNames"] == ["node-a", "node-b"]
        assert client.filter(second, "node-a", "node-b")["NodeNames"] == ["node-b"]
        assert client.filter(second, "node-a")["Error"].endswith(IN_FLIGHT)


def test_after_wrong_predictions_filter_avoids_nodes_and_refuses_none(tmp_path: Path) -> None:
    with two_nodes(
        tmp_path, {"gpu_0": 1, "gpu_1": 0}, {"gpu_0": 0, "gpu_1": 0, "gpu_2": 0, "gpu_3": 0, "gpu_4": 0}
    ) as (server, service, client):
        wrong = ["gpu", "w-0", "w-1", "w-2"]
        claimed_gpu(server, *wrong)
        pods = [server.pods.create(claiming_of(name)) for name in wrong]
        forecasts_of(service, *wrong, number_of_devices=5)

        for device, pod in zip(range(4, 1, -1), pods[1:], strict=True):
            assert refusals(client.filter(pods[0], "node-a")) == {"node-a": WOULD_BE_ELSEWHERE}
            assert client.filter(pod, "node-b")["NodeNames"] == ["node-b"]
            claim = pod["metadata"]["name"]
            allocate(server, f"gpu-{device}", name=claim, node="node-b")
            until_allocated(service, claim, node="node-b")
            client.bind(pod, "node-b")
        assert counted(service) == {"agrees": 0, "differs": 3, "not_known": 0}
        assert client.filter(pods[0], "node-a")["NodeNames"] == ["node-a"]


def test_what_if_says_which_device_kube_scheduler_will_take(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server, "gpu")
        pod = server.pods.create(claiming())
        forecasts_of(service, "gpu")

        answers = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": ["node-a", "node-b"]})[1]["nodes"]
        taken = "container app: kube-scheduler will take device gpu-0 of gpu.example.com, which is on NUMA node"
        assert f"{taken} 1, and the rest is on NUMA node 0" in answers[0]["notes"]
        assert f"{taken} 0, with everything else" in answers[1]["notes"]
        assert [each["why"] for each in answers] == [WOULD_BE_ELSEWHERE, ""]

        allocate(server, "gpu-1")
        until_allocated(service)
        (answer,) = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": ["node-a"]})[1]["nodes"]
        assert answer["outcome"] == "fits"
        assert (
            "container app: device gpu-1 of gpu.example.com is on NUMA node 0, with everything else" in answer["notes"]
        )


def a_template(server: FakeApiServer) -> None:
    """The template `gpus` of claims for one device."""
    request = {"name": "r", "exactly": {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}}
    metadata = {"name": "gpus", "namespace": "default"}
    server.claim_templates.create({"metadata": metadata, "spec": {"spec": {"devices": {"requests": [request]}}}})


def test_a_claim_from_a_template_is_predicted_before_it_exists(tmp_path: Path) -> None:
    """By what-if for a pod that is not created, and by filter while the watch of claims is behind."""
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server)
        a_template(server)
        forecasts = forecasts_of(service)
        until(lambda: "default/gpus" in forecasts.objects.templates)
        pod = claiming()

        assert refusals(client.filter(pod, "node-a", "node-b")) == {"node-a": WOULD_BE_ELSEWHERE}
        del pod["status"]
        answers = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": ["node-a", "node-b"]})[1]["nodes"]
        taken = "container app: kube-scheduler will take device gpu-0 of gpu.example.com, which is on NUMA node"
        assert f"{taken} 1, and the rest is on NUMA node 0" in answers[0]["notes"]
        assert f"{taken} 0, with everything else" in answers[1]["notes"]
        assert [each["why"] for each in answers] == [WOULD_BE_ELSEWHERE, ""]


def test_devices_for_an_extended_resource_are_predicted(tmp_path: Path) -> None:
    """The class stands for the resource. Where a device plugin has it, the kubelet aligns it."""
    with two_nodes(tmp_path) as (server, service, client):
        server.classes.create({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "dra.example.com/gpu"}})
        pod = server.pods.create(extended())
        pod["spec"]["containers"].pop(0)
        forecasts_of(service)

        for name in ("node-a", "node-b"):
            server.nodes.patch(name, {"status": {"allocatable": {"cpu": "64"}}})
            until(partial(has_totals, service, name))
        reply = client.filter(pod, "node-a", "node-b")
        assert refusals(reply) == {"node-a": WOULD_BE_ELSEWHERE}
        answers = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": ["node-a", "node-b"]})[1]["nodes"]
        taken = "container second: kube-scheduler will take device gpu-0 of gpu.example.com, which is on NUMA node"
        assert f"{taken} 1, and the rest is on NUMA node 0" in answers[0]["notes"]
        assert f"{taken} 0, with everything else" in answers[1]["notes"]
        assert [each["why"] for each in answers] == [WOULD_BE_ELSEWHERE, ""]

        pod["metadata"]["annotations"] = {}
        args = {"Pod": pod, "NodeNames": ["node-a", "node-b"]}
        client.filter(pod, "node-a", "node-b")
        scores = {each["Host"]: each["Score"] for each in client.call("POST", "/scheduler/prioritize", args)[1]}
        assert scores["node-a"] <= 2
        assert scores["node-b"] >= 8


def test_a_pcie_root_tells_the_numa_node_by_the_report_of_the_node(tmp_path: Path) -> None:
    """A table that comes later, or changes, is used for what was known before."""
    with cluster(tmp_path, "node-a", "node-b", **TWO_NODES) as (server, service, client):
        for name in ("node-a", "node-b"):
            client.report(report_of(sample(name)))
        attributes = {"resource.kubernetes.io/pcieRoot": {"string": "pci0000:3a"}}
        publish(server, node="node-b", gpu_0=0)
        server.slices.create(
            {
                "metadata": {"name": "roots"},
                "spec": {
                    "driver": DRIVER,
                    "nodeName": "node-a",
                    "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
                    "devices": [{"name": "gpu-0", "attributes": attributes}],
                },
            }
        )
        claimed_gpu(server, "gpu")
        pod = server.pods.create(claiming())
        forecasts_of(service, "gpu", number_of_devices=1)
        assert refusals(client.filter(pod, "node-a")) == {"node-a": NOT_SAID}

        client.report({**report_of(sample("node-a"), sequence=2), "pcie_roots": {"pci0000:3a": 0, "pci0000:5d": 1}})
        until(lambda: devices_of(service).devices_on("node-a")[0].numa == 1)
        assert why(client, pod) == ""
        client.report({**report_of(sample("node-a"), sequence=3), "pcie_roots": {"pci0000:3a": 1}})
        until(lambda: why(client, pod) == WOULD_BE_ELSEWHERE)


def test_an_event_and_the_audit_say_what_is_allocated(tmp_path: Path) -> None:
    """An event names the device that kube-scheduler would take; the audit counts whether it took the predicted ones."""
    with two_nodes(tmp_path, pod_events="on") as (server, service, client):
        claimed_gpu(server, "gpu")
        pod = server.pods.create(claiming())
        forecasts_of(service, "gpu")

        assert refusals(client.filter(pod, "node-a")) == {"node-a": WOULD_BE_ELSEWHERE}
        until(lambda: len(server.events.list()) == 1)
        (event,) = server.events.list()
        taken = "container app: kube-scheduler will take device gpu-0 of gpu.example.com, which is on NUMA node 1"
        assert f"On node-a, {taken}, and the rest is on NUMA node 0." in event["message"]

        assert client.filter(pod, "node-b")["NodeNames"] == ["node-b"]
        allocate(server, "gpu-0", node="node-b")
        until_allocated(service, node="node-b")
        assert client.bind(pod, "node-b") == ""
        assert client.call("GET", "/v1/audit")[1]["allocations"] == {"agrees": 1, "differs": 0, "not_known": 0}


def plan(client: Client, pod: Json, copies: int) -> list[Json]:
    """The lines of the reply: one for each pod, and the summary."""
    reply = HTTP.post(f"{client.url}/v1/plan", json={"pods": [{"pod": pod, "copies": copies}]})
    return [orjson.loads(line) for line in reply.raise_for_status().text.splitlines()]


def capacity(client: Client, pod: Json, **more: Any) -> Json:
    """The reply."""
    return dict(client.call("POST", "/v1/capacity", {"pods": [pod], **more})[1])


LEFT_OUT = "claims are left out here: what-if says for one pod which devices it gets, and where they are"


def test_capacity_says_that_claims_are_left_out(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", **ON) as (_server, _service, client):
        client.report(report_of(sample("node-a")))
        assert LEFT_OUT in capacity(client, claiming())["summary"]["notes"]


def from_template(service: Service, server: FakeApiServer, *, demand: str = "single-numa-node") -> Json:
    """A pod whose claim is to be made from a template that is known."""
    claimed_gpu(server)
    a_template(server)
    forecasts = forecasts_of(service)
    until(lambda: "default/gpus" in forecasts.objects.templates)
    pod = claiming(demand=demand)
    del pod["status"]
    return pod


@pytest.mark.parametrize(
    ("demand", "copies", "why"),
    [("none", [2, 2], "kube-scheduler: claims"), ("single-numa-node", [0, 1], "the pod demands one NUMA node")],
)
def test_capacity_counts_devices(tmp_path: Path, demand: str, copies: list[int], why: str) -> None:
    """On node-a the first device is elsewhere. On node-b the second one is: so a second copy breaks its demand."""
    with two_nodes(tmp_path) as (server, service, client):
        reply = capacity(client, from_template(service, server, demand=demand))
        assert [each["copies"] for each in reply["nodes"]] == copies
        assert all(each["limited_by"]["why"].startswith(why) for each in reply["nodes"]), reply["nodes"]
        assert {each["certainty"] for each in reply["nodes"]} == {"exact"}
        assert not [note for note in reply["summary"]["notes"] if "left out" in note]


def test_capacity_counts_devices_for_an_extended_resource(tmp_path: Path) -> None:
    """kube-scheduler does not check the totals of a resource that claims serve. What-if says so as well."""
    with two_nodes(tmp_path) as (server, service, client):
        server.classes.create({"metadata": {"name": "gpu"}, "spec": {"extendedResourceName": "dra.example.com/gpu"}})
        for name in ("node-a", "node-b"):
            server.nodes.patch(name, {"status": {"allocatable": {"cpu": "64", "memory": "100Gi"}}})
            until(partial(has_totals, service, name))
        pod = extended()
        pod["metadata"]["annotations"] = {}
        forecasts_of(service)
        reply = capacity(client, pod, nodes=["node-a", "node-b"])
        assert [(each["copies"], each["limited_by"]["why"]) for each in reply["nodes"]] == 2 * [
            (2, "kube-scheduler: claims")
        ]
        answers = client.call("POST", "/v1/what-if", {"pod": pod, "nodes": ["node-a", "node-b"]})[1]["nodes"]
        assert [each["outcome"] for each in answers] == ["fits", "fits"]


def test_claims_are_left_out_where_devices_are_not_local_to_one_node(tmp_path: Path) -> None:
    with two_nodes(tmp_path) as (server, service, client):
        pool = {"name": "all", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "other.example.com", "allNodes": True, "pool": pool, "devices": [{"name": "any"}]}
        server.slices.create({"metadata": {"name": "all"}, "spec": spec})
        until(lambda: bool(devices_of(service).devices_on("")))
        pod = from_template(service, server, demand="none")
        reply = capacity(client, pod)
        note = "claims are left out on 2 nodes: it is not known which devices they get"
        assert note in reply["summary"]["notes"]
        assert {each["certainty"] for each in reply["nodes"]} == {"possible"}
        assert note in plan(client, pod, 1)[-1]["summary"]["notes"]


@pytest.mark.parametrize(
    ("copy", "copies"),
    [({}, 1), ({"empty": True}, 2), ({"name": "new", "empty": True}, 2)],
    ids=["with its pods", "empty", "of another name"],
)
def test_capacity_counts_devices_of_a_copy_of_a_node(tmp_path: Path, copy: Json, copies: int) -> None:
    """One of the two devices of the node is allocated. An empty copy has both."""
    with two_nodes(tmp_path) as (server, service, client):
        pod = from_template(service, server, demand="none")
        server.claims.create({"metadata": {"name": "other", "namespace": "default"}})
        allocate(server, "gpu-1", name="other")
        until_allocated(service, "other")
        reply = capacity(client, pod, hypothetical=[{"copy_of": "node-a", **copy}])
        (node,) = reply["nodes"]
        assert (node["copies"], node["limited_by"]["why"]) == (copies, "kube-scheduler: claims")
        assert node["certainty"] == "exact"
        question = {"pod": pod, "hypothetical": [{"copy_of": "node-a", **copy}]}
        (answer,) = client.call("POST", "/v1/what-if", question)[1]["nodes"]
        assert "kube-scheduler will take device gpu-0" in " ".join(answer["notes"])


def test_claims_are_left_out_on_a_copy_with_other_pods(tmp_path: Path) -> None:
    """What the claims of the pods that are added or removed have is not known."""
    with two_nodes(tmp_path) as (server, service, client):
        pod = from_template(service, server, demand="none")
        reply = capacity(client, pod, hypothetical=[{"copy_of": "node-a", "add_pods": [pod_of(1)]}])
        assert "claims are left out on 1 node: it is not known which devices they get" in reply["summary"]["notes"]
        assert reply["nodes"][0]["copies"] > 2


def test_a_plan_places_pods_by_their_devices(tmp_path: Path) -> None:
    """The first one goes where its device is beside its CPUs. With a demand no further one does."""
    with two_nodes(tmp_path) as (server, service, client):
        pod = from_template(service, server, demand="none")
        placed = plan(client, pod, 5)
        nodes = [each["node"] for each in placed[:-1]]
        assert nodes[0] == "node-b"
        assert sorted(nodes[1:4]) == ["node-a", "node-a", "node-b"]
        assert (nodes[4], placed[4]["reasons"]) == (None, {"kube-scheduler: claims": 2})

        pod["metadata"]["annotations"] = {"numa-extender.io/alignment": "single-numa-node"}
        placed = plan(client, pod, 2)
        assert [each["node"] for each in placed[:-1]] == ["node-b", None]
        assert placed[1]["reasons"] == {WOULD_BE_ELSEWHERE: 2}


@pytest.mark.parametrize("demand", ["none", "single-numa-node"])
def test_cpus_of_the_driver_are_counted_where_the_kubelet_places_none(tmp_path: Path, demand: str) -> None:
    """Devices of 14 and 10 CPUs that claims of 4 CPUs share: 3 and 2. The kubelet of node-b has the policy none."""
    none: dict[str, Any] = {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}
    with cluster(tmp_path, "node-a", "node-b", **TWO_NODES) as (server, service, client):
        report(server, service, client, "node-b", **none)
        devices = [
            {
                "name": f"cpudevnuma00{numa}",
                "allowMultipleAllocations": True,
                "attributes": {NUMA: {"int": numa}},
                "capacity": {"dra.cpu/cpu": {"value": str(cpus)}},
            }
            for numa, cpus in enumerate((14, 10))
        ]
        pool = {"name": "node-b", "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": "dra.cpu", "nodeName": "node-b", "pool": pool, "devices": devices}
        server.slices.create({"metadata": {"name": "cpus"}, "spec": spec})
        server.classes.create({"metadata": {"name": "cpu"}, "spec": {}})
        exactly = {"deviceClassName": "cpu", "count": 1, "capacity": {"requests": {"dra.cpu/cpu": "4"}}}
        metadata, request = {"name": "gpus", "namespace": "default"}, {"name": "r", "exactly": exactly}
        server.claim_templates.create({"metadata": metadata, "spec": {"spec": {"devices": {"requests": [request]}}}})
        forecasts = forecasts_of(service)
        until(lambda: "default/gpus" in forecasts.objects.templates)
        pod = claiming(demand=demand)
        del pod["status"]
        (node,) = capacity(client, pod, nodes=["node-b"])["nodes"]
        assert (node["copies"], node["limited_by"]["why"]) == (5, "kube-scheduler: claims"), node
        placed = plan(client, pod, 7)
        assert [each["node"] for each in placed[:-1]] == 5 * ["node-b"] + 2 * [None]


def a_holder(server: FakeApiServer, service: Service, device: str) -> None:
    """A running pod of a ReplicaSet that has only this device of node-a, by a claim made from a template."""
    holder = claiming("holder", demand="none")
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "h", "uid": "h", "controller": True}
    holder["metadata"]["ownerReferences"] = [owner]
    del holder["spec"]["containers"][0]["resources"]["requests"]
    del holder["spec"]["containers"][0]["resources"]["limits"]
    holder["spec"]["nodeName"] = "node-a"
    holder["status"] |= {"phase": "Running", "qosClass": "BestEffort"}
    server.claims.create({"metadata": {"name": "gpu", "namespace": "default"}})
    allocate(server, device)
    server.pods.create(holder)
    until_allocated(service)
    until(partial(has_pods, service, "node-a", 1))


def advice(client: Client, question: str, pod: Json) -> Json:
    """The last line of the reply."""
    reply = HTTP.post(f"{client.url}/v1/advice/{question}", json={"pod": pod}).raise_for_status()
    return dict(orjson.loads(reply.text.splitlines()[-1]))


ONLY_ON_1: Json = {"gpu_0": 1, "gpu_1": 1}


@pytest.mark.parametrize("device", ["gpu-0", "gpu-1"])
def test_make_room_evicts_the_pod_that_has_the_device(tmp_path: Path, device: str) -> None:
    """kube-scheduler takes the first free device of node-a. Only gpu-0 is on the NUMA node of the CPUs."""
    with two_nodes(tmp_path, FIRST_BESIDE, ONLY_ON_1) as (server, service, client):
        a_holder(server, service, device)
        pod = from_template(service, server)
        reply = advice(client, "make-room", pod)
        assert not [note for note in reply["notes"] if "left out" in note or "DRA drivers allocate" in note]
        if device == "gpu-1":
            assert (reply["result"], reply["plans"][0]["node"]) == ("fits", "node-a")
            return
        assert reply["result"] == "room", reply
        (eviction,) = reply["plans"][0]["evictions"]
        assert (eviction["pod"], eviction["node"], eviction["to"]) == ("default/holder", "node-a", "node-b")


def test_make_room_evicts_no_pod_that_would_get_no_device_elsewhere(tmp_path: Path) -> None:
    with two_nodes(tmp_path, FIRST_BESIDE, ONLY_ON_1) as (server, service, client):
        a_holder(server, service, "gpu-0")
        pod = from_template(service, server)
        for name in ("x", "y"):
            server.claims.create({"metadata": {"name": name, "namespace": "default"}})
            allocate(server, f"gpu-{'xy'.index(name)}", name=name, node="node-b")
            until_allocated(service, name, node="node-b")
        reply = advice(client, "make-room", pod)
        assert (reply["result"], reply["plans"]) == ("none", [])
        assert any("would find no place elsewhere" in each for each in reply["blocked"]), reply["blocked"]


def test_defragment_counts_devices(tmp_path: Path) -> None:
    """A copy of the pod is aligned as soon as the holder of gpu-0 has moved."""
    with two_nodes(tmp_path, FIRST_BESIDE, ONLY_ON_1) as (server, service, client):
        a_holder(server, service, "gpu-0")
        reply = advice(client, "defragment", from_template(service, server))
        assert [(each["moves"], each["copies"]) for each in reply["curve"]] == [(0, 0), (1, 1)], reply
        (moved,) = reply["curve"][1]["evictions"]
        assert (moved["pod"], moved["to"]) == ("default/holder", "node-b")


def test_a_pod_whose_claim_was_deallocated_is_in_flight_before_the_watch_shows_it(tmp_path: Path) -> None:
    """kube-scheduler offers node-b as well, so the claim is not allocated any more. The pod gets gpu-0 there."""
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server, "first", "second")
        first = server.pods.create(claiming_of("first", demand="none"))
        second = server.pods.create(claiming_of("second", demand="none"))
        forecasts_of(service, "first", "second")
        allocate(server, "gpu-0", name="first")
        until_allocated(service, "first")

        for pod in (first, second):
            names = ["node-a", "node-b"]
            assert client.filter(pod, *names)["NodeNames"] == names
            client.call("POST", "/scheduler/prioritize", {"Pod": pod, "NodeNames": names})
        for name, device in (("first", "gpu-0"), ("second", "gpu-1")):
            allocate(server, device, name=name, node="node-b")
            until_allocated(service, name, node="node-b")
            until(partial(devices_of(service).is_allocated_for, f"default/{name}", "node-b"))
        assert client.bind(second, "node-b") == ""
        assert counted(service) == {"agrees": 0, "differs": 0, "not_known": 1}
        assert client.bind(first, "node-b") == ""
        assert counted(service) == {"agrees": 1, "differs": 0, "not_known": 1}


def test_a_claim_that_gets_the_same_devices_again_is_written(tmp_path: Path) -> None:
    """kube-scheduler has deallocated it, and chooses the same device: then the watch shows no change."""
    with two_nodes(tmp_path) as (server, service, client):
        claimed_gpu(server, "gpu")
        pod = server.pods.create(claiming(demand="none"))
        forecasts = forecasts_of(service, "gpu")
        allocate(server, "gpu-0")
        until_allocated(service)
        assert client.filter(pod, "node-a", "node-b")["NodeNames"] == ["node-a", "node-b"]
        assert client.bind(pod, "node-a") == ""
        assert not forecasts._flights
        assert sum(counted(service).values()) == 1


def test_what_follows_from_an_uncertain_prediction_is_uncertain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the first pod may be is not counted for the second one, which gets gpu-1. So the third one gets gpu-2."""
    pods: dict[str, Json] = {}
    with two_nodes(tmp_path, b={"gpu_0": 0, "gpu_1": 0, "gpu_2": 0}) as (server, service, client):
        claimed_gpu(server, "first", "second", "third")
        forecasts_of(service, "first", "second", "third", number_of_devices=3)
        for name in ("first", "second", "third"):
            pods[name] = server.pods.create(claiming_of(name, demand="none"))
        with monkeypatch.context() as patched:
            patched.setattr("extender.features.claims.call_forecast.MAX_NEAR", 0)
            for name in ("first", "second"):
                assert client.filter(pods[name], "node-b")["NodeNames"] == ["node-b"]
        for name, device in (("first", "gpu-0"), ("second", "gpu-1"), ("third", "gpu-2")):
            allocate(server, device, name=name, node="node-b")
            until_allocated(service, name, node="node-b")
            if name == "first":
                assert client.filter(pods["third"], "node-b")["NodeNames"] == ["node-b"]
        assert client.bind(pods["third"], "node-b") == ""
        assert counted(service) == {"agrees": 0, "differs": 0, "not_known": 1}


def test_filter_waits_for_the_pod_that_decides_which_device_is_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first pod takes the device beside the CPUs, or another node. Its bind call comes before its devices."""
    monkeypatch.setattr("extender.features.claims.objector.COMING_SECONDS", 30.0)
    monkeypatch.setattr("extender.features.claims.coming.MOST_SECONDS", 60.0)
    monkeypatch.setattr("extender.features.claims.coming.OLD_SECONDS", 30.0)
    with two_nodes(tmp_path, FIRST_BESIDE) as (server, service, client):
        claimed_gpu(server, "one", "two")
        forecasts_of(service, "one", "two")
        plain = server.pods.create(pod_of(1, name="plain"))
        client.filter(plain, "node-b")
        assert client.bind(plain, "node-b") == ""
        first, second = (server.pods.create(claiming_of(name)) for name in ("one", "two"))
        assert client.filter(first, "node-a")["NodeNames"] == ["node-a"]

        def bind() -> None:
            threading.Timer(0.3, allocate, (server, "gpu-0"), {"name": "one"}).start()
            assert client.bind(first, "node-a") == ""

        later = threading.Timer(0.1, bind)
        later.start()
        reply = client.filter(second, "node-a")
        later.join()
        assert (reply["Error"], refusals(reply)) == ("", {"node-a": WOULD_BE_ELSEWHERE})


@pytest.mark.parametrize(("seconds", "nodes"), [(60.0, []), (0.0, ["node-a"])])
def test_filter_avoids_a_node_where_the_end_of_a_pod_would_move_the_cpus_away(
    tmp_path: Path, seconds: float, nodes: list[str]
) -> None:
    """On node-a the CPUs are on NUMA node 1, beside the first device, because NUMA node 0 is taken."""
    with cluster(tmp_path, "node-a", "node-b", **TWO_NODES, hold_back_seconds=seconds) as (server, service, client):
        report(server, service, client, "node-a", workloads=ONE_TAKEN)
        report(server, service, client, "node-b")
        publish(server, gpu_0=1, gpu_1=0)
        publish(server, node="node-b", gpu_0=0, gpu_1=1)
        claimed_gpu(server, "gpu")
        forecasts_of(service, "gpu")
        pod = server.pods.create(claiming())
        reply = client.filter(pod, "node-a", "node-b")
        assert reply["NodeNames"] == ["node-b"], refusals(reply)
        alone = client.filter(pod, "node-a")
        assert (alone["NodeNames"] or [], alone["Error"].endswith(AT_RISK)) == (nodes, not nodes)


def test_a_pod_that_filter_has_deferred_for_long_enough_is_bound_at_once(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", **TWO_NODES, hold_back_seconds=1.0) as (server, service, client):
        report(server, service, client, "node-a", workloads=ONE_TAKEN)
        publish(server, gpu_0=1, gpu_1=0)
        publish(server, node="node-b", gpu_0=0, gpu_1=1)
        claimed_gpu(server, "gpu")
        forecasts_of(service, "gpu")
        pod = server.pods.create(claiming())
        assert client.filter(pod, "node-a")["Error"].endswith(AT_RISK)
        until(lambda: client.filter(pod, "node-a")["NodeNames"] == ["node-a"])
        allocate(server, "gpu-0")
        until_allocated(service)
        assert client.bind(pod, "node-a") == ""


def test_a_device_that_kube_scheduler_sees_free_before_we_do_makes_the_node_unsure(tmp_path: Path) -> None:
    """kube-scheduler offers node-a, so it has found a device there, although the watch shows none that is free."""
    with two_nodes(tmp_path, {"gpu_0": 1}) as (server, service, client):
        claimed_gpu(server, "gpu", "held")
        allocate(server, "gpu-0", name="held")
        until_allocated(service, "held")
        forecasts_of(service, "gpu")
        pod = server.pods.create(claiming())
        assert client.filter(pod, "node-a", "node-b")["NodeNames"] == ["node-b"]
        assert client.filter(pod, "node-a")["NodeNames"] == ["node-a"], "no other node may take it"
        server.claims.patch("held", {"status": None})
        allocate(server, "gpu-0")
        until_allocated(service)
        assert ELSEWHERE in client.bind(pod, "node-a")
        assert counted(service) == {"agrees": 0, "differs": 0, "not_known": 1}
