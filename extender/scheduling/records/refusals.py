"""Nodes whose kubelets have just refused a pod, by the shape of the pod: filter leaves them out for a while.

The pod's controller creates another pod at once. The replay may still find the node feasible, because its report is
late, the kubelet differs from its rules, or another part refuses the pod (`OutOfcpu`, a plugin). Without this, failed
pods pile up on one node.

Rules of this file
- Only refusals of the kubelet's managers and of the NRI policy are noted.
- If this service offered the node, a refusal counts for every pod of the shape. Any other refusal counts for pods of
  its namespace only, because whoever names a node in a pod's spec chooses which kubelet refuses it.
- A refusal counts for `seconds`, from when the watch showed it; a new one counts anew.
- Bounded: `MAX_KEPT` refusals of each of these two kinds; a shape counts as one for each `REFUSAL_BYTES`. The shape
  that was refused longest ago is dropped first.
"""

from collections import ChainMap
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Final

from extender.replay.pod import Pod

MAX_KEPT: Final = 10_000
REFUSAL_BYTES: Final = 500


@dataclass(frozen=True, slots=True, kw_only=True)
class RecentRefusal:
    """A pod that a kubelet refused. `reason` is in the pod's status. `until`: seconds of the service's clock."""

    node_name: str
    namespace: str
    pod_name: str
    reason: str
    until: float


class RecentRefusals:
    """The refusals that count at present. *seconds* 0: none ever counts."""

    def __init__(self, seconds: float) -> None:
        self._seconds: Final = seconds
        self._of_ours: Final = _Refusals()
        self._of_others: Final = _Refusals()
        self.kept: Final = ChainMap(self._of_ours.kept, self._of_others.kept)
        """All refusals that are kept, by the pods that they count for. For reading only."""

    def note(self, node_name: str, pod: Pod, reason: str, now: float, *, is_ours: bool) -> None:
        """The node's kubelet has refused the pod. *is_ours*: this service offered the node for it."""
        if not self._seconds:
            return
        refusal = RecentRefusal(
            node_name=node_name, namespace=pod.namespace, pod_name=pod.name, reason=reason, until=now + self._seconds
        )
        if is_ours:
            self._of_ours.put(pod.shape, refusal, pod.weight_bytes, now)
        else:
            self._of_others.put((pod.namespace, pod.shape), refusal, pod.weight_bytes, now)

    def nodes(self, pod: Pod, now: float) -> Collection[str]:
        """The nodes that have just refused a pod of this shape, as far as that counts for this pod."""
        shape = pod.shape if self._of_ours.kept or self._of_others.kept else ()  # each filter call asks
        return self._of_ours.nodes(shape, now) | self._of_others.nodes((pod.namespace, shape), now)

    def all(self, now: float) -> list[RecentRefusal]:
        """Every refusal that counts, the newest last."""
        return sorted([*self._of_ours.all(now), *self._of_others.all(now)], key=lambda refusal: refusal.until)


class _Refusals:
    """Refusals by what they count for, and by node; what was refused last is the last."""

    def __init__(self) -> None:
        self.kept: Final[dict[object, dict[str, RecentRefusal]]] = {}
        self._weights: Final[dict[object, int]] = {}
        """As how many refusals each shape counts itself."""
        self._count = 0

    def put(self, counts_for: object, refusal: RecentRefusal, shape_bytes: int, now: float) -> None:
        """Keep a refusal. Drops what counts no more, and the oldest above the limit."""
        nodes = self.kept.pop(counts_for, {})
        if not nodes:
            self._weights[counts_for] = shape_bytes // REFUSAL_BYTES
            self._count += self._weights[counts_for]
        self._count += refusal.node_name not in nodes
        nodes[refusal.node_name] = refusal
        self.kept[counts_for] = nodes
        while self.kept:
            oldest, nodes = next(iter(self.kept.items()))
            if self._count <= MAX_KEPT and any(each.until > now for each in nodes.values()):
                return
            del self.kept[oldest]
            self._count -= len(nodes) + self._weights.pop(oldest)

    def nodes(self, counts_for: object, now: float) -> set[str]:
        """The nodes of the refusals that count for it."""
        return {name for name, each in self.kept.get(counts_for, {}).items() if each.until > now}

    def all(self, now: float) -> Iterator[RecentRefusal]:
        """Every refusal that counts."""
        return (each for nodes in self.kept.values() for each in nodes.values() if each.until > now)
