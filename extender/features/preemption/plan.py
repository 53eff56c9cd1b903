"""Which victims to evict on each candidate so that its kubelet admits the preemptor.

Rules of this file
- No victim has equal or higher priority, neither an added nor a proposed one. A pod that may not preempt gets no
  victims.
- Victims that the scheduler proposed stay: its own filters need them. Pods are only added.
- A node is in the result only if the preemptor is admitted with every victim gone, by replay in every state that the
  node can be in. Nothing is concluded from other states, because admission is not monotone. Terminating pods are gone
  in these states, and are never new victims. Pods of no lower priority that are nominated to the node have their room.
- The judge and its policy are those of filter. A node of which nothing is known is passed on unchanged or dropped.
- Work is bounded by `ReplayBudget`. A node for which nothing is left is dropped: evicting pods there might not help.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from extender.cluster.node_class import HYPOTHETICAL, UNKNOWN, NodeClass
from extender.features.preemption.cpu_lower_bound import CPUBound
from extender.features.preemption.nominated import admitted_states
from extender.kubelet.admission import release_pods
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.preemption.running_pods import NodePods, RunningPod, importance
from extender.scheduling.preemption.victims import OutOfReplaysError, cheapest_set, costing, numa_nodes_of
from extender.scheduling.reasons import RefusalReason
from extender.wire.preemption import Proposal

MAX_REPLAYS: Final = 4000
"""Replays for one request; 0.1 to 0.3 ms each on usual servers."""

States = tuple[ManagerState, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemptor:
    """The pod that needs room. `may_preempt` False: its preemption policy is Never."""

    shape: PodShape
    priority: int
    may_preempt: bool = True

    def outranks(self, pod: RunningPod) -> bool:
        """Whether *pod* may be evicted for it."""
        return self.may_preempt and pod.priority < self.priority


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateNode:
    """A candidate of the request.

    `states`: every state that this node can be in; empty if no verdict is possible. (The states of `node_class` are
    those of one node of the class.) `pods` None: running pods are not watched. `nominated`: pods that are nominated to
    the node and whose room the preemptor cannot have, the most important first.
    """

    node_class: NodeClass = UNKNOWN
    states: States = ()
    pods: NodePods | None = None
    nominated: tuple[PodShape, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """Evict these (UIDs, most important first). `added`: how many of them the scheduler did not propose."""

    victims: tuple[str, ...]
    violations: int
    added: int = 0


class Veto(StrEnum):
    """Why a node is dropped."""

    PROTECTED_VICTIM = "protected_victim"
    """A victim has no lower priority than the preemptor, or the preemptor may not preempt."""
    UNKNOWN_VICTIM = "unknown_victim"
    """A victim does not run on the node."""
    REFUSED = "refused"
    """The kubelet would refuse the preemptor with every tried set of victims."""
    NOMINATED = "nominated"
    """The pod is nominated to a node that only waits for pods to leave: no other pod is evicted for it."""
    UNDECIDED = "undecided"
    """No replays or no time were left."""


class ReplayBudget:
    """The replays of one request: cached by what decides them, bounded in number and time."""

    def __init__(
        self,
        judge: Judge,
        shape: PodShape,
        *,
        limit: int = MAX_REPLAYS,
        out_of_time: Callable[[], bool] = lambda: False,
    ) -> None:
        self._judge, self._shape, self._out_of_time = judge, shape, out_of_time
        self._known: dict[object, RefusalReason | None] = {}
        self.left = limit
        self._floor = 0

    def share(self, nodes: int) -> None:
        """Begin one of *nodes* nodes that are still to do: it may use an equal part of the replays that are left."""
        self._floor = self.left - self.left // nodes

    def refusal(self, node_class: NodeClass, states: States) -> RefusalReason | None:
        """Why a node of this class would refuse the pod if it were in one of *states*; raises OutOfReplaysError."""
        if node_class.counts is not None:
            return None  # counts say nothing about the node without the victims
        keys = frozenset(state.key for state in states)
        key = (
            id(node_class.kubelet),
            keys,
            node_class.hidden,
            node_class.stale,
            node_class.complete,
            node_class.score_only,
        )
        if key not in self._known:
            if self.left <= self._floor or self._out_of_time():
                raise OutOfReplaysError
            self.left -= 1
            hypothetical = node_class
            if states:
                possible = replace(node_class.possible, states=states)
                hypothetical = replace(node_class, id=HYPOTHETICAL, pools=None, possible=possible)
            self._known[key] = self._judge(self._shape, hypothetical).refusal
        return self._known[key]


def plan_preemption(
    preemptor: Preemptor,
    proposals: Mapping[str, Proposal],
    candidates: Mapping[str, CandidateNode],
    budget: ReplayBudget,
) -> dict[str, Plan | Veto]:
    """The result for each candidate, in the order of the request. Every name of *proposals* is in *candidates*."""
    answers: dict[str, Plan | Veto] = {}
    undecided = {}
    for name, proposal in proposals.items():
        search = _NodeSearch(preemptor, candidates[name], proposal, budget)
        answer = search.first_answer()
        answers[name] = Veto.UNDECIDED if answer is None else answer
        if answer is None:
            undecided[name] = search
    for i, (name, search) in enumerate(undecided.items()):
        budget.share(len(undecided) - i)
        answers[name] = search.search()
    return answers


class _NodeSearch:
    """The search on one node: whether it would admit the preemptor, and which victims that needs.

    `known`: the pods of the node and of the proposal by UID. `base`: the states of the node once the proposed victims
    and the terminating pods are gone, with the nominated pods admitted.
    """

    def __init__(self, preemptor: Preemptor, node: CandidateNode, proposal: Proposal, budget: ReplayBudget) -> None:
        self.preemptor, self.node, self.proposal, self.budget = preemptor, node, proposal, budget
        running = {} if node.pods is None else node.pods.pods
        self.known = {**_described(proposal), **running}
        terminating = [uid for uid, pod in self.known.items() if pod.terminating]
        self.base = _released(node.states, [*proposal.victims, *terminating])
        for shape in node.nominated:
            self.base = admitted_states(node.node_class, self.base, shape)

    def first_answer(self) -> Plan | Veto | None:
        """The result with the victims as proposed; None if adding some may help."""
        pods, victims = self.node.pods, self.proposal.victims
        if pods is not None and any(uid not in self.known for uid in victims):
            return Veto.UNKNOWN_VICTIM
        if victims and not self.preemptor.may_preempt:
            return Veto.PROTECTED_VICTIM
        if any(uid in self.known and not self.preemptor.outranks(self.known[uid]) for uid in victims):
            return Veto.PROTECTED_VICTIM
        try:
            refusal = self.budget.refusal(self.node.node_class, self.base)
        except OutOfReplaysError:
            return Veto.UNDECIDED
        if refusal is None:
            return Plan(victims=self._in_order(victims), violations=self.proposal.violations)
        if pods is None or refusal.never or refusal in (RefusalReason.UNKNOWN, RefusalReason.STALE):
            return Veto.REFUSED
        return None

    def search(self) -> Plan | Veto:
        """The plan with the cheapest further victims. Only after `first_answer` was None."""
        pods, kubelet = self.node.pods, self.node.node_class.kubelet
        if pods is None or kubelet is None:
            return Veto.REFUSED
        candidates = self._candidates(pods)
        cost = costing([self.known[uid] for uid in self.proposal.victims], pods.allowances)
        bound = CPUBound(kubelet, self.base, self.preemptor.shape.request(kubelet.rules))

        def works(more: tuple[RunningPod, ...]) -> bool:
            uids = [pod.uid for pod in more]
            if bound.excludes(uids):
                return False
            return self.budget.refusal(self.node.node_class, _released(self.base, uids)) is None

        groups = [*_by_numa_node(kubelet, self.base, candidates), candidates]
        try:
            added = cheapest_set(candidates, groups, cost, works)
        except OutOfReplaysError:
            return Veto.UNDECIDED
        if added is None:
            return Veto.REFUSED
        return Plan(
            victims=self._in_order((*self.proposal.victims, *(pod.uid for pod in added))),
            violations=self.proposal.violations + cost(added).violations,
            added=len(added),
        )

    def _candidates(self, pods: NodePods) -> list[RunningPod]:
        """Pods that may be evicted and hold something, most important first."""
        holding = {uid for state in self.base for uid in state.pod_uids}
        return sorted(
            (
                pod
                for uid, pod in pods.pods.items()
                if uid in holding and not pod.terminating and self.preemptor.outranks(pod)
            ),
            key=importance,
        )

    def _in_order(self, victims: tuple[str, ...]) -> tuple[str, ...]:
        """Most important first; in the order of the request if a victim is not known here."""
        if any(uid not in self.known for uid in victims):
            return victims
        return tuple(sorted(victims, key=lambda uid: importance(self.known[uid])))


def _described(proposal: Proposal) -> dict[str, RunningPod]:
    return {
        uid: RunningPod(uid=uid, priority=pod.priority, started_at=pod.started_at, terminating=pod.terminating)
        for uid, pod in proposal.described.items()
    }


def _released(states: States, uids: Iterable[str]) -> States:
    """The states with these pods gone.

    States that are equal for new pods are all kept, because the next victim may hold different things in them.
    """
    gone = list(uids)
    return tuple(release_pods(state, gone) for state in states)


def _by_numa_node(kubelet: Kubelet, states: States, pods: list[RunningPod]) -> list[list[RunningPod]]:
    """The pods that hold something on each NUMA node; a pod can be in several groups, or in none."""
    places = dict.fromkeys((pod.uid for pod in pods), 0)
    for uid in places:
        for state in states:
            places[uid] |= numa_nodes_of(kubelet, state, uid)
    groups = ([pod for pod in pods if places[pod.uid] >> numa & 1] for numa in kubelet.machine.numa_ids)
    return [group for group in groups if group]
