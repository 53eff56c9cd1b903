"""Groups with pods that contradict each other, never come, change or fail: no pod is bound alone, nothing is held for
ever, and no group stands in the way of others."""

import asyncio
import itertools
from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest

from extender.cluster.events import PodForgotten
from extender.features.groups import held_room as held_room_module
from extender.features.groups.groups import MAX_GROUPS, MAX_HOLDING
from extender.features.groups.held_room import ROOM_STEPS, SAVED_SECONDS, STEPS_A_SECOND, HeldRoom, WorkLimits
from extender.features.groups.place_search import Found, PlaceSearch
from extender.features.groups.record import OPEN_HOLDS, GroupRecord, GroupState
from extender.kubelet.budget import Budget
from extender.replay.pod import Pod
from extender.samples.machines import Hardware
from extender.samples.nodes import Workload
from extender.scheduling.binder import BindFailure, BindOutcome, NotBound, PodBound
from extender.scheduling.fit_together import Candidate, fit_together
from extender.scheduling.judge import LOOP_STEPS, BoundedJudge
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import PodShape
from extender.wire.groups import Group, group_of
from extender.wire.pods import pod_from_json
from tests.features.groups.gang_world import GangWorld, member
from tests.observations import observation_of
from tests.reports import pod_of, sample, with_init

Json = dict[str, Any]


def play(story: Callable[[], Awaitable[None]]) -> None:
    async def run() -> None:
        await story()

    asyncio.run(run())


def failure(outcome: BindOutcome) -> BindFailure:
    assert isinstance(outcome, NotBound), outcome
    return outcome.failure


def unaligned(name: str, group: str, size: int) -> Json:
    pod = member(name, group, size)
    pod["spec"]["containers"][0]["resources"] = {}
    pod["status"]["qosClass"] = "BestEffort"
    return pod


def leader(name: str, size: int) -> Json:
    prefix = "leaderworkerset.sigs.k8s.io/"
    made = pod_of(4, name=name)
    made["metadata"]["labels"] = {f"{prefix}group-key": "k", f"{prefix}worker-index": "0"}
    made["metadata"]["annotations"] = {f"{prefix}size": str(size)}
    return made


def seen_bound(world: GangWorld, pod: Json, node_name: str) -> None:
    """As after a restart of the extender: the watch shows the pod on the node."""
    group = group_of(pod)
    assert group is not None
    world.groups.see_bound(group, pod["metadata"]["uid"], node_name, world.clock())


def test_a_pod_that_changes_its_group_leaves_the_old_one() -> None:
    """The place in the old group stayed, and giving back both failed in every later call."""
    world = GangWorld(*"abcd")

    async def story() -> None:
        await world.filter(member("p", "old", 2))
        assert len((await world.filter(member("p", "new", 2))).feasible) == 1
        world.clock.now += 31
        assert len((await world.filter(pod_of(14, name="single"))).feasible) == 4
        assert not world.groups.held

    play(story)


def test_places_are_given_back_in_time_if_a_pod_without_a_place_came_first() -> None:
    world = GangWorld("a")

    async def story() -> None:
        assert len((await world.filter(unaligned("g0", "g", 4))).feasible) == 1
        assert len((await world.filter(member("g1", "g", 4, cpus=4))).feasible) == 1
        world.clock.now += 31
        assert len((await world.filter(pod_of(14, name="single"))).feasible) == 1
        assert not world.groups.held

    play(story)


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_pod_whose_place_is_over_when_bind_comes_is_not_bound_alone(*, is_forgotten: bool) -> None:
    """Nor if the group is no longer known, because there are too many others."""
    world = GangWorld("a", "b")
    pod = member("g0", "g", 3)

    async def story() -> None:
        (node,) = (await world.filter(pod)).feasible
        world.clock.now += 31
        if is_forgotten:
            world.groups.expire(world.clock())
            for i in range(MAX_GROUPS):
                world.groups.join(Group(("annotation", "ns", f"x{i}"), 2), "", 0, world.clock())
        assert failure(await world.bind(pod, node)) is BindFailure.GROUP

    play(story)


def test_a_smaller_size_of_one_pod_does_not_let_the_others_through() -> None:
    world = GangWorld("a", "b", "c")

    async def story() -> None:
        first = member("g0", "g", 4)
        (node,) = (await world.filter(first)).feasible
        for size in (1, 2, 1_000_000):
            await world.filter(member("g1", "g", size))
            assert failure(await world.bind(first, node)) is BindFailure.GROUP

    play(story)


