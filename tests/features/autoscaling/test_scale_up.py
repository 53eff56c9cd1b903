"""Nodes are asked for, once, for pods that only the extender refuses; and nothing is left over, wherever it stops."""

import asyncio
from collections.abc import Iterator
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.autoscaling.controller import PER_NAMESPACE, REQUEST_SECONDS, REST_SECONDS, Controller
from extender.features.autoscaling.documents import CONSUME, SAFE_TO_EVICT
from extender.features.autoscaling.pools import Pools
from extender.features.autoscaling.waiting import MAX_LOOKED, Waiting
from extender.kube.access import plain
from extender.kube.changes import Batch, Seen
from extender.kube.client import JSON, KubeClient
from extender.kube.errors import ApiError
from extender.kube.nodes import decode_node
from extender.questions.node_context import NodeContext
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from tests.fakes.apiserver import FakeApiServer
from tests.reports import args_of, pod_of, report_of, sample
from tests.world.clock import Clock

POOL = "cloud.google.com/gke-nodepool"
FULL = [Workload(name="w", copies=2, resources={"cpu": 12, "memory": "1Gi"})]
"""Of 30 CPUs on two NUMA nodes, 2 and 4 are left: a pod of 6 fits by totals, and not on a NUMA node."""
SMALL = Hardware(sockets=4, numa_per_socket=1, cores_per_numa=2, threads=2, memory_gib=32, distances=(10, 21))
WAIT_SECONDS = 30.0


class World:
    """A service, spoken to over HTTP, and its controller, stepped by the test."""

    def __init__(self, server: FakeApiServer, client: TestClient, service: Service, clock: Clock) -> None:
        self.server, self.client, self.service, self.clock = server, client, service, clock
        self.kube = KubeClient(plain(server.url), connect_seconds=2.0)
        self.labels: dict[str, dict[str, str]] = {}
        self.pools = Pools([POOL], service.known.nodes, lambda name: NodeContext(labels=self.labels[name]))
        self.sequence = 0
        self.start()

    def start(self) -> None:
        """A new process: nothing but the API server's objects and the calls of the scheduler are known."""
        waiting = Waiting(self.service, WAIT_SECONDS)
        self.controller = Controller(
            self.service, self.kube, lambda: True, self.pools, waiting, wall=lambda: self.clock.now + 1.8e9
        )

    def node(self, sample_node: SampleNode, pool: str) -> None:
        self.labels[sample_node.name] = {"kubernetes.io/hostname": sample_node.name, POOL: pool}
        if self.server.nodes.get(sample_node.name, "") is None:
            metadata = {"name": sample_node.name, "labels": self.labels[sample_node.name]}
            decoded = decode_node(self.server.nodes.create({"metadata": metadata}))
            assert decoded is not None
            self.pools.apply(Batch((Seen(decoded[1]),), complete=True))
        self.sequence += 1
        document = report_of(sample_node, sequence=self.sequence)
        reply = self.client.put(f"/v1/nodes/{sample_node.name}/report", content=orjson.dumps(document))
        assert reply.status_code == 200, reply.text

    def pod(self, cpus: int, name: str = "p", namespace: str = "team", **more: Any) -> JSON:
        """A pending pod, as kube-scheduler has marked it."""
        made = pod_of(cpus)
        made["metadata"] |= {"name": name, "namespace": namespace, **more}
        made["metadata"].pop("uid", None)
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}
        return self.server.pods.create({**made, "status": {"phase": "Pending", "conditions": [condition]}})

    def filter(self, pod: JSON, *names: str) -> list[str]:
        passed: list[str] = self.client.post("/scheduler/filter", json=args_of(pod, *names)).json()["NodeNames"]
        return passed

    def wait(self, pod: JSON, *names: str) -> None:
        """The pod is refused, and again after the time that it has to wait."""
        assert self.filter(pod, *names) == []
        asyncio.run(self.controller.step())
        self.clock.now += WAIT_SECONDS
        assert self.filter(pod, *names) == []

    def step(self, seconds: float = 5.0) -> None:
        self.clock.now += seconds
        asyncio.run(self.controller.step())

    def requests(self) -> list[JSON]:
        return self.server.provisioning.list()

    def annotations(self, pod: JSON) -> dict[str, str]:
        found = self.server.pods.get(pod["metadata"]["name"], pod["metadata"]["namespace"])
        assert found is not None
        annotations: dict[str, str] = found["metadata"].get("annotations") or {}
        return annotations

    def is_clean(self) -> bool:
        pods = self.server.pods.list()
        marks = {key for pod in pods for key in pod["metadata"].get("annotations") or {}} & {CONSUME, SAFE_TO_EVICT}
        return not (self.requests() or self.server.templates.list() or marks)


