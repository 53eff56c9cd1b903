"""The connections that are open, counted from `accept`, and which one is closed when there are too many.

Laws of this file
- A connection has a place from `accept` until it is closed. It is unfinished until the head of its first request is
  complete; after that it is busy while a request lasts, and idle between requests.
- A new connection is always accepted. At the limit one of the others is closed: one that is unfinished; if there is
  none, one that is idle; and last one that is idle and kept (a client certificate, or loopback).
- Of these it is the longest of the address that has most of them, so that who opens many closes their own.
- A busy connection is never closed to make room. Its own deadlines end it.
- Taking a place, changing its state and making room cost a few dictionary operations, however many are open.
"""

from collections.abc import Callable
from typing import Final

SPARE_SHARE: Final = 16
"""While all connections are busy, a sixteenth of the limit may come on top of it: nobody knows before the handshake
whether a new connection is the scheduler's."""
_Ordered = dict["Place", None]


class Place:
    """One connection from *address*. `close` ends it at once; its argument is a label of the metric `limited`."""

    __slots__ = ("address", "close", "is_kept", "since")

    def __init__(self, address: str, since: float, close: Callable[[str], object]) -> None:
        self.address: Final = address
        self.since: Final = since
        self.close = close
        self.is_kept = False


class _Group:
    """Connections in the same state, in the order of entering it."""

    def __init__(self) -> None:
        self._places: _Ordered = {}
        self._by_address: dict[str, _Ordered] = {}
        self._most = ""
        """The address that had most of them when one entered last."""

    def __len__(self) -> int:
        return len(self._places)

    def add(self, place: Place) -> None:
        self._places[place] = None
        of_address = self._by_address.setdefault(place.address, {})
        of_address[place] = None
        if len(of_address) > len(self._by_address.get(self._most, ())):
            self._most = place.address

    def remove(self, place: Place) -> bool:
        """False: it was not in this state."""
        if place not in self._places:
            return False
        del self._places[place]
        of_address = self._by_address[place.address]
        del of_address[place]
        if not of_address:
            del self._by_address[place.address]
        return True

    def pop(self) -> Place | None:
        """Take out the longest of the address that has most; None: there is none."""
        of_most = self._by_address.get(self._most, self._places)
        place = next(iter(of_most if len(of_most) > 1 else self._places), None)
        if place is not None:
            self.remove(place)
        return place


class ConnectionSlots:
    """All connections of one server. *max_connections*: how many, over all listeners."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self._unfinished, self._idle, self._idle_kept, self._busy = _Group(), _Group(), _Group(), _Group()
        self._groups: Final = (self._unfinished, self._idle, self._idle_kept, self._busy)

    def __len__(self) -> int:
        return sum(map(len, self._groups))

    @property
    def spare(self) -> int:
        """How many more than `max_connections` are open while all the others are busy."""
        return max(8, self.max_connections // SPARE_SHARE)

    def enter(self, place: Place) -> bool:
        """Take *place*, and close another one if there are too many; False: there is no room, and it was not taken."""
        is_full = len(self) >= self.max_connections and not self.make_room()
        if is_full and len(self) >= self.max_connections + self.spare:
            return False
        self._unfinished.add(place)
        return True

    def busy(self, place: Place) -> None:
        """The head of a request is complete."""
        if self._remove(place):
            self._busy.add(place)

    def idle(self, place: Place) -> None:
        """The answer is written."""
        if self._remove(place):
            (self._idle_kept if place.is_kept else self._idle).add(place)

    def leave(self, place: Place) -> None:
        """It is closed. Does nothing if it has left already."""
        self._remove(place)
        place.close = _nothing  # no cycle that only the collector would find

    def make_room(self, reason: str = "connections") -> bool:
        """Close the connection that is missed least; False: all are busy."""
        for group in (self._unfinished, self._idle, self._idle_kept):
            if (place := group.pop()) is not None:
                place.close(reason)
                place.close = _nothing
                return True
        return False

    def _remove(self, place: Place) -> bool:
        return any(group.remove(place) for group in self._groups)


def _nothing(_reason: str) -> None:
    """What there is to close of a connection that is closed."""
