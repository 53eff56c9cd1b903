"""The running pods of every node with their disruption budgets: implements `RunningPods` for the preempt verb.

Rules of this file
- Updated by the watches of pods and budgets, on the event loop. It keeps the watches' own records, by node.
- Returns nothing for any node until both watches have synced: an unknown budget could be violated.
- Finished pods are left out, because they hold nothing. The budgets of a pod are looked up for each question, because
  they change with every eviction.
- The rule for "covered by a budget" is kube-scheduler's, because its counts are compared with ours:
  `DisruptionBudget.counts`.
"""

from collections import defaultdict
from collections.abc import Sequence

from extender.kube.changes import Batch, Changed, Gone
from extender.kube.pods import PodRecord
from extender.scheduling.preemption.budgets import DisruptionBudget
from extender.scheduling.preemption.running_pods import NodePods, RunningPod


class WatchedPods:
    """Implements `extender.scheduling.preemption.running_pods.RunningPods` with watches."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodRecord]] = defaultdict(dict)
        self._budgets: dict[str, dict[str, DisruptionBudget]] = defaultdict(dict)
        self._pods_complete = self._budgets_complete = False

    def apply_pods(self, batch: Batch[PodRecord]) -> None:
        """Apply changes from the watch of pods."""
        for change in batch.changes:
            if isinstance(change, Changed | Gone):
                self._forget(change.old if isinstance(change, Changed) else change.value)
            if not isinstance(change, Gone) and not change.value.finished:
                self._pods[change.value.node_name][change.value.uid] = change.value
        self._pods_complete = self._pods_complete or batch.complete

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
        if not (self._pods_complete and self._budgets_complete):
            return None
        records = self._pods.get(node_name, {})
        allowances: dict[str, int] = {}
        return NodePods(
            pods={uid: self._running(record, allowances) for uid, record in records.items()}, allowances=allowances
        )

    def budgets(self) -> Sequence[DisruptionBudget] | None:
        """All disruption budgets; None until both watches have synced."""
        if not self._budgets_complete:
            return None
        return tuple(budget for of_namespace in self._budgets.values() for budget in of_namespace.values())

    def _running(self, record: PodRecord, allowances: dict[str, int]) -> RunningPod:
        covering = self._covering(record)
        allowances.update((key, budget.disruptions_allowed) for key, budget in covering.items())
        return RunningPod(
            uid=record.uid,
            priority=record.priority,
            started_at=record.started_at,
            terminating=record.terminating,
            budgets=frozenset(covering),
        )

    def _covering(self, record: PodRecord) -> dict[str, DisruptionBudget]:
        budgets = self._budgets.get(record.namespace)
        labels = record.labels if budgets else None
        if not budgets or not labels:
            return {}
        counted = (b for b in budgets.values() if b.counts(record.namespace, record.name, labels))
        return {budget.key: budget for budget in counted}

    def _forget(self, record: PodRecord) -> None:
        pods = self._pods.get(record.node_name)
        if pods is None:
            return
        pods.pop(record.uid, None)
        if not pods:
            del self._pods[record.node_name]
