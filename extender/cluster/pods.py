"""Pods by UID: what the scheduler said of those it asked about, and where those are that are bound.

Rules of this file
- Bounded: of the pods asked about the ones asked for longest ago are forgotten first, of our bindings and of the pods
  that we held back the oldest.
- Where a pod is bound is never unlearned while the pod exists: a binding is for life.
"""

from collections import OrderedDict
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

from extender.cluster.nominations import Nominations
from extender.replay.pod import Pod


@dataclass(slots=True)
class _HeldBack:
    since: float
    node_names: set[str] = field(default_factory=set)


class KnownPods:
    """*max_pods* limits each table except that of watched pods, which has as many as exist."""

    def __init__(self, max_pods: int) -> None:
        self._max: Final = max_pods
        self.nominations: Final = Nominations(max_pods)
        self._asked: OrderedDict[str, tuple[Pod, int]] = OrderedDict()
        self._bound: OrderedDict[str, str] = OrderedDict()
        self._unsure: OrderedDict[str, str] = OrderedDict()
        self._watched: dict[str, str] = {}
        self._held_back: OrderedDict[str, _HeldBack] = OrderedDict()

    def remember(self, pod: Pod, priority: int = 0) -> None:
        """The scheduler asked about the pod; one without UID cannot be bound and is not kept."""
        if pod.uid:
            self._asked[pod.uid] = (pod, priority)
            self._asked.move_to_end(pod.uid)
            if len(self._asked) > self._max:
                self._asked.popitem(last=False)

    def get(self, uid: str) -> Pod | None:
        """The pod as the scheduler last described it; None if it never did, or too long ago."""
        asked = self._asked.get(uid)
        return None if asked is None else asked[0]

    def priority_of(self, uid: str) -> int:
        """The priority of a pod that `get` knows; 0 for others."""
        asked = self._asked.get(uid)
        return 0 if asked is None else asked[1]

    def node_of(self, uid: str) -> str | None:
        """The node that the pod is bound to; None if none is known."""
        return self._watched.get(uid) or self._bound.get(uid)

    def hold_back(self, uid: str, node_name: str, now: float) -> float:
        """Take note that the pod was not bound for the sake of caution; for how many seconds that has been so."""
        held = self._held_back.setdefault(uid, _HeldBack(now))
        held.node_names.add(node_name)
        if len(self._held_back) > self._max:
            self._held_back.popitem(last=False)
        return now - held.since

    def held_back_from(self, uid: str, since: float) -> Collection[str]:
        """Nodes that the pod was not bound to for the sake of caution, if the first time was after *since*."""
        held = self._held_back.get(uid)
        return () if held is None or held.since <= since else held.node_names

    def bound(self, uid: str, node_name: str) -> None:
        """We have bound the pod."""
        self.nominations.forget(uid)
        self._unsure.pop(uid, None)
        self._bound[uid] = node_name
        if len(self._bound) > self._max:
            self._bound.popitem(last=False)

    def unseen_on(self, node_name: str) -> list[Pod]:
        """Pods that we have bound to the node, or may have, and that the watch has not shown yet."""
        uids = [uid for memory in (self._bound, self._unsure) for uid, name in memory.items() if name == node_name]
        return [self._asked[uid][0] for uid in uids if uid in self._asked]

    def unsure(self, uid: str, node_name: str) -> None:
        """We have tried to bind the pod, and nobody knows what came of it."""
        self._unsure[uid] = node_name
        if len(self._unsure) > self._max:
            self._unsure.popitem(last=False)

    def unsure_node(self, uid: str) -> str | None:
        """Where the pod may be bound; None if no binding of it is in doubt."""
        return self._unsure.get(uid)

    def watched(self, uid: str, node_name: str) -> None:
        """The API server has the pod on the node."""
        self._watched[uid] = node_name
        self.nominations.forget(uid)
        self._asked.pop(uid, None)
        self._bound.pop(uid, None)
        self._unsure.pop(uid, None)
        self._held_back.pop(uid, None)

    def gone(self, uid: str) -> None:
        """The pod no longer exists."""
        self.nominations.forget(uid)
        for memory in (self._watched, self._bound, self._unsure, self._asked, self._held_back):
            memory.pop(uid, None)
