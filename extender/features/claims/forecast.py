"""Which devices kube-scheduler will allocate to the claims of a pod on each node: its search, on what the watches show.

Rules of this file
- Nothing is predicted while a list is incomplete, for a pod some of whose claims do not exist or cannot be read, and
  beyond `MAX_STEPS` and `MAX_ASKED`. No claim is searched for whose search ended so on `MAX_UNKNOWN` nodes.
- Pods that passed filter, and whose claims are not written yet, are in flight: kube-scheduler may have allocated
  to them what was predicted on any of their nodes, or nothing. Devices that were just released may be held for
  kube-scheduler, whose watch can be behind. So a node has an answer for each possible *case* of what is held besides.
  Where that would be too many, they are counted on no node, and the answers are not certain (`is_open`).
- What a node's answers are made of has a version (`objects`). Answers are kept as long as it is the same.
- The event loop makes a `CallForecast`, and one thread uses it. Several threads use what is kept of a node.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from hashlib import sha256
from itertools import chain
from itertools import count as count_from
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar

from extender.bounded import BoundedMap
from extender.dra.cel import match
from extender.dra.objects import DraNode, ResourceClaim
from extender.dra.replay import ALLOCATED, ERROR, UNKNOWN, ClusterDevices, allocate
from extender.dra.requests import AllocatedState
from extender.features.claims.feed import MAX_ASKED, asked_by
from extender.features.claims.objects import ClaimObjects, Version
from extender.features.claims.outcomes import (
    Answer,
    Case,
    Given,
    can_both_be,
    devices_of,
    devices_with,
    ids_of,
    text_of,
)
from extender.questions.node_context import DynamicDevice, LookUp
from extender.replay.pod import Pod

LOG: Final = logging.getLogger(__name__)
MAX_STEPS: Final = 10_000
"""Steps of one search. Of 100 recorded answers 99 take fewer than 5,000."""
MAX_UNKNOWN: Final = 32
MAX_SEARCHED: Final = 10_000
"""Nodes of a call that are searched, and whose answers are kept."""
MAX_CASES: Final = 8
"""Of one node in one call. If there are more, nothing in flight is counted, and the node is open."""
MAX_NEAR: Final = 64
"""Nodes of a pod in flight. If it can be on more of them, it is counted on none, and they are open."""
MAX_COLUMNS: Final = 16
"""For how many pod shapes the judgements of all nodes are kept."""
MAX_KEPT: Final = 64
"""Answers and judgements of one node that are kept."""
MAX_FLIGHTS: Final = 64
FLIGHT_SECONDS: Final = 600.0
"""How long a pod counts as in flight whose claims are never written."""
LAST: Final = 20
MAX_WRONG: Final = 2
"""Filter refuses no node for a prediction while more than `MAX_WRONG` of the `LAST` ones were wrong."""
MAX_REMEMBERED: Final = 1000
T = TypeVar("T")
R = TypeVar("R")
K = TypeVar("K")
V = TypeVar("V")
_NO_LABELS: Final[Mapping[str, str]] = {}
_ALONE: Final[Sequence[Case]] = ((),)


class PodAsk(NamedTuple):
    """The claims of a pod that are not allocated, in the order of the pod. `key`: equal if they ask for the same."""

    key: str
    claims: Sequence[ResourceClaim]


@dataclass(slots=True)
class NodeForecast:
    """What is kept of a node, as long as its version and labels are the same. `devices`: all that drivers publish."""

    version: Version
    node: DraNode
    devices: Sequence[DynamicDevice]
    answers: dict[tuple[str, str], Answer] = field(default_factory=dict)
    judged: dict[object, Any] = field(default_factory=dict)


Entry: TypeAlias = tuple[int, Any, NodeForecast]
"""What was judged of a node without anything in flight: the id of its class, the result, and what was known."""


class SearchLimits(NamedTuple):
    """`look_up`: says the labels of nodes. `out_of_time`: whether no further node can be searched."""

    look_up: LookUp
    out_of_time: Callable[[], bool]


class NodeJudge(NamedTuple, Generic[T, R]):
    """What is asked about nodes. `about`: its name; its results are kept by it, and the node's class.

    `of_devices`: says something of the node at a position with these devices. `merge`: one result from what it said of
    each possible allocation; of none, if kube-scheduler allocates nothing there.
    """

    about: str
    of_devices: Callable[[int, Sequence[DynamicDevice]], T]
    merge: Callable[[Sequence[T]], R | None]


class Flight(NamedTuple):
    """A pod whose claims are not written yet. `nodes`: where it can be; `at`: seconds; `call`: the last one about it.

    `bound_to`: the node of its bind call; empty: there was none yet.
    """

    ask: PodAsk
    nodes: Collection[str]
    at: float
    call: "CallForecast"
    bound_to: str = ""


class Forecasts:
    """The predictions. *count*: called with the result for each pod whose claims were written."""

    def __init__(self, objects: ClaimObjects, count: Callable[[str], object]) -> None:
        self.is_complete = False
        """Whether all slices, classes and claims have been listed."""
        self.objects: Final = objects
        self.matches: Final = partial(match, with_lists=objects.rules.lists_in_cel)
        self.nodes: Final[BoundedMap[str, NodeForecast]] = BoundedMap(MAX_SEARCHED)
        self.unknown: Final[BoundedMap[str, int]] = BoundedMap(MAX_REMEMBERED)
        """On how many nodes the search for what is asked was given up."""
        self._flights: BoundedMap[str, Flight] = BoundedMap(MAX_FLIGHTS)
        self._columns: BoundedMap[object, tuple[int, dict[str, Entry]]] = BoundedMap(MAX_COLUMNS)
        self._subjects: BoundedMap[str, int] = BoundedMap(MAX_REMEMBERED)
        self._numbers = count_from(1)
        self._clock, self._count = objects.clock, count
        self._wrong: deque[bool] = deque(maxlen=LAST)

    @property
    def is_doubted(self) -> bool:
        """Whether kube-scheduler has often done something else of late than the only thing that was possible."""
        return sum(self._wrong) > MAX_WRONG

    def call(self, pod: Pod) -> "CallForecast | None":
        """What is predicted for the pod; None: nothing. The pod itself is not in flight for it."""
        claims = self.objects.to_allocate(pod.claims) if self.is_complete else None
        if not claims:
            return None
        self._settle()
        asked = ""
        for each in claims:
            asked += asked_by(each)
            if len(asked) > MAX_ASKED:
                return None
        names = dict.fromkeys(o.class_name for claim in claims for each in claim.requests for o in each.options)
        ask = PodAsk(_digest(asked, [self.objects.classes.get(name) for name in names]), claims)
        others = [Other(nodes, None, each.allocated or ()) for each, nodes in self.objects.released()]
        others += [Other(f.nodes, f.call) for uid, f in self._flights.items() if uid != pod.uid and f.nodes]
        call = CallForecast(self, ask, others, self._subject(pod, ask))
        call.is_crowded = len(self._flights) == MAX_FLIGHTS  # and others may have been dropped
        return call

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

    def in_flight(self, pod: Pod, call: "CallForecast", nodes: Iterable[str]) -> None:
        """kube-scheduler may allocate devices to the pod on one of *nodes*."""
        call.finish()
        self._flights[pod.uid] = Flight(call.ask, frozenset(nodes), self._clock(), call)

    def ranked(self, pod: Pod, call: "CallForecast") -> None:
        """*call* is the last one about the pod."""
        call.finish()
        flight = self._flights.get(pod.uid)
        if flight is not None:
            self._flights[pod.uid] = flight._replace(call=call)

    def bind(self, pod: Pod, node_name: str) -> None:
        """kube-scheduler has chosen the node, and is about to write the pod's claims or has written them."""
        flight = self._flights.get(pod.uid)
        if flight is not None:
            self._flights[pod.uid] = flight._replace(nodes=(node_name,), bound_to=node_name)
            self._settle()

    def _settle(self) -> None:
        """Compare what was written with what was predicted, and forget pods that are in flight no longer."""
        now = self._clock()
        for uid, flight in list(self._flights.items()):
            found = [self.objects.claim(each.name) for each in flight.ask.claims]
            claims = [each for each in found if each is not None]
            if len(claims) < len(found) or now - flight.at > FLIGHT_SECONDS:
                del self._flights[uid]
            elif all(each.allocated is not None for each in claims):
                self._flights[uid] = flight._replace(nodes=())
                if flight.bound_to:
                    self._compare(flight, [each.allocated or () for each in claims])
                    del self._flights[uid]

    def _compare(self, flight: Flight, written: Given) -> None:
        possible = flight.call.predicted(flight.bound_to)
        if possible is None:
            self._count("not_known")
            return
        agrees = any(ids_of(each) == ids_of(written) for each in possible)
        self._count("agrees" if agrees else "differs" if flight.call.is_closed else "not_known")
        if flight.call.is_alone:
            self._wrong.append(not agrees)
        if not agrees and flight.call.is_closed:
            LOG.info("devices differ node=%s claims=%s", flight.bound_to, [each.name for each in flight.ask.claims])

    def _subject(self, pod: Pod, ask: PodAsk) -> int:
        """A number that is equal for pods that differ only in names, and whose claims ask for the same."""
        position = {each.name: i for i, each in enumerate(ask.claims)}
        used = tuple(tuple(position.get(claim, claim) for claim in each.claims) for each in pod.containers)
        key = _digest(pod.whole_shape, used, ask.key)
        if key not in self._subjects:
            self._subjects[key] = next(self._numbers)
        return self._subjects[key]


