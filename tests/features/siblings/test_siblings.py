"""What is assumed of nodes that have not reported. `test_new_nodes.py` has the same with watches."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import orjson
import pytest

from extender.cluster.events import PodAssumed
from extender.cluster.store import NodeStore
from extender.features.siblings import siblings
from extender.features.siblings.siblings import REFUTED_SECONDS, Siblings, excess
from extender.kube.changes import Batch, Gone, Seen
from extender.kube.nodes import NodeObject
from extender.kubelet.machine import Machine, NUMANodeFacts
from extender.kubelet.state import Device, DeviceState
from extender.questions.node_context import WatchedPod
from extender.replay.pod import Pod
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode
from extender.wire.pods import pod_from_json
from tests.observations import observation_of
from tests.reports import pod_of, sample
from tests.world.watched import node_object

LABEL = "kind"
NODE = sample()
NO_MORE: Mapping[str, str] = {}


def pod(name: str, cpus: int | str = 4) -> Pod:
    return pod_from_json(pod_of(cpus, name=name))


class World:
    """A cluster whose nodes are all of one kind."""

    def __init__(self) -> None:
        self.cluster = NodeStore(stale_after_seconds=1000, max_nodes=100)
        self.pods: list[WatchedPod] | None = []
        self.now = 10.0
        self.siblings = Siblings(self.cluster, [LABEL], lambda: self.now, lambda _name: self.pods)

    def add(
        self, *names: str, kind: str = "large", created: int = 0, allocatable: Mapping[str, str] = NO_MORE
    ) -> list[NodeObject]:
        status = {"allocatable": {"cpu": "30", **allocatable}, "nodeInfo": {"kubeletVersion": "v1.36.2"}}
        age = f"2026-01-01T00:00:{created:02}Z"
        nodes = [node_object(each, labels={LABEL: kind}, creationTimestamp=age, status=status) for each in names]
        self.siblings.apply(Batch(tuple(map(Seen, nodes))))
        return nodes

    def report(self, name: str, node: SampleNode = NODE) -> None:
        self.cluster.observe(observation_of(name, node), 10.0)

    def assumed(self) -> set[str]:
        return {record.name for record in self.cluster if record.kubelet is not None and record.kubelet.borrowed}

    def watched(self, name: str, document: dict[str, Any]) -> WatchedPod:
        return WatchedPod(
            uid=f"uid-{name}",
            api_uid=f"uid-{name}",
            namespace="default",
            name=name,
            priority=0,
            created_at=None,
            started_at=None,
            terminating=False,
            manifest=orjson.dumps(document),
        )

    def assumed_machine(self, name: str) -> Machine | None:
        seen = self.cluster.observation(name)
        return None if seen is None or seen.kubelet is None else seen.kubelet.machine


@pytest.fixture
def world() -> World:
    world = World()
    world.add("old")
    world.report("old")
    return world


def test_nothing_is_assumed_until_the_pods_of_the_node_are_known(world: World) -> None:
    world.pods = None
    world.add("fresh")
    assert world.assumed() == set()

    world.pods = []
    world.siblings.settle()

    assert world.assumed() == {"fresh"}


@pytest.mark.parametrize(("cpus", "is_assumed"), [(4, False), ("500m", True)])
def test_a_node_with_pods_that_hold_something_is_not_assumed(
    world: World, *, cpus: int | str, is_assumed: bool
) -> None:
    """The extender has restarted, or the Node object was deleted while the kubelet ran on."""
    document = pod_of(cpus)
    document["spec"]["containers"][0]["resources"].pop("limits" if cpus == "500m" else "none", None)
    document["status"]["qosClass"] = "Burstable" if cpus == "500m" else "Guaranteed"
    world.pods = [world.watched("p", document)]
    world.add("fresh")

    assert ("fresh" in world.assumed()) is is_assumed


def test_a_pod_that_is_being_bound_counts_as_one_on_the_node(world: World) -> None:
    world.cluster.apply(PodAssumed("fresh", pod("p")), now=10.0)
    world.add("fresh")

    assert world.assumed() == set()


def test_an_assumption_that_a_kubelet_refutes_ends_for_its_kind_until_that_node_reports(world: World) -> None:
    world.add("fresh", "other")
    world.add("small", kind="small")
    world.cluster.apply(PodAssumed("fresh", pod("p")), now=10.0)
    assert world.assumed() == {"fresh", "other"}

    world.siblings.note_refused("fresh", pod("p"))
    world.add("fresh")
    world.add("third")

    assert world.assumed() == set(), "a change of the Node object says nothing"
    observation = world.cluster.observation("other")
    assert observation is not None
    assert "the kubelet of fresh refused a pod" in str(observation.facts["problems"])

    world.report("fresh", sample(topologyManagerPolicy="restricted"))
    world.siblings.settle()
    assert world.assumed() == set(), "the kind has two configurations now"


def test_a_refuted_kind_is_assumed_again_when_the_node_is_gone(world: World) -> None:
    (fresh,) = world.add("fresh")
    world.cluster.apply(PodAssumed("fresh", pod("p")), now=10.0)
    world.siblings.note_refused("fresh", pod("p"))
    world.add("other")
    assert world.assumed() == set()

    world.siblings.apply(Batch((Gone(fresh),)))
    world.siblings.settle()

    assert world.assumed() == {"other"}


def test_one_node_that_never_reports_refutes_its_kind_for_a_while_and_only_once(world: World) -> None:
    """Seen red: for as long as the node liked."""
    world.add("fresh")
    world.cluster.apply(PodAssumed("fresh", pod("p")), now=10.0)
    world.siblings.note_refused("fresh", pod("p"))
    world.add("fresh", "other")
    assert world.assumed() == set()

    world.now += REFUTED_SECONDS
    world.siblings.settle()

    assert world.assumed() == {"other"}, "and nothing is assumed of the node itself"


def test_a_refusal_that_was_expected_refutes_nothing(world: World) -> None:
    world.add("fresh")
    world.cluster.apply(PodAssumed("fresh", pod("p", 17)), now=10.0)

    world.siblings.note_refused("fresh", pod("p", 17))

    assert world.assumed() == {"fresh"}


def test_a_node_that_changes_twice_in_one_batch_is_assumed_once(world: World) -> None:
    world.add("fresh", "fresh")

    assert world.assumed() == {"fresh"}


def test_many_waiting_nodes_are_looked_at_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(siblings, "MAX_LOOKED", 3)
    world.add(*(f"unlike-{number}" for number in range(4)), kind="small")
    world.add(*(f"fresh-{number}" for number in range(4)))
    assert world.assumed() == set()

    for _ in range(3):
        world.siblings.settle()

    assert world.assumed() == {f"fresh-{number}" for number in range(4)}


def hardware(cores: int = 8, memory_gib: int = 32) -> Hardware:
    """Of `NODE`, which has 32 CPUs and 64 GiB on two sockets."""
    return Hardware(
        sockets=2, numa_per_socket=1, cores_per_numa=cores, threads=2, memory_gib=memory_gib, distances=(10, 21)
    )


HOSTILE = [
    pytest.param(sample(hardware=hardware(cores=16)), id="twice the CPUs"),
    pytest.param(sample(hardware=hardware(cores=4)), id="half the CPUs"),
    pytest.param(sample(hardware=hardware(memory_gib=16)), id="half the memory"),
    pytest.param(sample(hardware=hardware(memory_gib=64)), id="twice the memory"),
    pytest.param(sample(topologyManagerPolicy="none"), id="another configuration"),
]


@pytest.mark.parametrize("hostile", HOSTILE)
@pytest.mark.parametrize("honest", [2, 7, 12])
def test_one_node_does_not_decide_for_its_kind(honest: int, hostile: SampleNode) -> None:
    """Seen red: the newest node with an equal configuration won over seven others, whatever machine it reported.

    With another configuration it kept all new nodes of its kind unknown.
    """
    world = World()
    for i in range(honest):
        world.add(f"honest-{i}", created=i)
        world.report(f"honest-{i}")
    world.add("hostile", created=50)
    world.report("hostile", hostile)

    world.add("fresh", created=51)

    assert world.assumed_machine("fresh") == NODE.kubelet.machine


def test_nothing_is_assumed_where_no_majority_agrees() -> None:
    world = World()
    for i, node in enumerate((NODE, NODE, sample(hardware=hardware(cores=16)), sample(hardware=hardware(cores=4)))):
        world.add(f"n{i}", created=i)
        world.report(f"n{i}", node)

    world.add("fresh", created=51)

    assert world.assumed() == set()


@pytest.mark.parametrize(
    ("allocatable", "is_assumed"),
    [
        ({"memory": "62Gi"}, True),
        ({"memory": "61.5Gi"}, True),
        ({"memory": "60Gi"}, False),
        ({"memory": "124Gi"}, True),
        ({"memory": "many"}, False),
        ({"vendor.example/gpu": "0"}, True),
        ({}, True),
    ],
)
def test_a_node_is_not_taken_for_one_with_more_than_its_node_object_offers(
    world: World, caplog: pytest.LogCaptureFixture, allocatable: dict[str, str], *, is_assumed: bool
) -> None:
    """Its machine has 64 GiB, of which 2 are reserved. Kernels of one kind keep a little more or less."""
    world.add("fresh", allocatable=allocatable)
    world.siblings.settle()

    assert ("fresh" in world.assumed()) is is_assumed
    assert caplog.text.count("nothing is assumed of a new node node=fresh") == (not is_assumed), "once"


def test_cpus_devices_and_huge_pages_beyond_those_of_the_node_object_are_not_assumed() -> None:
    kubelet, state = NODE.kubelet, NODE.state
    nodes = [(node.id, node.memory_bytes) for node in kubelet.machine.numa_nodes]
    with_pages = Machine.build(kubelet.machine.cpus, [NUMANodeFacts(i, size, {2 << 20: 8}) for i, size in nodes])
    devices = {"vendor.example/gpu": {"a": Device(1, healthy=True), "b": Device(2, healthy=True)}}
    with_devices = replace(state, devices=DeviceState.of(devices, {}))
    huge = replace(kubelet, machine=with_pages)

    assert "of cpu" in excess(kubelet, state, {"cpu": "29"})
    assert excess(kubelet, state, {"cpu": "30"}) == ""
    assert "vendor.example/gpu" in excess(kubelet, with_devices, {"vendor.example/gpu": "1"})
    assert excess(kubelet, with_devices, {"cpu": "30"}) == "", "the plugin of a new node registers later"
    assert "hugepages-2Mi" in excess(huge, state, {"cpu": "30"})
    assert excess(huge, state, {"cpu": "30", "hugepages-2Mi": "32Mi"}) == ""
