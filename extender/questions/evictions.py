"""Which pods to evict so that room opens on a node, and where they would go. Shared by make-room and defragment.

Rules of this file
- A pod is evicted only if its controller makes a new one that may run elsewhere, its priority is not higher than
  allowed, no annotation forbids it, and its disruption budgets allow it, as the eviction API counts them: it evicts no
  pod that two of them cover. A pod of which nothing but its resources is known may be evicted, and the answer says so.
- All pods leave first. Then every one of them must be aligned on another node, placed one after another. The node with
  the room counts as cordoned meanwhile. Where that is not possible, pods of other nodes move as well.
- Cheaper means, in this order: fewer pods, fewer Jobs and pods that prefer to stay, lower priorities, fewer CPUs,
  younger pods.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from extender.cluster.node_class import NodeClass
from extender.questions.node_pods import NodePod, pods_of, without
from extender.questions.plan import Placed, PlacementPlan
from extender.questions.subjects import Subject
from extender.replay.alignment import Alignment
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.preemption.budgets import DisruptionBudget
from extender.scheduling.preemption.plan import numa_nodes_of
from extender.scheduling.preemption.running_pods import RunningPod
from extender.scheduling.preemption.victims import Cost, OutOfReplaysError, PodSet, cheapest_set, count_violations

MAX_HOME_NODES: Final = 64
"""How many nodes are tried for the evicted pods of one set. In larger clusters: the first that admit one of them."""
FIRST_NUMBER: Final = 1_000_000
"""Moved pods are numbered from here, so that no other copy in a question has the same UID."""
_STAY: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods come back to the same node."""


