"""The registry of pods: one record for each UID, from the scheduler, the bind verb and the watches.

Rules of this file
- A pod that the watch shows on a node needs no record: only its node is kept, until the pod is deleted. The number of
  these pods is not limited here.
- All other pods share one limit of their number, and one of their weight (`POD_BYTES` for each, `MAX_BYTES` in all).
  Beyond it one pod is dropped: of the namespace that uses most of the limit, the pod that changed longest ago. So a
  namespace that uses much of it does not displace the pods of others. Pods with resources are dropped last: those that
  were bound, whose binding is in doubt, or that are nominated to a node.
- The group with resources is small, so reads by node iterate over it. Three other reads have an index.
- Records are values. Reads change nothing. Each change removes a record, replaces it and stores it again.
- The time of each call is an argument, in seconds of one clock. `expire` applies timeouts; changes call it.
- A nomination is kept longer than kube-scheduler keeps it: it clears `status.nominatedNodeName` after any bind error,
  although the room is still meant for the pod.
"""

from collections import OrderedDict, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from math import inf
from types import MappingProxyType
from typing import Any, Final, NamedTuple

from extender.bounded import Shares
from extender.replay.alignment_demand import Demand
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
        """Whether another pod must leave these resources free. *since*: when the other pod was nominated, if it was."""
        if uid == self.pod.uid:
            return False
        return self.priority > priority or (self.priority == priority and self.since < since)


OFFER_SECONDS: Final = 2.0
"""A pod that was offered nodes and is not bound within this time is assumed unschedulable."""
SEEN_SECONDS: Final = 900.0
"""A pod that no call names for this long is forgotten, unless room is held for it. Only bound pods are watched, so a
pod that was deleted before cannot be seen. kube-scheduler filters a waiting pod again within five minutes."""
_PASS_SECONDS: Final = 1.0
"""Time between two passes over the records with timeouts."""
MAX_DEFERRALS: Final = 100
"""How many of the nodes that deferred one pod are kept."""
POD_BYTES: Final = 4000
"""More than `Pod.weight_bytes` of a usual pod."""
MAX_BYTES: Final = 24 << 20
"""The size of all records together, whatever their number. A usual pod counts with the size of its record only."""


class KnownPod(NamedTuple):
    """The record of one pod. Times are seconds of the caller's clock; -inf or inf: never, or no longer valid.

    `pod`, `priority`: as a filter or preempt call described it last. `bound_to`: the node to which it is bound.
    `in_doubt_on`: the node of a binding whose outcome is unknown. `victims`: the reply to a preempt call at
    `victims_at`, UIDs by node; the scheduler chooses one of the nodes. `offered_at`: a filter call found nodes, and
    others wait for the pod. `refused_at`: a filter call refused all nodes, at least one of them only for now.
    `deferred_from`: when bind deferred the pod last, by node. `exits_matter_since`: when bind deferred it first because
    the exit of another pod would matter. `group`: the key of its group, as of its last filter call. `changed_at`: when
    a call named it last.
    """

    uid: str
    pod: Pod | None = None
    priority: int = 0
    bound_to: str | None = None
    in_doubt_on: str | None = None
    nomination: Nomination | None = None
    victims: Mapping[str, Collection[str]] = MappingProxyType({})
    victims_at: float = -inf
    offered_at: float = -inf
    refused_at: float = -inf
    deferred_from: Mapping[str, float] = MappingProxyType({})
    exits_matter_since: float = inf
    group: tuple[str, str, str] | None = None
    changed_at: float = -inf

    def nominated(self, now: float) -> Nomination | None:
        """The nomination of the pod, if it is valid."""
        return self.nomination if self.nomination is not None and now < self.nomination.until else None

    def victims_on(self, node_name: str, now: float) -> frozenset[str]:
        """The victims on the node; empty when `DELETE_SECONDS` have passed."""
        return frozenset(self.victims.get(node_name, ())) if now - self.victims_at < DELETE_SECONDS else frozenset()

    @property
    def weight(self) -> tuple[str, int]:
        """Who holds the record, by namespace, and about how many bytes it takes."""
        parts = len(self.deferred_from) + sum(map(len, self.victims.values()))
        own = 500 + 100 * parts
        return ("", own) if self.pod is None else (self.pod.namespace, own + max(0, self.pod.weight_bytes - POD_BYTES))

    @property
    def holds_room(self) -> bool:
        """Whether resources of a node are meant for the pod."""
        return self.bound_to is not None or self.in_doubt_on is not None or self.nomination is not None


