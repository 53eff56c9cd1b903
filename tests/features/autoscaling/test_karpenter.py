"""NodeClaims for Karpenter: as Karpenter makes them, within the limits of the NodePool, and none left over."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.features.autoscaling.controller import PER_NAMESPACE, REQUEST_SECONDS, REST_SECONDS
from extender.features.autoscaling.karpenter import DO_NOT_DISRUPT, Karpenter
from extender.features.autoscaling.pools import INSTANCE_TYPE, KARPENTER_POOL
from extender.features.autoscaling.waiting import MAX_LOOKED
from extender.kube.client import JSON, KubeClient
from extender.wire.parsing import rfc_3339
from tests.fakes.apiserver import FakeApiServer
from tests.features.autoscaling.scale_up_world import FULL, SMALL, WAIT_SECONDS, ScaleUpWorld
from tests.reports import sample
from tests.world.clock import Clock

TYPE = "large"
OWNER = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}]
READY = {"conditions": [{"type": "Ready", "status": "True"}]}


class KarpenterWorld(ScaleUpWorld):
    """One NodePool with one full node. `wall` is that of the controller."""

    def pool(self, name: str = "general", status: JSON = READY, **spec: Any) -> None:
        template = {
            "metadata": {"labels": {"team": "x"}, "annotations": {"note": "y"}},
            "spec": {
                "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
                "taints": [{"key": "hpc", "effect": "NoSchedule"}],
                "expireAfter": "720h",
            },
        }
        template["spec"] |= spec.pop("template", {})
        metadata = {"name": name, "annotations": {"karpenter.sh/nodepool-hash": "1", "other": "2"}}
        self.server.node_pools.create({"metadata": metadata, "spec": {"template": template, **spec}, "status": status})

    def own(self, name: str, pool: str = "general", **labels: str) -> None:
        """A full node of the pool; again: it has no pods."""
        is_new = self.server.nodes.get(name, "") is None
        own = {INSTANCE_TYPE: TYPE, "kubernetes.io/arch": "amd64", **labels}
        self.node(sample(name, workloads=FULL if is_new else []), pool, labels=own, label=KARPENTER_POOL)

    def claims(self) -> list[JSON]:
        return self.server.node_claims.list()

    @property
    def wall(self) -> float:
        return self.clock.now + 1.8e9

    def register(self, claim: JSON, node: str) -> None:
        """Karpenter has made a node of the NodeClaim."""
        status = {"nodeName": node, "conditions": [{"type": "Registered", "status": "True"}]}
        self.server.node_claims.patch(claim["metadata"]["name"], {"status": status}, "")
        self.node(sample(node), "general", labels={INSTANCE_TYPE: TYPE}, label=KARPENTER_POOL)
        self.server.nodes.patch(node, {"metadata": {"annotations": claim["metadata"]["annotations"]}}, "")

    def node_annotations(self, name: str) -> JSON:
        found = self.server.nodes.get(name, "")
        assert found is not None
        annotations: JSON = found["metadata"].get("annotations") or {}
        return annotations

    def is_clean(self) -> bool:
        marked = [
            each for each in (*self.claims(), *self.server.nodes.list(), *self.server.pods.list())
            if DO_NOT_DISRUPT in (each["metadata"].get("annotations") or {})
        ]  # fmt: skip
        return super().is_clean() and not marked


@pytest.fixture(params=["on"])
def world(request: pytest.FixtureRequest) -> Iterator[KarpenterWorld]:
    clock = Clock()
    service = make_service(Settings(autoscaling=request.param), clock)
    with FakeApiServer() as server, TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        made = KarpenterWorld(server, client, service, clock)
        made.own("old-a")
        yield made
        made.kube.close()


def asked(world: KarpenterWorld, **more: Any) -> tuple[JSON, list[JSON]]:
    world.pool(**more)
    return world.asked_for(), world.claims()


def told(world: KarpenterWorld) -> str:
    """The text of the only event."""
    (event,) = world.server.events.list()
    assert event["reason"] == "NoPoolFits"
    message: str = event["message"]
    return message


def test_a_node_claim_is_what_karpenter_would_create_for_the_pool(world: KarpenterWorld) -> None:
    _, (claim,) = asked(world)

    assert claim["spec"] == {
        "nodeClassRef": {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"},
        "requirements": [
            {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]},
            {"key": INSTANCE_TYPE, "operator": "In", "values": [TYPE]},
        ],
        "taints": [{"key": "hpc", "effect": "NoSchedule"}],
        "expireAfter": "720h",
    }
    metadata = claim["metadata"]
    expected = {"team": "x", KARPENTER_POOL: "general", "karpenter.kwok.sh/kwoknodeclass": "default"}
    assert metadata["labels"] == expected
    assert metadata["annotations"] == {"note": "y", "karpenter.sh/nodepool-hash": "1", DO_NOT_DISRUPT: "true"}
    pool = world.server.node_pools.get("general", "")
    assert pool is not None
    assert metadata["ownerReferences"][0]["uid"] == pool["metadata"]["uid"]
    world.step()
    assert len(world.claims()) == 1, "once"
    assert world.requests() == [], "Cluster Autoscaler is not asked"


def test_the_node_and_its_pod_are_kept_as_long_as_the_pod_fits_nowhere_else(world: KarpenterWorld) -> None:
    pod, (claim,) = asked(world)
    world.register(claim, "new-a")
    world.step()
    assert world.node_annotations("new-a")[DO_NOT_DISRUPT] == "true", "the empty node is kept until the pod comes"
    world.server.pods.bind("p", "new-a", "team")
    world.step()

    assert DO_NOT_DISRUPT not in world.node_annotations("new-a")
    assert world.annotations(pod) == {DO_NOT_DISRUPT: "true"}
    assert [each["metadata"]["name"] for each in world.claims()] == [claim["metadata"]["name"]], "it is the node now"
    world.own("old-a")
    world.step()
    assert world.is_clean()
    assert world.server.templates.list() == []


def test_a_pod_that_is_deleted_or_placed_elsewhere_leaves_no_claim_that_is_no_node_yet(world: KarpenterWorld) -> None:
    asked(world)
    world.server.pods.delete("p", "team")
    world.step()

    assert world.claims() == []
    assert world.is_clean()


def test_a_claim_that_became_a_node_meanwhile_is_not_deleted(
    world: KarpenterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The claim is registered between the look and the deletion."""
    _, (claim,) = asked(world)
    world.server.pods.delete("p", "team")
    real = Karpenter._claim

    def read(karpenter: Karpenter, name: str) -> JSON | None:
        found = real(karpenter, name)
        if not world.server.nodes.get("new-a", ""):
            world.register(claim, "new-a")
        return found

    monkeypatch.setattr(Karpenter, "_claim", read)
    world.step()
    assert len(world.claims()) == 1
    world.step()
    assert len(world.claims()) == 1
    assert world.is_clean()


