"""Pods in flight: those that passed filter, and whose claims are not written yet. And what was then allocated to them.

Rules of this file
- Until bind a pod can be on each node that filter offered. Bind says the node.
- What is written is compared with what was predicted for this node by the last call about the pod.
"""

import logging
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from extender.bounded import BoundedMap
from extender.features.claims.objects import ClaimObjects
from extender.features.claims.outcomes import Given, ids_of
from extender.replay.pod import Pod

if TYPE_CHECKING:  # `forecast` imports this file
    from extender.features.claims.forecast import CallForecast

LOG: Final = logging.getLogger(__name__)
MAX_NEAR: Final = 64
"""Nodes of a pod in flight. If it can be on more of them, it is counted on none, and they are open."""
MAX_FLIGHTS: Final = 64
FLIGHT_SECONDS: Final = 600.0
"""How long a pod counts as in flight whose claims are never written."""
LAST: Final = 20
MAX_WRONG: Final = 2
"""Filter refuses no node for a prediction while more than `MAX_WRONG` of the `LAST` ones were wrong."""


class Flight(NamedTuple):
    """A pod whose claims are not written yet. `nodes`: where it can be; `at`: seconds; `call`: the last one about it.

    `seen`: the claims that existed then. `bound_to`: the node of its bind call; empty: there was none yet.
    """

    seen: Sequence[str]
    nodes: frozenset[str]
    at: float
    call: "CallForecast"
    bound_to: str = ""


class Flights:
    """All of them. *count*: called with the result for each pod whose claims were written."""

    def __init__(self, objects: ClaimObjects, count: Callable[[str], object]) -> None:
        self._objects, self._clock, self._count = objects, objects.clock, count
        self._flights: BoundedMap[str, Flight] = BoundedMap(MAX_FLIGHTS)
        self._left = set[str]()
        self._wrong: deque[bool] = deque(maxlen=LAST)

    @property
    def is_doubted(self) -> bool:
        """Whether kube-scheduler has often done something else of late than the only thing that was possible."""
        return sum(self._wrong) > MAX_WRONG

    @property
    def is_full(self) -> bool:
        """Whether others may have been dropped."""
        return len(self._flights) == MAX_FLIGHTS

    def besides(self, uid: str) -> Iterator[Flight]:
        """Those whose node or devices are not known, without this pod."""
        self._settle()
        return (each for name, each in self._flights.items() if name != uid and each.nodes)

    def filtered_at(self, uid: str) -> float | None:
        """When the pod passed filter; None: it is not in flight."""
        flight = self._flights.get(uid)
        return None if flight is None else flight.at

    def passed(self, pod: Pod, call: "CallForecast", nodes: Iterable[str]) -> None:
        """kube-scheduler may allocate devices to the pod on one of *nodes*."""
        call.finish()
        seen = [each.name for each in call.asks.claims if self._objects.claim(each.name) is not None]
        self._keep(pod.uid, Flight(seen, frozenset(nodes), self._clock(), call))

    def _keep(self, uid: str, flight: Flight | None) -> None:
        """The pod is in flight so from now on; None: it is not any more."""
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
            self._keep(pod.uid, flight._replace(nodes=frozenset((node_name,)), bound_to=node_name))
            self._settle()

    def _settle(self) -> None:
        """Compare what was written with what was predicted, and forget pods that are in flight no longer."""
        now = self._clock()
        for uid, flight in list(self._flights.items()):
            written = self._written(uid, flight)
            if now - flight.at > FLIGHT_SECONDS or any(self._objects.claim(name) is None for name in flight.seen):
                self._keep(uid, None)
            elif written is not None:
                self._keep(uid, None if flight.bound_to else flight._replace(nodes=frozenset()))
                if flight.bound_to:
                    self._compare(flight, written)

    def _written(self, uid: str, flight: Flight) -> Given | None:
        """The devices of the claims of a pod in flight; None: not all of them are allocated."""
        asks = flight.call.asks
        found = [self._objects.claim(each.name) for each in asks.claims]
        if asks.depends_on_node:
            ask = flight.call.asked_on(flight.bound_to) if flight.bound_to else None
            found += [self._objects.extended_claim(uid)] if ask is None or len(ask.claims) > len(asks.claims) else []
        given = [each.allocated for each in found if each is not None and each.allocated is not None]
        return given if len(given) == len(found) else None

    def _compare(self, flight: Flight, written: Given) -> None:
        if not written:  # a device plugin serves all
            return
        possible = flight.call.predicted(flight.bound_to)
        if possible is None:
            self._count("not_known")
            return
        agrees = any(ids_of(each) == ids_of(written) for each in possible)
        is_sure = not flight.call.is_open(flight.bound_to)
        self._count("agrees" if agrees else "differs" if is_sure else "not_known")
        if flight.call.is_alone and is_sure:
            self._wrong.append(not agrees)
        if not agrees and is_sure:
            LOG.info("devices differ node=%s claims=%s", flight.bound_to, flight.seen)
