"""Plans where the pods of a group are placed. Each pod is replayed on the state that the pods before it leave.

Rules of this file
- Pure, and fit for any thread. The judge is the one of filter.
- Pods of one shape are placed on the node that is best for the next one. How many fit on a node does not depend on the
  other nodes, so this finds places for all of them if there are any.
- A place counts only if the node admits the pod in every state that it can be in. If no state of a node is known, it
  gets one place: filter would offer it to one pod.
- A node's totals limit the places as well, as far as they are known.
- Bounded: a plan ends when its time is over. The places found by then are valid.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Final

from extender.cluster.node_class import NodeClass
from extender.replay.admission import start_pod
from extender.replay.branches import admit_in_all
from extender.replay.budget import Budget
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted, Certainty
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.preemption.nominated import HYPOTHETICAL
from extender.scheduling.preemption.plan import numa_nodes_of
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.totals import exceeds, pod_requests

MAX_REPLAYS: Final = 16
"""The most replays for one place. Random choices of devices multiply them."""
TOTALS: Final = "the totals of the node are too small"
MAX_EXITS: Final = 512
"""How many admissions are replayed to find out whether the end of another pod matters."""
_CERTAIN: Final = frozenset({Certainty.EXACT, Certainty.ASSUMED})
_LAST: Final = 1 << 60
_UID: Final = "\0place:"
"""Begins the UIDs of pods that have not come yet. No API server assigns such a UID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A node. `held`: the pods for which places are held on it, in the order in which it would admit them.

    `left_milli`: what its totals leave, without what is held; None if that is not known. `merit`: of the first place.
    `is_judged`: the node is known to admit one pod.
    """

    name: str
    node_class: NodeClass
    held: Sequence[PodShape] = ()
    left_milli: Mapping[str, int] | None = None
    merit: int = 0
    is_judged: bool = False


@dataclass(slots=True)
class PlannedNode:
    """A node in the state after the places planned so far. `states`: empty if they are not known.

    `left_milli`: as of `Candidate`, without the places. `is_judged`: it is known that the node admits one more pod of
    the planned shape. `is_pending`: the last place is not in `states` yet, because nothing was placed after it.
    """

    node_class: NodeClass
    states: tuple[ManagerState, ...]
    left_milli: dict[str, int] | None
    places: int = 0
    is_judged: bool = False
    is_pending: bool = False

    @classmethod
    def of(cls, candidate: Candidate) -> "PlannedNode":
        """The node before the first place."""
        left = None if candidate.left_milli is None else dict(candidate.left_milli)
        return cls(candidate.node_class, candidate.node_class.states, left)

    def judged(self, judge: BoundedJudge, shape: PodShape, budget: Budget | None) -> Judgement:
        """The judgement of one more pod of the shape."""
        possible = replace(self.node_class.possible, states=self.states)
        return judge(shape, replace(self.node_class, id=HYPOTHETICAL, possible=possible), budget)


States = tuple[ManagerState, ...]


def take(judge: BoundedJudge, shape: PodShape, uid: str, node: PlannedNode, budget: Budget | None = None) -> str:
    """Place a pod of the shape on the node; *uid*: in its states. Returns why that is not possible, "" if it is.

    *budget*: limits the replays; None: as for one admission. If it is used up, the result says nothing.
    """
    return _take(shape, node, lambda: _admitted(judge, shape, uid, node, budget))


def _take(shape: PodShape, node: PlannedNode, admitted: Callable[[], tuple[str, States]]) -> str:
    """As `take`. *admitted*: see `_admitted`."""
    left = node.left_milli
    wanted = {} if left is None else pod_requests(shape.pod, {})
    if left is not None and exceeds(wanted, left, ()):
        return TOTALS
    if node.node_class.kubelet is not None and node.states:
        refusal, states = admitted()
        if refusal:
            return refusal
        node.states = states
    elif node.places:
        return RefusalReason.UNKNOWN.text
    node.places, node.is_judged = node.places + 1, False
    if left is not None:
        left.update({name: left[name] - amount for name, amount in wanted.items() if name in left})
    return ""


def _admitted(
    judge: BoundedJudge, shape: PodShape, uid: str, node: PlannedNode, budget: Budget | None
) -> tuple[str, States]:
    """Why the node does not admit one more pod, "" if it does, and its states then."""
    kubelet = node.node_class.kubelet
    assert kubelet is not None  # `_take` has looked
    if not node.is_judged and (refusal := node.judged(judge, shape, budget).refusal) is not None:
        return refusal.text, ()
    request = replace(shape.request(kubelet.rules), uid=uid)
    outcomes = admit_in_all(kubelet, node.states, request, max_replays=MAX_REPLAYS, budget=budget)
    if not all(isinstance(each.verdict, Admitted) for each in outcomes) or not outcomes[0].complete:
        return RefusalReason.CHANCE.text, ()
    return "", tuple({(s := start_pod(o.state, request)).key: s for o in outcomes}.values())


def takes_room(
    judge: BoundedJudge,
    pods: Sequence[PodShape],
    held: Sequence[PodShape],
    candidate: Candidate,
    budget: Budget | None = None,
) -> bool:
    """Whether the held places fit on the node now, and no longer after *pods*."""

    def fits(shapes: Sequence[PodShape]) -> bool:
        node = PlannedNode.of(candidate)
        return not any(take(judge, each, f"{_UID}{i}", node, budget) for i, each in enumerate(shapes))

    return fits(held) and not fits([*pods, *held])


def outlast_exits(
    judge: BoundedJudge, places: Sequence[tuple[Candidate, Sequence[PodShape]]], budget: Budget | None = None
) -> bool:
    """Whether the pods, which fit on their nodes, also fit if any single other pod of the node has ended.

    More free resources can turn an admission into a refusal: see `extender.cluster.sudden_exit`. After `MAX_EXITS`
    admissions what was not replayed counts as harmless.
    """
    left = MAX_EXITS
    for candidate, pods in places:
        possible = candidate.node_class.possible
        for uid in sorted({uid for state in possible.states for uid in state.pod_uids}):
            left -= len(pods)
            if left < 0:
                return True
            node = PlannedNode.of(candidate)
            node.states = possible.release((uid,)).states
            if any(take(judge, each, f"{_UID}{i}", node, budget) for i, each in enumerate(pods)):
                return False
    return True


def numa_nodes_of_places(
    judge: BoundedJudge, pods: Sequence[PodShape], candidate: Candidate, budget: Budget | None = None
) -> list[int]:
    """The NUMA nodes of each pod, as raw bits, if the node admits the pods in this order. 0: none, or not known."""
    node, kubelet, found = PlannedNode.of(candidate), candidate.node_class.kubelet, []
    for i, shape in enumerate(pods):
        uid = f"{_UID}{i}"
        refusal = take(judge, shape, uid, node, budget)
        masks = set() if refusal or kubelet is None else {numa_nodes_of(kubelet, state, uid) for state in node.states}
        found.append(masks.pop() if len(masks) == 1 else 0)
    return found


@dataclass(slots=True, kw_only=True)
class GangPlan:
    """Places for `wanted` pods of one shape. `run` can be called again with further nodes.

    `nodes`: the node of each place found. `why`: how many nodes refuse one more, by reason. `known`: the results of
    `_admitted`, and `merits`: the merits of one more place; both by class id and number of places on the node. Nodes on
    which other groups have places do not use them.
    """

    judge: BoundedJudge
    shape: PodShape
    wanted: int
    one_a_node: bool
    out_of_time: Callable[[], bool]
    nodes: list[str] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)
    known: dict[tuple[int, int], tuple[str, States]] = field(default_factory=dict)
    merits: dict[tuple[int, int], int] = field(default_factory=dict)

    @property
    def is_found(self) -> bool:
        """Whether there is a place for each pod."""
        return len(self.nodes) >= self.wanted

    def run(self, candidates: Sequence[Candidate], budget: Budget | None = None) -> "GangPlan":
        """The plan with the missing places looked for on these nodes, which were judged for the shape."""
        plan = replace(self, nodes=[*self.nodes], why=self.why.copy())
        plan._look(candidates, budget)  # noqa: SLF001 - of the same class
        return plan

    def _look(self, candidates: Sequence[Candidate], budget: Budget | None) -> None:
        """Find the missing places on these nodes: the next one always on the node that is best for it."""
        planned = []
        heap = []  # (minus the merit, whether it is that of the place before, number of the candidate)
        for number, candidate in enumerate(candidates):
            node = PlannedNode.of(candidate)
            for i, shape in enumerate(candidate.held):  # what is held and no longer fits is not in the way
                take(self.judge, shape, f"{_UID}held:{i}", node, budget)
            node.places, node.is_judged = 0, candidate.is_judged and not candidate.held
            planned.append(node)
            heap.append((-candidate.merit, False, number))
        heapq.heapify(heap)
        while heap and not self.is_found and not self.out_of_time():
            merit, is_old, number = heapq.heappop(heap)
            node, has_others = planned[number], bool(candidates[number].held)
            if is_old:  # usually it is less now
                heapq.heappush(heap, (-self._merit(node, budget, has_others=has_others), False, number))
                continue
            refusal = _take(self.shape, node, partial(self._after, node, budget, has_others=has_others))
            if not refusal and self._is_in_the_way(candidates[number], node.places, budget):
                refusal = RefusalReason.HELD.text
            if refusal:
                self.why[refusal] += 1
                continue
            self.nodes.append(candidates[number].name)
            if not self.one_a_node:
                heapq.heappush(heap, (merit, True, number))

    def _is_in_the_way(self, candidate: Candidate, places: int, budget: Budget | None) -> bool:
        """Whether what is held on the node would not fit after the planned pods: which are bound first is not known."""
        held = candidate.held
        return bool(held) and takes_room(self.judge, [self.shape] * places, held, candidate, budget)

    def _after(self, node: PlannedNode, budget: Budget | None, *, has_others: bool) -> tuple[str, States]:
        """What follows one more place. A first place on a judged node is replayed when a second one is looked for."""
        if node.is_judged and not node.is_pending:
            node.is_pending = True
            return "", node.states
        self._settle(node, budget, has_others=has_others)
        return self._replayed(node, budget, has_others=has_others) if node.states else (RefusalReason.CHANCE.text, ())

    def _settle(self, node: PlannedNode, budget: Budget | None, *, has_others: bool) -> None:
        """Bring the states of a node up to date that has one place."""
        if node.is_pending:
            node.places, node.is_judged, node.is_pending = 0, True, False
            _, node.states = self._replayed(node, budget, has_others=has_others)
            node.places, node.is_judged = 1, False

    def _replayed(self, node: PlannedNode, budget: Budget | None, *, has_others: bool) -> tuple[str, States]:
        """As `_admitted`, computed once for all nodes of a class with as many places."""
        key = node.node_class.id, node.places
        found = None if has_others else self.known.get(key)
        if found is None:
            found = _admitted(self.judge, self.shape, f"{_UID}{node.places}", node, budget)
            if not has_others and not (budget and budget.is_used_up):
                self.known[key] = found
        return found

    def _merit(self, node: PlannedNode, budget: Budget | None, *, has_others: bool) -> int:
        """The merit of one more place on the node, computed once for all nodes of a class with as many places."""
        self._settle(node, budget, has_others=has_others)
        key = node.node_class.id, node.places
        found = None if has_others else self.merits.get(key)
        if found is None:
            found = merit_of(node.judged(self.judge, self.shape, budget)) if node.states else -_LAST
            if not has_others and not (budget and budget.is_used_up):
                self.merits[key] = found
        return found


def merit_of(judgement: Judgement) -> int:
    """How good the node is for the pod; more is better.

    A node comes last if it is not certain, or would split a pod that prefers one NUMA node.
    """
    is_good = judgement.merit is not None and not judgement.misses and judgement.certainty in _CERTAIN
    return (judgement.merit or 0) - (0 if is_good else _LAST)