def test_one_important_pod_does_not_make_its_group_important() -> None:
    world = GangWorld("a")

    async def story() -> None:
        await world.filter(member("g0", "g", 3))
        await world.filter(member("g1", "g", 3), priority=1000)
        assert world.groups.held
        assert len((await world.filter(pod_of(14, name="single"), priority=1)).feasible) == 1

    play(story)


def test_places_for_copies_are_not_in_the_way_of_pods_with_other_requests() -> None:
    """The plan for the second pod counted the places that it was to replace."""
    world = GangWorld("a", "b")

    async def story() -> None:
        assert len((await world.filter(member("g0", "g", 4, cpus=6))).feasible) == 1
        filtered = await world.filter(member("g1", "g", 4, cpus=14))
        assert len(filtered.feasible) == 1, set(filtered.refused.values())

    play(story)


def test_groups_with_new_names_do_not_drive_out_one_of_which_pods_are_bound() -> None:
    world = GangWorld("a", "b")
    one, two = member("g0", "g", 2), member("g1", "g", 2)

    async def story() -> None:
        seen_bound(world, one, "a")
        for i in range(MAX_GROUPS + 5):
            world.groups.join(Group(("annotation", "ns", f"x{i}"), 2), "", 0, world.clock())
        assert len(world.groups) <= MAX_GROUPS
        assert await world.place(two), "the rest of the group is known"

    play(story)


def test_pods_without_places_are_bounded_by_the_size_of_their_group() -> None:
    world = GangWorld("a")

    async def story() -> None:
        for i in range(20):
            await world.filter(unaligned(f"g{i}", "g", 3))
        (record,) = world.groups
        assert len(record.claims) == 3

    play(story)


def test_places_for_workers_that_may_never_come_yield_to_more_important_pods() -> None:
    world = GangWorld("a")
    single = pod_of(14, name="single")

    async def story() -> None:
        assert await world.place(leader("l", 6))
        assert world.groups.held
        assert list((await world.filter(single)).feasible) == []
        assert list((await world.filter(single, priority=1)).feasible) == ["a"]

    play(story)


def test_a_group_whose_first_binding_fails_is_closed_again() -> None:
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 2, cpus=14) for i in range(2)]

    async def story() -> None:
        (node,) = [(await world.filter(pod)).feasible[0] for pod in pods][:1]
        world.api.outcome = NotBound("no", BindFailure.FAILED)
        assert failure(await world.bind(pods[0], node)) is BindFailure.FAILED
        (record,) = world.groups
        assert record.state is GroupState.HOLDING
        single = pod_of(14, name="single")
        assert len((await world.filter(single, priority=1)).feasible) == 2, "more important, and no pod is bound"

    play(story)


def test_a_pod_that_no_longer_exists_frees_its_place() -> None:
    world = GangWorld("a")
    pods = [member(f"g{i}", "g", 2, cpus=14) for i in range(2)]

    async def story() -> None:
        for pod in pods:
            await world.filter(pod)
        world.api.outcome = NotBound("gone", BindFailure.NOT_FOUND)
        assert failure(await world.bind(pods[0], "a")) is BindFailure.NOT_FOUND
        world.api.outcome = PodBound()
        again = member("g0-again", "g", 2, cpus=14)
        assert list((await world.filter(again)).feasible) == ["a"]
        assert [await world.bind(pod, "a") for pod in (again, pods[1])] == [PodBound()] * 2

    play(story)


def test_no_namespace_can_use_up_the_places_of_all_groups() -> None:
    world = GangWorld(*"abcdefghij")

    async def story() -> None:
        for i in range(MAX_HOLDING):
            last = await world.filter(member(f"x{i}", f"x{i}", 2, cpus=2))
        assert sum(record.has_places for record in world.groups) == MAX_HOLDING // 2
        assert set(last.refused.values()) == {"places are held for too many other groups now"}
        other = member("o", "o", 2, cpus=2)
        other["metadata"]["namespace"] = "other"
        assert len((await world.filter(other)).feasible) == 1

    play(story)


