"""The running pods that preemption needs, as an interface: the watches of pods and budgets provide them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from extender.scheduling.preemption.budgets import DisruptionBudget


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod on a node.

    `uid` is that of its API object. The kubelet knows a static pod by another UID: evicting its API object frees
    nothing, because the kubelet keeps the pod. `started_at` in Unix seconds, None before its kubelet saw it.
    `terminating`: its deletion was requested. `budgets`: keys of the disruption budgets that count its eviction.
    """

    uid: str
    priority: int
    started_at: float | None = None
    terminating: bool = False
    budgets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePods:
    """The pods of one node by UID, and how many evictions each of their budgets allows now."""

    pods: Mapping[str, RunningPod] = field(default_factory=dict)
    allowances: Mapping[str, int] = field(default_factory=dict)


class RunningPods(Protocol):
    """Knows the pods of every node."""

    def on_node(self, node_name: str) -> NodePods | None:
        """All pods bound to the node that are not finished; None if there is no watch or it has not synced."""

    def budgets(self) -> Sequence[DisruptionBudget] | None:
        """All disruption budgets; None if there is no watch or it has not synced."""


class LateRunningPods:
    """`RunningPods` that knows nothing until it gets one to `use`."""

    def __init__(self) -> None:
        self._source: RunningPods | None = None

    def use(self, source: RunningPods) -> None:
        """Answer from *source* from now on."""
        self._source = source

    def on_node(self, node_name: str) -> NodePods | None:
        """All pods bound to the node that are not finished; None until there is a source that has synced."""
        return None if self._source is None else self._source.on_node(node_name)

    def budgets(self) -> Sequence[DisruptionBudget] | None:
        """All disruption budgets; None until there is a source that has synced."""
        return None if self._source is None else self._source.budgets()


def importance(pod: RunningPod) -> tuple[float, float]:
    """Sort key, most important first, as kube-scheduler orders victims: higher priority, then running for longer."""
    return -pod.priority, float("inf") if pod.started_at is None else pod.started_at
