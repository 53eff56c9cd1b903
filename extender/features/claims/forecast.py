"""Which devices kube-scheduler will allocate to pods, and whether it did: the predictions of all calls.

Rules of this file
- Pods that passed filter, and whose claims are not written yet, are in flight. Until bind a pod can be on each node
  that filter offered. Bind says the node.
- kube-scheduler offers only nodes where an allocated claim can be used. If it offers others, it has deallocated the
  claim, and the watch has not shown that yet. Then the pod is in flight as well, and nothing is certain.
- What is written is compared with what was predicted for this node by the last call about the pod.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import count as count_from
from typing import Final, NamedTuple

from extender.bounded import BoundedMap
from extender.features.claims.asks import PodAsks, asks_of, digest
from extender.features.claims.call_forecast import MAX_NEAR, MAX_REMEMBERED, CallForecast, KeptForecasts, Other
from extender.features.claims.objects import ClaimObjects
from extender.features.claims.outcomes import Given, ids_of
from extender.replay.pod import Pod

LOG: Final = logging.getLogger(__name__)
MAX_FLIGHTS: Final = 64
FLIGHT_SECONDS: Final = 600.0
"""How long a pod counts as in flight whose claims are never written."""
LAST: Final = 20
MAX_SHOWN: Final = 8
MAX_WRONG: Final = 2
"""Filter refuses no node for a prediction while more than `MAX_WRONG` of the `LAST` ones were wrong."""


class Flight(NamedTuple):
    """A pod whose claims are not written yet. `nodes`: where it can be; `at`: seconds; `call`: its last one.

    `seen`: the claims that existed then. `bound_to`: the node of its bind call; empty: there was none yet. `old`: the
    devices of deallocated claims that the watch still showed, by name.
    """

    seen: Sequence[str]
    nodes: frozenset[str]
    at: float
    call: CallForecast
    bound_to: str = ""
    old: Mapping[str, object] = {}


class Forecasts:
    """The predictions. *count*: called with the result for each pod whose claims were written."""

    def __init__(self, objects: ClaimObjects, count: Callable[[str], object]) -> None:
        self.is_complete = False
        """Whether all slices, classes and claims have been listed."""
        self.objects: Final = objects
        self.kept: Final = KeptForecasts(objects)
        self._clock, self._count = objects.clock, count
        self._flights: BoundedMap[str, Flight] = BoundedMap(MAX_FLIGHTS)
        self._left = set[str]()
        self._wrong: deque[bool] = deque(maxlen=LAST)
        self._subjects: BoundedMap[str, int] = BoundedMap(MAX_REMEMBERED)
        self._numbers = count_from(1)

    def call(self, pod: Pod, *, was_filtered: bool = False, offered: Sequence[str] = ()) -> CallForecast | None:
        """What is predicted for the pod; None: nothing. The pod itself is not in flight for it.

        *was_filtered*: kube-scheduler has looked at what is free before it called filter. *offered*: the nodes that it
        offers.
        """
        objects = self.objects
        old = objects.deallocated(pod.claims, offered)
        asks = asks_of(
            pod, lambda name: old.get(name) or objects.readable(name), objects.templates, objects.classes, objects.rules
        )
        if asks is None or asks.is_empty or not self.is_complete:
            return None
        own = self._flights.get(pod.uid) if was_filtered else None
        filtered_at = objects.clock() if own is None else own.at
        others = [Other(nodes, None, each.allocated or ()) for each, nodes in objects.released(filtered_at)]
        self._settle()
        flights = ((uid, each) for uid, each in self._flights.items() if uid != pod.uid and each.nodes)
        others += [Other(each.nodes, each.call) for _, each in flights]
        call = CallForecast(self.kept, asks, others, self._subject(pod, asks))
        call.is_crowded = len(self._flights) == MAX_FLIGHTS or bool(old)
        return call

    def _subject(self, pod: Pod, asks: PodAsks) -> int:
        """A number that is equal for pods that differ only in names, and whose claims ask for the same."""
        position = {each.name: i for i, each in enumerate(asks.claims)}
        used = tuple(tuple(position.get(claim, claim) for claim in each.claims) for each in pod.containers)
        key = digest(pod.whole_shape, used, asks.key)
        if key not in self._subjects:
            self._subjects[key] = next(self._numbers)
        return self._subjects[key]

    @property
    def is_doubted(self) -> bool:
        """Whether kube-scheduler has often done something else of late than the only thing that was possible."""
        return sum(self._wrong) > MAX_WRONG

    def passed(self, pod: Pod, call: CallForecast, nodes: Iterable[str]) -> None:
        """kube-scheduler may allocate devices to the pod on one of *nodes*."""
        call.finish()
        known = {each.name: claim for each in call.asks.claims if (claim := self.objects.claim(each.name)) is not None}
        old = {name: claim.allocated for name, claim in known.items() if claim.allocated is not None}
        self._keep(pod.uid, Flight(list(known), frozenset(nodes), self._clock(), call, old=old))

    def _keep(self, uid: str, flight: Flight | None) -> None:
        """From now on the pod is in flight as *flight* says; None: it is no longer in flight."""
        before = self._flights.pop(uid, None)
        if flight is not None:
            self._flights[uid] = flight
        if before is not None and len(before.nodes) <= MAX_NEAR:
            self._left |= before.nodes - (frozenset() if flight is None else flight.nodes)

    def left(self) -> Collection[str]:
        """The nodes on which pods are in flight no longer, since the last call."""
        self._settle()
        left, self._left = self._left, set()
        return left

    def ranked(self, pod: Pod, call: CallForecast) -> None:
        """*call* is the last one about the pod."""
        call.finish()
        flight = self._flights.get(pod.uid)
        if flight is not None:
            self._flights[pod.uid] = flight._replace(call=call)

    def bind(self, pod: Pod, node_name: str) -> None:
        """kube-scheduler has chosen the node, and is about to write the pod's claims or has written them."""
        flight = self._flights.get(pod.uid)
        if flight is not None:
            self._keep(pod.uid, flight._replace(nodes=frozenset((node_name,)), bound_to=node_name))
            self._settle()

    def _settle(self) -> None:
        """Compare what was written with what was predicted, and forget pods that are in flight no longer."""
        now = self._clock()
        for uid, flight in list(self._flights.items()):
            written = self._written(uid, flight)
            if now - flight.at > FLIGHT_SECONDS or any(self.objects.claim(name) is None for name in flight.seen):
                self._keep(uid, None)
            elif written is not None:
                self._keep(uid, None if flight.bound_to else flight._replace(nodes=frozenset()))
                if flight.bound_to:
                    self._compare(flight, written)

    def _written(self, uid: str, flight: Flight) -> Given | None:
        """The devices of the claims of a pod in flight; None: not all of them are allocated."""
        asks = flight.call.asks
        found = [self.objects.claim(each.name) for each in asks.claims]
        if asks.depends_on_node:
            ask = flight.call.asked_on(flight.bound_to) if flight.bound_to else None
            found += [self.objects.extended_claim(uid)] if ask is None or len(ask.claims) > len(asks.claims) else []
        node = flight.bound_to  # the same devices can be allocated again
        is_new = bool(node) and all(self.objects.is_allocated_for(name, node) for name in flight.old)
        old = {} if is_new else flight.old
        known = [(each.allocated, old.get(each.name)) for each in found if each is not None]
        given = [devices for devices, before in known if devices is not None and devices != before]
        return given if len(given) == len(found) else None

    def _compare(self, flight: Flight, written: Given) -> None:
        if not written:  # a device plugin serves all
            return
        possible = flight.call.predicted(flight.bound_to)
        if not possible:  # if empty, kube-scheduler had seen free devices before we did
            self._count("not_known")
            return
        agrees = any(ids_of(each) == ids_of(written) for each in possible)
        is_sure = not flight.call.is_open(flight.bound_to)
        self._count("agrees" if agrees else "differs" if is_sure else "not_known")
        if flight.call.is_alone and is_sure:
            self._wrong.append(not agrees)
        if not agrees and is_sure:
            shown = [list(map(ids_of, possible))[:MAX_SHOWN], ids_of(written)]
            LOG.info("devices differ node=%s claims=%s predicted, allocated=%s", flight.bound_to, flight.seen, shown)