def test_after_a_restart_room_is_held_for_the_rest_of_a_group() -> None:
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 4, cpus=14) for i in range(4)]

    async def story() -> None:
        seen_bound(world, pods[0], "c")
        assert len((await world.filter(pods[1])).feasible) == 1
        assert sum(map(len, world.groups.held.values())) == 3
        assert len((await world.filter(pod_of(14, name="single"))).feasible) <= 1
        assert [bool(await world.place(pod)) for pod in pods[1:]] == [True] * 3

    play(story)


def test_the_pods_of_an_open_group_keep_their_places_while_they_come_again() -> None:
    """Places were given back 30 s after the last binding, also those of pods that were tried again and again."""
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 4, cpus=14) for i in range(4)]
    single = pod_of(14, name="single")

    async def story() -> None:
        nodes = [(await world.filter(pod)).feasible[0] for pod in pods]
        assert await world.bind(pods[0], nodes[0]) == PodBound()
        other = next(i for i in (1, 2, 3) if nodes[i] == nodes[0])
        for seconds in range(10, 250, 10):
            world.clock.now += 10
            assert list((await world.filter(pods[other])).feasible) == [nodes[0]]
            seen = list((await world.filter(single)).feasible)
            assert nodes[0] not in seen
            assert bool(seen) == (seconds >= 30), "the places of pods that do not come again are given back"
        world.clock.now += 31
        assert nodes[0] in (await world.filter(single)).feasible
        world.clock.now += OPEN_HOLDS * 30
        assert not world.groups.held

    play(story)


def test_an_open_group_does_not_hold_places_for_ever() -> None:
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 2, cpus=14) for i in range(2)]

    async def story() -> None:
        nodes = [(await world.filter(pod)).feasible[0] for pod in pods]
        assert await world.bind(pods[0], nodes[0]) == PodBound()
        for _ in range(OPEN_HOLDS * 3):
            assert world.groups.held
            world.clock.now += 10
            await world.filter(pods[1])
        assert not world.groups.held
        assert len((await world.filter(pods[1])).feasible) == 2, "for a while it is a pod like others"
        world.clock.now += 61
        assert len((await world.filter(pods[1])).feasible) == 1

    play(story)


def test_a_place_of_an_open_group_is_kept_until_another_one_is_found() -> None:
    world = GangWorld("a", "b", "c")
    pods = [member(f"g{i}", "g", 2, cpus=14) for i in range(2)]

    async def story() -> None:
        for i in range(2):
            await world.place_on(pod_of(14, name=f"single-{i}"), "c")
        nodes = [(await world.filter(pod)).feasible[0] for pod in pods]
        assert await world.bind(pods[0], nodes[0]) == PodBound()
        assert list((await world.filter(pods[1], "c")).feasible) == [], "its own node is not offered now"
        assert list(world.groups.held) == [nodes[1]]
        assert list((await world.filter(pods[1])).feasible) == [nodes[1]]
        others = [name for name in world.names if name != nodes[1]]
        (other,) = (await world.filter(pods[1], *others)).feasible
        assert list(world.groups.held) == [other]

    play(story)


def test_a_pod_in_place_of_one_that_its_kubelet_refused_gets_another_place() -> None:
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 2, cpus=14) for i in range(2)]

    async def story() -> None:
        nodes = [(await world.filter(pod)).feasible[0] for pod in pods]
        assert [await world.bind(pod, node) for pod, node in zip(pods, nodes, strict=True)] == [PodBound()] * 2
        world.groups.see_gone("uid-g1", world.clock())
        again = member("g1-again", "g", 2, cpus=14)
        (node,) = (await world.filter(again)).feasible
        assert node in world.groups.held
        assert await world.bind(again, node) == PodBound()

    play(story)


EIGHT = Hardware(sockets=2, numa_per_socket=2, cores_per_numa=4, threads=2, memory_gib=16, distances=(10, 32))
"""4 NUMA nodes of 8 CPUs."""


def fragile(pod: Json, cpus: int = 3) -> Json:
    """The pod with an init container. Whether it fits on a node of `EIGHT` depends on which NUMA node both get first.

    With 8 CPUs beside 3 it fits beside another pod, and not on an empty node. With 6 beside 2 it is the other way.
    """
    return with_init(pod, cpus, "8Gi")


def fragile_world() -> GangWorld:
    """With this strategy the plan uses both nodes where there are two, as the tests need."""
    world = GangWorld(strategy="least-numa")
    world.add(sample("a", hardware=EIGHT, topologyManagerPolicy="restricted"))
    return world


