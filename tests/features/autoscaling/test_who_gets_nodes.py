"""For which pods nodes are asked for, of which pools and how many; and which pods and nodes are left alone."""

from dataclasses import replace
from typing import Any

import pytest

from extender.features.autoscaling import controller, objects
from extender.features.autoscaling.cluster_autoscaler import CONSUME, SAFE_TO_EVICT
from extender.features.autoscaling.objects import Objects
from extender.features.autoscaling.waiting import PER_NAMESPACE
from extender.kube.errors import ApiError
from extender.kube.objects import name_of
from extender.samples.nodes import Workload
from tests.features.autoscaling.scale_up_world import FULL, SMALL, WAIT_SECONDS, ScaleUpWorld
from tests.reports import sample

OWNER = [{"apiVersion": "batch/v1", "kind": "Job", "name": "j", "uid": "u-j", "controller": True}]


@pytest.mark.parametrize(
    "patch",
    [
        {"status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}},
        {"status": {"nominatedNodeName": "old-a"}},
        {"metadata": {"deletionTimestamp": "2026-09-21T14:13:20Z"}},
    ],
)
def test_no_node_is_asked_for_a_pod_that_does_not_wait_for_one(world: ScaleUpWorld, patch: dict[str, Any]) -> None:
    pod = world.pod(6)
    world.wait(pod)
    world.server.pods.patch("p", patch, "team")
    world.step()

    assert world.is_clean()


def test_a_pod_with_claims_is_left_to_cluster_autoscaler(world: ScaleUpWorld) -> None:
    pod = world.pod(6)
    pod["spec"]["resourceClaims"] = [{"name": "gpu", "resourceClaimName": "gpu"}]
    pod["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    world.wait(pod)
    world.step()

    assert world.is_clean()


def test_a_pod_that_fitted_in_between_has_not_waited(world: ScaleUpWorld) -> None:
    pod = world.pod(6)
    world.wait(pod)
    world.node(sample("old-a"), "big")
    assert world.filter(pod, "old-a") == ["old-a"]
    world.step()
    world.node(sample("old-a", workloads=FULL), "big")
    assert world.filter(pod, "old-a") == []
    world.step()
    assert world.is_clean()

    world.step(WAIT_SECONDS)
    assert len(world.requests()) == 1


def test_only_the_leader_asks(world: ScaleUpWorld) -> None:
    world.controller.can_write = lambda: False
    world.asked_for()

    assert world.is_clean()


def test_the_nodes_of_an_hour_are_limited(world: ScaleUpWorld) -> None:
    most = world.service.settings.autoscaling_nodes_per_hour
    world.controller._nodes_asked.append((world.controller.wall(), most))
    pod = world.asked_for()
    assert world.is_clean()

    world.clock.now += controller.HOUR
    world.node(sample("old-a", workloads=FULL), "big")
    world.keep_trying(pod)
    assert len(world.requests()) == 1


def test_a_request_is_for_a_limited_number_of_pods(world: ScaleUpWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(controller, "MAX_PODS", 2)
    pods = [world.pod(6, f"p{i}", ownerReferences=OWNER) for i in range(3)]
    world.wait(*pods)
    world.step()

    assert sum(CONSUME in world.annotations(pod) for pod in pods) == 2


def test_of_several_pools_the_one_whose_nodes_take_most_is_named(world: ScaleUpWorld) -> None:
    """An empty node of `big` takes two pods of 10 CPUs, one of `half` takes one."""
    world.node(sample("old-a", workloads=[Workload(name="w", copies=2, resources={"cpu": 8})]), "big")
    half = [Workload(name="w", copies=1, resources={"cpu": 8, "memory": "1Gi"})]
    world.node(sample("old-h", hardware=replace(SMALL, sockets=1, cores_per_numa=8), workloads=half), "half")
    world.wait(*(world.pod(10, f"p{i}", ownerReferences=OWNER) for i in range(2)), names=("old-a", "old-h"))
    world.step()

    ((record, _, _),) = world.controller.shown
    assert ([pool.value for pool in record.pools], record.nodes) == (["big"], 1)


def test_a_pool_whose_nodes_differ_is_not_named_if_one_kind_of_them_refuses_the_pod(world: ScaleUpWorld) -> None:
    world.node(sample("old-s", hardware=SMALL), "big")
    world.wait(world.pod(6), names=("old-a", "old-s"))
    world.step()

    assert world.is_clean()


def test_taints_of_a_nodes_present_state_do_not_count(world: ScaleUpWorld) -> None:
    taint = {"key": "node.kubernetes.io/unreachable", "effect": "NoSchedule"}
    world.node(sample("old-b", workloads=FULL), "big", [taint])
    world.server.nodes.delete("old-a", "")
    world.wait(world.pod(6), names=("old-a", "old-b"))
    world.step()

    assert len(world.requests()) == 1


def test_the_anti_affinity_of_the_pods_author_stays(world: ScaleUpWorld) -> None:
    key = "requiredDuringSchedulingIgnoredDuringExecution"
    own = {"labelSelector": {"matchLabels": {"app": "noisy"}}, "topologyKey": "zone"}
    pods = [world.pod(14, f"p{i}", ownerReferences=OWNER) for i in range(3)]
    for pod in pods:
        world.server.pods.patch(
            pod["metadata"]["name"], {"spec": {"affinity": {"podAntiAffinity": {key: [own]}}}}, "team"
        )
    world.wait(*pods)
    world.step()

    (template,) = world.server.templates.list()
    assert template["template"]["spec"]["affinity"]["podAntiAffinity"][key][0] == own


def test_a_pod_on_a_node_that_had_refused_it_is_kept_as_long_as_the_others_refuse_it(world: ScaleUpWorld) -> None:
    world.node(sample("old-b", workloads=FULL), "big")
    pod = world.pod(6)
    world.wait(pod, names=("old-a", "old-b"))
    world.step()
    world.node(sample("old-a"), "big")
    world.server.pods.bind("p", "old-a", "team")
    world.step()

    assert world.annotations(pod) == {SAFE_TO_EVICT: "false"}


def test_a_pod_that_has_ended_ends_its_request(world: ScaleUpWorld) -> None:
    world.asked_for()
    world.server.pods.patch("p", {"status": {"phase": "Failed"}}, "team")
    world.step()

    assert world.requests() == []
    assert world.server.templates.list() == []


def test_a_pod_that_was_made_again_is_another_one(world: ScaleUpWorld) -> None:
    first = name_of(world.pod(6))
    world.server.pods.delete("p", "team")
    again = world.pod(6)
    Objects(world.kube).annotate(first, {CONSUME: "x"})

    assert world.annotations(again) == {}


def test_a_dry_run_ends_requests_that_rest(world: ScaleUpWorld) -> None:
    world.asked_for()
    world.step(controller.REQUEST_SECONDS)
    assert len(world.server.templates.list()) == 1
    world.controller._writes = False
    world.step()

    assert world.is_clean()


def test_a_thousand_pods_that_no_node_helps_do_not_hide_the_pod_of_another_tenant(world: ScaleUpWorld) -> None:
    theirs = world.pod(6, "theirs", "quiet")
    mine = [world.pod(40, f"mine-{number}", "greedy") for number in range(1_000)]
    world.wait(theirs, *mine)
    world.step()
    world.step()

    assert [each["metadata"]["namespace"] for each in world.requests()] == ["quiet"]
    told = [each["metadata"]["namespace"] for each in world.server.events.list()]
    assert 0 < told.count("greedy") == len(told) <= PER_NAMESPACE


def test_a_pool_whose_nodes_flap_between_two_sizes_costs_a_request_and_an_event_at_a_time(world: ScaleUpWorld) -> None:
    """For two hours the node of the pool reports a large and a small machine in turn. No node comes."""
    pod = world.pod(6)
    world.wait(pod)
    asked = list[str]()
    hours = 2
    for number in range(hours * 90):
        flapping = {"workloads": FULL} if number % 2 else {"hardware": SMALL}
        world.node(sample("old-a", **flapping), "big")
        world.filter(pod, "old-a")
        world.step(40)
        asked += [each["metadata"]["uid"] for each in world.requests()]

    most = hours * 3600 // (controller.REQUEST_SECONDS + controller.REST_SECONDS) + 1
    assert 1 <= len(set(asked)) <= most
    events = world.server.events.list()
    assert sum(each.get("count", 1) for each in events) <= hours * 3600 // controller.EVENT_SECONDS


def test_a_guard_that_flaps_leaves_the_nodes_of_an_hour_limited(world: ScaleUpWorld) -> None:
    """The old node is empty in every other report. Each time the new node is drained, and the pod waits again."""
    most = world.service.settings.autoscaling_nodes_per_hour
    asked, started = 0, world.clock.now
    pod = world.pod(6, "p0")
    for number in range(1, 500):
        if world.clock.now - started > controller.HOUR - 120:
            break
        world.wait(pod)
        world.step()
        asked += len(world.requests())
        world.node(sample(f"new-{number}"), "big")
        world.server.pods.bind(pod["metadata"]["name"], f"new-{number}", "team")
        world.step()
        world.node(sample("old-a"), "big")
        world.step()
        world.server.pods.delete(pod["metadata"]["name"], "team")
        world.node(sample("old-a", workloads=FULL), "big")
        pod = world.pod(6, f"p{number}")

    assert asked == most


def test_a_further_pod_of_a_guarded_pods_owner_gets_a_request_of_its_own(world: ScaleUpWorld) -> None:
    first = world.asked_for(ownerReferences=OWNER)
    world.node(sample("new-a", workloads=FULL), "big")
    world.server.pods.bind("p", "new-a", "team")
    world.step()
    assert world.annotations(first) == {SAFE_TO_EVICT: "false"}
    second = world.pod(6, "second", ownerReferences=OWNER)
    world.wait(second, names=("old-a", "new-a"))
    world.step()

    (asked,) = world.requests()
    assert world.annotations(second)[CONSUME] == asked["metadata"]["name"]
    by_name = {each["metadata"]["name"]: each for each in world.server.templates.list()}
    assert "new-a" in str(by_name[asked["metadata"]["name"]]["template"]), "it is excluded"
    world.server.pods.delete("second", "team")
    world.node(sample("old-a"), "big")
    world.step()
    world.step()
    assert world.is_clean(), "the first pod's guard has ended"


def test_a_request_behind_many_records_of_guarded_pods_is_seen(
    world: ScaleUpWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(objects, "PAGE", 1)
    for number in range(3):
        pod = world.asked_for(name=f"a{number}")
        world.server.pods.bind(pod["metadata"]["name"], "old-a", "team")
        world.node(sample("old-a", workloads=FULL), "big")
        world.step()
    world.asked_for(name="z")
    world.step()
    (asked,) = world.requests()
    assert len(world.controller.shown) == 4
    monkeypatch.setattr(objects, "MAX_PAGES", 2)
    world.filter(world.pod(6, "more", "other"), "old-a")
    with pytest.raises(ApiError, match="more than 2 objects"):
        world.step(WAIT_SECONDS)
    assert world.requests() == [asked], "nothing is asked for while not all requests are known"
