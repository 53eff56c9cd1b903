"""What preemption needs to know of the pods that run: a port, filled by whoever watches pods and budgets."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod on a node.

    `uid` is that of its API object. A static pod's API object has another UID than the kubelet knows: evicting it frees
    nothing, because the kubelet goes on running the pod. `started_at` in Unix seconds, None before its kubelet saw it.
    `terminating`: its deletion was asked for. `budgets` are the keys of the disruption budgets that an eviction of it
    would be counted against.
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
        """All pods bound to the node that are not finished; None where nobody watches, or does not know all yet."""


class LateRunningPods:
    """`RunningPods` that knows nothing until it gets one to `use`."""

    def __init__(self) -> None:
        self._source: RunningPods | None = None

    def use(self, source: RunningPods) -> None:
        """Answer from *source* from now on."""
        self._source = source

    def on_node(self, node_name: str) -> NodePods | None:
        """See `RunningPods`."""
        return None if self._source is None else self._source.on_node(node_name)


def importance(pod: RunningPod) -> tuple[float, float]:
    """Sort key, most important first, as kube-scheduler orders victims: higher priority, then running for longer."""
    return -pod.priority, float("inf") if pod.started_at is None else pod.started_at
