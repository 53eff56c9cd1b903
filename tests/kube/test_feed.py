"""What watches mean to the cluster."""

from collections.abc import Mapping
from typing import Any

import pytest

from extender.cluster.node import Observation
from extender.cluster.pods import PodRegistry
from extender.cluster.settled_pod import AdmissionResult, SettledPod
from extender.cluster.store import NodeStore
from extender.kube.changes import Batch, Changed, Gone, Seen
from extender.kube.feed import ClusterFeed
from extender.kube.node_context import WatchedSurroundings
from extender.kube.nodes import decode_node
from extender.kube.pods import PodDecoder, PodRecord
from tests.reports import pod_of, sample

NODE = sample()


class World:
    def __init__(self) -> None:
        self.settled: list[SettledPod] = []
        self.cluster = NodeStore(stale_after_seconds=1000, max_nodes=10, settled=self.settled.append)
        self.pods = PodRegistry(100)
        self.batches = 0
        self.feed = ClusterFeed(self.cluster, self.pods, lambda: 10.0, self._count)
        self.decode = PodDecoder()
        self.cluster.observe(
            Observation(
                node_name="n",
                boot_id="b",
                sequence=1,
                digest="d",
                observed_at=0.0,
                kubelet=NODE.kubelet,
                state=NODE.state,
            ),
            0.0,
        )

    def _count(self) -> None:
        self.batches += 1

    def record(self, name: str, *, status: Mapping[str, Any] | None = None, **metadata: Any) -> PodRecord:
        pod = pod_of(4, name=name)
        pod["spec"]["nodeName"] = "n"
        pod["metadata"].update(metadata)
        pod["status"].update(status or {})
        decoded = self.decode(pod)
        assert decoded is not None
        return decoded[1]

    def free(self) -> int:
        record = self.cluster.get("n")
        assert record is not None
        assert record.state is not None
        return record.state.cpu.default.bit_count()


@pytest.fixture
def world() -> World:
    return World()


def test_a_pod_is_charged_once_however_often_it_changes(world: World) -> None:
    before = world.free()
    first = world.record("p")
    running = world.record("p", status={"phase": "Running", "startTime": "2026-01-01T00:00:00Z"})
    world.feed.apply_pods(Batch((Seen(first),)))
    world.feed.apply_pods(Batch((Changed(first, running),)))

    assert world.free() == before - 4
    assert world.pods.node_of("uid-p") == "n"
    assert world.batches == 2
    world.feed.apply_pods(Batch((Gone(running),)))
    assert world.free() == before
    assert world.pods.node_of("uid-p") is None


def test_a_rejection_is_told_from_any_other_failure(world: World) -> None:
    first = world.record("p")
    second = world.record("q")
    world.feed.apply_pods(Batch((Seen(first), Seen(second))))
    rejected = world.record(
        "p", status={"phase": "Failed", "reason": "SMTAlignmentError", "message": "Pod was rejected: x"}
    )
    evicted = world.record(
        "q", status={"phase": "Failed", "reason": "Evicted", "message": "The node was low on memory"}
    )
    world.feed.apply_pods(Batch((Changed(first, rejected), Changed(second, evicted))))

    assert [(s.pod.uid, s.result, s.reason) for s in world.settled] == [
        ("uid-p", AdmissionResult.REFUSED, "SMTAlignmentError")
    ]


def test_a_static_pod_is_known_by_the_uid_that_its_kubelet_gave_it(world: World) -> None:
    mirror = world.record("s", annotations={"kubernetes.io/config.mirror": "kubelets-own"})
    world.feed.apply_pods(Batch((Seen(mirror),)))
    assert world.cluster.ledger("n").find("kubelets-own") is not None

    before = world.free()
    world.feed.apply_pods(Batch((Gone(mirror),)))

    assert world.free() == before


def test_the_first_list_is_taken_in_the_order_of_age(world: World) -> None:
    young = world.record("a", creationTimestamp="2026-01-02T00:00:00Z")
    old = world.record("b", creationTimestamp="2026-01-01T00:00:00Z")
    world.feed.apply_pods(Batch((Seen(young), Seen(old))))

    assert [admit.uid for admit in world.cluster.ledger("n").admits] == ["uid-b", "uid-a"]


def test_a_node_made_anew_under_its_name_starts_with_nothing(world: World) -> None:
    for uid, held in (("u1", True), ("u2", False)):
        decoded = decode_node({"metadata": {"name": "n", "uid": uid}})
        assert decoded is not None
        world.feed.apply_nodes(Batch((Seen(decoded[1]),)))
        assert (world.cluster.get("n") is not None) is held
    assert world.cluster.node_objects.may_exist("n")
    assert not world.cluster.node_objects.may_exist("other")


def test_what_an_exporter_reports_of_a_node_that_is_gone_says_nothing_of_the_next_one(world: World) -> None:
    """The exporter of a node that is being removed runs a little longer than the Node object."""
    nodes = []
    for uid in ("u1", "u2"):
        decoded = decode_node({"metadata": {"name": "n", "uid": uid}})
        assert decoded is not None
        nodes.append(decoded[1])
    world.feed.apply_nodes(Batch((Seen(nodes[0]),)))
    observation = world.cluster.observation("n")
    assert observation is not None
    world.feed.apply_nodes(Batch((Gone(nodes[0]),)))
    world.cluster.observe(observation, 10.0)

    world.feed.apply_nodes(Batch((Seen(nodes[1]),)))

    assert world.cluster.get("n") is None


def test_pods_that_are_bound_to_a_node_are_on_it_when_it_comes_back(world: World) -> None:
    """The Node object is deleted while the kubelet runs on. The watch of pods says nothing new then."""
    surroundings = WatchedSurroundings()
    world.feed.pods_on = lambda name: surroundings(name).pods
    young = world.record("b", creationTimestamp="2026-01-02T00:00:00Z")
    old = world.record("a", creationTimestamp="2026-01-01T00:00:00Z", deletionTimestamp="2026-01-03T00:00:00Z")
    pods, nodes = Batch((Seen(young), Seen(old))), []
    for uid in ("u1", "u2"):
        decoded = decode_node({"metadata": {"name": "n", "uid": uid}})
        assert decoded is not None
        nodes.append(decoded[1])
    world.feed.apply_nodes(Batch((Seen(nodes[0]),)))
    surroundings.apply_pods(pods)
    world.feed.apply_pods(pods)

    world.feed.apply_nodes(Batch((Gone(nodes[0]),)))
    world.feed.apply_nodes(Batch((Seen(nodes[1]),)))

    ledger = world.cluster.ledger("n")
    assert [admit.uid for admit in ledger.admits] == ["uid-a", "uid-b"]
    assert ledger.leaving == {"uid-a"}
