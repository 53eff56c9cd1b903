"""Counts open connections from `accept` on, and chooses which one to close when there are too many.

Rules of this file
- A connection has a place from `accept` until it is closed. It is unfinished until the head of its first request is
  complete, then busy during a request and idle between requests.
- A new connection is always accepted. At the limit another connection is closed: an unfinished one, else an idle one,
  else an idle one that is kept (with a client certificate, or on loopback).
- Within such a group the oldest connection of the address with most connections is closed, so that an address that
  opens many closes its own.
- A busy connection is never closed to make room. Its own deadlines end it.
- Taking a place, changing its state and making room cost a few dictionary operations, however many are open.
"""

from collections.abc import Callable
from typing import Final

SPARE_SHARE: Final = 16
"""While all connections are busy, the limit may be exceeded by a sixteenth: before the handshake it is not known
whether a new connection is the scheduler's."""
_Ordered = dict["Place", None]


class Place:
    """One connection from *address*. `close` closes it at once; its argument is a label of the metric `limited`."""

    __slots__ = ("address", "close", "is_kept", "since")

    def __init__(self, address: str, since: float, close: Callable[[str], object]) -> None:
        self.address: Final = address
        self.since: Final = since
        self.close = close
        self.is_kept = False


class _Group:
    """Connections in the same state, oldest first."""

    def __init__(self) -> None:
        self._places: _Ordered = {}
        self._by_address: dict[str, _Ordered] = {}
        self._most = ""
        """The address that had most connections when one was last added."""

    def __len__(self) -> int:
        return len(self._places)

    def add(self, place: Place) -> None:
        self._places[place] = None
        of_address = self._by_address.setdefault(place.address, {})
        of_address[place] = None
        if len(of_address) > len(self._by_address.get(self._most, ())):
            self._most = place.address

    def remove(self, place: Place) -> bool:
        """False if the connection was not in this state."""
        if place not in self._places:
            return False
        del self._places[place]
        of_address = self._by_address[place.address]
        del of_address[place]
        if not of_address:
            del self._by_address[place.address]
        return True

    def pop(self) -> Place | None:
        """Remove the oldest connection of the address with most. None if there is none."""
        of_most = self._by_address.get(self._most, self._places)
        place = next(iter(of_most if len(of_most) > 1 else self._places), None)
        if place is not None:
            self.remove(place)
        return place


class ConnectionSlots:
    """The open connections of one server. *max_connections*: limit over all listeners."""

    def __init__(self, max_connections: int) -> None:
        self.max_connections = max_connections
        self._unfinished, self._idle, self._idle_kept, self._busy = _Group(), _Group(), _Group(), _Group()
        self._groups: Final = (self._unfinished, self._idle, self._idle_kept, self._busy)

    def __len__(self) -> int:
        return sum(map(len, self._groups))

    @property
    def spare(self) -> int:
        """By how much `max_connections` may be exceeded while all connections are busy."""
        return max(8, self.max_connections // SPARE_SHARE)

    def enter(self, place: Place) -> bool:
        """Count *place*, and close another connection if there are too many.

        False: there is no room; it was not counted.
        """
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
        """The reply is written."""
        if self._remove(place):
            (self._idle_kept if place.is_kept else self._idle).add(place)

    def leave(self, place: Place) -> None:
        """The connection is closed. Does nothing if it was removed already."""
        self._remove(place)
        place.close = _nothing  # breaks a reference cycle that only the garbage collector would find

    def make_room(self) -> bool:
        """Close one idle or unfinished connection. False if all are busy."""
        for group in (self._unfinished, self._idle, self._idle_kept):
            if (place := group.pop()) is not None:
                place.close("connections")
                place.close = _nothing
                return True
        return False

    def _remove(self, place: Place) -> bool:
        return any(group.remove(place) for group in self._groups)


def _nothing(_reason: str) -> None:
    """Replaces `close` once a connection is closed."""