def test_a_pool_that_never_delivers_is_asked_again_after_a_rest(world: KarpenterWorld) -> None:
    """Karpenter deletes a NodeClaim at once if there is no capacity."""
    pod, (claim,) = asked(world)
    world.server.node_claims.delete(claim["metadata"]["name"], "")
    world.keep_trying(pod)
    assert world.claims() == [], "it is created once"
    world.step(REQUEST_SECONDS)
    world.keep_trying(pod)
    assert world.claims() == [], "it rests"
    assert len(world.server.templates.list()) == 1, "its record"
    world.step(REST_SECONDS)
    world.own("old-a")
    world.node(sample("old-a", workloads=FULL), "general", label=KARPENTER_POOL)
    world.keep_trying(pod)
    assert len(world.claims()) == 1


def test_claims_that_are_never_registered_are_deleted_in_the_end(world: KarpenterWorld) -> None:
    asked(world)
    world.step(REQUEST_SECONDS)

    assert world.claims() == []


@pytest.mark.parametrize(
    ("limits", "nodes"),
    [
        ({"cpu": "96"}, 2),
        ({"cpu": 64, "memory": "1Ti"}, 1),
        ({"nodes": "4"}, 3),
        ({}, 3),
    ],
)
def test_a_pool_gets_the_nodes_that_its_limits_allow(world: KarpenterWorld, limits: JSON, nodes: int) -> None:
    """A node has 32 CPUs, and Karpenter counts one node already. Six pods of 10 CPUs need three nodes."""
    world.pool(limits=limits, status={**READY, "resources": {"cpu": "32", "memory": "64Gi", "nodes": "1"}})
    pods = [world.pod(10, f"p{i}", ownerReferences=OWNER) for i in range(6)]
    world.wait(*pods)
    world.step()

    assert len(world.claims()) == nodes


