"""Which victims to evict on each candidate so that its kubelet admits the preemptor.

Rules of this file
- Every victim, added or proposed, has a lower priority. A pod that may not preempt gets no victims.
- Victims that the scheduler proposed stay: its own filters need them. Pods are only added.
- A node is in the result only if the preemptor is admitted with every victim gone, by replay in every state that the
  node can be in. Nothing is concluded from other states, because admission is not monotone. Terminating pods are gone
  in these states, and are never new victims. Pods of the same or a higher priority that are nominated to the node have
  their room.
- The judge and its policy are those of filter. A node of which nothing is known is passed on unchanged or dropped.
- Too few CPUs on the NUMA nodes prove without a replay that the kubelet refuses the pod (`CPUBound`), which saves most
  replays of a search. Enough free CPUs prove nothing: such a node is replayed.
- Work is bounded by `ReplayBudget`. A node for which nothing is left is dropped: evicting pods there might not help.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from extender.cluster.node_class import HYPOTHETICAL, UNKNOWN, NodeClass
from extender.features.preemption.nominated import admitted_states
from extender.kubelet import cpu_manager
from extender.kubelet.admission import release_pods
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import CPUState, ManagerState
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.victims import (
    NodePods,
    OutOfReplaysError,
    RunningPod,
    cheapest_set,
    costing,
    importance,
    numa_nodes_of,
)
from extender.wire.parsing import unix_seconds
from extender.wire.preemption import Proposal


class CPUBound:
    """The CPUs that must be free for one pod on one node, which can be in any of *states*.

    Containers that give CPUs back, pod-level budgets and hybrid machines are left to the replay.
    """

    def __init__(self, kubelet: Kubelet, states: Sequence[ManagerState], request: PodRequest) -> None:
        self._kubelet = kubelet
        self._states = [state.cpu for state in states]
        self._applies = (
            kubelet.cpu_static
            and request.pod_level is None
            and not any(c.reusable for c in request.containers)
            and not _is_hybrid(kubelet)
        )
        self._total = request.total_cpus
        self._largest = max((c.cpus for c in request.containers), default=0)
        self._span = _span(kubelet, self._total if kubelet.scope is Scope.POD else self._largest)

    def excludes(self, gone: Collection[str]) -> bool:
        """Whether the pod is refused in every state once the pods *gone* have left."""
        return self._applies and all(self._lacks(state, gone) for state in self._states)

    def _lacks(self, state: CPUState, gone: Collection[str]) -> bool:
        free = state.default
        for uid in gone:
            free |= state.pod_entries.get(uid, 0)
            for cpus in state.entries.get(uid, {}).values():
                free |= cpus
        free &= ~self._kubelet.reserved_cpus
        if free.bit_count() < self._total:
            return True
        by_numa = sorted(((cpus & free).bit_count() for cpus in self._kubelet.machine.numa_cpus.values()), reverse=True)
        return sum(by_numa[: self._span]) < self._largest


def _is_hybrid(kubelet: Kubelet) -> bool:
    """Whether cores have different numbers of threads: the kubelet can then give CPUs that are not free."""
    machine = kubelet.machine
    return any(core.bit_count() != machine.cpus_per_core for core in machine.core_cpus.values())


def _span(kubelet: Kubelet, cpus: int) -> int:
    """The most NUMA nodes that a hint for *cpus* CPUs may span under the node's policy."""
    if kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE:
        return 1
    if kubelet.policy is not TopologyPolicy.RESTRICTED or kubelet.cpu_options.align_by_socket:
        return len(kubelet.machine.cpu_numa_ids)
    return cpu_manager.minimum_width(kubelet, cpus)


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
        """Whether *pod* may be evicted for this preemptor."""
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
    """A victim's priority is not lower than the preemptor's, or the preemptor may not preempt."""
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
        uid: RunningPod(
            uid=uid,
            priority=pod.spec.priority or 0,
            started_at=unix_seconds(pod.status.start_time) if pod.status else None,
            terminating=pod.metadata.deletion_timestamp is not None,
        )
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
