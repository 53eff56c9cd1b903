"""Which pods wait for a new node: those that only the extender keeps from the nodes, for lack of room on NUMA nodes.

A pod that kube-scheduler's own filters refuse is left to Cluster Autoscaler, which computes the same. A pod that was
refused because something is not known, or is about to change, needs no node. The candidates are judged again: a pod
that was refused while the service had just started gets no further call for up to five minutes.

Namespaces take turns, so that one with many waiting pods does not keep those of others from being looked at.
"""

from collections import Counter
from collections.abc import Container
from typing import Final

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.kubelet.verdict import Certainty
from extender.scheduling.cached_judge import NotReadyError
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.records.decisions import MAX_CALLS, Call

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
        RefusalReason.DEMAND_NUMA_NODE,
        RefusalReason.DEMAND_SOCKET,
        RefusalReason.DEMAND_MEMORY,
    }
)
"""Refusals that an empty node may not give. All others end by themselves, or are no matter of room."""
_CERTAIN: Final = frozenset({Certainty.EXACT, Certainty.ASSUMED, Certainty.DEGRADED})
PER_NAMESPACE: Final = 64
MAX_LOOKED: Final = 1_000
"""How many pods are looked at, of one namespace and in all. Others of the namespace do not count."""
SCAN_SECONDS: Final = 0.5
"""Time for judging the candidates of one call."""
RECENT_SECONDS: Final = 330.0
"""kube-scheduler tries a refused pod again after five minutes at the latest."""


class Waiting:
    """Pods that have waited for long enough. *seconds*: how long they have to wait."""

    def __init__(self, service: Service, seconds: float) -> None:
        self._service, self._seconds = service, seconds
        self._since: BoundedMap[str, float] = BoundedMap(MAX_CALLS)
        """By UID: when the pod was first found to lack room, with nothing else found since."""

    async def due(self, left_out: Container[str] = ()) -> list[Call]:
        """The last filter calls of the pods that have waited for long enough, the oldest first; see the file's rules.

        *left_out*: namespaces that are not looked at.
        """
        now, looked, due = self._service.clock(), Counter[str](), list[tuple[float, Call]]()
        known: dict[tuple[int, bytes], bool] = {}
        """Whether pods of one shape lack room on the same candidates."""
        for call in self._service.records.decisions.filtered(MAX_CALLS, now - RECENT_SECONDS):
            namespace = call.pod.namespace
            if namespace in left_out or looked[namespace] >= PER_NAMESPACE or looked.total() >= MAX_LOOKED:
                continue
            looked[namespace] += 1
            key = id(self._service.judging.entry(call.pod)), call.packed_names
            if call.is_refused and (
                known[key] if key in known else known.setdefault(key, await self._lacks_room(call))
            ):
                since = self._since.setdefault(call.pod.uid, call.at)
                if now - since >= self._seconds:
                    due.append((since, call))
            else:
                self._since.pop(call.pod.uid, None)
        turns, ordered = Counter[str](), list[tuple[int, float, Call]]()
        for since, call in sorted(due, key=lambda each: each[0]):
            turns[call.pod.namespace] += 1
            ordered.append((turns[call.pod.namespace], since, call))
        return [call for *_, call in sorted(ordered, key=lambda each: each[:2])]

    async def _lacks_room(self, call: Call) -> bool:
        """Whether each candidate of a call refuses the pod for lack of room, by what is known of it now.

        A candidate that was refused since the pod's group does not fit counts as such, unless it refuses the pod alone
        for another reason.
        """
        service = self._service
        entry, now = service.judging.entry(call.pod), service.clock()
        try:
            answers = await service.judging.answer_nodes(entry, call.names, now, deadline=now + SCAN_SECONDS)
        except NotReadyError:
            return False
        is_group_unfit = any(each.refusal is RefusalReason.GROUP_UNFIT for each in call.instead.values())
        return bool(call.names) and all(
            (judgement.refusal in LACKS_ROOM or (judgement.refusal is None and is_group_unfit))
            and judgement.certainty in _CERTAIN
            for _, judgement, _ in answers.counts
        )
