"""Which pods to evict so that room opens on a node, and where they would go. Shared by make-room and defragment.

Rules of this file
- A pod is evicted only if its controller makes a new one that may run elsewhere, its priority is low enough, no
  annotation forbids it, it is in no group, and all rules for its placement are replayed here. Its disruption budgets
  must allow it; the eviction API evicts no pod that two budgets cover. A pod of which nothing but its resources is
  known may be evicted, and the answer says so.
- Pods move one after another, and each one's replacement has a place at that time. Nodes that still have to lose a pod,
  and the node with the room, are cordoned meanwhile. So if a pod of another node must make place for one of these pods,
  it moves first.
- Neither a replacement nor the pod that needs the room goes where the required anti-affinity of a pod excludes it. Pods
  with such rules stay, so that what they keep away does not change.
- Pods that hold CPUs, memory or devices are aligned again. Others have claims, or leave nodes whose totals are short.
- Cheaper means, in this order: fewer pods, fewer Jobs and pods that prefer to stay, lower priorities, fewer CPUs,
  younger pods.
"""

import copy
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, islice, permutations
from typing import Final

from extender.cluster.node_class import NodeClass
from extender.questions.dra import ClaimForecast, forecast_of
from extender.questions.node_context import Subject
from extender.questions.node_pods import CertainPlace, NodePod, place_of, pods_of, with_pod, without
from extender.replay.alignment import Alignment
from extender.scheduling import victims
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import pod_requests, shortages
from extender.scheduling.pod_shape import PodShape
from extender.wire.groups import HOST
from extender.wire.placement_rules import AntiAffinity
from extender.wire.workloads import PodWorkload

MAX_HOME_NODES: Final = 64
"""How many nodes are tried for the evicted pods of one set. In larger clusters: the first that admit one of them."""
MAX_ORDERS: Final = 24
"""How many orders of the moves of one set are tried: all of four pods."""
FIRST_NUMBER: Final = 1_000_000
"""Moved pods are numbered from here, so that no other copy in a question has the same UID."""
_STAY: Final = frozenset({"DaemonSet", "Node"})
"""Controllers whose pods come back to the same node."""


@dataclass(frozen=True, slots=True)
class Move:
    """One pod, and where its replacement goes. `numa`: its NUMA nodes there, as bits; 0: the pod holds none."""

    pod: NodePod
    source: str
    node: str
    numa: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """Pods to move, in this order.

    `cost` compares it with other evictions. `after`: the other nodes that change, as they are afterwards.
    """

    moves: tuple[Move, ...]
    cost: victims.Cost
    after: Sequence[Subject]


_Homes = tuple[tuple[Move, ...], Sequence[Subject]]
"""The moves in their order, and the other nodes as they are after them."""


def why_not(pod: NodePod, max_priority: int, forecast: ClaimForecast | None) -> str:
    """Why a pod may not be evicted; empty if it may, budgets aside. *forecast* None: nothing is known of claims."""
    if pod.is_static:
        return "static pods"
    if pod.terminating:
        return "they are terminating"
    if pod.priority > max_priority:
        return "their priority is higher"
    if pod.forbids_eviction:
        return "an annotation forbids their eviction"
    if pod.owner in _STAY:
        return f"a {pod.owner} would recreate them on the same node"
    if not pod.owner and not pod.is_rebuilt:
        return "no controller would recreate them"
    if pod.group is not None:
        return "their group would lose a pod, and its pods run together"
    unread = [each for each in pod.workload.rules.unread if each != "resource claims" or forecast is None]
    return f"where they may go is not known: {', '.join(unread)}" if unread else ""


