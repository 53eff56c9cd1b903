"""Nodes are asked for, once, for pods that only the extender refuses; and nothing is left over, wherever it stops."""

import pytest

from extender.features.autoscaling.cluster_autoscaler import CONSUME, SAFE_TO_EVICT
from extender.features.autoscaling.controller import PER_NAMESPACE, REQUEST_SECONDS, REST_SECONDS
from extender.features.autoscaling.waiting import MAX_LOOKED
from extender.kube.client import JSON
from extender.samples.nodes import Workload
from tests.features.autoscaling.scale_up_world import FULL, POOL, SMALL, WAIT_SECONDS, ScaleUpWorld
from tests.reports import sample


def terms(template: JSON) -> list[list[JSON]]:
    rules = template["template"]["spec"]["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    return [term["matchExpressions"] for term in rules["nodeSelectorTerms"]]


def test_a_node_is_asked_for_where_an_empty_one_takes_the_pod(world: ScaleUpWorld) -> None:
    world.node(sample("old-s", hardware=SMALL), "small")
    pod = world.pod(6)
    world.wait(pod, names=("old-a", "old-s"))
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


def test_no_node_is_asked_for_before_the_pod_has_waited(world: ScaleUpWorld) -> None:
    pod = world.pod(6)
    assert world.filter(pod, "old-a") == []
    world.step()
    world.step(WAIT_SECONDS - 6)

    assert world.is_clean()


def test_no_node_is_asked_for_where_one_of_the_nodes_is_not_known(world: ScaleUpWorld) -> None:
    pod = world.pod(6)
    world.filter(pod, "old-a", "never-reported")
    world.step(WAIT_SECONDS + 1)
    world.step()

    assert world.is_clean()


def test_a_pod_that_no_empty_node_takes_gets_an_event(world: ScaleUpWorld) -> None:
    pod = world.pod(40)
    world.wait(pod)
    world.step()
    world.step()

    (event,) = world.server.events.list()
    assert event["reason"] == "NoPoolFits"
    assert "No new node of any pool could take the pod" in event["message"]
    assert world.is_clean()


def test_pods_of_one_owner_get_the_nodes_that_numa_needs_and_not_those_of_the_totals(world: ScaleUpWorld) -> None:
    """An empty node has 30 CPUs: by totals three pods of 10, on its NUMA nodes of 15 two."""
    owner = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}]
    world.node(sample("old-a", workloads=[Workload(name="w", copies=2, resources={"cpu": 8})]), "big")
    pods = [world.pod(10, f"p{i}", ownerReferences=owner) for i in range(6)]
    world.wait(*pods)
    world.step()

    (asked,) = world.requests()
    (template,) = world.server.templates.list()
    assert asked["spec"]["podSets"][0]["count"] == 3
    (apart,) = template["template"]["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert apart["labelSelector"]["matchLabels"].items() <= template["template"]["metadata"]["labels"].items()
    assert {world.annotations(pod)[CONSUME] for pod in pods} == {asked["metadata"]["name"]}


def place(world: ScaleUpWorld, pod: JSON, node: str) -> None:
    world.node(sample(node), "big")
    world.server.pods.bind(pod["metadata"]["name"], node, pod["metadata"]["namespace"])


def test_a_placed_pod_is_kept_as_long_as_it_fits_nowhere_else(world: ScaleUpWorld) -> None:
    pod = world.asked_for()
    place(world, pod, "new-a")
    world.step()

    assert world.annotations(pod) == {SAFE_TO_EVICT: "false"}
    assert world.requests() == []
    world.node(sample("old-a"), "big")
    world.step()
    assert world.is_clean()


def test_an_annotation_of_the_pods_author_is_left_alone(world: ScaleUpWorld) -> None:
    pod = world.asked_for(annotations={SAFE_TO_EVICT: "true"})
    place(world, pod, "new-a")
    world.step()

    assert world.annotations(pod) == {SAFE_TO_EVICT: "true"}
    assert world.server.templates.list() == []


def test_a_deleted_pod_leaves_nothing(world: ScaleUpWorld) -> None:
    world.asked_for()
    world.server.pods.delete("p", "team")
    world.step()

    assert world.is_clean()


def test_a_pool_that_never_delivers_is_asked_again_after_a_rest(world: ScaleUpWorld) -> None:
    pod = world.asked_for()
    world.step(REQUEST_SECONDS)
    assert world.requests() == []
    assert CONSUME not in world.annotations(pod)
    world.keep_trying(pod)
    assert world.requests() == [], "it rests"
    world.step(REST_SECONDS)
    world.node(sample("old-a", workloads=FULL), "big")
    world.keep_trying(pod)
    assert len(world.requests()) == 1


def test_many_waiting_pods_of_one_tenant_get_the_limit_and_others_theirs(world: ScaleUpWorld) -> None:
    mine = [world.pod(6, f"mine-{i}", "greedy") for i in range(MAX_LOOKED // 10)]
    other = world.pod(6, "theirs", "quiet")
    world.wait(*mine[:60], other, *mine[60:])  # theirs is neither among the oldest nor among the newest
    world.step()
    world.step()

    namespaces = [each["metadata"]["namespace"] for each in world.requests()]
    assert namespaces.count("greedy") == PER_NAMESPACE
    assert namespaces.count("quiet") == 1


@pytest.mark.parametrize("verb", ["POST", "PATCH", "DELETE"])
@pytest.mark.parametrize("after", range(3))
def test_a_process_that_ends_between_any_two_writes_leaves_nothing(
    world: ScaleUpWorld, monkeypatch: pytest.MonkeyPatch, verb: str, after: int
) -> None:
    pod = world.pod(6)
    world.wait(pod)
    world.dies(monkeypatch, verb, after)
    world.filter(pod, "old-a")
    world.step()
    world.step(WAIT_SECONDS)
    assert len(world.requests()) == 1
    assert CONSUME in world.annotations(pod)
    place(world, pod, "new-a")
    world.dies(monkeypatch, verb, after)
    world.step()
    assert world.annotations(pod) == {SAFE_TO_EVICT: "false"}
    world.node(sample("old-a"), "big")
    world.dies(monkeypatch, verb, after)
    world.step()
    assert world.is_clean()


@pytest.mark.parametrize("world", ["dry-run"], indirect=True)
def test_a_dry_run_writes_nothing_and_shows_the_objects(world: ScaleUpWorld) -> None:
    world.asked_for()

    assert world.is_clean()
    ((_, state, objects),) = world.controller.shown
    assert state == "proposed"
    assert [each["kind"] for each in objects] == ["PodTemplate", "ProvisioningRequest"]


def test_switching_to_a_dry_run_removes_what_was_written(world: ScaleUpWorld) -> None:
    world.asked_for()
    world.controller._writes = False
    world.step()

    assert world.is_clean()


def test_a_record_that_cannot_be_read_is_left_out(world: ScaleUpWorld) -> None:
    labels = {"numa-extender.io/scale-up": "x"}
    world.server.templates.create({"metadata": {"name": "x", "namespace": "team", "labels": labels}, "template": {}})
    world.asked_for()

    assert len(world.requests()) == 1
