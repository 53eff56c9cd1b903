"""A node that has just joined and has not reported: its exporter is awaited for some time."""

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender.cluster.node import Observation
from extender.cluster.node_class import AWAITED, UNKNOWN
from extender.cluster.pods import PodRegistry
from extender.cluster.store import NodeStore
from extender.kube.changes import Batch, Changed, Gone, Seen
from extender.kube.feed import ClusterFeed
from extender.kube.nodes import NodeObject
from extender.scheduling.reasons import RefusalReason
from extender.wire.parsing import rfc_3339
from tests.contract.live import cluster
from tests.observations import observation_of
from tests.reports import pod_of, report_of, sample
from tests.waiting import until
from tests.world.watched import node_object

WALL = 1_800_000_000
NODE = sample()


def node(age: int | None, *, uid: str = "u", name: str = "n") -> NodeObject:
    created: dict[str, Any] = {} if age is None else {"creationTimestamp": rfc_3339(WALL - age)}
    return node_object(name, uid=uid, **created)


class World:
    def __init__(self, young_seconds: float = 60.0) -> None:
        self.now = 100.0
        self.cluster = NodeStore(stale_after_seconds=1000, max_nodes=10)
        self.feed = ClusterFeed(
            self.cluster, PodRegistry(10), lambda: self.now, lambda: None, wall=lambda: WALL + self.now - 100.0
        )
        self.feed.young_seconds = young_seconds

    def see(self, *changes: Seen[NodeObject] | Changed[NodeObject] | Gone[NodeObject]) -> None:
        self.feed.apply_nodes(Batch(changes))

    def at(self, seconds: float) -> object:
        """The class of the node so many seconds after the beginning."""
        self.now = 100.0 + seconds
        self.cluster.expire(self.now)
        (found,) = self.cluster.classes_of(["n"])
        return found

    def report(self) -> None:
        self.cluster.observe(observation_of("n", NODE), self.now)


@pytest.mark.parametrize(("age", "left"), [(0, 60.0), (45, 15.0), (-500, 60.0)])
def test_a_young_node_is_awaited_until_it_is_old_enough(age: int, left: float) -> None:
    """A clock that is behind that of the API server makes nodes no younger than new."""
    world = World()
    world.see(Seen(node(age)))

    assert world.at(0.0) is AWAITED
    assert world.at(left - 0.1) is AWAITED
    assert world.at(left) is UNKNOWN


@pytest.mark.parametrize(("age", "young_seconds"), [(60, 60.0), (10_000, 60.0), (None, 60.0), (0, 0.0)])
def test_other_nodes_are_unknown_as_before(age: int | None, young_seconds: float) -> None:
    world = World(young_seconds)
    world.see(Seen(node(age)))

    assert world.at(0.0) is UNKNOWN


def test_a_report_ends_the_wait() -> None:
    world = World()
    world.see(Seen(node(0)))
    world.report()

    assert world.at(0.0) not in (AWAITED, UNKNOWN)
    assert world.at(61.0) not in (AWAITED, UNKNOWN)
    assert len(world.cluster) == 1


def test_a_node_that_is_gone_or_comes_again_under_its_name() -> None:
    world = World()
    world.see(Seen(node(0)))
    world.see(Gone(node(0)))
    assert world.at(1.0) is UNKNOWN

    world.now += 9.0
    world.see(Seen(node(-10, uid="second")))
    assert world.at(65.0) is AWAITED
    world.report()
    world.see(Changed(node(-10, uid="second"), node(-65, uid="third")))
    assert world.at(66.0) is AWAITED
    assert world.at(126.0) is UNKNOWN
    assert world.cluster.index.names.get("n") < 0, "nothing is kept of it"


def test_an_assumption_that_is_withdrawn_leaves_a_young_node_awaited() -> None:
    world = World()
    world.see(Seen(node(0)))
    borrowed = replace(NODE.kubelet, borrowed=True)
    world.cluster.observe(Observation(node_name="n", kubelet=borrowed, state=NODE.state), world.now)
    assert world.at(1.0) not in (AWAITED, UNKNOWN)
    world.cluster.withdraw("n", "refuted", world.now)

    assert world.at(2.0) is AWAITED
    assert world.at(61.0) is UNKNOWN


def test_pods_that_need_alignment_wait_for_the_report_of_a_new_node(tmp_path: Path) -> None:
    """All 22 refusals of a cluster in motion were pods bound to nodes that had joined 2 to 6 s before."""
    with cluster(tmp_path, "node-a") as (server, service, client):
        client.report(report_of(sample("node-a")))
        server.nodes.create({"metadata": {"name": "new", "creationTimestamp": rfc_3339(int(time.time()))}})
        until(lambda: service.known.nodes.index.names.get("new") >= 0)
        pod = server.pods.create(pod_of(2, name="p"))

        reply = client.filter(pod, "new", "node-a")
        assert reply["NodeNames"] == ["node-a"]
        assert {**reply["FailedNodes"], **reply["FailedAndUnresolvableNodes"]} == {"new": RefusalReason.AWAITED.text}
        client.report(report_of(sample("new")))
        assert client.filter(pod, "new", "node-a")["NodeNames"] == ["new", "node-a"]
