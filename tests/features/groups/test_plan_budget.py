"""Everything that a plan for a group does takes steps of one budget; beyond it the answer is the safe one."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from extender.cluster.node_class import UNKNOWN
from extender.features.groups import held_room, planner
from extender.features.groups.held_room import HeldRoom
from extender.features.groups.planner import GangPlan, PlannedNode, PodKind
from extender.kubelet.budget import Budget
from extender.scheduling.binder import PodBound
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.wire.pods import pod_from_json
from tests.features.groups.gang_world import GangWorld, member
from tests.reports import pod_of

FULL = {"cpu": 0, "memory": 0, "pods": 1000}
ROOM = {"cpu": 1 << 40, "memory": 1 << 60, "pods": 1_000_000}


def plan_of(nodes: int, left_milli: dict[str, int], wanted: int) -> GangPlan:
    """A plan for pods of one shape on nodes whose kubelets are not known. No replay is needed for it."""
    plan = GangPlan(
        judge=BoundedJudge(least_numa, UncertaintyPolicy()),
        kinds=[PodKind(PodShape(pod_from_json(pod_of(2))))],
        wanted={0: wanted},
    )
    for number in range(nodes):
        name = f"n{number}"
        plan.nodes[name] = PlannedNode(name=name, node_class=UNKNOWN, left_milli=left_milli, merits={0: 0}, judged={0})
    return plan


def test_nodes_that_are_tried_take_steps() -> None:
    """Seen red: 5,000 nodes without room took no steps, and a fifth of a second of the event loop."""
    plan, budget = plan_of(5_000, FULL, 2), Budget(5_000)

    plan.run(budget, is_last=True)

    assert budget.is_used_up
    assert sum(plan.why.values()) < 500
    assert not plan.places


def test_a_plan_within_its_budget_tries_every_node() -> None:
    plan, budget = plan_of(400, FULL, 2), Budget(5_000)

    plan.run(budget, is_last=True)

    assert not budget.is_used_up
    assert (plan.short, plan.why.total()) == (0, 400)


def test_places_that_were_found_before_the_end_of_the_budget_are_no_whole_plan() -> None:
    plan, budget = plan_of(1_000, ROOM, 1_000), Budget(5_000)

    plan.run(budget, is_last=True)

    assert budget.is_used_up
    assert not plan.is_found


def test_places_before_the_plan_that_cannot_be_looked_at_do_not_fit() -> None:
    plan = plan_of(1, ROOM, 1)
    plan.nodes["n0"].fixed = (0,)

    assert plan.keeps(Budget(1))
    assert not plan.keeps(Budget(0))


def every_budget(monkeypatch: pytest.MonkeyPatch) -> list[Budget]:
    """The budgets of all work on groups, on the event loop and beside it."""
    budgets: list[Budget] = []
    original = HeldRoom.work

    async def work(room: HeldRoom, do: Callable[[Budget], Any], size: int, *limits: Any) -> Any:  # noqa: ANN401
        def counted(budget: Budget) -> Any:  # noqa: ANN401
            budgets.append(budget)
            return do(budget)

        return await original(room, counted, size, *limits)

    monkeypatch.setattr(HeldRoom, "work", work)
    return budgets


@pytest.mark.parametrize("at_once", [5_000, 1])
def test_a_group_is_placed_with_two_budgets_a_plan(at_once: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen red: each step of a plan, and each check of places, had a budget of its own or none."""
    monkeypatch.setattr(held_room, "LOOP_STEPS", at_once)
    world, budgets = GangWorld("a", "b"), every_budget(monkeypatch)
    pods = [member(f"g{i}", "g", 4, cpus=14 - i % 2) for i in range(4)]

    async def story() -> None:
        for pod in pods:
            (node,) = (await world.filter(pod)).feasible
        planned = {id(each) for each in budgets}
        assert len(planned) <= 2 * len(pods)
        for pod in pods:
            (node,) = (await world.filter(pod)).feasible
            assert await world.bind(pod, node) == PodBound()

    asyncio.run(story())
    assert all(each.steps < float("inf") for each in budgets)


def test_places_of_a_group_that_take_too_long_to_check_are_given_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen red: the check before the first binding of a group had no limit of steps."""
    world = GangWorld("a", "b")
    pods = [member(f"g{i}", "g", 4, cpus=14) for i in range(4)]

    async def story() -> None:
        for pod in pods:
            assert (await world.filter(pod)).feasible
        monkeypatch.setattr(held_room, "LOOP_STEPS", 1)
        monkeypatch.setattr(held_room, "PLAN_STEPS", 1)
        (node,) = (await world.filter(pods[0])).feasible
        assert await world.bind(pods[0], node) != PodBound()
        assert not world.groups.held

    asyncio.run(story())


def test_a_search_of_other_nodes_has_a_limited_depth(monkeypatch: pytest.MonkeyPatch) -> None:
    """Seen red: with a large `gang_max_pods`, a RecursionError."""
    plan = plan_of(1, FULL, planner.MAX_SEARCHED)
    plan.kinds = [*plan.kinds, *plan.kinds]
    searched: list[int] = []
    monkeypatch.setattr(GangPlan, "_search", lambda plan: searched.append(sum(plan.wanted.values())))
    for others in (0, 1):
        plan.wanted = {0: planner.MAX_SEARCHED - 1, 1: 1 + others}
        plan.run(Budget(), is_last=True)

    assert searched == [planner.MAX_SEARCHED]
