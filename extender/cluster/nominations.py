"""Pods that have preempted others, or were given a node before: which node is promised to them.

kube-scheduler writes the node to `status.nominatedNodeName`, deletes the victims, and tries that node first once they
are gone. After any bind error it clears the field, although the room is still meant for the pod.

Rules of this file
- Bounded in number: the oldest goes first. The time of each call is an argument, in seconds of one clock.
- A nomination ends when the pod is on a node or gone, when the scheduler names another node, and `KEEP_SECONDS` after
  the last word of it where only scheduler calls tell of it.
- Victims that were only proposed count as leaving for `DELETE_SECONDS`: the watch shows their deletion long before.
"""

from collections import OrderedDict
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Final

from extender.replay.pod import Pod

KEEP_SECONDS: Final = 30.0
"""How long a nomination is believed that a scheduler call has told of, or that a failed binding has cleared."""
DELETE_SECONDS: Final = 10.0
"""How long after a preempt call its victims count as leaving though no watch event says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nomination:
    """A node that is promised to a pod. `since`: when it became known; `until`: when it is believed no more."""

    pod: Pod
    priority: int
    node_name: str
    since: float
    until: float

    def precedes(self, uid: str, priority: int, since: float) -> bool:
        """Whether another pod must leave its room alone; *since*: when that was nominated itself, if it was."""
        if uid == self.pod.uid:
            return False
        return self.priority > priority or (self.priority == priority and self.since < since)


class Nominations:
    """The nominations that are known. *max_pods* bounds them and the remembered victims."""

    def __init__(self, max_pods: int) -> None:
        self._max: Final = max_pods
        self._pods: OrderedDict[str, Nomination] = OrderedDict()
        self._proposed: OrderedDict[str, tuple[float, Mapping[str, Collection[str]]]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._pods)

    def propose(self, uid: str, victims: Mapping[str, Collection[str]], now: float) -> None:
        """A preempt call was answered with these victims (UIDs) by node; the scheduler chooses one of the nodes."""
        self._proposed.pop(uid, None)
        self._proposed[uid] = (now, victims)
        if len(self._proposed) > self._max:
            self._proposed.popitem(last=False)

    def note(self, pod: Pod, priority: int, node_name: str, now: float, *, watched: bool = False) -> None:
        """An unbound pod and its nominated node, "" if it has none; *watched*: `cleared` will say when it is over."""
        if not pod.uid or not node_name:
            return  # a failed binding may have cleared it: it is believed until its time is up
        held = self._pods.get(pod.uid)
        since = held.since if held is not None and held.node_name == node_name else now
        until = inf if watched or (held is not None and held.until is inf) else now + KEEP_SECONDS
        self._pods[pod.uid] = Nomination(pod=pod, priority=priority, node_name=node_name, since=since, until=until)
        if len(self._pods) > self._max:
            self._pods.popitem(last=False)

    def cleared(self, uid: str, now: float) -> None:
        """The watch shows the pod no longer as nominated and unbound."""
        held = self._pods.get(uid)
        if held is not None:
            self._pods[uid] = replace(held, until=min(held.until, now + KEEP_SECONDS))

    def forget(self, uid: str) -> None:
        """The pod is on a node, or gone."""
        self._pods.pop(uid, None)
        self._proposed.pop(uid, None)

    def of(self, uid: str, now: float) -> Nomination | None:
        """The nomination of a pod; None if it has none."""
        held = self._pods.get(uid)
        return held if held is not None and now < held.until else None

    def by_node(self, now: float) -> Mapping[str, list[Nomination]]:
        """The nominations of every node that has some."""
        nodes: dict[str, list[Nomination]] = {}
        for uid in [uid for uid, each in self._pods.items() if now >= each.until]:
            del self._pods[uid]
        for each in self._pods.values():
            nodes.setdefault(each.node_name, []).append(each)
        return nodes

    def victims(self, uid: str, node_name: str, now: float) -> frozenset[str]:
        """The victims that were proposed on a node for the pod a moment ago."""
        at, victims = self._proposed.get(uid, (-inf, {}))
        return frozenset(victims.get(node_name, ())) if now - at < DELETE_SECONDS else frozenset()
