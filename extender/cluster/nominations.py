"""The node that kube-scheduler has nominated a pod to, and the victims of the preemption.

kube-scheduler writes the node to `status.nominatedNodeName`, deletes the victims, and tries that node first once they
are gone. After any bind error it clears the field, although the room is still meant for the pod.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf
from typing import Final

from extender.replay.pod import Pod

KEEP_SECONDS: Final = 30.0
"""How long a nomination is valid if only scheduler calls show it, or if a failed binding has cleared it."""
DELETE_SECONDS: Final = 10.0
"""How long after a preempt call its victims count as leaving without a watch event."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """The pod with its nominated node, in force from `since` to `until`: seconds of the caller's clock."""

    pod: Pod
    priority: int
    node_name: str
    since: float
    until: float

    def precedes(self, uid: str, priority: int, since: float) -> bool:
        """Whether another pod must not use its resources. *since*: when the other pod was nominated, if it was."""
        if uid == self.pod.uid:
            return False
        return self.priority > priority or (self.priority == priority and self.since < since)


@dataclass(frozen=True, slots=True)
class ProposedVictims:
    """The reply to a preempt call: UIDs by node. The scheduler chooses one of the nodes."""

    at: float = -inf
    by_node: Mapping[str, Collection[str]] = field(default_factory=dict)

    def on(self, node_name: str, now: float) -> frozenset[str]:
        """The victims on the node; empty when `DELETE_SECONDS` have passed."""
        return frozenset(self.by_node.get(node_name, ())) if now - self.at < DELETE_SECONDS else frozenset()
