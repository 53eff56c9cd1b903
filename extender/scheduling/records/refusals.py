"""Nodes whose kubelets have just refused a pod, by the shape of the pod: filter leaves them out for a while.

The pod's controller creates another pod at once, and the replay may still take the node for feasible: its report is
late, the kubelet differs from its rules, or others refuse the pod (`OutOfcpu`, a plugin). Without this, failed pods
pile up on one node.

Rules of this file
- A refusal counts for `seconds`, from when the watch showed it; a new one counts anew.
- Bounded: `MAX_KEPT` refusals. The shape that was refused longest ago is dropped first.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from extender.replay.pod import Pod

MAX_KEPT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRefusal:
    """A pod that a kubelet refused. `reason`: of the pod's status. `until`: seconds of the service's clock."""

    node_name: str
    namespace: str
    pod_name: str
    reason: str
    until: float


class RecentRefusals:
    """The refusals that count at present. *seconds* 0: none ever counts."""

    def __init__(self, seconds: float) -> None:
        self._seconds: Final = seconds
        self._by_shape: dict[object, dict[str, RecentRefusal]] = {}
        """The refusals of each shape by node; the shape that was refused last is the last."""
        self._held = 0

    def note(self, node_name: str, pod: Pod, reason: str, now: float) -> None:
        """The node's kubelet has refused the pod."""
        if not self._seconds:
            return
        refusal = RecentRefusal(
            node_name=node_name,
            namespace=pod.namespace,
            pod_name=pod.name,
            reason=reason,
            until=now + self._seconds,
        )
        nodes = self._by_shape.pop(pod.shape, {})
        self._held += node_name not in nodes
        nodes[node_name] = refusal
        self._by_shape[pod.shape] = nodes
        self._drop(now)

    def nodes(self, pod: Pod, now: float) -> Collection[str]:
        """The nodes that have just refused a pod of this shape."""
        if not self._by_shape:
            return ()
        refusals = self._by_shape.get(pod.shape, {}).values()
        return [refusal.node_name for refusal in refusals if refusal.until > now]

    def all(self, now: float) -> list[RecentRefusal]:
        """Every refusal that counts, the newest last."""
        found = [refusal for nodes in self._by_shape.values() for refusal in nodes.values() if refusal.until > now]
        return sorted(found, key=lambda refusal: refusal.until)

    def _drop(self, now: float) -> None:
        """Drop the oldest shapes: those whose refusals count no more, and those above the limit."""
        while self._by_shape:
            shape, nodes = next(iter(self._by_shape.items()))
            if self._held <= MAX_KEPT and any(refusal.until > now for refusal in nodes.values()):
                return
            del self._by_shape[shape]
            self._held -= len(nodes)
