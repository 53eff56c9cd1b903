"""kube-scheduler's own filters, as far as a what-if plays them."""

from typing import Any

import pytest

from extender.questions.node_context import NOTHING_KNOWN, NodeContext, Taint
from extender.questions.scheduler_checks import check_node
from extender.scheduling.node_totals import exceeds
from extender.wire.placement_rules import REQUIRED, placement_rules_from_json

LABELS = {"zone": "a", "gpu": "yes", "size": "7"}


def _expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, "values": list(values)}


def _affinity(*expressions: dict[str, Any], fields: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    term = {"matchExpressions": list(expressions), "matchFields": fields or []}
    required = {"nodeSelectorTerms": [term]}
    return {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}}


CASES: list[tuple[dict[str, Any], str, str]] = [
    ({}, "taints", "ok"),
    ({"nodeName": "node-b"}, "node-name", "fails"),
    ({"nodeSelector": {"zone": "a"}}, "node-selector", "ok"),
    ({"nodeSelector": {"zone": "b"}}, "node-selector", "fails"),
    (_affinity(_expression("zone", "In", "a", "b")), "node-affinity", "ok"),
    (_affinity(_expression("zone", "NotIn", "a")), "node-affinity", "fails"),
    (_affinity(_expression("rack", "NotIn", "a")), "node-affinity", "ok"),
    (_affinity(_expression("gpu", "Exists")), "node-affinity", "ok"),
    (_affinity(_expression("gpu", "DoesNotExist")), "node-affinity", "fails"),
    (_affinity(_expression("size", "Gt", "6")), "node-affinity", "ok"),
    (_affinity(_expression("size", "Lt", "7")), "node-affinity", "fails"),
    (_affinity(_expression("zone", "Gt", "1")), "node-affinity", "fails"),
    (_affinity(), "node-affinity", "fails"),
    (_affinity(fields=[_expression("metadata.name", "In", "node-a")]), "node-affinity", "ok"),
    (_affinity(fields=[_expression("metadata.name", "NotIn", "node-a")]), "node-affinity", "fails"),
    ({"affinity": {"podAntiAffinity": {REQUIRED: [{"topologyKey": "zone"}]}}}, "other", "not-checked"),
    ({"topologySpreadConstraints": [{}]}, "other", "not-checked"),
    ({"containers": [{"ports": [{"hostPort": 80}]}]}, "other", "not-checked"),
]


@pytest.mark.parametrize(("spec", "check", "outcome"), CASES)
def test_checks_follow_the_scheduler(spec: dict[str, Any], check: str, outcome: str) -> None:
    around = NodeContext(
        labels=LABELS, taints=[], unschedulable=False, allocatable_milli={"cpu": 1}, requested_milli={}
    )

    answer = check_node("node-a", {}, placement_rules_from_json(spec, "spec"), around)

    assert [each.outcome for each in answer.checks if each.check == check] == [outcome]
    assert answer.outcome == outcome


TOLERATIONS: list[tuple[list[dict[str, str]], str]] = [
    ([], "fails"),
    ([{"operator": "Exists"}], "ok"),
    ([{"key": "team", "operator": "Exists"}], "ok"),
    ([{"key": "team", "value": "a"}], "ok"),
    ([{"key": "team", "value": "b"}], "fails"),
    ([{"key": "team", "value": "a", "effect": "NoExecute"}], "fails"),
    ([{"key": "team", "value": "a", "effect": "NoSchedule"}], "ok"),
]


@pytest.mark.parametrize(("tolerations", "outcome"), TOLERATIONS)
def test_taints_are_tolerated_as_the_scheduler_does(tolerations: list[dict[str, str]], outcome: str) -> None:
    taints = [
        Taint(key="soft", value="", effect="PreferNoSchedule"),
        Taint(key="team", value="a", effect="NoSchedule"),
    ]
    rules = placement_rules_from_json({"tolerations": tolerations}, "spec")

    answer = check_node("node-a", {}, rules, NodeContext(taints=taints))

    assert {each.check: each.outcome for each in answer.checks}["taints"] == outcome


def test_a_cordoned_node_takes_only_who_tolerates_it() -> None:
    around = NodeContext(unschedulable=True)
    exists = placement_rules_from_json({"tolerations": [{"operator": "Exists"}]}, "spec")

    assert check_node("n", {}, placement_rules_from_json({}, "spec"), around).outcome == "fails"
    assert check_node("n", {}, exists, around).outcome == "not-checked"


def test_totals_are_checked_as_far_as_they_are_known() -> None:
    rules = placement_rules_from_json({}, "spec")
    wanted = {"cpu": 4000, "memory": 1 << 30, "vendor.example/gpu": 1000}
    total = {"cpu": 8000, "memory": 2 << 30, "vendor.example/gpu": 1000}

    def outcome(around: NodeContext) -> str:
        return check_node("n", wanted, rules, around).checks[0].outcome

    assert outcome(NOTHING_KNOWN) == "not-checked"
    assert outcome(NodeContext(allocatable_milli=total)) == "not-checked"
    assert outcome(NodeContext(allocatable_milli=total, requested_milli={"cpu": 4000})) == "ok"
    assert outcome(NodeContext(allocatable_milli=total, requested_milli={"cpu": 4001})) == "fails"
    assert outcome(NodeContext(allocatable_milli={**total, "cpu": 3999})) == "fails"
    assert outcome(NodeContext(allocatable_milli={"cpu": 8000, "memory": 2 << 30})) == "fails"


def test_exceeded_totals_are_one_line_with_the_consequence() -> None:
    around = NodeContext(allocatable_milli={"cpu": 8000, "memory": 8 << 40}, requested_milli={"cpu": 6500})

    (check,) = [
        each
        for each in check_node("n", {"cpu": 4000}, placement_rules_from_json({}, "spec"), around).checks
        if each.outcome == "fails"
    ]

    expected = "node totals are exceeded, kube-scheduler would not choose this node: 4 cpu wanted, 1500m left"
    assert check.detail == expected


@pytest.mark.parametrize(
    ("wanted", "counted", "over"),
    [
        ({"cpu": 4000}, [{"cpu": 4000}], False),
        ({"cpu": 4000}, [{"cpu": 4000}, {"cpu": 1}], True),
        ({"memory": 3}, [{"memory": 1}, {"cpu": 9000}], False),
        ({"memory": 4}, [{"memory": 1}], True),
        ({"cpu": 8000, "vendor.example/gpu": 1000}, [], False),
        ({}, [{"cpu": 9000}], False),
    ],
)
def test_the_kubelets_predicate_sums_all_that_is_counted(
    wanted: dict[str, int], counted: list[dict[str, int]], *, over: bool
) -> None:
    """An extended resource that the node does not name is dropped by the kubelet."""
    assert exceeds(wanted, {"cpu": 8000, "memory": 4}, counted) is over


def test_what_is_not_known_is_said_to_be_not_checked() -> None:
    rules = placement_rules_from_json({"nodeSelector": {"a": "b"}, **_affinity(_expression("a", "Exists"))}, "spec")

    answer = check_node("n", {"cpu": 1}, rules, NOTHING_KNOWN)

    assert answer.outcome == "not-checked"
    assert {each.outcome for each in answer.checks} == {"not-checked"}
    assert all(each.detail for each in answer.checks)
