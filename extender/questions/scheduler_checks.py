"""The results of kube-scheduler's own filters for a pod and a node, separate from topology.

Rules of this file
- No scheduler has filtered the nodes of a what-if, so the most frequent filters are evaluated here: totals, node name,
  selector, required affinity, taints, cordon.
- "ok" is reported only if everything needed is known. What is unknown, or not checked, is "not-checked".

Mirrors: kube-scheduler plugins NodeResourcesFit, NodeName, NodeAffinity, TaintToleration, NodeUnschedulable.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from extender.questions.node_context import NodeContext, Taint
from extender.scheduling.node_totals import format_milli, shortages
from extender.wire.placement_rules import PlacementRules, Toleration
from extender.wire.pod_replies import Scheduler, SchedulerCheck

EXCEEDED: Final = "node totals are exceeded, kube-scheduler would not choose this node"
UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"


def check_node(name: str, wanted: Mapping[str, int], rules: PlacementRules, around: NodeContext) -> Scheduler:
    """Every check of one node. *wanted*: the pod's requests, thousandths."""
    checks = (
        _resources(wanted, around),
        *_node_name(name, rules),
        *_labels(name, rules, around),
        _taints(rules, around),
        _cordon(rules, around),
        *_unread(rules),
    )
    if any(check.outcome == "fails" for check in checks):
        return Scheduler("fails", checks)
    if any(check.outcome == "not-checked" for check in checks):
        return Scheduler("not-checked", checks)
    return Scheduler("ok", checks)


def _resources(wanted: Mapping[str, int], around: NodeContext) -> SchedulerCheck:
    total, requested = around.allocatable_milli, around.requested_milli
    if total is None:
        return SchedulerCheck("resources", "not-checked", "the node's totals are unknown")
    wanted = {name: amount for name, amount in wanted.items() if name not in around.served}
    short = [
        f"{format_milli(name, amount)} {name} wanted, {format_milli(name, max(0, left))} left"
        for name, amount, left in shortages(wanted, total, requested or {})
    ]
    if short:
        return SchedulerCheck("resources", "fails", f"{EXCEEDED}: {'; '.join(short)}")
    if requested is None:
        return SchedulerCheck(
            "resources", "not-checked", "the requests of other pods are unknown; the pod alone would fit"
        )
    return SchedulerCheck("resources", "ok")


def _node_name(name: str, rules: PlacementRules) -> Iterator[SchedulerCheck]:
    if rules.node_name and rules.node_name != name:
        yield SchedulerCheck("node-name", "fails", f"the pod names node {rules.node_name[:253]}")


def _labels(name: str, rules: PlacementRules, around: NodeContext) -> Iterator[SchedulerCheck]:
    labels = around.labels
    if rules.node_selector:
        if labels is None:
            yield SchedulerCheck("node-selector", "not-checked", "the node's labels are unknown")
        else:
            missing = [f"{k}={v}" for k, v in rules.node_selector.items() if labels.get(k) != v]
            detail = f"the node lacks {', '.join(missing)}" if missing else ""
            yield SchedulerCheck("node-selector", "fails" if missing else "ok", detail)
    terms = rules.node_terms
    if terms is None:
        return
    if labels is None and any(term.match_labels for term in terms):
        yield SchedulerCheck("node-affinity", "not-checked", "the node's labels are unknown")
    elif any(term.matches(name, labels or {}) for term in terms):
        yield SchedulerCheck("node-affinity", "ok")
    else:
        yield SchedulerCheck("node-affinity", "fails", "no term of the required node affinity matches the node")


def _taints(rules: PlacementRules, around: NodeContext) -> SchedulerCheck:
    if around.taints is None:
        return SchedulerCheck("taints", "not-checked", "the node's taints are unknown")
    for taint in around.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _is_tolerated(taint, rules.tolerations):
            value = f"={taint.value}" if taint.value else ""
            return SchedulerCheck("taints", "fails", f"the pod does not tolerate {taint.key}{value}:{taint.effect}")
    return SchedulerCheck("taints", "ok")


def _is_tolerated(taint: Taint, tolerations: Sequence[Toleration]) -> bool:
    return any(
        t.effect in ("", taint.effect)
        and t.key in ("", taint.key)
        and (t.operator == "Exists" or (t.key == taint.key and t.value == taint.value))
        for t in tolerations
    )


def _cordon(rules: PlacementRules, around: NodeContext) -> SchedulerCheck:
    if around.unschedulable is None:
        return SchedulerCheck("unschedulable", "not-checked", "it is unknown whether the node is cordoned")
    taint = Taint(key=UNSCHEDULABLE_TAINT, value="", effect="NoSchedule")
    if around.unschedulable and not _is_tolerated(taint, rules.tolerations):
        return SchedulerCheck("unschedulable", "fails", "the node is cordoned")
    return SchedulerCheck("unschedulable", "ok")


def _unread(rules: PlacementRules) -> Iterator[SchedulerCheck]:
    if rules.unread:
        yield SchedulerCheck("other", "not-checked", f"not checked: {', '.join(rules.unread)}")