def test_no_pod_is_bound_while_the_end_of_another_pod_would_take_the_place_of_one() -> None:
    """One of four pods was bound, the pod beside the others ended, and they never fitted again."""
    world = fragile_world()
    world.add(sample("b"))
    pods = [fragile(member(f"g{i}", "g", 2)) for i in range(2)]

    async def story() -> None:
        await world.place_on(pod_of(4, name="other"), "a")
        await world.place_on(pod_of(16, name="big"), "b")
        assert [list((await world.filter(pod)).feasible) for pod in pods] == [["a"], ["b"]]
        assert failure(await world.bind(pods[1], "b")) is BindFailure.UNSETTLED
        assert [record.state for record in world.groups] == [GroupState.HOLDING]
        world.service.known.nodes.apply(PodForgotten("a", "uid-other"), now=world.clock())
        assert failure(await world.bind(pods[1], "b")) is BindFailure.GROUP
        assert not world.groups.held

    play(story)


def test_a_group_waits_for_other_pods_to_end_for_a_limited_time() -> None:
    world = fragile_world()
    pods = [fragile(member(f"g{i}", "g", 2)) for i in range(2)]

    async def story() -> None:
        await world.place_on(pod_of(4, name="other"), "a")
        for pod in pods:
            await world.filter(pod)
        assert failure(await world.bind(pods[0], "a")) is BindFailure.UNSETTLED
        world.clock.now += 11
        assert await world.bind(pods[0], "a") == PodBound()

    play(story)


def test_of_two_pods_on_one_node_that_which_must_be_first_is_bound_first() -> None:
    """A pod was offered a node again and again where bind found that another place would not fit after it."""
    world = fragile_world()
    second = fragile(member("g1", "g", 3, cpus=6), cpus=2)
    third = member("g2", "g", 3, cpus=4)

    async def story() -> None:
        seen_bound(world, member("g0", "g", 3), "elsewhere")
        assert list((await world.filter(second)).feasible) == ["a"]
        assert list((await world.filter(third)).feasible) == ["a"]
        (record,) = world.groups
        assert list(record.claims) == ["uid-g1", "uid-g2"]
        outcome = await world.bind(third, "a")
        assert failure(outcome) is BindFailure.GROUP
        assert "must be bound to the node before it" in str(outcome)
        assert await world.bind(second, "a") == PodBound()
        assert await world.bind(third, "a") == PodBound()

    play(story)


def test_places_that_were_held_while_a_single_pod_was_judged_are_kept() -> None:
    """A single pod was checked when nothing was held, and bound when the group had its places."""
    world = GangWorld("a")
    group = [member(f"g{i}", "g", 2, cpus=14) for i in range(2)]
    single = pod_of(14, name="single")
    judge = world.service.judging
    answer_node = judge.answer_node

    async def story() -> None:
        async def slowly(pod: Pod, node_name: str, seconds: float) -> Judgement:
            judge.answer_node = answer_node  # type: ignore[method-assign]
            assert len((await world.filter(group[0])).feasible) == 1
            return await answer_node(pod, node_name, seconds)

        await world.filter(single)
        judge.answer_node = slowly  # type: ignore[method-assign]
        assert failure(await world.bind(single, "a")) is BindFailure.GROUP
        assert [bool(await world.filter(pod)) for pod in group] == [True, True]
        assert [await world.bind(pod, "a") for pod in group] == [PodBound()] * 2

    play(story)


def test_held_room_is_protected_on_more_nodes_than_answers_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """The answer for one node drove out that for another, which then counted as free."""
    monkeypatch.setattr(held_room_module, "KNOWN_BYTES", 1)
    world = GangWorld("a", "b")

    async def story() -> None:
        await world.place_on(pod_of(2, name="other"), "a")
        assert await world.filter(member("g0", "g", 3, cpus=14))
        assert sorted(world.groups.held) == ["a", "b"]
        single = pod_of(14, name="single")
        assert list((await world.filter(single, "a")).feasible) == []
        assert list((await world.filter(single)).feasible) == []

    play(story)