@pytest.fixture(params=["on"])
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    clock = Clock()
    service = make_service(Settings(autoscaling=request.param), clock)
    with FakeApiServer() as server, TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        made = World(server, client, service, clock)
        made.node(sample("old-a", workloads=FULL), "big")
        yield made
        made.kube.close()


def terms(template: JSON) -> list[list[JSON]]:
    rules = template["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [term["matchExpressions"] for term in rules["nodeSelectorTerms"]]


def test_a_node_is_asked_for_where_an_empty_one_takes_the_pod(world: World) -> None:
    world.node(sample("old-s", hardware=SMALL), "small")
    pod = world.pod(6)
    world.wait(pod, "old-a", "old-s")
    world.step()

    (asked,) = world.requests()
    (template,) = world.server.templates.list()
    assert asked["spec"] == {
        "provisioningClassName": "best-effort-atomic-scale-up.autoscaling.x-k8s.io",
        "podSets": [{"count": 1, "podTemplateRef": {"name": template["metadata"]["name"]}}],
    }
    assert terms(template) == [
        [
            {"key": POOL, "operator": "In", "values": ["big"]},
            {"key": "kubernetes.io/hostname", "operator": "NotIn", "values": ["old-a", "old-s"]},
        ]
    ]
    assert world.annotations(pod)[CONSUME] == asked["metadata"]["name"]
    world.step()
    assert len(world.requests()) == 1, "once"


def test_no_node_is_asked_for_before_the_pod_has_waited(world: World) -> None:
    pod = world.pod(6)
    assert world.filter(pod, "old-a") == []
    world.step()
    world.step(WAIT_SECONDS - 6)

    assert world.is_clean()


def test_no_node_is_asked_for_where_one_of_the_nodes_is_not_known(world: World) -> None:
    pod = world.pod(6)
    world.filter(pod, "old-a", "never-reported")
    world.step(WAIT_SECONDS + 1)
    world.step()

    assert world.is_clean()


def test_a_pod_that_no_empty_node_takes_gets_an_event(world: World) -> None:
    pod = world.pod(40)
    world.wait(pod, "old-a")
    world.step()
    world.step()

    (event,) = world.server.events.list()
    assert event["reason"] == "NoPoolFits"
    assert "No new node of any pool could take the pod" in event["message"]
    assert world.is_clean()


def test_pods_of_one_owner_get_the_nodes_that_numa_needs_and_not_those_of_the_totals(world: World) -> None:
    """An empty node has 30 CPUs: by totals three pods of 10, on its NUMA nodes of 15 two."""
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}]
    world.node(sample("old-a", workloads=[Workload(name="w", copies=2, resources={"cpu": 8})]), "big")
    pods = [world.pod(10, f"p{i}", ownerReferences=owner) for i in range(6)]
    for pod in pods:
        assert world.filter(pod, "old-a") == []
    world.step()
    world.clock.now += WAIT_SECONDS
    world.step()

    (asked,) = world.requests()
    (template,) = world.server.templates.list()
    assert asked["spec"]["podSets"][0]["count"] == 3
    (apart,) = template["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["labelSelector"]["matchLabels"].items() <= template["template"]["metadata"]["labels"].items()
    assert {world.annotations(pod)[CONSUME] for pod in pods} == {asked["metadata"]["name"]}


def place(world: World, pod: JSON, node: str) -> None:
    world.node(sample(node), "big")
    world.server.pods.bind(pod["metadata"]["name"], node, pod["metadata"]["namespace"])


def test_a_placed_pod_is_kept_as_long_as_it_fits_nowhere_else(world: World) -> None:
    pod = world.pod(6)
    world.wait(pod, "old-a")
    world.step()
    place(world, pod, "new-a")
    world.step()

    assert world.annotations(pod) == {SAFE_TO_EVICT: "false"}
    assert world.requests() == []
    world.node(sample("old-a"), "big")
    world.step()
    assert world.is_clean()


def test_an_annotation_of_the_pods_author_is_left_alone(world: World) -> None:
    pod = world.pod(6, annotations={SAFE_TO_EVICT: "true"})
    world.wait(pod, "old-a")
    world.step()
    place(world, pod, "new-a")
    world.step()

    assert world.annotations(pod) == {SAFE_TO_EVICT: "true"}
    assert world.server.templates.list() == []


def test_a_deleted_pod_leaves_nothing(world: World) -> None:
    pod = world.pod(6)
    world.wait(pod, "old-a")
    world.step()
    world.server.pods.delete("p", "team")
    world.step()

    assert world.is_clean()


def test_a_pool_that_never_delivers_is_asked_again_after_a_rest(world: World) -> None:
    pod = world.pod(6)
    world.wait(pod, "old-a")
    world.step()
    world.step(REQUEST_SECONDS)
    assert world.requests() == []
    assert CONSUME not in world.annotations(pod)
    for _ in range(3):
        world.filter(pod, "old-a")
        world.step(WAIT_SECONDS)
    assert world.requests() == [], "it rests"
    world.step(REST_SECONDS)
    world.node(sample("old-a", workloads=FULL), "big")
    for _ in range(3):
        world.filter(pod, "old-a")
        world.step(WAIT_SECONDS)
    assert len(world.requests()) == 1


def test_many_waiting_pods_of_one_tenant_get_the_limit_and_others_theirs(world: World) -> None:
    mine = [world.pod(6, f"mine-{i}", "greedy") for i in range(MAX_LOOKED // 10)]
    other = world.pod(6, "theirs", "quiet")
    for pod in (*mine[:60], other, *mine[60:]):  # theirs is neither among the oldest nor among the newest
        assert world.filter(pod, "old-a") == []
    world.step()
    world.clock.now += WAIT_SECONDS
    world.step()
    world.step()

    namespaces = [each["metadata"]["namespace"] for each in world.requests()]
    assert namespaces.count("greedy") == PER_NAMESPACE
    assert namespaces.count("quiet") == 1


@pytest.mark.parametrize("verb", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("after", range(3))
def test_a_process_that_ends_between_any_two_writes_leaves_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch, verb: str, after: int
) -> None:
    """The writes of one kind stop for good after some of them, and a new process takes over."""
    pod = world.pod(6)
    world.wait(pod, "old-a")
    left = after
    real = KubeClient.request

    def dies(self: KubeClient, method: str, path: str, **call: Any) -> JSON:
        nonlocal left
        if method == verb:
            left -= 1
            if left < 0:
                raise ApiError(503, "Killed", "the process has ended")
        return real(self, method, path, **call)

    with monkeypatch.context() as patch:
        patch.setattr(KubeClient, "request", dies)
        world.step()
        world.step()
    world.start()
    world.filter(pod, "old-a")
    world.step()
    world.step(WAIT_SECONDS)
    assert len(world.requests()) == 1
    assert CONSUME in world.annotations(pod)
    place(world, pod, "new-a")
    with monkeypatch.context() as patch:
        left = after
        patch.setattr(KubeClient, "request", dies)
        world.step()
        world.step()
    world.start()
    world.step()
    assert world.annotations(pod) == {SAFE_TO_EVICT: "false"}
    world.node(sample("old-a"), "big")
    with monkeypatch.context() as patch:
        left = after
        patch.setattr(KubeClient, "request", dies)
        world.step()
        world.step()
    world.start()
    world.step()
    assert world.is_clean()


@pytest.mark.parametrize("world", ["dry-run"], indirect=True)
def test_a_dry_run_writes_nothing_and_shows_the_objects(world: World) -> None:
    pod = world.pod(6)
    world.wait(pod, "old-a")
    world.step()

    assert world.is_clean()
    ((_, state, objects),) = world.controller.shown
    assert state == "proposed"
    assert [each["kind"] for each in objects] == ["PodTemplate", "ProvisioningRequest"]


def test_switching_to_a_dry_run_removes_what_was_written(world: World) -> None:
    pod = world.pod(6)
    world.wait(pod, "old-a")
    world.step()
    world.controller._writes = False
    world.step()

    assert world.is_clean()


def test_a_record_that_cannot_be_read_is_left_out(world: World) -> None:
    labels = {"numa-extender.io/scale-up": "x"}
    world.server.templates.create({"metadata": {"name": "x", "namespace": "team", "labels": labels}, "template": {}})
    pod = world.pod(6)
    world.wait(pod, "old-a")
    world.step()

    assert len(world.requests()) == 1
