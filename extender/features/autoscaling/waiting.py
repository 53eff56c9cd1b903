"""Which pods wait for a new node: those that only the extender keeps from the nodes, for lack of room on NUMA nodes.

A pod that kube-scheduler's own filters refuse is left to Cluster Autoscaler, which computes the same. A pod that was
refused because something is not known, or is about to change, needs no node.
"""

from collections.abc import Callable, Iterator
from typing import Final

from extender.bounded import BoundedMap
from extender.kubelet.verdict import Certainty
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.decisions import Call, DecisionLog

LACKS_ROOM: Final = frozenset(
    {
        RefusalReason.ALIGNMENT_NOW,
        RefusalReason.ALIGNMENT_NEVER,
        RefusalReason.CORES_NOW,
        RefusalReason.CORES_NEVER,
        RefusalReason.CPUS_NOW,
        RefusalReason.CPUS_NEVER,
        RefusalReason.MEMORY_NOW,
        RefusalReason.MEMORY_NEVER,
        RefusalReason.DEVICES_NOW,
        RefusalReason.DEVICES_NEVER,
        RefusalReason.POOL_NOW,
        RefusalReason.POOL_NEVER,
        RefusalReason.NRI_CPUS_NOW,
        RefusalReason.NRI_CPUS_NEVER,
        RefusalReason.NRI_MEMORY_NOW,
        RefusalReason.NRI_MEMORY_NEVER,
        RefusalReason.GROUP_UNFIT,
        RefusalReason.DEMAND_NUMA_NODE,
        RefusalReason.DEMAND_SOCKET,
        RefusalReason.DEMAND_MEMORY,
    }
)
"""Refusals that an empty node may not give. All others end by themselves, or are no matter of room."""
_CERTAIN: Final = frozenset({Certainty.EXACT, Certainty.ASSUMED, Certainty.DEGRADED})
MAX_LOOKED: Final = 200
"""How many pods of the last calls are looked at."""
RECENT_SECONDS: Final = 330.0
"""kube-scheduler tries a refused pod again after five minutes at the latest."""


def lacks_room(call: Call) -> bool:
    """Whether a filter call refused every candidate for lack of room, and there was one."""
    if call.verb != "filter" or not call.is_refused:
        return False
    return all(each.refusal in LACKS_ROOM and each.certainty in _CERTAIN for each in call.by_judgement())


class Waiting:
    """Pods that have waited for long enough. *clock*: monotonic seconds; *seconds*: how long they have to wait."""

    def __init__(self, decisions: DecisionLog, clock: Callable[[], float], seconds: float) -> None:
        self._decisions, self._clock, self._seconds = decisions, clock, seconds
        self._since: BoundedMap[str, float] = BoundedMap(MAX_LOOKED * 10)
        """By UID: when the pod was first refused for lack of room, with no other result since."""

    def due(self) -> Iterator[Call]:
        """The last filter calls of the pods that have waited for long enough, the oldest first."""
        now, due = self._clock(), list[tuple[float, Call]]()
        for calls in self._decisions.newest(MAX_LOOKED):
            call = next((each for each in calls if each.verb == "filter"), None)
            if call is None or now - call.at > RECENT_SECONDS:
                continue
            if not lacks_room(call):
                self._since.pop(call.pod.uid, None)
                continue
            since = self._since.setdefault(call.pod.uid, call.at)
            if now - since >= self._seconds:
                due.append((since, call))
        yield from (call for _, call in sorted(due, key=lambda each: each[0]))
