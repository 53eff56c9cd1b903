"""Finds places for the pods of a group, each by its own shape, replayed on the state that the pods before it leave.

Rules of this file
- Pure, and fit for any thread. The judge is the one of filter.
- A node's row has the pods that it gets, in the order in which its kubelet must get them. If it refuses one more pod,
  other orders are tried: at most `MAX_ORDERS` of them.
- Large pods are placed first, each pod on the node that is best for it. For pods of one shape this finds places for all
  of them if there are any, because how many fit on a node does not depend on the other nodes. If pods of different
  shapes do not all get a place, and each shape by itself does, other nodes are tried for them, in a fixed order.
- Bounded: this search ends after `MAX_STEPS` tries. Everything that a plan does takes steps of one budget: nodes that
  are tried as well as replays. When it is used up, what was not tried counts as refused.
- A place counts only if the node admits the pod in every state that the node can be in. If no state of a node is known,
  it gets one place: filter would offer it to one pod. A node's totals limit the places as well, as far as they are
  known.
"""

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, permutations
from typing import Final

from extender.cluster.node_class import NodeClass
from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.errors import BudgetError
from extender.kubelet.verdict import Certainty
from extender.questions.dra import NO_DEVICES
from extender.questions.dra_rows import RowsWithDevices
from extender.scheduling.fit_together import TOTALS, States, admitted, judged_after
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement
from extender.scheduling.node_totals import exceeds, pod_requests
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.reasons import RefusalReason