class PodRegistry:
    """The known pods. *refused_seconds*: how long after its last filter call a refused pod is kept."""

    def __init__(self, max_pods: int, refused_seconds: float = inf) -> None:
        self._max, self._refused_seconds = max_pods, refused_seconds
        self._max_bytes = min(max_pods * POD_BYTES, MAX_BYTES)
        self._on_node: Final[dict[str, str]] = {}
        self._seen: Final[OrderedDict[str, KnownPod]] = OrderedDict()
        self.holding: Final[OrderedDict[str, KnownPod]] = OrderedDict()
        """The pods with resources, by UID; for reading only."""
        self.deferred: Final[dict[str, KnownPod]] = {}
        """The pods that bind has deferred, by UID; for reading only."""
        self._offered: Final[dict[str, KnownPod]] = {}
        self._refused: Final[dict[str, KnownPod]] = {}
        self._next_pass = -inf
        self._shares: Final = Shares(), Shares()
        """The shares of the pods without resources, and of those with resources."""

    def __len__(self) -> int:
        """How many pods count towards the limit."""
        return len(self._seen) + len(self.holding)

    def get(self, uid: str) -> KnownPod:
        """The record of the pod; an empty one if there is none."""
        return self._seen.get(uid) or self.holding.get(uid) or KnownPod(uid, bound_to=self._on_node.get(uid))

    def unseen_on(self, node_name: str) -> list[Pod]:
        """Pods that we have bound, or may have bound, to the node, and that the watch has not shown yet."""
        return [
            each.pod for each in self.holding.values() if each.pod and node_name in (each.bound_to, each.in_doubt_on)
        ]

    def nominations(self, now: float) -> Mapping[str, Sequence[Nomination]]:
        """The valid nominations, by node."""
        nodes: defaultdict[str, list[Nomination]] = defaultdict(list)
        for known in self.holding.values():
            if (nomination := known.nominated(now)) is not None:
                nodes[nomination.node_name].append(nomination)
        return nodes

    def offered(self, now: float) -> set[str]:
        """Pods that may be bound at any moment: nodes were offered for them a moment ago."""
        return {uid for uid, each in self._offered.items() if now - each.offered_at <= OFFER_SECONDS}

    def refused(self, now: float) -> list[Pod]:
        """Pods that may be admitted when a node changes, the last filter call first: that pod is likely to exist."""
        oldest = now - self._refused_seconds
        return [each.pod for each in reversed(self._refused.values()) if each.pod and each.refused_at >= oldest]

    def describe(self, pod: Pod, priority: int, nominated_node: str, now: float) -> KnownPod:
        """Record an unbound pod from a call of the scheduler. *nominated_node*: "" if it has none.

        A failed binding may have cleared the nominated node, so a nomination is valid until its timeout.
        """
        changes: dict[str, Any] = {"pod": pod, "priority": priority, "offered_at": -inf}
        if nominated_node:
            changes["nomination"] = self._renewed(pod, priority, nominated_node, now + KEEP_SECONDS, now)
        return self._change(pod.uid, now, **changes)

    def join(self, uid: str, group: tuple[str, str, str] | None, now: float) -> None:
        """Record the group of a pod that `describe` has recorded."""
        if self.get(uid).group != group:
            self._change(uid, now, group=group)

    def nominate(self, pod: Pod, priority: int, node_name: str, now: float) -> None:
        """The watch shows the nominated node of an unbound pod. The nomination is valid until `clear_nomination`."""
        self._change(pod.uid, now, nomination=self._renewed(pod, priority, node_name, inf, now))

    def clear_nomination(self, uid: str, now: float) -> None:
        """The watch shows the pod no longer as nominated and unbound."""
        held = self.get(uid).nomination
        if held is not None:
            self._change(uid, now, nomination=replace(held, until=min(held.until, now + KEEP_SECONDS)))

    def propose(self, uid: str, victims: Mapping[str, Collection[str]], now: float) -> None:
        """A preempt call was answered with these victims (UIDs) by node."""
        self._change(uid, now, victims=victims, victims_at=now)

    def answer(self, pod: Pod, now: float, *, offered: bool = False, refused: bool = False) -> None:
        """Record the result of a filter call; see `KnownPod`."""
        known = self.get(pod.uid)
        offered_at, refused_at = now if offered else -inf, now if refused else -inf
        if (known.offered_at, known.refused_at) != (offered_at, refused_at):
            self._change(pod.uid, now, pod=pod, offered_at=offered_at, refused_at=refused_at)

    def give_up_waiting(self, uids: Iterable[str], now: float) -> None:
        """No filter call waits for these pods any longer."""
        for uid in self._offered.keys() & set(uids):
            self._change(uid, now, offered_at=-inf)

    def defer(self, uid: str, node_name: str, now: float) -> None:
        """Bind deferred the pod on the node. Of more than `MAX_DEFERRALS` nodes the last ones are kept."""
        nodes = {name: at for name, at in self.get(uid).deferred_from.items() if name != node_name}
        kept = islice(nodes.items(), max(0, len(nodes) + 1 - MAX_DEFERRALS), None)
        self._change(uid, now, deferred_from={**dict(kept), node_name: now})

    def defer_for_exits(self, uid: str, node_name: str, now: float) -> float:
        """Record that bind defers the pod for possible exits. Returns seconds since its first deferral on any node."""
        self.defer(uid, node_name, now)
        since = min(now, self.get(uid).exits_matter_since)
        self._change(uid, now, exits_matter_since=since)
        return now - since

    def bind(self, uid: str, node_name: str) -> None:
        """We have bound the pod."""
        known = self._take(uid)
        if uid not in self._on_node:
            self._file(KnownPod(uid, known.pod, known.priority, node_name))

    def doubt(self, uid: str, node_name: str, now: float) -> None:
        """We have tried to bind the pod, and the outcome is unknown."""
        self._change(uid, now, in_doubt_on=node_name)

    def watch(self, uid: str, node_name: str) -> None:
        """The watch shows that the pod is bound to the node."""
        self._take(uid)
        self._on_node[uid] = node_name

    def delete(self, uid: str) -> None:
        """The pod no longer exists."""
        self._take(uid)
        self._on_node.pop(uid, None)

    def expire(self, now: float) -> None:
        """Apply timeouts, once a second at most."""
        if now < self._next_pass:
            return
        self._next_pass = now + _PASS_SECONDS
        for known in [each for each in self.holding.values() if each.nomination and not each.nominated(now)]:
            self._file(self._take(known.uid)._replace(nomination=None))
        for uid in self._offered.keys() - self.offered(now):
            self._file(self._take(uid)._replace(offered_at=-inf))
        for known in list(takewhile(lambda each: each.changed_at < now - SEEN_SECONDS, self._seen.values())):
            self._take(known.uid)
        oldest = now - self._refused_seconds
        for known in list(takewhile(lambda each: each.refused_at < oldest, self._refused.values())):
            self._take(known.uid)
            if known.holds_room:
                self._file(known._replace(refused_at=-inf))

    def _renewed(self, pod: Pod, priority: int, node_name: str, until: float, now: float) -> Nomination | None:
        """The nomination of a pod with this nominated node; None if it is bound."""
        known = self.get(pod.uid)
        held, since = known.nomination, now
        if known.bound_to is not None:
            return None
        if held is not None and held.node_name == node_name:
            since = held.since
        if held is not None and held.until == inf:
            until = inf
        return Nomination(pod=pod, priority=priority, node_name=node_name, since=since, until=until)

    def _change(self, uid: str, now: float, **changes: Any) -> KnownPod:
        """Replace the record of a pod that the watch does not show on a node. A pod without UID has no record."""
        self.expire(now)
        if not uid or uid in self._on_node:
            return self.get(uid)
        known = self._take(uid)._replace(**changes, changed_at=now)
        self._file(known)
        return known

    def _take(self, uid: str) -> KnownPod:
        """Remove a record from every map. Returns an empty record if there is none."""
        for index in (self._offered, self._refused, self.deferred):
            index.pop(uid, None)
        known = self._seen.pop(uid, None) or self.holding.pop(uid, None)
        if known is None:
            return KnownPod(uid)
        self._weigh(known, -1)
        return known

    def _file(self, known: KnownPod) -> None:
        """Store a record as the newest one, and keep the limit."""
        uid = known.uid
        (self.holding if known.holds_room else self._seen)[uid] = known
        if known.offered_at > -inf:
            self._offered[uid] = known
        if known.refused_at > -inf:
            self._refused[uid] = known
        if known.deferred_from:
            self.deferred[uid] = known
        self._weigh(known, 1)
        while len(self) > 1 and (
            len(self) > self._max or sum(each.held_bytes for each in self._shares) > self._max_bytes
        ):
            records = self._seen or self.holding
            owner = self._shares[records is self.holding].largest
            self._take(next(each.uid for each in records.values() if each.weight[0] == owner))

    def _weigh(self, known: KnownPod, sign: int) -> None:
        """Count a record (*sign* 1), or count it no more (-1)."""
        owner, weight = known.weight
        self._shares[known.holds_room].change(owner, sign * weight)


def with_default(pod: Pod, demands: Mapping[str, Demand]) -> Pod:
    """The pod with the demand of its namespace, if it has one in *demands*, where its own demand says nothing."""
    if (default := demands.get(pod.namespace)) is None:
        return pod
    demand = pod.demand.or_default(default, [container.name for container in pod.containers])
    return pod if demand == pod.demand else replace(pod, demand=demand)