class Evictions:
    """Finds the cheapest eviction on one node after another. *budgets* None: they are not watched."""

    def __init__(
        self,
        subjects: Sequence[Subject],
        budgets: Sequence[victims.DisruptionBudget] | None,
        judge: Judge,
        *,
        max_priority: int,
        max_trials: int,
        workload: PodWorkload | None = None,
        namespaces: Collection[str] | None = None,
    ) -> None:
        """*workload*: the pod that needs the room. *namespaces*: only pods of these may be evicted; None: of all."""
        self.subjects = [s for s in subjects if s.kubelet is not None and s.states and not s.node_class.stale]
        self.trials_left = max_trials
        self.is_late: Callable[[], bool] = bool
        """Whether the time for the search is over; by default it never is."""
        self.is_partial = False
        """Whether a node had too many pods, or pods had too many other nodes, to try everything."""
        self.kept: Final[dict[str, tuple[str, str]]] = {}
        """Pods that may not be evicted, of the nodes that were looked at: name and reason, by UID."""
        self._budgets: Final = budgets or ()
        self._judge, self._max_priority, self._namespaces = judge, max_priority, namespaces
        self._workload: Final = workload
        self._wanted = {} if workload is None else pod_requests(workload.pod, workload.rules.overhead_milli)
        self._pods: dict[str, NodePod] = {}
        self._running: dict[str, victims.RunningPod] = {}
        self._admitting: dict[object, dict[str, int]] = {}
        self._passing: dict[tuple[object, NodeClass], int | None] = {}
        self._homes: dict[object, _Homes | None] = {}
        self._places: dict[tuple[str, int], tuple[Subject, CertainPlace | None]] = {}
        self._candidates: dict[str, list[victims.RunningPod]] = {}
        self._sources: dict[str, str] = {}
        self._is_worth: Callable[[Sequence[Subject]], bool] | None = None
        self._moved = frozenset[str]()
        self.allowances: Final = {budget.key: budget.disruptions_allowed for budget in self._budgets}
        self._holding = {s.name: {uid for state in s.states for uid in state.pod_uids} for s in self.subjects}
        self._away: Final = defaultdict[str, defaultdict[str, set[tuple[str, AntiAffinity]]]](lambda: defaultdict(set))
        """Namespace and anti-affinity of the pods in a topology, by its key and value."""
        for subject in subjects:
            for pod in pods_of(subject):
                for term in pod.workload.rules.keeps_away:
                    self._away[term.topology_key][_domain(subject, term.topology_key)].add(
                        (pod.workload.namespace, term)
                    )
                if pod.uid in self._holding.get(subject.name, ()):
                    self._wanted.update({k: max(v, self._wanted.get(k, 0)) for k, v in pod.requests_milli.items()})

    def candidates(self, subject: Subject) -> list[victims.RunningPod]:
        """Pods of a node that hold something, or request a total that may be short, and may be evicted."""
        known = self._candidates.get(subject.name)
        if known is None:
            known = self._candidates[subject.name] = []
            around, holding = subject.around, self._holding[subject.name]
            total, used = around.allocatable_milli or {}, around.requested_milli or {}
            short, forecast = {name for name, *_ in shortages(self._wanted, total, used)}, forecast_of(around)
            for pod in pods_of(subject):
                is_settled = pod.uid in self._moved or pod.uid.startswith("what-if-")
                holds = pod.uid in holding or (forecast is not None and pod.workload.pod.has_claims)
                if is_settled or not (holds or not short.isdisjoint(pod.requests_milli)):
                    continue
                running = self._running_pod(pod)
                reason = why_not(pod, self._max_priority, forecast) or self._why_not_by_budget(running)
                if not (self._namespaces is None or pod.workload.namespace in self._namespaces):
                    reason = "the question leaves their namespace out"
                if not reason and holds:
                    reason = self._why_not_by_scheduler(pod)
                if reason:
                    self.kept[pod.uid] = pod.name, reason
                    continue
                self._pods[pod.uid], self._sources[pod.uid] = pod, subject.name
                known.append(running)
        return known

    def _why_not_by_budget(self, pod: victims.RunningPod) -> str:
        if len(pod.budgets) > 1:
            return "two disruption budgets cover them, and the eviction API then evicts none"
        if victims.count_violations((pod,), self.allowances):
            return "their disruption budget allows no eviction now"
        return ""

    def _why_not_by_scheduler(self, pod: NodePod) -> str:
        """Another scheduler may not ask the extender, and then places the pod where it is not aligned."""
        other = pod.workload.rules.scheduler
        is_same = self._workload is None or pod.is_rebuilt or other == self._workload.rules.scheduler
        return "" if is_same else f"they have another scheduler, {other}"

    def cheapest(
        self,
        subject: Subject,
        candidates: Sequence[victims.RunningPod],
        opens: Callable[[Subject], bool],
        *,
        most: int,
        chains: bool = False,
        is_worth: Callable[[Subject, Sequence[Subject]], bool] | None = None,
    ) -> Eviction | None:
        """The cheapest eviction after which *opens* is true of the node without the pods; None if none was found.

        *most*: pods in all. *chains*: pods of other nodes may be evicted as well, so that these find a place.
        *is_worth* gets the node without the pods, and the other nodes that change; other places are tried until it is
        True.
        """

        def works(pods: victims.PodSet) -> bool:
            if len(pods) > most or victims.count_violations(pods, self.allowances):
                return False
            self._spend()
            left = without(subject, [self._pods[pod.uid] for pod in pods], 1)
            self._is_worth = None if is_worth is None else partial(is_worth, left)
            return opens(left) and self._moves(subject, pods, most if chains else len(pods)) is not None

        try:
            if not chains:
                candidates = [
                    pod for pod in candidates if self._admitting_nodes(self._pods[pod.uid]).keys() - {subject.name}
                ]
            if not candidates:
                return None
            self.is_partial = self.is_partial or victims.largest_size(len(candidates)) < min(most, len(candidates))
            found = victims.cheapest_set(
                candidates, [*self._by_numa(subject, candidates), candidates], self.cost, works
            )
            homes = None if found is None else self._moves(subject, found, most if chains else len(found))
        except victims.OutOfReplaysError:
            return None
        if homes is None:
            return None
        moves, after = homes
        return Eviction(moves=moves, cost=self.cost([self._running_pod(move.pod) for move in moves]), after=after)

    def _spend(self) -> None:
        if self.trials_left <= 0 or self.is_late():
            raise victims.OutOfReplaysError
        self.trials_left -= 1

    def cost(self, pods: Sequence[victims.RunningPod]) -> victims.Cost:
        """What an eviction of these pods costs, to compare it with others; the rules of this file have the order."""
        known = [self._pods[pod.uid] for pod in pods]
        disliked = sum(pod.owner == "Job" or pod.prefers_no_eviction for pod in known)
        cpus = sum(pod.requests_milli.get("cpu", 0) for pod in known)
        priorities = sorted((pod.priority for pod in known), reverse=True)
        ages = sum(-(pod.started_at or 0) for pod in known)
        return victims.Cost(
            violations=0,
            size=len(pods),
            importance=((disliked, 0), *((priority, 0) for priority in priorities), (cpus, ages)),
            uids=tuple(sorted(pod.uid for pod in pods)),
        )

    def _running_pod(self, pod: NodePod) -> victims.RunningPod:
        known = self._running.get(pod.uid)
        if known is None:
            namespace = pod.workload.namespace
            known = self._running[pod.uid] = victims.RunningPod(
                uid=pod.uid,
                priority=pod.priority,
                started_at=pod.started_at,
                budgets=frozenset(b.key for b in self._budgets if b.limits(namespace, pod.labels)),
            )
        return known

    def is_kept_away(self, node: Subject, workload: PodWorkload) -> bool:
        """Whether a pod in a topology domain of the node has required anti-affinity to pods like this one."""
        labels = workload.pod.metadata.labels
        return any(
            term.selects(own, workload.namespace, labels)
            for key, found in self._away.items()
            if (value := _domain(node, key))
            for own, term in found.get(value, ())
        )

    def _admitting_nodes(self, pod: NodePod) -> Mapping[str, int]:
        """The nodes that admit a pod of this shape, by the judge, and how good each is for it. May raise, if late."""
        shape = PodShape(pod.workload.copy(FIRST_NUMBER))
        known = self._admitting.get(shape.pod.shape)
        if known is None:
            found = ((subject.name, self._merit(shape, subject.node_class)) for subject in self.subjects)
            known = self._admitting[shape.pod.shape] = {name: merit for name, merit in found if merit is not None}
        return known

    def _merit(self, shape: PodShape, node_class: NodeClass) -> int | None:
        key = shape.pod.shape, node_class
        if key not in self._passing:
            if self.is_late():
                raise victims.OutOfReplaysError
            judgement = self._judge(shape, node_class)
            self._passing[key] = None if judgement.refusal is not None else judgement.merit or 0
        return self._passing[key]

    def carried_out(self, eviction: Eviction) -> "Evictions":
        """The possible evictions after *eviction*. Pods that have moved stay where they are."""
        changed = {subject.name: subject for subject in eviction.after}
        for name in {move.source for move in eviction.moves} - changed.keys():
            gone = [move.pod for move in eviction.moves if move.source == name]
            changed[name] = without(next(s for s in self.subjects if s.name == name), gone, 1)
        after = copy.copy(self)
        after.subjects = [changed.get(subject.name, subject) for subject in self.subjects]
        after._admitting, after._homes = {}, {}  # noqa: SLF001 - of the same class
        after._moved = self._moved.union(move.pod.uid for move in eviction.moves)  # noqa: SLF001
        after._candidates = {n: c for n, c in self._candidates.items() if n not in changed}  # noqa: SLF001
        return after

    def _moves(self, subject: Subject, pods: victims.PodSet, most: int) -> _Homes | None:
        """A place for each of these pods, with at most *most* moves; None if none were found. May raise."""
        key = frozenset(pod.uid for pod in pods), most
        if key not in self._homes:
            wanted = [self._pods[pod.uid] for pod in pods]
            others = [other for other in self.subjects if other.name != subject.name]
            if most == len(pods):
                admitting = set[str]().union(*map(self._admitting_nodes, wanted))
                others = [other for other in others if other.name in admitting]
            self.is_partial = self.is_partial or len(others) > MAX_HOME_NODES
            self._homes[key] = self._with_helpers(others[:MAX_HOME_NODES], wanted, most - len(pods))
        return self._homes[key]

    def _with_helpers(self, others: Sequence[Subject], pods: Sequence[NodePod], more: int) -> _Homes | None:
        """Place the pods on *others*, from which up to *more* pods move as well."""
        nodes = {other.name: other for other in others}
        movable = [running for node in others for running in self.candidates(node)] if more > 0 else []
        largest_first = sorted(pods, key=lambda pod: (-pod.requests_milli.get("cpu", 0), pod.name))
        for count in range(more + 1):
            for helpers in sorted(combinations(movable, count), key=self.cost):
                chosen = [*(self._pods[running.uid] for running in helpers), *largest_first]
                if helpers and victims.count_violations([self._running_pod(pod) for pod in chosen], self.allowances):
                    continue
                for order in islice(permutations(chosen), MAX_ORDERS):
                    found = self._in_turn(nodes, order, ())
                    if found is not None:
                        return found
        return None

    def _in_turn(self, nodes: Mapping[str, Subject], pods: Sequence[NodePod], moves: tuple[Move, ...]) -> _Homes | None:
        """Move the pods in this order. A pod goes to no node that another pod still has to leave."""
        if not pods:
            changed = {name for move in moves for name in (move.source, move.node)}
            after = [node for name, node in nodes.items() if name in changed]
            return (moves, after) if self._is_worth is None or self._is_worth(after) else None
        pod, rest = pods[0], pods[1:]
        source = self._sources[pod.uid]
        cordoned = {source, *(self._sources[other.uid] for other in rest)}
        left = dict(nodes)
        if source in left:
            left[source] = without(left[source], [pod], 1)
        merits = self._admitting_nodes(pod)
        for name in sorted(nodes, key=lambda name: -merits.get(name, -1)):
            place = None if name in cordoned else self._place(nodes[name], pod)
            if place is None:
                continue
            left[name] = with_pod(nodes[name], place, pod)
            numa = 0 if place.alignment is None else place.alignment.numa
            found = self._in_turn(left, rest, (*moves, Move(pod, source, name, numa)))
            if found is not None:
                return found
            left[name] = nodes[name]
        return None

    def _place(self, node: Subject, pod: NodePod) -> CertainPlace | None:
        """Where the replacement of a pod would be on a node in this state, aligned if the pod holds something."""
        key = pod.uid, id(node)
        if key not in self._places:
            self._spend()
            place = place_of(node, PodShape(pod.workload.copy(FIRST_NUMBER + len(self._places))), pod.workload)
            holds = pod.uid in self._holding[self._sources[pod.uid]]
            alignment = None if place is None else place.alignment
            is_aligned = alignment is not None and alignment.alignment is Alignment.ALIGNED
            if (holds and not is_aligned) or self.is_kept_away(node, pod.workload):
                place = None
            self._places[key] = node, place
        return self._places[key][1]

    @staticmethod
    def _by_numa(subject: Subject, pods: Sequence[victims.RunningPod]) -> Iterator[list[victims.RunningPod]]:
        kubelet, state = subject.kubelet, subject.states[0]
        assert kubelet is not None
        places = {pod.uid: victims.numa_nodes_of(kubelet, state, pod.uid) for pod in pods}
        for numa in kubelet.machine.numa_ids:
            group = [pod for pod in pods if places[pod.uid] >> numa & 1]
            if group:
                yield group

    def why_kept(self) -> Counter[str]:
        """How many pods may not be evicted, by reason."""
        return Counter(reason for _, reason in self.kept.values())


def _domain(node: Subject, key: str) -> str:
    """The value of a topology key on a node; "" if it has none or its labels are not known."""
    return (node.around.labels or {}).get(key, node.name if key == HOST else "")
