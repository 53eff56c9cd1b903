"""The running pods of every node with their disruption budgets: implements `RunningPods` for the preempt verb.

Rules of this file
- The pods of a node are the same as for questions. Finished pods hold nothing and are left out.
- Returns nothing for any node until both watches have synced: an unknown budget could be violated.
- The budgets of a pod are looked up for each question, because they change with every eviction.
- The rule for "covered by a budget" is kube-scheduler's, because its counts are compared with ours:
  `DisruptionBudget.counts`.

RBAC: `list`, `watch` on poddisruptionbudgets (policy/v1).
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, Final

import orjson

from extender.kube.changes import Batch, Gone
from extender.kube.objects import integer, mapping, strings, text
from extender.kube.source import Source
from extender.questions.node_context import WatchedPod
from extender.scheduling.victims import DisruptionBudget, NodePods, RunningPod
from extender.wire.placement_rules import requirements_of


class WatchedPods:
    """The functions of `extender.scheduling.victims.RunningPods`, by watches.

    *pods_on*: the pods on a node that have not finished; None: not known yet.
    """

    def __init__(self, pods_on: Callable[[str], Sequence[WatchedPod] | None]) -> None:
        self._pods_on: Final = pods_on
        self._budgets: dict[str, dict[str, DisruptionBudget]] = defaultdict(dict)
        self._budgets_complete = False

    def apply_budgets(self, batch: Batch[DisruptionBudget]) -> None:
        """Apply changes from the watch of budgets."""
        for change in batch.changes:
            budget = change.value
            if isinstance(change, Gone):
                self._budgets[budget.namespace].pop(budget.name, None)
                if not self._budgets[budget.namespace]:
                    del self._budgets[budget.namespace]
            else:
                self._budgets[budget.namespace][budget.name] = budget
        self._budgets_complete = self._budgets_complete or batch.complete

    def on_node(self, node_name: str) -> NodePods | None:
        """All pods bound to the node that are not finished; None until both watches have synced."""
        pods = self._pods_on(node_name) if self._budgets_complete else None
        if pods is None:
            return None
        allowances: dict[str, int] = {}
        return NodePods(pods={pod.api_uid: self._running(pod, allowances) for pod in pods}, allowances=allowances)

    def budgets(self) -> Sequence[DisruptionBudget] | None:
        """All disruption budgets; None until both watches have synced."""
        if not self._budgets_complete:
            return None
        return tuple(budget for of_namespace in self._budgets.values() for budget in of_namespace.values())

    def _running(self, pod: WatchedPod, allowances: dict[str, int]) -> RunningPod:
        covering = self._covering(pod)
        allowances.update((key, budget.disruptions_allowed) for key, budget in covering.items())
        return RunningPod(
            uid=pod.api_uid,
            priority=pod.priority,
            started_at=pod.started_at,
            terminating=pod.terminating,
            budgets=frozenset(covering),
        )

    def _covering(self, pod: WatchedPod) -> dict[str, DisruptionBudget]:
        budgets = self._budgets.get(pod.namespace)
        labels = strings(mapping(orjson.loads(pod.manifest), "metadata"), "labels") if budgets else None
        if not budgets or not labels:
            return {}
        counted = (b for b in budgets.values() if b.counts(pod.namespace, pod.name, labels))
        return {budget.key: budget for budget in counted}


def decode_budget(value: Mapping[str, Any]) -> tuple[str, DisruptionBudget] | None:
    """The budget's namespace/name and the budget. None without a name."""
    metadata, spec, status = mapping(value, "metadata"), mapping(value, "spec"), mapping(value, "status")
    namespace, name = text(metadata, "namespace"), text(metadata, "name")
    if not name:
        return None
    return f"{namespace}/{name}", DisruptionBudget(
        namespace=namespace,
        name=name,
        requirements=requirements_of(spec.get("selector")),
        disruptions_allowed=max(0, integer(status, "disruptionsAllowed")),
        already_disrupted=frozenset(mapping(status, "disruptedPods")),
    )


BUDGETS: Final = Source(path="/apis/policy/v1/poddisruptionbudgets", decode=decode_budget, key=attrgetter("path"))
"""All budgets."""
