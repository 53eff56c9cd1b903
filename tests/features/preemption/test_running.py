"""Running pods and their budgets, as the preempt verb asks for them."""

from dataclasses import replace
from typing import Any

from extender.features.preemption.running import WatchedPods
from extender.kube.changes import Batch, Changed, Gone, Seen
from extender.kube.nodes import WatchedSurroundings
from extender.kube.pods import PodRecord
from extender.scheduling.victims import DisruptionBudget, NodePods, RunningPod
from extender.wire.placement_rules import LabelRequirement
from tests.world.watched import pod_record

WEB = LabelRequirement(key="app", operator="In", values=frozenset({"web"}))
BUDGET = DisruptionBudget(
    namespace="shop", name="web", requirements=(WEB,), disruptions_allowed=1, already_disrupted=frozenset()
)


def _record(name: str, node: str = "node-a", labels: dict[str, str] | None = None, **more: Any) -> PodRecord:
    document = {
        "metadata": {"uid": f"uid-{name}", "name": name, "namespace": "shop", "labels": labels or {"app": "web"}},
        "spec": {"containers": [{"name": "c"}], "priority": 7},
        "status": {"phase": "Running", "startTime": "2026-11-20T21:53:40Z"},
    }
    return replace(pod_record(document, node), **more)


def _watched(*records: PodRecord, budgets: tuple[DisruptionBudget, ...] = (BUDGET,)) -> WatchedPods:
    return _and_pods(*records, budgets=budgets)[0]


def _and_pods(
    *records: PodRecord, budgets: tuple[DisruptionBudget, ...] = (BUDGET,)
) -> tuple[WatchedPods, WatchedSurroundings]:
    pods = WatchedSurroundings()
    watched = WatchedPods(lambda node_name: pods(node_name).pods)
    pods.apply_pods(Batch(tuple(map(Seen, records))))
    watched.apply_budgets(Batch(tuple(map(Seen, budgets))))
    return watched, pods


def test_nothing_is_told_before_both_watches_have_told_all() -> None:
    pods = WatchedSurroundings()
    watched = WatchedPods(lambda node_name: pods(node_name).pods)
    pods.apply_pods(Batch((Seen(_record("a")),), complete=False))
    watched.apply_budgets(Batch(()))
    assert watched.on_node("node-a") is None

    pods.apply_pods(Batch(()))
    known = watched.on_node("node-a")
    assert known is not None
    assert known.pods.keys() == {"uid-a"}

    alone = WatchedPods(lambda node_name: pods(node_name).pods)
    assert alone.on_node("node-a") is None


def test_a_pod_as_the_verb_needs_it() -> None:
    known = _watched(_record("a"), _record("b", deleted_at=5), _record("c", node="node-b")).on_node("node-a")

    assert known is not None
    assert known.pods.keys() == {"uid-a", "uid-b"}
    pod = known.pods["uid-a"]
    assert pod == RunningPod(uid="uid-a", priority=7, started_at=1795211620, budgets=frozenset({"shop/web"}))
    assert known.pods["uid-b"].terminating
    assert known.allowances == {"shop/web": 1}


def test_pods_that_move_finish_or_go_are_no_longer_there() -> None:
    a, b, c = _record("a"), _record("b"), _record("c")
    watched, pods = _and_pods(a, b, c)

    pods.apply_pods(Batch((Changed(a, replace(a, phase="Failed")), Gone(b))))
    pods.apply_pods(Batch((Gone(replace(a, phase="Failed")),)))

    known = watched.on_node("node-a")
    assert known is not None
    assert known.pods.keys() == {"uid-c"}
    pods.apply_pods(Batch((Gone(c),)))
    nothing = watched.on_node("node-a")
    assert nothing is not None
    assert nothing == NodePods()


def test_budgets_follow_their_watch() -> None:
    watched = _watched(_record("a"))

    watched.apply_budgets(Batch((Changed(BUDGET, replace(BUDGET, disruptions_allowed=0)),)))
    known = watched.on_node("node-a")
    assert known is not None
    assert known.allowances == {"shop/web": 0}

    watched.apply_budgets(Batch((Gone(BUDGET),)))
    free = watched.on_node("node-a")
    assert free is not None
    assert free.allowances == {}
    assert free.pods["uid-a"].budgets == frozenset()


def test_a_budget_covers_what_the_scheduler_takes_it_to_cover() -> None:
    cases = {
        "no selector": (replace(BUDGET, requirements=None), {"app": "web"}),
        "empty selector": (replace(BUDGET, requirements=()), {"app": "web"}),
        "other labels": (BUDGET, {"app": "db"}),
        "no labels": (BUDGET, {"": ""}),
        "other namespace": (replace(BUDGET, namespace="bank"), {"app": "web"}),
        "disrupted already": (replace(BUDGET, already_disrupted=frozenset({"a"})), {"app": "web"}),
    }
    for name, (budget, labels) in cases.items():
        known = _watched(_record("a", labels=labels), budgets=(budget,)).on_node("node-a")

        assert known is not None
        assert known.pods["uid-a"].budgets == frozenset(), name
