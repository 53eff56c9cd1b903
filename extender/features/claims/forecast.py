"""Which devices kube-scheduler will allocate to the claims of a pod on each node: its search, on what the watches show.

Rules of this file
- Nothing is predicted while a list is incomplete, for a pod some of whose claims do not exist or cannot be read, and
  beyond `MAX_STEPS`. A claim whose search was given up on `MAX_UNKNOWN` nodes is no longer searched for.
- Pods that passed filter, and whose claims are not written yet, are in flight: kube-scheduler may have allocated
  devices to them on any of their nodes, or on none. Devices that were just released may be held for kube-scheduler,
  whose watch can be behind. So a node has an answer for each possible *path*: what was released, then the pods in
  flight that it has, in the order of their filter calls, and then the pod itself.
- What a node's answers are made of has a version (`objects`). Answers are kept as long as it is the same.
- The event loop makes a `CallForecast`, and one thread uses it.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count as count_from
from typing import Any, Final, NamedTuple, TypeAlias, TypeVar

from extender.bounded import BoundedMap
from extender.dra.cel import match
from extender.dra.objects import AllocatedDevice, DeviceId, DraNode, ResourceClaim
from extender.dra.replay import ALLOCATED, UNKNOWN, ClusterDevices, allocate
from extender.features.claims.devices import DynamicDevices
from extender.features.claims.objects import ClaimObjects, Version
from extender.questions.node_context import DynamicDevice, LookUp
from extender.replay.pod import Pod
from extender.wire.dra import claim_from_json

LOG: Final = logging.getLogger(__name__)
MAX_STEPS: Final = 10_000
"""Steps of one search. Of 100 recorded answers 99 take fewer than 5,000."""
MAX_UNKNOWN: Final = 32
MAX_SEARCHED: Final = 10_000
"""Nodes of a call that are searched, and whose answers are kept."""
MAX_PATHS: Final = 8
"""Of one node in one call. If there are more, the devices are not known."""
MAX_KEPT: Final = 64
"""Answers and judgements of one node that are kept."""
MAX_FLIGHTS: Final = 64
FLIGHT_SECONDS: Final = 600.0
"""How long a pod counts as in flight whose claims are never written."""
LAST: Final = 20
MAX_WRONG: Final = 2
"""Filter refuses no node for a prediction while more than `MAX_WRONG` of the `LAST` ones were wrong."""
MAX_REMEMBERED: Final = 1000
Path: TypeAlias = tuple[str, ...]
"""What each pod asks for (`PodAsk.key`)."""
Given: TypeAlias = Sequence[Sequence[AllocatedDevice]]
"""The devices of each claim of a pod, in the order of the claims."""
Answer: TypeAlias = Sequence[Given] | None
"""All possible ones. Empty: kube-scheduler allocates nothing there; None: not known."""
T = TypeVar("T")
_NO_LABELS: Final[Mapping[str, str]] = {}


class PodAsk(NamedTuple):
    """The claims of a pod that are not allocated, in the order of the pod. `key`: equal if they ask for the same.

    Or a claim whose devices were just released: kube-scheduler may not know that yet.
    """

    key: str
    claims: Sequence[ResourceClaim]


@dataclass(slots=True)
class NodeForecast:
    """What is kept of a node, as long as its version and labels are the same. `devices`: all that drivers publish."""

    version: Version
    node: DraNode
    devices: Sequence[DynamicDevice]
    answers: dict[Path, Answer] = field(default_factory=dict)
    judged: dict[object, Any] = field(default_factory=dict)


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

    def __init__(self, objects: ClaimObjects, devices: DynamicDevices, count: Callable[[str], object]) -> None:
        self.is_complete = False
        """Whether all slices, classes and claims have been listed."""
        self.objects: Final = objects
        self.devices: Final = devices
        self.matches: Final = partial(match, with_lists=objects.rules.lists_in_cel)
        self.nodes: Final[BoundedMap[str, NodeForecast]] = BoundedMap(MAX_SEARCHED)
        self.unknown: Final[BoundedMap[str, int]] = BoundedMap(MAX_REMEMBERED)
        """On how many nodes the search for what is asked was given up."""
        self._flights: BoundedMap[str, Flight] = BoundedMap(MAX_FLIGHTS)
        self._subjects: BoundedMap[object, int] = BoundedMap(MAX_REMEMBERED)
        self._numbers = count_from(1)
        self._clock, self._count = objects.clock, count
        self._wrong: deque[bool] = deque(maxlen=LAST)

    @property
    def is_doubted(self) -> bool:
        """Whether kube-scheduler has often done something else of late than the only thing that was possible."""
        return sum(self._wrong) > MAX_WRONG

    def call(self, pod: Pod) -> "CallForecast | None":
        """What is predicted for the pod; None: nothing. The pod itself is not in flight for it."""
        claims = self.objects.claims(pod.claims) if self.is_complete else None
        if not claims:
            return None
        self._settle()
        ask = PodAsk(repr([(each.requests, each.constraints) for each in claims]), claims)
        others = [(PodAsk(f"released {each.name}", [each]), nodes) for each, nodes in self.objects.released()]
        others += [(each.ask, each.nodes) for uid, each in self._flights.items() if uid != pod.uid and each.nodes]
        return CallForecast(self, ask, others, self._subject(pod, ask))

    def in_flight(self, pod: Pod, call: "CallForecast", nodes: Iterable[str]) -> None:
        """kube-scheduler may allocate devices to the pod on one of *nodes*."""
        self._flights[pod.uid] = Flight(call.ask, frozenset(nodes), self._clock(), call)

    def ranked(self, pod: Pod, call: "CallForecast") -> None:
        """*call* is the last one about the pod."""
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
        agrees = any(_ids_of(each) == _ids_of(written) for each in possible)
        self._count("agrees" if agrees else "differs")
        if not flight.call.others:
            self._wrong.append(not agrees)
        if not agrees:
            LOG.info("devices differ node=%s claims=%s", flight.bound_to, [each.name for each in flight.ask.claims])

    def _subject(self, pod: Pod, ask: PodAsk) -> int:
        """A number that is equal for pods that differ only in names."""
        position = {each.name: i for i, each in enumerate(ask.claims)}
        used = tuple(tuple(position.get(claim, claim) for claim in each.claims) for each in pod.containers)
        key = pod.whole_shape, used
        if key not in self._subjects:
            self._subjects[key] = next(self._numbers)
        return self._subjects[key]


class CallForecast:
    """The prediction for one pod. `others`: what pods in flight ask for, and where. `subject`: see `judged`."""

    def __init__(
        self, forecasts: Forecasts, ask: PodAsk, others: Sequence[tuple[PodAsk, Collection[str]]], subject: int
    ) -> None:
        self.ask: Final = ask
        self.others: Final = others
        self._subject = subject
        self._forecasts = forecasts
        self._asks: Final[Mapping[str, PodAsk]] = {each.key: each for each in (*(each for each, _ in others), ask)}
        self._known: dict[str, NodeForecast] = {}

    def nodes(self, names: Sequence[str], look_up: LookUp) -> Sequence[DraNode]:
        """What slices see of each node. *look_up*: says its labels."""
        if not self._forecasts.objects.selecting:
            return [DraNode(name, _NO_LABELS) for name in names]
        return [DraNode(name, look_up(name).labels or _NO_LABELS) for name in names]

    def judged(self, node: DraNode, about: object, judge: Callable[[Sequence[DynamicDevice]], T]) -> Sequence[T] | None:
        """What *judge* says of the devices of the node, with each possible allocation to the pod.

        None: it is not known. Empty: kube-scheduler allocates nothing there. The result is kept for pods that differ
        only in names. *about*: everything else that *judge* reads.
        """
        known, paths = self._node(node), self._paths(node.name)
        if paths is None:
            return None
        found: list[T] = []
        for path in paths:
            key = self._subject, about, path
            if key not in known.judged:
                if len(known.judged) >= MAX_KEPT:
                    known.judged.clear()
                known.judged[key] = self._judged(known, path, judge)
            judged = known.judged[key]
            if judged is None:
                return None
            found += judged
        return found

    def _judged(
        self, known: NodeForecast, path: Path, judge: Callable[[Sequence[DynamicDevice]], T]
    ) -> Sequence[T] | None:
        answer = self._answer(known, path)
        if answer is None:
            return None
        lists = [devices_with(known.devices, self.ask.claims, given) for given in answer]
        return None if None in lists else [judge(each) for each in lists if each is not None]

    def predicted(self, node_name: str) -> Answer:
        """What was found for the node before; None as well if nothing was asked about it."""
        known, paths = self._known.get(node_name), self._paths(node_name)
        if known is None or paths is None:
            return None
        answers = [known.answers.get(path) for path in paths]
        return None if None in answers else [given for each in answers for given in each or ()]

    def _node(self, node: DraNode) -> NodeForecast:
        known = self._known.get(node.name)
        if known is None:
            kept, version = self._forecasts.nodes, self._forecasts.objects.version(node.name)
            known = kept.get(node.name)
            if known is None or known.version != version or known.node != node:
                known = kept[node.name] = NodeForecast(version, node, self._forecasts.devices.of_node(node.name))
            self._known[node.name] = known
        return known

    def _paths(self, node_name: str) -> Collection[Path] | None:
        paths: dict[Path, None] = {(): None}
        for ask, nodes in self.others:
            if node_name in nodes:
                paths |= {(*path, ask.key): None for path in paths}
                if len(paths) > MAX_PATHS:
                    return None
        return [(*path, self.ask.key) for path in paths]

    def _answer(self, known: NodeForecast, path: Path) -> Answer:
        if path not in known.answers:
            if len(known.answers) >= MAX_KEPT:
                known.answers.clear()
            known.answers[path] = self._search(known, path)
        return known.answers[path]

    def _search(self, known: NodeForecast, path: Path) -> Answer:
        objects, unknown, key = self._forecasts.objects, self._forecasts.unknown, path[-1]
        claims = self._asks[key].claims
        if any(each.allocated is not None for each in claims):
            return [[each.allocated or () for each in claims]]
        further: list[ResourceClaim] = []
        for length in range(1, len(path)):
            earlier = self._answer(known, path[:length])
            if earlier is None or len(earlier) > 1:
                return None
            further += [ResourceClaim("", (), allocated=tuple(devices)) for given in earlier for devices in given]
        held = objects.held_on(known.node, further)
        if held is None or unknown.get(key, 0) > MAX_UNKNOWN:
            return None
        cluster = ClusterDevices(objects.index(), objects.classes, held, self._forecasts.matches, objects.rules)
        answers = allocate(cluster, known.node, claims, MAX_STEPS)
        if answers[0].verdict == UNKNOWN:
            unknown[key] = unknown.get(key, 0) + 1
        if any(each.verdict in (UNKNOWN, "error") for each in answers):
            return None
        return [list(map(devices_of, each.allocations)) for each in answers if each.verdict == ALLOCATED]


def devices_of(allocation: object) -> Sequence[AllocatedDevice]:
    """The devices in an allocation."""
    document = {"metadata": {"name": "claim"}, "status": {"allocation": allocation}}
    return claim_from_json(document, "").allocated or ()


def _ids_of(given: Given) -> Sequence[Sequence[DeviceId]]:
    return [[each.id for each in devices] for devices in given]


def devices_with(
    devices: Sequence[DynamicDevice], claims: Sequence[ResourceClaim], given: Given
) -> Sequence[DynamicDevice] | None:
    """The devices of a node after *claims* got theirs; None: one of these is not local to the node."""
    here = {device.key: device for device in devices}
    taken = [(each.id, claim.name) for claim, of in zip(claims, given, strict=True) for each in of]
    if not all(key in here for key, _ in taken):
        return None
    keys = {key for key, _ in taken}
    left = (device for device in devices if device.claim or device.key not in keys)
    return [*left, *(here[key]._replace(claim=name, is_predicted=True) for key, name in taken)]