@dataclass(frozen=True, slots=True)
class Move:
    """One pod, and where it goes."""

    pod: NodePod
    source: str
    placed: Placed


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Pods to move, in this order. `cost`: to compare it with others. `after`: the other nodes after all moves."""

    moves: tuple[Move, ...]
    cost: Cost
    after: Sequence[Subject]


_Homes = tuple[tuple[Move, ...], Sequence[Subject]]
"""The moves in their order, and the other nodes afterwards."""


def why_not(pod: NodePod, max_priority: int) -> str:
    """Why a pod may not be evicted; empty if it may, budgets aside."""
    if pod.is_static:
        return "it is a static pod"
    if pod.terminating:
        return "it is terminating"
    if pod.priority > max_priority:
        return "its priority is higher"
    if pod.forbids_eviction:
        return "an annotation forbids its eviction"
    if pod.owner in _STAY:
        return f"a {pod.owner} would recreate it on the same node"
    if not pod.owner and not pod.is_rebuilt:
        return "no controller would recreate it"
    return ""


class Evictions:
    """Finds the cheapest eviction on one node after another. *budgets* None: they are not watched."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        budgets: Sequence[DisruptionBudget] | None,
        judge: Judge,
        *,
        max_priority: int,
        max_trials: int,
    ) -> None:
        self.subjects = [s for s in subjects if s.kubelet is not None and s.states and not s.node_class.stale]
        self.trials_left = max_trials
        self.is_late: Callable[[], bool] = bool
        """Whether the time for the search is over; by default it never is."""
        self._budgets: Final = budgets or ()
        self._judge, self._max_priority = judge, max_priority
        self._pods: dict[str, NodePod] = {}
        self._running: dict[str, RunningPod] = {}
        self._admitting: dict[object, set[str]] = {}
        self._passing: dict[tuple[object, NodeClass], bool] = {}
        self._homes: dict[object, _Homes | None] = {}
        self._candidates: dict[str, list[RunningPod]] = {}
        self._sources: dict[str, str] = {}
        self._number = FIRST_NUMBER
        self.allowances: Final = {budget.key: budget.disruptions_allowed for budget in self._budgets}

    def candidates(self, subject: Subject) -> list[RunningPod]:
        """Pods of a node that hold something and may be evicted."""
        known = self._candidates.get(subject.name)
        if known is None:
            holding = {uid for state in subject.states for uid in state.pod_uids}
            pods = [
                pod
                for pod in pods_of(subject)
                if pod.uid in holding and not pod.uid.startswith("what-if-") and not why_not(pod, self._max_priority)
            ]
            for pod in pods:
                self._pods[pod.uid], self._sources[pod.uid] = pod, subject.name
            running = (self._running_pod(pod) for pod in pods)
            known = self._candidates[subject.name] = [pod for pod in running if len(pod.budgets) <= 1]
        return known

    def cheapest(
        self,
        subject: Subject,
        candidates: Sequence[RunningPod],
        opens: Callable[[Subject], bool],
        *,
        most: int,
        chains: bool = False,
    ) -> Eviction | None:
        """The cheapest eviction after which *opens* is true of the node without the pods; None if none was found.

        *most*: pods in all. *chains*: pods of other nodes may be evicted as well, so that these find a place.
        """
        if not chains:
            candidates = [pod for pod in candidates if self._fits_elsewhere(self._pods[pod.uid], subject)]
        if not candidates:
            return None

        def works(pods: PodSet) -> bool:
            if count_violations(pods, self.allowances):
                return False
            if self.trials_left <= 0 or self.is_late():
                raise OutOfReplaysError
            self.trials_left -= 1
            left = without(subject, [self._pods[pod.uid] for pod in pods], 1)
            return opens(left) and self._moves(subject, pods, most if chains else len(pods)) is not None

        try:
            found = cheapest_set(candidates, [*self._by_numa(subject, candidates), candidates], self.cost, works)
        except OutOfReplaysError:
            return None
        homes = (
            None if found is None or len(found) > most else self._moves(subject, found, most if chains else len(found))
        )
        if homes is None:
            return None
        moves, after = homes
        return Eviction(moves=moves, cost=self.cost([self._running_pod(move.pod) for move in moves]), after=after)

    def cost(self, pods: Sequence[RunningPod]) -> Cost:
        """See the rules of the file."""
        known = [self._pods[pod.uid] for pod in pods]
        disliked = sum(pod.owner == "Job" or pod.prefers_no_eviction for pod in known)
        cpus = sum(pod.requests_milli.get("cpu", 0) for pod in known)
        priorities = sorted((pod.priority for pod in known), reverse=True)
        ages = sum(-(pod.started_at or 0) for pod in known)
        return Cost(
            violations=0,
            size=len(pods),
            importance=((disliked, 0), *((priority, 0) for priority in priorities), (cpus, ages)),
            uids=tuple(sorted(pod.uid for pod in pods)),
        )

    def _running_pod(self, pod: NodePod) -> RunningPod:
        known = self._running.get(pod.uid)
        if known is None:
            namespace = pod.workload.namespace
            known = self._running[pod.uid] = RunningPod(
                uid=pod.uid,
                priority=pod.priority,
                started_at=pod.started_at,
                budgets=frozenset(b.key for b in self._budgets if b.limits(namespace, pod.labels)),
            )
        return known

    def _fits_elsewhere(self, pod: NodePod, subject: Subject) -> bool:
        return bool(self._admitting_nodes(pod) - {subject.name})

    def _admitting_nodes(self, pod: NodePod) -> set[str]:
        """The nodes that admit a pod of this shape as they are, by the judge."""
        shape = PodShape(pod.workload.copy(FIRST_NUMBER))
        known = self._admitting.get(shape.pod.shape)
        if known is None:
            known = {subject.name for subject in self.subjects if self._passes(shape, subject.node_class)}
            self._admitting[shape.pod.shape] = known
        return known

    def _passes(self, shape: PodShape, node_class: NodeClass) -> bool:
        key = shape.pod.shape, node_class
        if key not in self._passing:
            self._passing[key] = self._judge(shape, node_class).refusal is None
        return self._passing[key]

    def carried_out(self, eviction: Eviction) -> "Evictions":
        """The same for the cluster after an eviction. Pods that have moved stay where they are."""
        changed = {subject.name: subject for subject in eviction.after}
        for name in {move.source for move in eviction.moves} - changed.keys():
            gone = [move.pod for move in eviction.moves if move.source == name]
            changed[name] = without(next(s for s in self.subjects if s.name == name), gone, 1)
        after = copy.copy(self)
        after.subjects = [changed.get(subject.name, subject) for subject in self.subjects]
        after._admitting, after._homes = {}, {}  # noqa: SLF001 - of the same class
        after._candidates = {n: c for n, c in self._candidates.items() if n not in changed}  # noqa: SLF001
        return after

    def _moves(self, subject: Subject, pods: PodSet, most: int) -> _Homes | None:
        """A place for each of these pods, aligned, with at most *most* moves; None if none were found."""
        if len(pods) > most:
            return None
        key = frozenset(pod.uid for pod in pods), most
        if key not in self._homes:
            wanted = [self._pods[pod.uid] for pod in pods]
            others = [other for other in self.subjects if other.name != subject.name]
            if most == len(pods):
                admitting = set().union(*map(self._admitting_nodes, wanted))
                others = [other for other in others if other.name in admitting]
            self._homes[key] = self._place(others[:MAX_HOME_NODES], wanted, most - len(pods))
        return self._homes[key]

    def _place(self, others: Sequence[Subject], pods: Sequence[NodePod], more: int) -> _Homes | None:
        """Place the pods on *others*, from which up to *more* pods move as well."""
        movable = [running for node in others for running in self.candidates(node)] if more > 0 else []
        for count in range(more + 1):
            for helpers in sorted(combinations(movable, count), key=self.cost):
                chosen = [*pods, *(self._pods[running.uid] for running in helpers)]
                if helpers and count_violations([self._running_pod(pod) for pod in chosen], self.allowances):
                    continue
                nodes = [self._relieved(node, helpers) for node in others] if helpers else others
                for order in _orders(chosen):
                    if self.trials_left <= 0 or self.is_late():
                        return None
                    found = self._placed(nodes, order)
                    if found is not None:
                        return found
        return None

    def _relieved(self, node: Subject, helpers: PodSet) -> Subject:
        gone = [self._pods[pod.uid] for pod in helpers if self._sources[pod.uid] == node.name]
        return without(node, gone, 1) if gone else node

    def _placed(self, others: Sequence[Subject], pods: Sequence[NodePod]) -> _Homes | None:
        """The pods one after another on *others*, each aligned."""
        self.trials_left -= 1 + len(others) // 8  # it replays on each of them
        plan = PlacementPlan(others, self._judge)
        first = self._number
        self._number += len(pods)
        moves = []
        for placed, pod in zip(plan.run([(p.workload, 1) for p in pods], first), pods, strict=True):
            if placed.node is None or placed.alignment is None or placed.alignment.alignment != Alignment.ALIGNED:
                return None
            moves.append(Move(pod, self._sources[pod.uid], placed))
        return tuple(moves), plan.after()

    @staticmethod
    def _by_numa(subject: Subject, pods: Sequence[RunningPod]) -> Iterator[list[RunningPod]]:
        kubelet, state = subject.kubelet, subject.states[0]
        assert kubelet is not None
        places = {pod.uid: numa_nodes_of(kubelet, state, pod.uid) for pod in pods}
        for numa in kubelet.machine.numa_ids:
            group = [pod for pod in pods if places[pod.uid] >> numa & 1]
            if group:
                yield group


def _orders(pods: Sequence[NodePod]) -> Iterator[Sequence[NodePod]]:
    """Largest first, and the reverse."""
    ordered = sorted(pods, key=lambda pod: (-pod.requests_milli.get("cpu", 0), pod.name))
    yield ordered
    if len(ordered) > 1:
        yield ordered[::-1]
