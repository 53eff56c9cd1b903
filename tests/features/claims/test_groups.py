"""Groups whose pods have claims: places are planned with the devices that kube-scheduler will allocate."""

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from extender.wire.groups import GROUP, SIZE
from tests.fakes.apiserver import FakeApiServer
from tests.features.claims.test_contract import (
    a_template,
    allocate,
    claimed_gpu,
    claiming,
    claiming_of,
    forecasts_of,
    refusals,
    two_nodes,
    until_allocated,
)
from tests.reports import pod_of
from tests.waiting import until

Json = dict[str, Any]
ONE: Json = {"gpu_0": 0}
TWO: Json = {"gpu_0": 0, "gpu_1": 1}
NODES = ("node-a", "node-b")


def members(server: FakeApiServer, size: int, *, demand: str = "none") -> list[Json]:
    """Pods of 4 CPUs, each with a claim for one device that was made from the template."""
    found = []
    for i in range(size):
        pod = claiming(f"g-{i}", demand=demand)
        pod["metadata"]["annotations"] |= {GROUP: "g", SIZE: str(size)}
        pod["status"]["resourceClaimStatuses"][0]["resourceClaimName"] = f"c-{i}"
        found.append(server.pods.create(pod))
    return found


def test_each_pod_of_a_group_gets_a_place_with_a_device(tmp_path: Path) -> None:
    """Room for all on one node, but not their devices. The first claim is allocated while the others wait."""
    with two_nodes(tmp_path, ONE, TWO, gangs="on") as (server, service, client):
        claimed_gpu(server, "c-0", "c-1", "c-2")
        a_template(server)
        forecasts = forecasts_of(service, "c-0", "c-1", "c-2")
        until(lambda: "default/gpus" in forecasts.objects.templates)
        pods = members(server, 3)
        nodes = [client.filter(pod, *NODES)["NodeNames"] for pod in pods]
        assert Counter(node for (node,) in nodes) == {"node-a": 1, "node-b": 2}
        free = {"node-a": ["gpu-0"], "node-b": ["gpu-0", "gpu-1"]}
        for i, (pod, (node,)) in enumerate(zip(pods, nodes, strict=True)):
            allocate(server, free[node].pop(0), name=f"c-{i}", node=node)
            until_allocated(service, f"c-{i}", node=node)
            assert client.bind(pod, node) == ""
        (group,) = client.call("GET", "/v1/groups")[1]["groups"]
        assert (group["state"], group["bound"]) == ("placed", 3)


@pytest.mark.parametrize(
    ("demand", "fit", "why"),
    [("none", 3, "kube-scheduler: claims"), ("single-numa-node", 2, "the pod demands one NUMA node")],
)
def test_a_group_without_enough_devices_gets_no_place(tmp_path: Path, demand: str, fit: int, why: str) -> None:
    """With the demand, the second device of node-b is on the wrong NUMA node: the kubelet has room on node 0."""
    with two_nodes(tmp_path, ONE, TWO, gangs="on") as (server, service, client):
        claimed_gpu(server, *(f"c-{i}" for i in range(4)))
        a_template(server)
        forecasts = forecasts_of(service, "c-3")
        until(lambda: "default/gpus" in forecasts.objects.templates)
        reply = client.filter(members(server, 4, demand=demand)[0], *NODES)
        assert reply["NodeNames"] == []
        text = f"the pods of the group do not fit together now: {fit} of 4 pods fit"
        assert set(reply["FailedAndUnresolvableNodes"].values()) == {text}, reply
        (group,) = client.call("GET", "/v1/groups")[1]["groups"]
        assert all(reason.startswith((why, "kube-scheduler: claims")) for reason in group["why"]), group["why"]


def test_an_open_group_is_planned_anew_where_devices_of_its_places_are_gone(tmp_path: Path) -> None:
    """Other pods take a device of each node. Two places on node-b are too many now: the pod gets the device left."""
    with two_nodes(tmp_path, TWO, TWO, gangs="on") as (server, service, client):
        claimed_gpu(server, *(f"c-{i}" for i in range(4)), "x", "y")
        a_template(server)
        forecasts = forecasts_of(service, "c-3", "x", "y")
        until(lambda: "default/gpus" in forecasts.objects.templates)
        pods = members(server, 4)
        places = {pod["metadata"]["name"]: client.filter(pod, *NODES)["NodeNames"] for pod in pods}
        assert Counter(node for (node,) in places.values()) == {"node-a": 2, "node-b": 2}
        first, second = (pod for pod in pods if places[pod["metadata"]["name"]] == ["node-a"])
        allocate(server, "gpu-0", name=f"c-{first['metadata']['name'][-1]}")
        until_allocated(service, f"c-{first['metadata']['name'][-1]}")
        assert client.bind(first, "node-a") == ""
        for name, device, node in (("x", "gpu-1", "node-a"), ("y", "gpu-0", "node-b")):
            allocate(server, device, name=name, node=node)
            until_allocated(service, name, node=node)
        assert client.filter(second, "node-b")["NodeNames"] == ["node-b"]


@pytest.mark.parametrize(("taken", "nodes"), [(1, ["node-b"]), (0, ["node-a", "node-b"])], ids=["needed", "one left"])
def test_a_pod_outside_the_group_is_not_offered_devices_that_its_places_need(
    tmp_path: Path, taken: int, nodes: list[str]
) -> None:
    """Of the three devices of node-a the places of the group need two. The kubelet has room for all pods."""
    three: Json = {"gpu_0": 0, "gpu_1": 0, "gpu_2": 0}
    with two_nodes(tmp_path, three, TWO, gangs="on") as (server, service, client):
        claimed_gpu(server, "c-0", "c-1", "x", "y")
        a_template(server)
        forecasts = forecasts_of(service, "c-1", "x", "y")
        until(lambda: "default/gpus" in forecasts.objects.templates)
        if taken:
            allocate(server, "gpu-2", name="y")
            until_allocated(service, "y")
        pods = members(server, 2)
        assert [client.filter(pod, "node-a")["NodeNames"] for pod in pods] == [["node-a"]] * 2
        reply = client.filter(claiming_of("x", demand="none"), *NODES)
        assert reply["NodeNames"] == nodes
        held = {"node-a": "the room on the node is held for the pods of a group"}
        assert refusals(reply) == (held if taken else {})
        plain = pod_of(4, name="plain")
        assert client.filter(server.pods.create(plain), *NODES)["NodeNames"] == [*NODES], "it takes no device"
        assert client.filter(pods[0], "node-a")["NodeNames"] == ["node-a"]
