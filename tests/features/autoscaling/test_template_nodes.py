"""An autoscaler that asks filter about nodes that do not exist gets the answer of such a node, and leaves nothing."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.pods import PodRegistry
from extender.config.settings import Settings
from extender.features.autoscaling.pools import MAX_POOLS
from extender.features.autoscaling.templates import TEMPLATE
from extender.kube.client import JSON
from extender.samples.machines import Hardware
from extender.scheduling.barrier import Barrier
from extender.scheduling.reasons import RefusalReason
from tests.fakes.apiserver import FakeApiServer
from tests.features.autoscaling.scale_up_world import FULL, POOL, SMALL, ScaleUpWorld
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock
from tests.world.cluster import Answers, gate

LARGE = Hardware(sockets=2, numa_per_socket=2, cores_per_numa=16, threads=2, memory_gib=64, distances=(10, 21))
"""4 NUMA nodes of 32 CPUs: 60 CPUs fit by totals, and not on a NUMA node."""
NAME = "template-node-for-{}-5577006791947779410"


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    """Of the pool `zero`, which has no nodes."""
    profile = {"labels": {POOL: "zero"}, "report": report_of(sample("profile", hardware=LARGE))}
    (tmp_path / "zero.json").write_text(json.dumps(profile))
    return tmp_path


@pytest.fixture(params=[{}])
def world(request: pytest.FixtureRequest, profiles: Path) -> Iterator[ScaleUpWorld]:
    clock = Clock()
    settings = {"autoscaling": "dry-run", "gangs": "on", "node_profiles": profiles, **request.param}
    service = make_service(Settings(**settings), clock)
    service.known.link.binder = gate(Answers())
    with FakeApiServer() as server, TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        made = ScaleUpWorld(server, client, service, clock)
        made.node(sample("large-a", hardware=LARGE), "large")
        yield made
        made.kube.close()


def template(pool: str, name: str = "", **labels: str) -> JSON:
    """The node that Cluster Autoscaler makes of a node of the pool: names, labels and what a new node would have."""
    name = name or NAME.format(pool)
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, POOL: pool, **labels}},
        "spec": {"providerID": f"cloud:///{name}"},
        "status": {
            "capacity": {"cpu": "128", "memory": "256Gi", "pods": "110"},
            "allocatable": {"cpu": "126", "memory": "252Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
            "nodeInfo": {"kubeletVersion": "v1.36.2"},
        },
    }


def ask(world: ScaleUpWorld, pod: JSON, *nodes: JSON) -> dict[str, str]:
    """The reason for each node that is refused. The call as Go writes it, for `nodeCacheCapable: false`."""
    body = json.dumps({"Pod": pod, "Nodes": {"metadata": {}, "items": nodes}, "NodeNames": None}).encode()
    reply = world.client.post("/scheduler/filter", content=body).json()
    refused = refused_of(reply)
    passed = [node for node in nodes if node["metadata"]["name"] not in refused]
    assert reply["Nodes"]["items"] == passed
    return refused


def refused_of(reply: JSON) -> dict[str, str]:
    assert reply["Error"] == ""
    refused: dict[str, str] = reply["FailedNodes"] | reply["FailedAndUnresolvableNodes"]
    return refused


def left(service: Service) -> object:
    """All that a filter call may leave behind."""
    known, now = service.known, service.clock()
    return len(service.records.decisions), len(known.pods), known.pods.offered(now), known.pods.refused(now)


@pytest.mark.parametrize("pool", ["large", "zero"])
@pytest.mark.parametrize(("name", "labels"), [("", {}), ("unusual", {TEMPLATE: "true"})])
def test_60_cpus_are_refused_where_no_empty_node_of_the_pool_aligns_them(
    world: ScaleUpWorld, pool: str, name: str, labels: dict[str, str]
) -> None:
    node = template(pool, name, **labels)

    assert ask(world, pod_of(60), node) == {node["metadata"]["name"]: RefusalReason.ALIGNMENT_NEVER.text}
    assert ask(world, pod_of(28), node) == {}


def test_such_a_call_leaves_nothing_behind_and_waits_for_no_pod(
    world: ScaleUpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    group = {"numa-extender.io/group": "g", "numa-extender.io/group-size": "2"}
    member = pod_of(4, name="member")
    member["metadata"]["annotations"] = group
    member["status"]["nominatedNodeName"] = "large-a"
    real = {"metadata": {"name": "large-a", "labels": {POOL: "large"}}}
    before = left(world.service)
    with monkeypatch.context() as patch:
        patch.setattr(PodRegistry, "offered", lambda *_: {"another"})
        patch.setattr(Barrier, "wait", lambda *_: pytest.fail("the call waits"))
        assert ask(world, pod_of(4), template("large"), real) == {}
        assert len(ask(world, pod_of(60), template("large"), real)) == 2
        assert ask(world, member, template("large"), real) == {}

    assert left(world.service) == before
    assert world.client.get("/v1/groups").json()["total"] == 0
    ask(world, pod_of(4), real)
    assert left(world.service) != before, "a call of kube-scheduler does"


@pytest.mark.parametrize("labels", [{}, {TEMPLATE: "true"}])
def test_a_node_that_exists_is_no_template_node(world: ScaleUpWorld, labels: dict[str, str]) -> None:
    name = "large-b" if labels else NAME.format("large")
    world.node(sample(name, hardware=LARGE), "large", labels=labels)
    ask(world, pod_of(4), template("large", name, **labels))

    assert len(world.service.records.decisions) == 1


def test_nodes_of_the_call_that_exist_are_judged_as_they_are_now(world: ScaleUpWorld) -> None:
    world.node(sample("old-a", workloads=FULL), "old")
    old = {"metadata": {"name": "old-a", "labels": {POOL: "old"}}}

    assert ask(world, pod_of(6), old, template("old")) == {"old-a": RefusalReason.ALIGNMENT_NOW.text}


def test_each_template_node_of_a_call_is_judged_by_its_own_pool(world: ScaleUpWorld) -> None:
    world.node(sample("old-a"), "old")

    assert list(ask(world, pod_of(28), template("large"), template("old"))) == [NAME.format("old")]
    assert list(ask(world, pod_of(30), template("old"), template("large"))) == [NAME.format("old")]


def test_every_kind_of_node_that_the_pool_has_must_take_the_pod(world: ScaleUpWorld) -> None:
    world.node(sample("large-s", hardware=SMALL), "large")

    assert list(ask(world, pod_of(6), template("large"))) == [NAME.format("large")]
    assert ask(world, pod_of(2), template("large")) == {}


@pytest.mark.parametrize(
    ("world", "refused"), [({}, []), ({"unknown_nodes": "refuse"}, [NAME.format("other")])], indirect=["world"]
)
def test_a_template_of_which_nothing_is_known_is_as_a_node_that_has_not_reported(
    world: ScaleUpWorld, refused: list[str]
) -> None:
    before = left(world.service)
    assert list(ask(world, pod_of(6), template("other"))) == refused
    reply = world.client.post("/scheduler/filter", json=args_of(pod_of(6), NAME.format("other"))).json()

    assert list(refused_of(reply)) == refused
    assert left(world.service) == before
    burstable = pod_of(6)
    del burstable["spec"]["containers"][0]["resources"]["limits"]
    burstable["status"]["qosClass"] = "Burstable"
    assert ask(world, burstable, template("other")) == {}, "no manager places it"


def test_equal_calls_are_replayed_once(world: ScaleUpWorld) -> None:
    def replayed() -> float | None:
        return world.service.metrics.registry.get_sample_value("numa_extender_judgements_total", {"source": "replayed"})

    for _ in range(2):
        ask(world, pod_of(6), template("large"), template("zero"))
    before = replayed()
    ask(world, pod_of(6, name="another"), template("large"), template("zero"))

    assert before
    assert replayed() == before


def test_too_many_kinds_of_template_nodes_are_an_error(world: ScaleUpWorld) -> None:
    nodes = [template(f"pool-{number}") for number in range(MAX_POOLS + 1)]
    ask(world, pod_of(6), *nodes[:-1])
    reply = world.client.post("/scheduler/filter", json={"Pod": pod_of(6), "Nodes": {"items": nodes}}).json()

    assert f"more than {MAX_POOLS} kinds" in reply["Error"]


def test_a_call_that_takes_too_long_is_an_error(world: ScaleUpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    async def judges_none(*_args: object) -> None:
        return

    monkeypatch.setattr(world.service.judging, "answer", judges_none)
    reply = world.client.post("/scheduler/filter", json={"Pod": pod_of(6), "Nodes": {"items": [template("large")]}})

    assert "out of time" in reply.json()["Error"]


@pytest.mark.parametrize("metadata", [{}, {"labels": None}, {"labels": [1]}, {"labels": {POOL: 7, TEMPLATE: {}}}])
def test_strange_labels_are_as_none(world: ScaleUpWorld, metadata: dict[str, Any]) -> None:
    assert ask(world, pod_of(6), {"metadata": {"name": NAME.format("x"), **metadata}}) == {}