def test_nodes_that_were_asked_for_count_in_the_limits_until_karpenter_counts_them(world: KarpenterWorld) -> None:
    world.pool(limits={"cpu": "64"}, status={**READY, "resources": {"cpu": "32"}})
    world.wait(world.pod(6, "p1"), world.pod(6, "p2", namespace="other"))
    world.step()
    world.step()

    assert len(world.claims()) == 1
    assert "the limit of cpu is reached" in told(world)


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"limits": {"cpu": "20"}}, "the limit of cpu is reached"),
        ({"limits": {"vendor.example/nic": 4}}, "the limit of vendor.example/nic cannot be checked"),
        ({"limits": {"cpu": "many"}}, "is not a quantity"),
        ({"status": {}}, "the NodePool is not ready"),
        ({"replicas": 3}, "the number of its nodes is fixed"),
        ({"name": "another"}, "there is no NodePool general"),
        (
            {"template": {"requirements": [{"key": INSTANCE_TYPE, "operator": "NotIn", "values": [TYPE]}]}},
            f"the NodePool requires another {INSTANCE_TYPE}",
        ),
    ],
)
def test_a_pool_that_may_not_grow_gets_no_claim_and_the_pod_an_event(
    world: KarpenterWorld, more: JSON, why: str
) -> None:
    _, claims = asked(world, **more)

    assert claims == []
    assert why in told(world)


@pytest.mark.parametrize(
    ("operator", "value", "claims"),
    [("Gte", "5", 1), ("Gte", "6", 0), ("Lte", "5", 1), ("Lte", "4", 0), ("Gt", "4", 1)],
)
def test_instance_types_within_the_bounds_of_the_pool_are_used(
    world: KarpenterWorld, operator: str, value: str, claims: int
) -> None:
    generation = "karpenter.k8s.aws/instance-generation"
    labels = {INSTANCE_TYPE: "fifth", generation: "5"}
    world.node(sample("old-b", workloads=FULL), "general", labels=labels, label=KARPENTER_POOL)
    world.pool(template={"requirements": [{"key": generation, "operator": operator, "values": [value]}]})
    world.wait(world.pod(6), names=("old-a", "old-b"))
    world.step()

    assert [each["spec"]["requirements"][-1]["values"] for each in world.claims()] == [["fifth"]] * claims


def test_a_pod_with_a_volume_of_a_claim_gets_no_node_claim(world: KarpenterWorld) -> None:
    world.pool()
    pod = world.pod(6)
    volumes = [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]
    world.server.pods.patch("p", {"spec": {"volumes": volumes}}, "team")
    world.wait(pod)
    world.step()

    assert world.claims() == []
    assert "PersistentVolumeClaims" in told(world)


def test_what_the_pod_requires_of_its_zone_and_of_labels_of_the_pool_is_required_of_the_node(
    world: KarpenterWorld,
) -> None:
    zone, tier = "topology.kubernetes.io/zone", "tier"
    world.own("old-b", **{zone: "a", tier: "gold", "by-hand": "1"})
    world.pool(template={"requirements": [{"key": tier, "operator": "In", "values": ["gold", "silver"]}]})
    pod = world.pod(6)
    selector = {tier: "gold", zone: "a", "by-hand": "1"}
    world.server.pods.patch("p", {"spec": {"nodeSelector": selector}}, "team")
    world.wait({**pod, "spec": {**pod["spec"], "nodeSelector": selector}}, names=("old-b",))  # old-a: no such zone
    world.step()

    (claim,) = world.claims()
    rules = [(rule["key"], rule["values"]) for rule in claim["spec"]["requirements"]]
    pool = [(tier, ["gold", "silver"])]
    assert rules == [*pool, (tier, ["gold"]), (zone, ["a"]), (INSTANCE_TYPE, [TYPE])]
    assert claim["metadata"]["labels"][tier] == "gold", "Karpenter gives a node this label"
    assert not {zone, "by-hand"} & claim["metadata"]["labels"].keys()


def test_one_waits_while_karpenter_adds_nodes_by_itself(world: KarpenterWorld) -> None:
    world.pool()
    created = rfc_3339(int(world.wall) - 20)
    metadata = {"name": "theirs", "labels": {KARPENTER_POOL: "general"}, "creationTimestamp": created}
    world.server.node_claims.create({"metadata": metadata, "spec": {}})
    world.server.node_claims.patch("theirs", {"metadata": {"creationTimestamp": created}}, "")
    pod = world.pod(6)
    world.server.pods.patch("p", {"metadata": {"creationTimestamp": created}}, "team")
    world.wait(pod)
    world.step()
    assert [each["metadata"]["name"] for each in world.claims()] == ["theirs"]
    assert world.server.events.list() == []
    initialized = {"status": {"conditions": [{"type": "Initialized", "status": "True"}]}}
    world.server.node_claims.patch("theirs", initialized, "")
    world.keep_trying(pod)
    assert len(world.claims()) == 2