def test_answers_about_held_room_keep_no_node_alive() -> None:
    """Seen red: 4,096 answers each kept a kubelet and a state, which a node that reports others each time chooses."""
    world = GangWorld("a", "b")

    async def story() -> None:
        assert await world.filter(member("g0", "g", 3, cpus=14))
        await world.filter(pod_of(14, name="single"))

    play(story)
    known = world.gangs.room._known
    assert known
    assert not [part for key in known for part in key if hasattr(part, "candidate") or hasattr(part, "held")]
    assert all(hash(room) == hash(room.key) for _, room in known), "a room is found by its key"


def meanwhile(monkeypatch: pytest.MonkeyPatch, story: Callable[[], Awaitable[None]]) -> None:
    """Let *story* happen while the next result is computed."""
    work = HeldRoom.work

    async def slowly(self: HeldRoom, find: Callable[[Budget], object], size: int, limits: WorkLimits) -> object:
        monkeypatch.setattr(HeldRoom, "work", work)
        result = await work(self, find, size, limits)
        await story()
        return result

    monkeypatch.setattr(HeldRoom, "work", slowly)


def test_a_group_that_opens_while_another_bind_call_checks_it_keeps_its_places(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slower call gave back the places of all pods after the first one was bound."""
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 4, cpus=14) for i in range(4)]
    nodes, known = world.service.known.nodes, dict[str, Json]()

    async def bind_another() -> None:
        nodes.apply(PodForgotten("a", "uid-passing"), now=world.clock())
        assert await world.bind(known["b"], "b") == PodBound()

    async def story() -> None:
        known.update({(await world.filter(pod)).feasible[0]: pod for pod in pods})
        nodes.assume("a", pod_from_json(pod_of(14, name="passing")), world.clock())
        meanwhile(monkeypatch, bind_another)
        assert await world.bind(known["a"], "a") == PodBound()
        assert sum(map(len, world.groups.held.values())) == 2

    play(story)


def test_places_of_a_new_group_of_the_same_name_are_not_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """A bind call for a pod of the deleted group gave them back."""
    world = GangWorld("a", "b")
    old, new = ([member(f"{name}{i}", "g", 4, cpus=14) for i in range(4)] for name in ("old", "new"))
    nodes = world.service.known.nodes

    async def come_anew() -> None:
        for pod in old:
            world.groups.see_gone(pod["metadata"]["uid"], world.clock())
        nodes.apply(PodForgotten("a", "uid-passing"), now=world.clock())
        assert len((await world.filter(new[0])).feasible) == 1

    async def story() -> None:
        offered = [(await world.filter(pod)).feasible[0] for pod in old]
        nodes.assume("a", pod_from_json(pod_of(14, name="passing")), world.clock())
        meanwhile(monkeypatch, come_anew)
        assert failure(await world.bind(old[0], offered[0])) is BindFailure.GROUP
        assert sum(map(len, world.groups.held.values())) == 4

    play(story)


def test_pods_that_a_runtime_policy_tells_apart_are_not_taken_for_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer for one pod counted for pods with other annotations of the NRI policy, and so did a spare place."""
    world, calls = GangWorld("a", "b"), [0]
    isolated = {"prefer-isolated-cpus.resource-policy.nri.io/pod": "true"}

    def counted(judge: BoundedJudge, pods: Sequence[PodShape], candidate: Candidate, budget: Budget) -> bool:
        calls[0] += len(pods) == 3
        return fit_together(judge, pods, candidate, budget)

    async def story() -> None:
        await world.filter(member("g0", "g", 2, cpus=14), "a")
        monkeypatch.setattr(held_room_module, "fit_together", counted)
        for i, annotations in enumerate(({}, isolated, {}, isolated)):
            pod = pod_of(14, name=f"single-{i}")
            pod["metadata"]["annotations"] = annotations
            assert not (await world.filter(pod, "a")).feasible
        assert calls == [2]
        (record,) = world.groups
        for annotations, is_taken in ((isolated, False), ({}, True)):
            other = pod_from_json(member("g1", "g", 2, cpus=14, **annotations))
            assert (world.groups.take_spare(record, other, lambda _: True) is not None) == is_taken

    play(story)


def _with_containers(pod: Json, count: int) -> Json:
    """The pod with *count* containers of little CPU and memory in place of its own."""
    (own,) = pod["spec"]["containers"]
    amounts = {"cpu": "10m", "memory": "1Mi"}
    small = {**own, "resources": {"requests": amounts, "limits": amounts}}
    pod["spec"]["containers"] = [{**small, "name": f"c{i}"} for i in range(count)]
    return pod


def test_the_room_of_a_large_group_costs_other_pods_a_bounded_number_of_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two groups of 100 pods with twelve containers made each filter call of any other pod replay 2,400 containers."""
    world, steps = GangWorld("a", "b", "c"), list[float]()

    def counted(judge: BoundedJudge, pods: Sequence[PodShape], candidate: Candidate, budget: Budget) -> bool:
        before = budget.used
        try:
            return fit_together(judge, pods, candidate, budget)
        finally:
            steps.append(budget.used - before)

    async def story() -> None:
        small = member("small-0", "small", 2, cpus=14)
        assert list((await world.filter(small, "c")).feasible) == ["c"]
        for group, node in (("one", "a"), ("two", "b")):
            large = _with_containers(member(f"{group}-0", group, 80), 12)
            assert list((await world.filter(large, node)).feasible) == [node]
        assert [len(world.groups.held[name]) for name in "abc"] == [80, 80, 2]
        monkeypatch.setattr(held_room_module, "fit_together", counted)
        for cpus in (14, 12, 10):
            steps.clear()
            assert list((await world.filter(pod_of(cpus, name=f"single-{cpus}"))).feasible) == ["a", "b"]
            assert sum(steps) < LOOP_STEPS + 2 * ROOM_STEPS
        assert await world.bind(pod_of(10, name="single-10"), "a") == PodBound()
        steps.clear()
        assert list((await world.filter(pod_of(10, name="another"), "b", "c")).feasible) == ["b"]
        assert not steps, "the answers are kept"

    play(story)


def test_held_room_takes_a_part_of_the_time_however_often_nodes_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each change of a node made the next call of each shape replay all places on it, 25 times a second.

    A group of another namespace keeps its room meanwhile.
    """
    world, steps = GangWorld("a", "b", "c", gang_hold_seconds=60), [0.0]

    def counted(judge: BoundedJudge, pods: Sequence[PodShape], candidate: Candidate, budget: Budget) -> bool:
        before = budget.used
        try:
            return fit_together(judge, pods, candidate, budget)
        finally:
            steps[0] += budget.used - before

    async def story() -> None:
        assert list((await world.filter(member("small-0", "small", 2, cpus=14), "c")).feasible) == ["c"]
        for group, node in (("one", "a"), ("two", "b")):
            pod = _with_containers(member(f"{group}-0", group, 80), 3)
            pod["metadata"]["namespace"] = "large"
            assert list((await world.filter(pod, node)).feasible) == [node]
        monkeypatch.setattr(held_room_module, "fit_together", counted)
        cpus = itertools.cycle((14, 13, 12, 11))
        for second in range(20):
            other = Workload(name="other", resources={"cpu": 1, "memory": f"{100 + second}Mi"})
            for node in "ab":
                changed = observation_of(node, sample(node, workloads=[other]), sequence=second + 2)
                world.service.known.nodes.observe(changed, world.clock())
            for call in range(8):
                world.clock.now += 1 / 8
                offered = (await world.filter(pod_of(next(cpus), name=f"single-{second}-{call}"))).feasible
                assert "c" not in offered
        assert 5 * ROOM_STEPS < steps[0] < STEPS_A_SECOND / 2 * (SAVED_SECONDS + 20) + 2 * ROOM_STEPS

    play(story)


def test_long_plans_of_one_namespace_take_a_part_of_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each group rested by itself after a long plan, so a few groups that never fit kept kube-scheduler busy."""
    world, seconds, plan = GangWorld("a", "b", filter_seconds=1.5), defaultdict[str, float](float), PlaceSearch.plan

    async def slowly(self: PlaceSearch, uid: str, record: GroupRecord, *rest: Any) -> Found:
        found = await plan(self, uid, record, *rest)
        world.clock.now += 0.5
        seconds[record.key[1]] += 0.5
        return found

    async def story() -> None:
        monkeypatch.setattr(PlaceSearch, "plan", slowly)
        began = world.clock.now
        for call in range(400):
            world.clock.now += 0.05
            pod = member(f"m{call % 40}", f"g{call % 40}", 100)
            pod["metadata"]["namespace"] = "large"
            assert not (await world.filter(pod)).feasible
        took = world.clock.now - began
        assert 1 < seconds["large"] <= 0.5 + took / 5
        assert (await world.filter(member("o", "o", 2))).feasible, "a group of another namespace"

    play(story)
