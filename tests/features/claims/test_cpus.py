"""CPUs that are chosen for claims of dra-driver-cpu, where each CPU is a device."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from extender.api.service import Service
from extender.features.claims.cpus.choice import CHOSEN, MAX_CPUS, Choice, NodeCpus, choose
from extender.features.claims.cpus.controller import LABEL, asked_by, decode_waiting
from extender.kubelet.budget import UNLIMITED
from extender.kubelet.machine import Machine
from extender.kubelet.sets import iter_bits
from extender.wire.errors import WireError
from tests.contract.live import Client, cluster
from tests.fakes.apiserver import FakeApiServer
from tests.features.claims.test_contract import DRIVER, devices_of, has_totals, publish, report
from tests.reports import pod_of
from tests.waiting import until

Json = dict[str, Any]
ON: Json = {"dra": "on", "dra_scheduler": "1.36.3", "dra_cpus": "on", "bind_wait_seconds": 3.0}
NONE: Json = {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}


def asking(name: str = "p", cpus: str = "4", *, gpu: str = "", demand: str = "none") -> Json:
    """A pod whose container uses a claim for CPUs that does not exist, and with *gpu* a claim that does."""
    pod = pod_of(4, name=name)
    pod["metadata"] |= {"labels": {LABEL: "cpus"}, "annotations": {"numa-extender.io/alignment": demand}}
    claims = {"cpus": f"{name}-cpus"} | ({"gpu": gpu} if gpu else {})
    pod["spec"]["resourceClaims"] = [{"name": key, "resourceClaimName": of} for key, of in claims.items()]
    pod["spec"]["containers"][0]["resources"] = {
        kind: {"cpu": cpus, "memory": "1Gi"} for kind in ("requests", "limits")
    } | {"claims": [{"name": key} for key in claims]}
    return pod


def machine_of(service: Service, node: str) -> Machine:
    """The machine that the node has reported."""
    record = service.known.nodes.get(node)
    assert record is not None
    assert record.observation.kubelet is not None
    return record.observation.kubelet.machine


def publish_cpus(server: FakeApiServer, machine: Machine, node: str) -> None:
    """A device for each CPU, as the driver publishes them."""
    numa = {cpu: numa for numa, bits in machine.numa_cpus.items() for cpu in iter_bits(bits)}
    devices = [
        {
            "name": f"cpudev{cpu:03}",
            "attributes": {"dra.cpu/cpuID": {"int": cpu}, "resource.kubernetes.io/numaNode": {"int": numa[cpu]}},
        }
        for cpu in sorted(numa)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "dra.cpu", "nodeName": node, "pool": pool, "devices": devices}
    server.slices.create({"metadata": {"name": f"cpus-{node}"}, "spec": spec})
    server.nodes.patch(node, {"status": {"allocatable": {"cpu": "64", "memory": "100Gi", "pods": "100"}}})


def ready(server: FakeApiServer, service: Service, client: Client, *nodes: str) -> Machine:
    """Empty nodes whose CPUs are devices; on each the only GPU is on NUMA node 1. A claim for a GPU is there."""
    report(server, service, client, *nodes, **NONE)
    for name in nodes:
        publish_cpus(server, machine_of(service, name), name)
        publish(server, node=name, gpu_0=1)
        until(partial(has_totals, service, name))
    for driver in ("dra.cpu", DRIVER):
        selector = {"cel": {"expression": f'device.driver == "{driver}"'}}
        server.classes.create({"metadata": {"name": driver}, "spec": {"selectors": [selector]}})
    request = {"name": "r", "exactly": {"deviceClassName": DRIVER, "allocationMode": "ExactCount", "count": 1}}
    metadata = {"name": "gpu-claim", "namespace": "default"}
    server.claims.create({"metadata": metadata, "spec": {"devices": {"requests": [request]}}})
    until(lambda: devices_of(service).claim("default/gpu-claim") is not None)
    return machine_of(service, nodes[0])


def chosen_for(server: FakeApiServer, name: str, namespace: str = "default") -> tuple[str, list[int], Json]:
    """Node and CPUs of the claim, and the claim."""
    until(lambda: server.claims.get(name, namespace) is not None)
    claim = server.claims.get(name, namespace)
    assert claim is not None
    node, _, cpus = claim["metadata"]["annotations"][CHOSEN].partition(" ")
    ids = [id_ for part in cpus.split(",") for id_ in range(int(part.split("-")[0]), int(part.split("-")[-1]) + 1)]
    return node, ids, claim


def test_cpus_are_chosen_near_the_device_that_the_pod_will_get(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", "node-b", **ON) as (server, service, client):
        machine = ready(server, service, client, "node-a", "node-b")
        server.pods.create(asking(gpu="gpu-claim"))
        node, cpus, claim = chosen_for(server, "p-cpus")
        assert len(cpus) == 4
        assert all(machine.numa_cpus[1] >> cpu & 1 for cpu in cpus)
        (request,) = claim["spec"]["devices"]["requests"]
        assert request["exactly"]["count"] == 4
        (selector,) = request["exactly"]["selectors"]
        assert selector["cel"]["expression"].endswith(f"cpuID in {cpus}")
        (owner,) = claim["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("Pod", "p")
        pod = server.pods.get("p")
        assert pod is not None
        until(lambda: devices_of(service).claim("default/p-cpus") is not None)
        assert client.filter(pod, "node-a", "node-b")["NodeNames"] == [node], (
            "kube-scheduler is offered this node alone"
        )


def test_what_was_chosen_for_one_pod_is_not_chosen_for_another(tmp_path: Path) -> None:
    """Also if the first claim is not allocated yet."""
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        ready(server, service, client, "node-a")
        for name in ("p", "q"):
            server.pods.create(asking(name))
        first, second = (chosen_for(server, f"{name}-cpus")[1] for name in ("p", "q"))
        assert not {*first} & {*second}


def test_no_claim_is_created_unless_it_is_switched_on(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a", **{**ON, "dra_cpus": "off"}) as (server, service, client):
        ready(server, service, client, "node-a")
        server.pods.create(asking())
        plain = server.pods.create(pod_of(1, name="plain"))
        assert client.filter(plain, "node-a")["NodeNames"] == ["node-a"]
        assert server.claims.get("p-cpus") is None


@pytest.mark.parametrize(
    ("cpus", "change"),
    [("1500m", {}), ("33", {}), ("4", {"claims": []})],
    ids=["not whole", "too many", "no container uses it"],
)
def test_a_request_that_cannot_be_served_is_an_error(cpus: str, change: Json) -> None:
    pod = asking(cpus=cpus)
    pod["spec"]["containers"][0]["resources"] |= change
    with pytest.raises(WireError, match="one container with 1 to 32 whole CPUs"):
        asked_by(pod)


def test_a_pod_asks_by_the_label() -> None:
    pod = asking()
    pod["metadata"]["uid"] = "u"
    assert decode_waiting(pod) is not None
    pod["metadata"]["labels"] = {LABEL: "other"}
    assert decode_waiting(pod) is None


def test_pods_of_one_namespace_that_get_no_cpus_do_not_delay_those_of_another(tmp_path: Path) -> None:
    """If each step looked at the oldest `A_STEP` pods, the last pod would wait for 375 steps of a second."""
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        ready(server, service, client, "node-a")
        for number in range(1_500):
            server.pods.create(asking(f"many-{number}", "33"))
        other = asking("p")
        other["metadata"]["namespace"] = "other"
        server.pods.create(other)
        node, cpus, _ = chosen_for(server, "p-cpus", "other")
        assert (node, len(cpus)) == ("node-a", 4)


def test_an_annotation_without_a_waiting_pod_keeps_no_cpus(tmp_path: Path) -> None:
    """Anyone who may create claims can write it."""
    with cluster(tmp_path, "node-a", **ON) as (server, service, client):
        machine = ready(server, service, client, "node-a")
        for number, start in enumerate(range(0, machine.num_cpus, MAX_CPUS)):
            last = min(machine.num_cpus, start + MAX_CPUS) - 1
            metadata = {"name": f"forged-{number}", "annotations": {CHOSEN: f"node-a {start}-{last}"}}
            server.claims.create({"metadata": metadata, "spec": {"devices": {"requests": []}}})
        until(lambda: f"default/forged-{number}" in devices_of(service).chosen)
        server.pods.create(asking())
        assert len(chosen_for(server, "p-cpus")[1]) == 4


def test_the_best_node_is_near_the_devices_then_the_fullest(tmp_path: Path) -> None:
    with cluster(tmp_path, "node-a") as (server, service, client):
        report(server, service, client, "node-a")
        machine = machine_of(service, "node-a")
    every = machine.all_cpus
    some = machine.numa_cpus[1] | sum(1 << cpu for cpu in [*iter_bits(machine.numa_cpus[0])][:6])

    def best(*nodes: NodeCpus, number: int = 4, is_demanding: bool = False) -> Choice | None:
        return choose(nodes, number, UNLIMITED, is_demanding=is_demanding)

    found = best(NodeCpus("a", machine, every), NodeCpus("b", machine, some))
    assert found is not None
    assert (found.node_name, found.cpus & ~machine.numa_cpus[0]) == ("b", 0), "the fewest free CPUs stay"
    found = best(NodeCpus("a", machine, every, near=0b10), NodeCpus("b", machine, machine.numa_cpus[0], near=0b10))
    assert found is not None
    assert (found.node_name, found.cpus & ~machine.numa_cpus[1]) == ("a", 0)
    only_far = NodeCpus("b", machine, machine.numa_cpus[0], near=0b10)
    assert best(only_far, is_demanding=True) is None
    assert best(only_far) is not None
    wide = machine.numa_cpus[0].bit_count() + 1
    assert best(NodeCpus("a", machine, every), number=wide, is_demanding=True) is None
    found = best(NodeCpus("a", machine, every), number=wide)
    assert found is not None
    assert found.cpus.bit_count() == wide
    whole_core = best(NodeCpus("a", machine, every), number=machine.cpus_per_core)
    assert whole_core is not None
    assert whole_core.cpus in machine.core_cpus.values()
