"""Which devices kube-scheduler will allocate to the claims of a pod on each node: its search, on what the watches show.

Rules of this file
- Nothing is predicted while a list is incomplete, where it is not known what a pod asks for (`asks`), and beyond
  `MAX_STEPS`. No claim is searched for whose search ended so on `MAX_UNKNOWN` nodes.
- Pods that passed filter, and whose claims are not written yet, are in flight: kube-scheduler may have allocated
  to them what was predicted on any of their nodes, or nothing. Devices that were just released may be held for
  kube-scheduler, which looked before. So a node has an answer for each possible *case* of what is held besides.
  Where that would be too many, they are counted on no node, and the answers are not certain (`is_open`).
- What a node's answers are made of has a version (`objects`). Answers are kept as long as it is the same.
- The event loop makes a `CallForecast`, and one thread uses it. Several threads use what is kept of a node.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from extender.bounded import BoundedMap
from extender.dra.objects import DraNode, ResourceClaim
from extender.dra.replay import UNKNOWN
from extender.features.claims.asks import PodAsk, PodAsks, search
from extender.features.claims.objects import ClaimObjects, Version
from extender.features.claims.outcomes import Answer, Case, answer_of, can_both_be, devices_with, text_of
from extender.questions.node_context import DynamicDevice, LookUp

MAX_UNKNOWN: Final = 32
MAX_SEARCHED: Final = 10_000
"""Nodes of a call that are searched, and whose answers are kept."""
MAX_NEAR: Final = 64
"""Nodes of a pod in flight. If it can be on more of them, it is counted on none, and they are open."""
MAX_CASES: Final = 8
"""Of one node in one call. If there are more, nothing in flight is counted, and the node is open."""
MAX_COLUMNS: Final = 16
"""For how many pod shapes the judgements of all nodes are kept."""
MAX_KEPT: Final = 64
"""Answers and judgements of one node that are kept."""
MAX_REMEMBERED: Final = 1000
T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
_NO_LABELS: Final[Mapping[str, str]] = {}
_ALONE: Final[Sequence[Case]] = ((),)


@dataclass(slots=True)
class NodeForecast:
    """What is kept of a node, as long as its version and labels are the same. `devices`: all that drivers publish."""

    version: Version
    node: DraNode
    devices: Sequence[DynamicDevice]
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    judged: dict[object, Any] = field(default_factory=dict)


Entry: TypeAlias = tuple[int, Any, NodeForecast, PodAsk | None]
"""What was judged of a node: the id of its class, the result, what was known, and what was asked for."""


class SearchLimits(NamedTuple):
    """`look_up`: says the labels of nodes. `out_of_time`: whether no further node can be searched."""

    look_up: LookUp
    out_of_time: Callable[[], bool]


class NodeJudge(NamedTuple, Generic[T, R]):
    """What is asked about nodes. `about`: its name; its results are kept by it, and the node's class.

    `of_devices`: says something of the node at a position with these devices. `merge`: makes one result of those of
    each possible allocation, for each case of what is in flight, the likeliest case first. A case in which
    kube-scheduler allocates nothing there has none.
    """

    about: str
    of_devices: Callable[[int, Sequence[DynamicDevice]], T]
    merge: Callable[[Sequence[Sequence[T]]], R | None]


class KeptForecasts:
    """What is kept of nodes for later calls. `unknown`: on how many nodes the search for what is asked was given up."""

    def __init__(self, objects: ClaimObjects) -> None:
        self.objects: Final = objects
        self.nodes: Final[BoundedMap[str, NodeForecast]] = BoundedMap(MAX_SEARCHED)
        self.unknown: Final[BoundedMap[str, int]] = BoundedMap(MAX_REMEMBERED)
        self._columns: BoundedMap[object, tuple[int, dict[str, Entry]]] = BoundedMap(MAX_COLUMNS)

    def column(self, subject: object) -> dict[str, Entry]:
        """What is kept of nodes that have not changed since."""
        stamp, found = self._columns.pop(subject, (0, {}))
        now, changed = self.objects.changes_since(stamp)
        if changed is None or self.objects.selecting or len(found) > MAX_SEARCHED:
            found = {}
        for name in changed or ():
            found.pop(name, None)
        self._columns[subject] = now, found
        return found


class Other(NamedTuple):
    """What may be held on each of *nodes*: what was predicted in a call, or else *devices*."""

    nodes: Collection[str]
    call: "CallForecast | None"
    devices: Case = ()

    def cases_on(self, node_name: str) -> Sequence[Case] | None:
        """What it may hold on a node, if it holds something; None: not known."""
        if node_name not in self.nodes:
            return ()
        if self.call is None:
            return [self.devices]
        predicted = None if self.call.is_open(node_name) else self.call.predicted(node_name)
        return [tuple(chain.from_iterable(given)) for given in predicted] if predicted else None


class CallForecast:
    """The prediction for one pod. `is_alone`: whether nothing was in flight. *others*: what was.

    *subject*: a number of the pod; see `judged`.
    """

    def __init__(self, kept: KeptForecasts, asks: PodAsks, others: Sequence[Other], subject: int) -> None:
        self.asks: Final = asks
        self.is_alone: Final = not others
        self.is_crowded = False
        """Whether more may be in flight than *others*."""
        self._began = kept.objects.stamp
        self._kept, self._subject = kept, subject
        self._spread: Sequence[Other] = [each for each in others if len(each.nodes) > MAX_NEAR]
        self._near: dict[str, list[Other]] = {}
        for each in others:
            for name in each.nodes if len(each.nodes) <= MAX_NEAR else ():
                self._near.setdefault(name, []).append(each)
        self._cases: dict[str, Sequence[Case]] = {}
        self._open: set[str] = set()
        self._names: Sequence[str] = ()
        self._entries: list[Entry | None] = []
        self._positions: Mapping[str, int] | None = None

    def finish(self) -> None:
        """Nothing is asked about further nodes. What was in flight is no longer referred to.

        Where devices were released during the call, the search may have seen that, and the cases have not.
        """
        _, changed = self._kept.objects.changes_since(self._began)
        self.is_crowded |= bool(self._spread) or changed is None
        self._open.update(changed or ())
        self._near, self._spread = {}, ()

    def open_of(self, names: Collection[str]) -> Collection[str]:
        """The nodes of these on which something else can be in flight than what was counted."""
        return names if self.is_crowded else {*names} & self._open.union(*(each.nodes for each in self._spread))

    def is_open(self, name: str) -> bool:
        """Whether more can be in flight on the node than was counted."""
        return bool(self.open_of((name,)))

    def judged(
        self, names: Sequence[str], class_ids: Sequence[int], judge: NodeJudge[T, R], limits: SearchLimits
    ) -> list[R | None]:
        """What *judge* says of each node. None as well if it is not known what the pod gets there.

        It is kept for all pods that differ only in names.
        """
        column, near = dict[str, Entry](), self._near
        if not self.asks.depends_on_node:
            column = self._kept.column((self._subject, judge.about))
        entries = list(map(column.get, names))
        pairs = enumerate(zip(entries, class_ids, strict=True))
        todo = [i for i, (entry, class_id) in pairs if entry is None or entry[0] != class_id]
        if near:
            todo += [i for i, name in enumerate(names) if name in near]
        for i in dict.fromkeys(todo):
            if limits.out_of_time():
                entries[i] = None
                continue
            name, known = names[i], self._node(names[i], limits.look_up)
            ask = self.asks.on(limits.look_up(names[i]).allocatable_milli if self.asks.depends_on_node else None)
            cases = self._cases[name] = self._cases_on(name) if name in near else _ALONE
            said = None if ask is None else self._judged(known, ask, cases, judge, i, class_ids[i])
            entry = class_ids[i], said, known, ask
            entries[i] = entry
            if name not in near:
                column[name] = entry
        self._names, self._entries, self._positions = names, entries, None
        return [None if each is None else each[1] for each in entries]

    def _judged(
        self,
        known: NodeForecast,
        ask: PodAsk,
        cases: Sequence[Case],
        judge: NodeJudge[T, R],
        position: int,
        class_id: int,
    ) -> R | None:
        found: list[Sequence[T]] = []
        for case in cases:
            key = self._subject, ask.key, judge.about, class_id, text_of(case)
            said = _known_or_made(known.judged, key, partial(self._said, known, ask, case, judge, position))
            if said is None:
                return None
            found.append(said)
        return judge.merge(found)

    def _said(
        self, known: NodeForecast, ask: PodAsk, case: Case, judge: NodeJudge[T, R], position: int
    ) -> list[T] | None:
        """What *judge* says of each possible allocation; None: they are not known, or have devices of other nodes."""
        answer = _known_or_made(known.answers, (ask.key, text_of(case)), partial(self._search, known, ask, case))
        lists = [devices_with(known.devices, ask.claims, given) for given in answer or ()]
        is_known = answer is not None and None not in lists
        return [judge.of_devices(position, each) for each in lists if each is not None] if is_known else None

    def predicted(self, name: str) -> Answer:
        """What was found for the node in the last call; None as well if nothing was asked about it.

        Empty: there are no devices. If kube-scheduler offers the node nevertheless, it knows more.
        """
        entry = self._entry(name)
        if entry is None or (ask := entry[3]) is None:
            return None
        answers = [entry[2].answers.get((ask.key, text_of(case))) for case in self._cases.get(name, _ALONE)]
        return None if None in answers else [given for each in answers for given in each or ()]

    def asked_on(self, name: str) -> PodAsk | None:
        """What was asked for on the node in the last call. The names can be those of claims that ask for the same."""
        entry = self._entry(name)
        return None if entry is None else entry[3]

    def _entry(self, name: str) -> Entry | None:
        if self._positions is None:
            self._positions = {each: i for i, each in enumerate(self._names)}
        position = self._positions.get(name)
        return None if position is None else self._entries[position]

    def _node(self, name: str, look_up: LookUp) -> NodeForecast:
        objects, kept = self._kept.objects, self._kept.nodes
        version, known = objects.version(name), kept.get(name)
        node = DraNode(name, (look_up(name).labels or _NO_LABELS) if objects.selecting else _NO_LABELS)
        if known is None or known.version != version or known.node != node:
            known = kept[name] = NodeForecast(version, node, objects.devices_on(name))
        return known

    def _cases_on(self, name: str) -> Sequence[Case]:
        """What may be held on the node, the likeliest first. If that is too much or not known, the node is open.

        A pod that can be on several nodes is likely to be on another one. Released devices are likely to be free.
        """
        cases: dict[str, Case] = {"": ()}
        likely: Case = ()
        for other in self._near[name]:
            further = other.cases_on(name)
            if further and other.call is not None and len(other.nodes) == 1 and can_both_be(likely, further[0]):
                likely = (*likely, *further[0])
            if further is not None:
                found = [(*case, *each) for case in cases.values() for each in further if can_both_be(case, each)]
                cases |= {text_of(case): case for case in found}
            if further is None or len(cases) > MAX_CASES:
                self._open.add(name)
                return _ALONE
        return list({text_of(likely): likely, **cases}.values())

    def _search(self, known: NodeForecast, ask: PodAsk, case: Case) -> Answer:
        objects, unknown, key = self._kept.objects, self._kept.unknown, ask.key
        holders, in_flight = objects.holders_on(known.node), ResourceClaim("", (), allocated=case)
        if holders is None or unknown.get(key, 0) > MAX_UNKNOWN:
            return None
        holders = [*holders, in_flight] if case else holders
        answers = search(ask, known.node, objects.index(), objects.classes, holders, objects.rules)
        if answers[0].verdict == UNKNOWN:
            unknown[key] = unknown.get(key, 0) + 1
        return answer_of(answers)


def _known_or_made(found: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """What *found* has under *key*, or else what *make* returns. Other threads may empty *found* meanwhile."""
    try:
        return found[key]
    except KeyError:
        value = make()
    if len(found) >= MAX_KEPT:
        found.clear()
    found[key] = value
    return value
