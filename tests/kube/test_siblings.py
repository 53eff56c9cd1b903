"""What is assumed of nodes that have not reported. `tests/contract/test_new_nodes.py` has the same with watches."""

from typing import Any

import orjson
import pytest

from extender.cluster.events import PodAssumed
from extender.cluster.node import Observation
from extender.cluster.store import NodeStore
from extender.kube import siblings
from extender.kube.changes import Batch, Gone, Seen
from extender.kube.nodes import NodeObject, decode_node
from extender.kube.siblings import Siblings
from extender.questions.node_context import WatchedPod
from extender.replay.pod import Pod
from extender.samples.nodes import SampleNode
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample

LABEL = "kind"
NODE = sample()


def pod(name: str, cpus: int | str = 4) -> Pod:
    return pod_from_json(pod_of(cpus, name=name))


class World:
    """A cluster whose nodes are all of one kind."""

    def __init__(self) -> None:
        self.cluster = NodeStore(stale_after_seconds=1000, max_nodes=100)
        self.pods: list[WatchedPod] | None = []
        self.siblings = Siblings(self.cluster, [LABEL], lambda: 10.0, lambda _name: self.pods)

    def add(self, *names: str, kind: str = "large") -> list[NodeObject]:
        nodes = []
        for name in names:
            metadata = {"name": name, "labels": {LABEL: kind}, "creationTimestamp": "2026-01-01T00:00:00Z"}
            status = {"allocatable": {"cpu": "30"}, "nodeInfo": {"kubeletVersion": "v1.36.2"}}
            decoded = decode_node({"metadata": metadata, "status": status})
            assert decoded is not None
            nodes.append(decoded[1])
        self.siblings.apply(Batch(tuple(map(Seen, nodes))))
        return nodes

    def report(self, name: str, node: SampleNode = NODE) -> None:
        self.cluster.observe(
            Observation(node_name=name, boot_id="b", digest=name, kubelet=node.kubelet, state=node.state), 10.0
        )

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
    world.siblings.note_refused("fresh", pod("p"), "OutOfcpu")
    assert world.assumed() == {"fresh", "other"}, "totals say nothing about the managers"

    world.siblings.note_refused("fresh", pod("p"), "TopologyAffinityError")
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
    world.siblings.note_refused("fresh", pod("p"), "TopologyAffinityError")
    world.add("other")
    assert world.assumed() == set()

    world.siblings.apply(Batch((Gone(fresh),)))
    world.siblings.settle()

    assert world.assumed() == {"other"}


def test_a_refusal_that_was_expected_refutes_nothing(world: World) -> None:
    world.add("fresh")
    world.cluster.apply(PodAssumed("fresh", pod("p", 17)), now=10.0)

    world.siblings.note_refused("fresh", pod("p", 17), "TopologyAffinityError")

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