MAX_STEPS: Final = 2_000
"""Limit of the search of other nodes: replays, and nodes tried for a pod, are a step each."""
MAX_ORDERS: Final = 24
MAX_ROW: Final = 8
"""The longest row, in pods, whose order is searched. Longer rows keep their order."""
MAX_SEARCHED: Final = 256
"""The most pods for which other nodes are searched."""
STEPS_OF_A_TRY: Final = 10
"""Steps to try a node for a pod, beside one step for each pod that has its place there."""
ONE_A_NODE: Final = "another pod of the group has its place on the node"
_CERTAIN: Final = frozenset({Certainty.EXACT, Certainty.ASSUMED})
_LAST: Final = 1 << 60
Row = tuple[int, ...]
"""The kinds of the pods with places on a node, in the order of their admission."""


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods of one shape. `is_alone`: each needs a node without another one of them."""

    shape: PodShape
    is_alone: bool = False

    @property
    def size(self) -> tuple[float, ...]:
        """To place large pods first: extended resources, then CPUs, then the rest."""
        requests = pod_requests(self.shape.pod, {})
        extended = sum(amount for name, amount in requests.items() if "/" in name)
        return extended, requests.get("cpu", 0), requests.get("memory", 0)


@dataclass(slots=True, kw_only=True)
class PlannedNode:
    """A node with the places planned so far.

    `fixed`: the row before the plan. `row`: with the places of the plan. `left_milli`: what is left of the node's
    totals without them; None: not known. `merits`: of a first place, by kind; a kind without a merit gets no place
    here. `judged`: the kinds of which the node is known to admit one pod.
    """

    name: str
    node_class: NodeClass
    left_milli: Mapping[str, int] | None = None
    fixed: Row = ()
    row: Row = ()
    merits: dict[int, int] = field(default_factory=dict)
    judged: set[int] = field(default_factory=set)

    @property
    def signature(self) -> tuple[object, ...]:
        """Nodes with equal signatures are equally good for every further pod."""
        left = None if self.left_milli is None else tuple(sorted(self.left_milli.items()))
        return self.node_class.id, left, self.row, tuple(sorted(self.merits))


@dataclass(slots=True, kw_only=True)
class GangPlan:
    """Places for `wanted` pods, by number of the kind, besides those in the rows of `nodes`.

    `places`: node and kind of each place, in the order in which they were found. `short`: a kind with too few places,
    -1 if there is none. `why`: how many nodes refuse one more pod of this kind, by reason. `steps`: taken so far.
    """

    judge: BoundedJudge
    kinds: Sequence[PodKind]
    wanted: Mapping[int, int]
    devices: RowsWithDevices = field(default_factory=RowsWithDevices)
    nodes: dict[str, PlannedNode] = field(default_factory=dict)
    places: list[tuple[str, int]] = field(default_factory=list)
    why: Counter[str] = field(default_factory=Counter)
    short: int = -1
    steps: int = 0
    _budget: Budget = UNLIMITED
    _known: dict[tuple[object, ...], tuple[str, States]] = field(default_factory=dict)
    _merits: dict[tuple[int, Row, int], int] = field(default_factory=dict)
    _requests: dict[int, Mapping[str, int]] = field(default_factory=dict)

    @property
    def is_found(self) -> bool:
        """Whether there is a place for each pod."""
        return len(self.places) >= sum(self.wanted.values())

    @property
    def _large_first(self) -> list[int]:
        return sorted(self.wanted, key=lambda kind: (self.kinds[kind].size, -kind), reverse=True)

    def keeps(self, budget: Budget) -> bool:
        """Whether the pods that the nodes have before the plan still fit. False as well if the budget is used up."""
        self._budget = budget
        try:
            return not any(self._refusal(node, node.fixed) for node in self.nodes.values() if node.fixed)
        except BudgetError:
            return False

    def run(self, budget: Budget, *, is_last: bool) -> None:
        """Look for places on the nodes, from the beginning. *is_last*: no further nodes follow.

        If the budget is used up, there may be more places than those found.
        """
        self._budget = budget
        self.places, self.why, self.short = [], Counter(), -1
        self._clear()
        with suppress(BudgetError):
            for kind in self._large_first:
                found, why = self._spread(kind, self.wanted[kind])
                self.places += [(name, kind) for name in found]
                if len(found) < self.wanted[kind] and self.short < 0:
                    self.short, self.why = kind, why
        if not self.is_found and is_last and len(self.wanted) > 1 and sum(self.wanted.values()) <= MAX_SEARCHED:
            rows = {name: node.row for name, node in self.nodes.items()}
            with suppress(BudgetError):
                if self._search():
                    return
            for name, row in rows.items():
                self.nodes[name].row = row

    def _clear(self) -> None:
        for node in self.nodes.values():
            node.row = node.fixed

    def _spread(self, kind: int, count: int) -> tuple[list[str], Counter[str]]:
        """Places for pods of one kind, the next one always on the node that is best for it."""
        found: list[str] = []
        why: Counter[str] = Counter()
        nodes = [node for node in self.nodes.values() if kind in node.merits]
        heap = [(-node.merits[kind], bool(node.row), number) for number, node in enumerate(nodes)]
        heapq.heapify(heap)  # minus the merit, whether it is that of an earlier row, number of the node
        while heap and len(found) < count:
            merit, is_old, number = heapq.heappop(heap)
            node = nodes[number]
            if is_old:  # usually it is less now
                heapq.heappush(heap, (-self._merit(node, kind), False, number))
                continue
            refusal, row = self.row_with(node, kind)
            if refusal:
                why[refusal] += 1
                continue
            node.row = row
            found.append(node.name)
            heapq.heappush(heap, (merit, True, number))
        return found, why

    def _search(self) -> bool:
        """Places for all pods, by trying every node for every pod. False: there are none, or the steps did not suffice.

        If one kind by itself has too few places, there are none.
        """
        for kind in self._large_first:
            self._clear()
            found, why = self._spread(kind, self.wanted[kind])
            if len(found) < self.wanted[kind]:
                self.short, self.why = kind, why
                return False
        self._clear()
        pods = [kind for kind in self._large_first for _ in range(self.wanted[kind])]
        nodes = sorted(self.nodes.values(), key=lambda node: (-max(node.merits.values(), default=0), node.name))
        search = _TriedPlaces(self, pods, nodes, self.steps + MAX_STEPS)
        if not search.place(0, 0):
            return False
        self.places = search.chosen
        return True

    def row_with(self, node: PlannedNode, kind: int) -> tuple[str, Row]:
        """Why the node has no room for one more pod of the kind, "" if it has, and its row then."""
        self._budget.spend(STEPS_OF_A_TRY + len(node.row))
        if kind in node.row and self.kinds[kind].is_alone:
            return ONE_A_NODE, node.row
        if node.left_milli is not None and self._exceeds(node.left_milli, (*node.row, kind)):
            return TOTALS, node.row
        row = (*node.row, kind)
        refusal = self._step(node, row)
        if refusal and len(row) <= MAX_ROW and len(set(row)) > 1:
            for other in islice(dict.fromkeys(permutations(sorted(row))), MAX_ORDERS):
                if other != row and not self._refusal(node, other):
                    return "", other
        return refusal, row if not refusal else node.row

    def _exceeds(self, left_milli: Mapping[str, int], row: Row) -> bool:
        wanted: Counter[str] = Counter()
        for kind in row:
            if kind not in self._requests:
                self._requests[kind] = pod_requests(self.kinds[kind].shape.pod, {})
            wanted.update(self._requests[kind])
        return exceeds(wanted, left_milli, ())

    def _refusal(self, node: PlannedNode, row: Row) -> str:
        """Why the node does not admit all pods of the row; "" if it does."""
        refusals = (self._step(node, row[:length]) for length in range(1, len(row) + 1))
        return next(filter(None, refusals), "")

    def _step(self, node: PlannedNode, row: Row) -> str:
        """Why the node does not admit the last pod of the row, "" if it does. The pods before it fit."""
        self._budget.spend(len(row))
        node_class, pods = node.node_class, self._with_devices(node, row)
        if pods is None:
            return NO_DEVICES
        if node_class.kubelet is None or not node_class.states:
            return "" if len(row) == 1 else RefusalReason.UNKNOWN.text
        if len(row) == 1 and row[0] in node.judged and not pods[0].pod.claimed:
            return ""
        return self._replayed(node, row, pods)[0]

    def _with_devices(self, node: PlannedNode, row: Row) -> Sequence[PodShape] | None:
        return self.devices.given(node.name, (self.kinds[kind].shape for kind in row), self._budget)

    def _replayed(self, node: PlannedNode, row: Row, pods: Sequence[PodShape]) -> tuple[str, States]:
        """As `_step`, and the states afterwards; computed once for nodes of a class. *pods*: the row with devices."""
        key = node.node_class.id, row, tuple(tuple(each.pod.claimed.items()) for each in pods)
        found = self._known.get(key)
        if found is None:
            self.steps += 1
            states, node_class, shape = self._states(node, row[:-1]), node.node_class, pods[-1]
            is_judged = len(row) == 1 and row[0] in node.judged and not shape.pod.claimed
            found = RefusalReason.CHANCE.text, ()
            if states:
                found = admitted(self.judge, shape, len(row), node_class, states, self._budget, is_judged=is_judged)
            self._budget.spend(0)  # a replay that has used it up says nothing
            self._known[key] = found
        return found

    def _states(self, node: PlannedNode, row: Row) -> States:
        """The states after a row; none if it does not fit."""
        if not row:
            return node.node_class.states
        pods = self._with_devices(node, row)
        return self._replayed(node, row, pods)[1] if pods else ()

    def _merit(self, node: PlannedNode, kind: int) -> int:
        """The merit of one more place on the node, computed once for all nodes of a class with this row."""
        if not node.row:
            return node.merits[kind]
        key = node.node_class.id, node.row, kind
        found = self._merits.get(key)
        if found is None:
            states, shape = self._states(node, node.row), self.kinds[kind].shape
            after = judged_after(self.judge, shape, node.node_class, states, self._budget) if states else None
            self._budget.spend(0)  # as above
            found = self._merits[key] = -_LAST if after is None else merit_of(after)
        return found


@dataclass(slots=True)
class _TriedPlaces:
    """Tries every node for every pod of *pods*; `chosen` has the places in the end. *last_step*: it gives up there."""

    plan: GangPlan
    pods: Sequence[int]
    nodes: Sequence[PlannedNode]
    last_step: int
    chosen: list[tuple[str, int]] = field(default_factory=list)
    _alike: dict[tuple[object, ...], int] = field(default_factory=dict)
    _kinds_of: list[int] = field(default_factory=list)
    _used: dict[int, Row] = field(default_factory=dict)
    _failed: set[tuple[object, ...]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Number the nodes so that those that are equally good for every pod have the same number."""
        self._kinds_of = [self._alike.setdefault(node.signature, len(self._alike)) for node in self.nodes]

    def place(self, number: int, first: int) -> bool:
        """Place the pods from *number* on. Pods of one kind go to nodes in their order, from *first* on."""
        if number == len(self.pods):
            return True
        state = number, first, frozenset(Counter((self._kinds_of[at], row) for at, row in self._used.items()).items())
        if state in self._failed:
            return False
        kind, tried = self.pods[number], set[tuple[int, Row]]()
        for at in range(first, len(self.nodes)):
            node = self.nodes[at]
            like = self._kinds_of[at], node.row
            if kind not in node.merits or like in tried:
                continue
            tried.add(like)
            self.plan.steps += 1
            if self.plan.steps > self.last_step:
                return False
            refusal, row = self.plan.row_with(node, kind)
            if not refusal and self._go_on(number, at, row):
                return True
        self._failed.add(state)
        return False

    def _go_on(self, number: int, at: int, row: Row) -> bool:
        node, kind = self.nodes[at], self.pods[number]
        earlier, was_used = node.row, at in self._used
        node.row = self._used[at] = row
        self.chosen.append((node.name, kind))
        if self.place(number + 1, at if self.pods[number + 1 : number + 2] == [kind] else 0):
            return True
        self.chosen.pop()
        node.row = earlier
        if was_used:
            self._used[at] = earlier
        else:
            del self._used[at]
        return False


def merit_of(judgement: Judgement) -> int:
    """How good the node is for the pod; more is better.

    A node comes last if it is not certain, or would split a pod that prefers one NUMA node.
    """
    is_good = judgement.merit is not None and not judgement.misses and judgement.certainty in _CERTAIN
    return (judgement.merit or 0) - (0 if is_good else _LAST)
