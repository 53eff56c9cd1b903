"""The pods of every node, with the disruption budgets that cover them: `RunningPods` for the preempt verb.

Laws of this file
- Fed by the watches of pods and budgets, on the event loop; it keeps the watches' own records, sorted by node.
- Says nothing of any node until both watches have told all they know: a budget not heard of yet would be broken unseen.
- Finished pods are left out: they hold nothing. So is a pod's own picture of its budgets: it is made anew at each
  question, because budgets change with every eviction.
- Covered by a budget means what kube-scheduler takes it for, because its counts stand next to ours: no budget without
  a selector or with an empty one, no pod without labels, none that the budget lists as disrupted already.
"""

from collections import defaultdict

from extender.kube.changes import Batch, Changed, Gone
from extender.kube.pdbs import DisruptionBudget
from extender.kube.pods import PodRecord
from extender.scheduling.preemption.running_pods import NodePods, RunningPod


class WatchedPods:
    """`extender.scheduling.preemption.running_pods.RunningPods`, from watches."""

    def __init__(self) -> None:
        self._pods: dict[str, dict[str, PodRecord]] = defaultdict(dict)
        self._budgets: dict[str, dict[str, DisruptionBudget]] = defaultdict(dict)
        self._pods_complete = self._budgets_complete = False

    def apply_pods(self, batch: Batch[PodRecord]) -> None:
        """Take in what the watch of pods tells."""
        for change in batch.changes:
            if isinstance(change, Changed | Gone):
                self._forget(change.old if isinstance(change, Changed) else change.value)
            if not isinstance(change, Gone) and not change.value.finished:
                self._pods[change.value.node_name][change.value.uid] = change.value
        self._pods_complete = self._pods_complete or batch.complete

    def apply_budgets(self, batch: Batch[DisruptionBudget]) -> None:
        """Take in what the watch of budgets tells."""
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
        """See `RunningPods`."""
        if not (self._pods_complete and self._budgets_complete):
            return None
        records = self._pods.get(node_name, {})
        allowances: dict[str, int] = {}
        return NodePods(
            pods={uid: self._running(record, allowances) for uid, record in records.items()}, allowances=allowances
        )

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
        return {
            f"{budget.namespace}/{budget.name}": budget
            for budget in budgets.values()
            if budget.requirements
            and record.name not in budget.already_disrupted
            and budget.covers(record.namespace, labels)
        }

    def _forget(self, record: PodRecord) -> None:
        pods = self._pods.get(record.node_name)
        if pods is None:
            return
        pods.pop(record.uid, None)
        if not pods:
            del self._pods[record.node_name]
