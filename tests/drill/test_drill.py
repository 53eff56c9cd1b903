"""A small drill: the gate lets no pod through that its kubelet refuses, and nothing leaks; without it, some fail."""

import asyncio
from dataclasses import replace

import pytest

from tests.drill.drill import Drill, Plan


@pytest.mark.parametrize("seed", [1, 2])
def test_with_the_gate_no_pod_is_refused_after_bind_and_no_room_leaks(seed: int) -> None:
    outcome = asyncio.run(Drill(Plan(pods=100, nodes=5, seed=seed, mean_life=8, load=1.3)).run())

    assert outcome.broken == []
    assert outcome.admitted > 80
    assert outcome.restarts


def test_kubelets_that_restart_under_load_refuse_only_pods_bound_before_anybody_could_know() -> None:
    """Of 150 pods 16 were refused while starting kubelets were taken for others.

    Still refused are pods whose binding was decided before the first report of the stopped kubelet.
    """
    plan = Plan(pods=150, nodes=6, seed=4, restart_seconds=8, mean_life=10, load=1.2)
    outcome = asyncio.run(Drill(plan).run())

    assert outcome.restarts["kubelet"] >= 10
    assert outcome.refused.total() == outcome.unforeseen, outcome.refusals
    assert outcome.unforeseen <= 3
    assert outcome.leaks == []


@pytest.mark.parametrize("seed", [1, 2])
def test_no_pod_is_placed_against_its_demand_by_kubelets_that_would_split_it(seed: int) -> None:
    """All nodes have policy best-effort or none: without the demand a third of the pods are split."""
    outcome = asyncio.run(Drill(Plan(pods=120, nodes=5, seed=seed, mean_life=8, load=1.1, demands=True)).run())

    assert outcome.against_demand == []
    assert outcome.broken == []
    assert outcome.demanding > 50


def test_the_same_seed_plays_the_same_story() -> None:
    plan = Plan(pods=40, nodes=3, seed=5, mean_life=4, load=1.5)

    assert asyncio.run(Drill(plan).run()) == asyncio.run(Drill(plan).run())


def test_without_the_gate_the_same_load_is_refused_now_and_then() -> None:
    outcome = asyncio.run(
        Drill(Plan(pods=120, nodes=5, seed=1, gate=False, restarts=False, mean_life=2, load=1.5)).run()
    )

    assert outcome.refused.total() > 0
    assert outcome.leaks == []


def test_the_audit_finds_the_kubelets_that_carry_a_fix() -> None:
    """Every second kubelet spreads CPUs by topology, which no report says. No pod is refused because of it."""
    plan = Plan(pods=80, nodes=4, seed=9, restarts=False, mean_life=8, load=1.2, spreads=True)
    outcome = asyncio.run(Drill(plan).run())

    assert outcome.behaviours == {name: ["spread_by_topology"] for name in ("node-1", "node-3")}
    assert outcome.audit["placement"] > 2
    assert outcome.audit["agreed"] > 10
    assert outcome.refused.total() == 0, outcome.refusals
    assert outcome.leaks == []


def test_with_the_gate_no_container_is_refused_by_the_nri_policy() -> None:
    """Its containers come in a random order; half of the plugins keep CPUs of which kube-scheduler does not know."""
    outcome = asyncio.run(Drill(Plan(pods=70, nodes=3, seed=1, nri=1, mean_life=8, load=1.4)).run())

    assert outcome.broken == []
    assert outcome.admitted > 50


def test_by_totals_alone_containers_end_in_create_container_error() -> None:
    """kube-scheduler binds without the extender, so the policy refuses containers in every story of a full cluster.

    With seeds 1 to 20 it refused 2 to 9 pods.
    """
    drill = Drill(Plan(pods=60, nodes=2, seed=1, nri=1, mean_life=20, load=3, gate=False, restarts=False))
    drill.scheduler.asks_filter = False
    outcome = asyncio.run(drill.run())

    assert outcome.create_errors
    assert outcome.leaks == []


GROUPS = Plan(pods=80, nodes=4, mean_life=8, load=1.2, groups=0.3)
"""A full cluster. Pods of a group end only after all of them have run."""


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_groups_are_placed_whole_while_everything_restarts_and_single_pods_have_their_turn(seed: int) -> None:
    outcome = asyncio.run(Drill(replace(GROUPS, seed=seed)).run())

    assert outcome.half_placed == []
    assert outcome.refused.total() == outcome.unforeseen, outcome.refusals
    assert outcome.leaks == []
    assert outcome.placed_groups > 5
    assert outcome.waits[-1] < 180, "virtual seconds until the last single pod was bound"


def test_without_the_setting_groups_stay_half_placed() -> None:
    outcome = asyncio.run(Drill(replace(GROUPS, seed=4, gangs=False)).run())

    assert outcome.half_placed
    assert outcome.leaks == []


@pytest.mark.parametrize(("seed", "refused"), [(19, 0), (30, 1)])
def test_nodes_come_and_go_and_take_pods_rightly_before_their_first_report(seed: int, refused: int) -> None:
    """In the second story a new kubelet differs from its siblings, and no report shows that before: it may refuse one.

    Before assumptions were withdrawn, such a kubelet refused 7 of 70 pods.
    """
    outcome = asyncio.run(Drill(Plan(pods=60, nodes=4, seed=seed, mean_life=6, load=1.2, churn_seconds=25)).run())

    assert outcome.broken == []
    assert outcome.assumed > 10
    assert outcome.refused.total() == outcome.unforeseen <= refused, outcome.refusals
    assert outcome.fleet.keys() >= {"came", "came back", "drained", "vanished", "registered again", "simulations"}
