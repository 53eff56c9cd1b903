"""Touching nodes: within both limits, and never more."""

from extender.features.requeue.annotations import ANNOTATION, Limited, NodeToucher, Touched, TouchFailed, TouchLimit
from extender.kube.client import KubeClient
from tests.fakes.apiserver import FakeApiServer


def test_the_annotation_is_written_and_the_rest_left_alone(server: FakeApiServer, client: KubeClient) -> None:
    server.nodes.create({"metadata": {"name": "node-a", "annotations": {"theirs": "1"}}})

    assert NodeToucher(client).touch("node-a", "7", 0.0) == Touched()
    node = server.nodes.get("node-a")
    assert node is not None
    assert node["metadata"]["annotations"] == {"theirs": "1", ANNOTATION: "7"}


def test_a_node_rests_between_touches(server: FakeApiServer, client: KubeClient) -> None:
    server.nodes.create({"metadata": {"name": "node-a"}})
    toucher = NodeToucher(client, TouchLimit(per_node_seconds=10.0))

    outcomes = [toucher.touch("node-a", str(now), now) for now in (0.0, 9.9, 10.0)]

    assert outcomes == [Touched(), Limited(), Touched()]


def test_all_nodes_together_are_limited() -> None:
    limit = TouchLimit(per_second=2.0, burst=3)

    assert [limit.permits(f"node-{i}", 0.0) for i in range(5)] == [True, True, True, False, False]
    assert [limit.permits(f"node-{i}", 1.0) for i in range(5, 9)] == [True, True, False, False]


def test_a_node_that_is_gone_is_a_failure(client: KubeClient) -> None:
    assert isinstance(NodeToucher(client).touch("nowhere", "1", 0.0), TouchFailed)