class Other(NamedTuple):
    """What may be held on each of *nodes*: what was predicted in a call, or else *devices*."""

    nodes: Collection[str]
    call: "CallForecast | None"
    devices: Case = ()

    def cases_on(self, node_name: str) -> Sequence[Case] | None:
        """What it may hold on a node, without the case that it holds nothing; None: not known."""
        if node_name not in self.nodes:
            return ()
        if self.call is None:
            return [self.devices]
        predicted = self.call.predicted(node_name)
        return None if predicted is None else [tuple(chain.from_iterable(given)) for given in predicted]


class CallForecast:
    """The prediction for one pod. `is_alone`: whether nothing was in flight. *others*: what was.

    *subject*: a number of the pod; see `judged`.
    """

    def __init__(self, forecasts: Forecasts, ask: PodAsk, others: Sequence[Other], subject: int) -> None:
        self.ask: Final = ask
        self.is_alone: Final = not others
        self.is_closed = True
        """Whether all that was in flight was counted."""
        self.is_crowded = False
        """Whether more may be in flight than *others*."""
        self._forecasts, self._subject = forecasts, subject
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
        """Nothing is asked about further nodes. What was in flight is no longer referred to."""
        self.is_closed = not (self.is_crowded or self._open or self._spread)
        self._near, self._spread = {}, ()

    def is_open(self, name: str) -> bool:
        """Whether something else can be in flight on the node than what was counted."""
        return self.is_crowded or name in self._open or any(name in each.nodes for each in self._spread)

    def judged(
        self, names: Sequence[str], class_ids: Sequence[int], judge: NodeJudge[T, R], limits: SearchLimits
    ) -> list[R | None]:
        """What *judge* says of each node. None as well if it is not known what the pod gets there.

        It is kept for all pods that differ only in names.
        """
        column, near = self._forecasts.column((self._subject, judge.about)), self._near
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
            cases = self._cases[name] = self._cases_on(name) if name in near else _ALONE
            entry = class_ids[i], self._judged(known, cases, judge, i, class_ids[i]), known
            entries[i] = entry
            if name not in near:
                column[name] = entry
        self._names, self._entries, self._positions = names, entries, None
        return [None if each is None else each[1] for each in entries]

    def _judged(
        self, known: NodeForecast, cases: Sequence[Case], judge: NodeJudge[T, R], position: int, class_id: int
    ) -> R | None:
        found: list[T] = []
        for case in cases:
            key = self._subject, judge.about, class_id, text_of(case)
            said = _kept(known.judged, key, partial(self._said, known, case, judge, position))
            if said is None:
                return None
            found += said
        return judge.merge(found)

    def _said(self, known: NodeForecast, case: Case, judge: NodeJudge[T, R], position: int) -> list[T] | None:
        """What *judge* says of each possible allocation; None: they are not known, or have devices of other nodes."""
        answer = self._answer(known, case)
        lists = [devices_with(known.devices, self.ask.claims, given) for given in answer or ()]
        is_known = answer is not None and None not in lists
        return [judge.of_devices(position, each) for each in lists if each is not None] if is_known else None

    def predicted(self, name: str) -> Answer:
        """What was found for the node in the last call; None as well if nothing was asked about it."""
        if self._positions is None:
            self._positions = {each: i for i, each in enumerate(self._names)}
        position = self._positions.get(name)
        entry = None if position is None else self._entries[position]
        if entry is None:
            return None
        answers = [entry[2].answers.get((self.ask.key, text_of(case))) for case in self._cases.get(name, _ALONE)]
        return None if None in answers else [given for each in answers for given in each or ()]

    def _node(self, name: str, look_up: LookUp) -> NodeForecast:
        objects, kept = self._forecasts.objects, self._forecasts.nodes
        version, known = objects.version(name), kept.get(name)
        node = DraNode(name, (look_up(name).labels or _NO_LABELS) if objects.selecting else _NO_LABELS)
        if known is None or known.version != version or known.node != node:
            known = kept[name] = NodeForecast(version, node, objects.devices_on(name))
        return known

    def _cases_on(self, name: str) -> Sequence[Case]:
        """What may be held on the node. If that is too much or not known, nothing is, and the node is open."""
        cases: dict[str, Case] = {"": ()}
        for other in self._near[name]:
            further = other.cases_on(name)
            if further is not None:
                found = [(*case, *each) for case in cases.values() for each in further if can_both_be(case, each)]
                cases |= {text_of(case): case for case in found}
            if further is None or len(cases) > MAX_CASES:
                self._open.add(name)
                return _ALONE
        return list(cases.values())

    def _answer(self, known: NodeForecast, case: Case) -> Answer:
        return _kept(known.answers, (self.ask.key, text_of(case)), partial(self._search, known, case))

    def _search(self, known: NodeForecast, case: Case) -> Answer:
        objects, unknown, key = self._forecasts.objects, self._forecasts.unknown, self.ask.key
        holders, in_flight = objects.holders_on(known.node), ResourceClaim("", (), allocated=case)
        if holders is None or unknown.get(key, 0) > MAX_UNKNOWN:
            return None
        held = AllocatedState([*holders, in_flight] if case else holders, objects.rules)
        cluster = ClusterDevices(objects.index(), objects.classes, held, self._forecasts.matches, objects.rules)
        answers = allocate(cluster, known.node, self.ask.claims, MAX_STEPS)
        if answers[0].verdict == UNKNOWN:
            unknown[key] = unknown.get(key, 0) + 1
        if any(each.verdict in (UNKNOWN, ERROR) for each in answers):
            return None
        return [list(map(devices_of, each.allocations)) for each in answers if each.verdict == ALLOCATED]


def _digest(*parts: object) -> str:
    """A short key that stands for values of any size."""
    return sha256(repr(parts).encode()).hexdigest()


def _kept(found: dict[K, V], key: K, make: Callable[[], V]) -> V:
    """What *found* has under *key*, or else what *make* returns. Other threads may empty *found* meanwhile."""
    try:
        return found[key]
    except KeyError:
        value = make()
    if len(found) >= MAX_KEPT:
        found.clear()
    found[key] = value
    return value