def test_pools_and_claims_are_read_once_in_a_step_however_many_pods_wait(
    world: KarpenterWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.pool()
    created = rfc_3339(int(world.wall) - 20)
    world.server.node_claims.create({"metadata": {"name": "theirs", "labels": {KARPENTER_POOL: "general"}}})
    pods = [world.pod(6, namespace=f"team-{i}") for i in range(5)]
    for made, name, namespace in (
        (world.server.node_claims, "theirs", ""),
        *((world.server.pods, "p", f"team-{i}") for i in range(5)),
    ):
        made.patch(name, {"metadata": {"creationTimestamp": created}}, namespace)
    world.wait(*pods)
    lists: Counter[str] = Counter()
    real = KubeClient.request

    def request(client: KubeClient, method: str, path: str, **call: Any) -> JSON:
        lists[f"{method} {path.rpartition('/')[2]}"] += 1
        return real(client, method, path, **call)

    monkeypatch.setattr(KubeClient, "request", request)
    world.step()
    assert (lists["GET nodepools"], lists["GET nodeclaims"]) == (1, 1)
    assert len(world.claims()) == 1, "one waits for Karpenter's own"
    world.server.node_claims.delete("theirs", "")
    for pod in pods:
        world.filter(pod, "old-a")
    world.step()
    assert len(world.claims()) == 5, "and reads again in the next step"


def test_of_several_instance_types_those_that_take_equally_many_are_named(world: KarpenterWorld) -> None:
    world.pool()
    for name, instance_type, hardware in (("old-b", "larger", None), ("old-s", "small", SMALL)):
        own = {INSTANCE_TYPE: instance_type, "kubernetes.io/arch": "amd64"}
        made = sample(name, workloads=FULL) if hardware is None else sample(name, hardware=hardware)
        world.node(made, "general", labels=own, label=KARPENTER_POOL)
    world.wait(world.pod(6), names=("old-a", "old-b", "old-s"))
    world.step()

    (claim,) = world.claims()
    assert claim["spec"]["requirements"][-1] == {"key": INSTANCE_TYPE, "operator": "In", "values": [TYPE, "larger"]}


def test_a_tenant_with_many_waiting_pods_gets_the_limit(world: KarpenterWorld) -> None:
    world.pool()
    world.wait(*(world.pod(6, f"mine-{i}", "greedy") for i in range(MAX_LOOKED // 10)))
    world.step()
    world.step()

    assert len(world.claims()) == PER_NAMESPACE


@pytest.mark.parametrize("verb", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("after", range(3))
def test_a_process_that_ends_between_any_two_writes_leaves_nothing(
    world: KarpenterWorld, monkeypatch: pytest.MonkeyPatch, verb: str, after: int
) -> None:
    world.pool()
    pod = world.pod(6)
    world.wait(pod)
    world.dies(monkeypatch, verb, after)
    world.filter(pod, "old-a")
    world.step()
    world.step(WAIT_SECONDS)
    (claim,) = world.claims()
    world.register(claim, "new-a")
    world.server.pods.bind("p", "new-a", "team")
    world.dies(monkeypatch, verb, after)
    world.step()
    assert world.annotations(pod) == {DO_NOT_DISRUPT: "true"}
    world.own("old-a")
    world.dies(monkeypatch, verb, after)
    world.step()
    assert world.is_clean()


@pytest.mark.parametrize("world", ["dry-run"], indirect=True)
def test_a_dry_run_writes_nothing_and_shows_the_claims(world: KarpenterWorld) -> None:
    _, claims = asked(world)

    assert claims == []
    ((_, state, objects),) = world.controller.shown
    assert state == "proposed"
    assert [each["kind"] for each in objects] == ["PodTemplate", "NodeClaim"]


def test_without_the_right_to_read_node_pools_other_pools_are_asked(world: KarpenterWorld) -> None:
    world.node(sample("old-c", workloads=FULL), "big")
    world.server.access.tokens = {}
    world.server.access.grants = {"system:anonymous": {("*", "pods"), ("*", "podtemplates"), ("*", "events"),
        ("*", "autoscaling.x-k8s.io/provisioningrequests")}}  # fmt: skip
    world.wait(world.pod(6), names=("old-a", "old-c"))
    world.step()

    assert len(world.requests()) == 1
