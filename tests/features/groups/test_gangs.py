"""Pods of a group are placed together or not at all; through filter and bind as values."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from extender.features.groups.feature import GroupsFeature
from extender.features.groups.place_search import Found, PlaceSearch
from extender.features.groups.record import GroupState
from extender.scheduling.binder import BindFailure, NotBound, PodBound
from tests.features.groups.gang_world import GangWorld, member
from tests.reports import pod_of


def reasons(refused: object) -> set[str]:
    assert hasattr(refused, "values")
    return set(refused.values())


def test_each_pod_is_led_to_its_place_and_none_is_bound_before_all_have_come() -> None:
    world = GangWorld("a", "b", "c")
    pods = [member(f"g{i}", "g", 4) for i in range(4)]

    async def story() -> None:
        nodes = []
        for number, pod in enumerate(pods):
            (node,) = (await world.filter(pod)).feasible
            nodes.append(node)
            if number < 3:
                outcome = await world.bind(pod, node)
                assert isinstance(outcome, NotBound)
                assert outcome.failure is BindFailure.GROUP
                assert "still to come" in outcome.reason
        assert max(Counter(nodes).values()) <= 3, "14 and 16 CPUs: a node takes 3 pods of 8"
        assert [await world.bind(pod, node) for pod, node in zip(pods, nodes, strict=True)] == [PodBound()] * 4

    asyncio.run(story())
    assert not world.groups.held
    assert [record.state for record in world.groups] == [GroupState.PLACED]


def test_if_not_all_fit_every_node_is_refused_and_the_reason_says_how_many_fit() -> None:
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 5, cpus=14) for i in range(5)]

    async def story() -> None:
        for pod in pods:
            filtered = await world.filter(pod)
            assert list(filtered.feasible) == []
            assert reasons(filtered.refused) == {"the pods of the group do not fit together now: 4 of 5 pods fit"}
        assert list((await world.filter(pod_of(14, name="single"))).feasible) == ["a", "b"], "nothing is held"

    asyncio.run(story())
    assert not world.groups.held


def test_of_two_groups_that_race_for_room_for_one_and_a_half_one_runs_and_none_waits_on_half() -> None:
    """Room for 6 pods, groups of 4; their pods come in turn."""
    world = GangWorld("a", "b", "c")
    one, two = ([member(f"{g}{i}", g, 4, cpus=14) for i in range(4)] for g in "xy")

    async def story() -> None:
        for pod, other in zip(one, two, strict=True):
            assert len((await world.filter(pod)).feasible) == 1
            refused = await world.filter(other)
            assert list(refused.feasible) == []
            assert "do not fit together now" in str(reasons(refused.refused))
        for pod in one:
            assert await world.place(pod)
        assert not any([await world.place(pod) for pod in two])

    asyncio.run(story())
    assert {record.key[2]: record.state for record in world.groups} == {"x": GroupState.PLACED, "y": GroupState.WAITING}


def test_held_room_is_kept_from_single_pods_but_not_from_more_important_ones() -> None:
    world = GangWorld("a")
    first = member("g0", "g", 2, cpus=12)
    single = pod_of(14, name="single")

    async def story() -> None:
        assert list((await world.filter(first)).feasible) == ["a"]
        filtered = await world.filter(single)
        assert reasons(filtered.refused) == {"the room on the node is held for the pods of a group"}
        outcome = await world.bind(single, "a")
        assert isinstance(outcome, NotBound)
        assert outcome.failure is BindFailure.HELD
        assert list((await world.filter(pod_of(2, name="small"))).feasible) == ["a"], "it fits beside the places"
        assert list((await world.filter(single, priority=1)).feasible) == ["a"]
        assert await world.bind(single, "a") == PodBound()
        second = member("g1", "g", 2, cpus=12)
        assert list((await world.filter(second)).feasible) == ["a"], "the place was held for it"
        outcome = await world.bind(second, "a")
        assert isinstance(outcome, NotBound)
        assert "do not fit together" in outcome.reason, "checked again before the first pod is bound"
        assert "1 of 2 pods fit" in str(reasons((await world.filter(second)).refused))

    asyncio.run(story())
    assert not world.groups.held


def test_places_are_given_back_in_time_and_single_pods_have_their_turn() -> None:
    world = GangWorld("a")
    first, single = member("g0", "g", 2, cpus=14), pod_of(14, name="single")

    async def story() -> None:
        assert list((await world.filter(first)).feasible) == ["a"]
        world.clock.now += 29
        assert list((await world.filter(single)).feasible) == []
        world.clock.now += 2
        assert list((await world.filter(single)).feasible) == ["a"]
        refused = await world.filter(first)
        assert "waits before its next attempt" in str(reasons(refused.refused))
        assert list((await world.filter(member("h0", "h", 2, cpus=14))).feasible) == [], (
            "the node rests, for all groups"
        )
        assert list((await world.filter(single)).feasible) == ["a"]
        world.clock.now += 61
        assert list((await world.filter(first)).feasible) == ["a"], "no pod of the group has come in its turn"

    asyncio.run(story())
    assert world.groups.expired == 1


def test_a_place_that_is_lost_is_replaced_and_an_open_group_takes_every_node() -> None:
    world = GangWorld("a", "b", "c")
    pods = [member(f"g{i}", "g", 2, cpus=14) for i in range(2)]

    async def story() -> None:
        (node,) = (await world.filter(pods[0])).feasible
        others = [name for name in world.names if name != node]
        (second,) = (await world.filter(pods[0], *others)).feasible
        assert second in others, "kube-scheduler does not offer the first node any longer"
        assert list((await world.filter(pods[1], node)).feasible) == [node]
        assert await world.bind(pods[0], second) == PodBound()
        assert len((await world.filter(pods[1], *world.names)).feasible) == 1
        (third,) = (name for name in world.names if name not in (node, second))
        assert list((await world.filter(pods[1], third)).feasible) == [third]
        assert await world.bind(pods[1], third) == PodBound()

    asyncio.run(story())
    assert not world.groups.held


def test_pods_that_cannot_share_a_node_get_nodes_of_their_own() -> None:
    world = GangWorld("a", "b", "c")
    rule = {"topologyKey": "kubernetes.io/hostname", "labelSelector": {"matchLabels": {"app": "x"}}}
    pods = [member(f"g{i}", "g", 3, cpus=2) for i in range(3)]
    for pod in pods:
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}

    async def story() -> None:
        assert {(await world.filter(pod)).feasible[0] for pod in pods} == {"a", "b", "c"}
        other = GangWorld("a", "b", "c")
        assert "3 of 4 pods fit" in str(reasons((await other.filter(_four(rule))).refused))

    def _four(rule: object) -> dict[str, object]:
        pod = member("h0", "h", 4, cpus=2)
        pod["spec"]["affinity"] = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [rule]}}
        return pod

    asyncio.run(story())


def test_a_pod_that_no_kubelet_aligns_counts_as_one_of_its_group() -> None:
    world = GangWorld("a", "b")
    leader = member("g0", "g", 3)
    leader["spec"]["containers"][0]["resources"] = {}
    leader["status"]["qosClass"] = "BestEffort"
    workers = [member(f"g{i}", "g", 3, cpus=14) for i in (1, 2)]

    async def story() -> None:
        assert list((await world.filter(leader)).feasible) == ["a", "b"]
        assert isinstance(await world.bind(leader, "a"), NotBound), "its group has not come"
        for worker in workers:
            assert len((await world.filter(worker)).feasible) == 1
        assert await world.bind(leader, "a") == PodBound()
        assert all([await world.place(worker) for worker in workers])

    asyncio.run(story())


def test_a_group_without_a_size_is_judged_pod_by_pod() -> None:
    world = GangWorld("a", "b")
    pod = pod_of(14, name="g0")
    pod["metadata"]["labels"] = {"scheduling.x-k8s.io/pod-group": "g"}

    async def story() -> None:
        assert list((await world.filter(pod)).feasible) == ["a", "b"]
        assert await world.bind(pod, "a") == PodBound()

    asyncio.run(story())
    assert [record.state for record in world.groups] == [GroupState.SINGLE]


def test_a_leader_of_a_leader_worker_set_is_bound_before_its_workers_exist() -> None:
    world = GangWorld("a", "b")
    prefix = "leaderworkerset.sigs.k8s.io/"

    def pod(index: int) -> dict[str, object]:
        made = pod_of(14, name=f"lws-0-{index}")
        made["metadata"]["labels"] = {f"{prefix}group-key": "k", f"{prefix}worker-index": str(index)}
        made["metadata"]["annotations"] = {f"{prefix}size": "3"}
        return made

    async def story() -> None:
        assert await world.place(pod(0))
        assert sum(map(len, world.groups.held.values())) == 2, "the places of the workers are kept"
        assert all([await world.place(pod(i)) for i in (1, 2)])

    asyncio.run(story())
    assert not world.groups.held


def test_off_nothing_is_held() -> None:
    world = GangWorld("a", gangs="off")

    async def story() -> None:
        assert list((await world.filter(member("g0", "g", 9, cpus=14))).feasible) == ["a"]
        assert await world.place(member("g0", "g", 9, cpus=14))

    asyncio.run(story())
    assert not any(isinstance(each, GroupsFeature) for each in world.service.features)


def test_a_group_that_does_not_fit_is_not_planned_again_for_the_same_nodes_in_another_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """kube-scheduler begins each call with another node."""
    world, plans, plan = GangWorld("a", "b", "c"), [0], PlaceSearch.plan

    async def counted(self: PlaceSearch, *args: Any) -> Found:
        plans[0] += 1
        return await plan(self, *args)

    monkeypatch.setattr(PlaceSearch, "plan", counted)

    async def story() -> None:
        for i, names in enumerate(("abc", "bca", "cab")):
            assert not (await world.filter(member(f"g{i}", "g", 20), *names)).feasible

    asyncio.run(story())
    assert plans == [1]
