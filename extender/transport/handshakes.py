"""TLS handshakes of accepted connections, at a limited cost.

Rules of this file
- Until the whole ClientHello has arrived, a connection costs a socket and no TLS state: the kernel keeps the bytes
  (`MSG_PEEK`) and wakes us when the rest has arrived (`SO_RCVLOWAT`).
- The number of concurrent handshakes is limited. Waiting ones are taken in turn over their source addresses, newest
  first within an address, so that a flood from one address does not delay the others.
- While all places for handshakes are taken, an address with none gets one from the address with most. Any handshake
  older than `PATIENCE_SECONDS` gives up its place to a waiting one.
- One deadline covers the time from `accept` to the end of the handshake.
"""

import asyncio
import logging
import socket
import ssl
from collections import Counter, OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final

from extender.observability.metrics import Metrics
from extender.transport.places import ConnectionSlots, Place
from extender.transport.protocol import BoundedProtocol

LOG: Final = logging.getLogger(__name__)
AT_ONCE: Final = 64
"""Limit on concurrent handshakes. Each holds up to 350 KiB, most of it the read buffer of uvloop."""
PATIENCE_SECONDS: Final = 1.0
SHUTDOWN_SECONDS: Final = 10.0
SPARE_SECONDS: Final = 60.0
"""asyncio's limit is this much later, so that ours ends a handshake and counts it even if the sweep is delayed."""
_HEADER_BYTES: Final = 5
_HANDSHAKE_RECORD: Final = 0x16
_MAX_RECORD_BYTES: Final = 16_384
_USUAL_BYTES: Final = 2048
"""More than a usual ClientHello, so that one read is enough."""

ProtocolFactory = Callable[[Place], BoundedProtocol]


class _Handshake:
    """One connection before its handshake has ended. `wanted`: bytes that must have arrived before the next step."""

    __slots__ = ("address", "connection", "place", "protocol", "started", "task", "wanted")

    def __init__(self, connection: socket.socket, address: str) -> None:
        self.connection, self.address = connection, address
        self.place: Place
        self.wanted = 0
        self.started = 0.0
        self.task: asyncio.Task[None] | None = None
        self.protocol: BoundedProtocol | None = None

    @property
    def is_made(self) -> bool:
        """Whether the handshake succeeded."""
        return self.protocol is not None and self.protocol.is_made


_Ordered = dict[_Handshake, None]


class Handshakes:
    """Takes connections from `welcome`. *make_protocol* creates the protocol for completed ones.

    *seconds*: from `accept` to the end of the handshake.
    """

    def __init__(
        self,
        context: ssl.SSLContext,
        make_protocol: ProtocolFactory,
        places: ConnectionSlots,
        metrics: Metrics,
        *,
        seconds: float,
    ) -> None:
        self._context, self._make_protocol, self._places = context, make_protocol, places
        self._limited, self._gauge = metrics.limited, metrics.connections.labels("handshake")
        self._seconds = seconds
        self._loop = asyncio.get_running_loop()
        self._all: _Ordered = {}
        self._waiting: OrderedDict[str, _Ordered] = OrderedDict()
        self._running: _Ordered = {}

    def welcome(self, connection: socket.socket, address: str) -> None:
        """Take over an accepted connection."""
        one = _Handshake(connection, address)
        one.place = Place(address, self._loop.time(), lambda reason: self._give_up(one, reason))
        if not self._places.enter(one.place):
            self._limited.labels("connections").inc()
            connection.close()
            return
        self._all[one] = None
        self._gauge.inc()
        self._loop.add_reader(connection, self._look, one)

    def sweep(self, now: float) -> None:
        """Close connections past their deadline. *now*: the loop's time."""
        for one in list(self._all):
            if now <= one.place.since + self._seconds:
                break
            self._give_up(one, "handshake_timeout")
        self._go_on()

    def close(self) -> None:
        """Close all handshakes, because the server is shutting down."""
        for one in list(self._all):
            self._give_up(one, "connections")

    def _look(self, one: _Handshake) -> None:
        """Check whether the whole ClientHello is there.

        Called when enough bytes have arrived or the client has closed.
        """
        try:
            seen = one.connection.recv(max(one.wanted, _USUAL_BYTES), socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            seen = b""
        if not seen or seen[0] != _HANDSHAKE_RECORD:
            if seen:
                one.connection.recv(_MAX_RECORD_BYTES)  # otherwise the client sees a reset
            self._give_up(one, "handshake")
            return
        wanted = _HEADER_BYTES
        if len(seen) >= _HEADER_BYTES:
            wanted += min(int.from_bytes(seen[3:5], "big"), _MAX_RECORD_BYTES)
        if len(seen) < wanted and one.wanted < wanted:
            one.wanted = wanted
            one.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            return
        # Everything is there, or the client has closed its side and sends nothing more: OpenSSL decides.
        self._loop.remove_reader(one.connection)
        one.connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 1)
        is_first = one.address not in self._waiting
        self._waiting.setdefault(one.address, {})[one] = None
        if is_first:
            self._waiting.move_to_end(one.address, last=False)
        self._go_on()

    def _go_on(self) -> None:
        """Start waiting handshakes as long as there are places."""
        while self._waiting:
            address = next(iter(self._waiting))
            if len(self._running) >= AT_ONCE and not self._make_room(address):
                return
            of_address = self._waiting.pop(address)
            one, _ = of_address.popitem()
            if of_address:
                self._waiting[address] = of_address  # now last in the round
            one.started = self._loop.time()
            self._running[one] = None
            one.task = self._loop.create_task(self._shake(one))
            one.task.add_done_callback(partial(self._ended, one))

    def _make_room(self, address: str) -> bool:
        """End one handshake to make room for *address*, if it has none: the oldest of the address with most."""
        counts = Counter(one.address for one in self._running)
        most, count = counts.most_common(1)[0]
        longest = next(one for one in self._running if one.address == most)
        has_less = count > 1 and not counts[address]
        is_late = self._loop.time() >= longest.started + PATIENCE_SECONDS
        return (has_less or is_late) and self._give_up(longest, "handshake_timeout")

    async def _shake(self, one: _Handshake) -> None:
        def make_protocol() -> BoundedProtocol:
            one.protocol = self._make_protocol(one.place)
            return one.protocol

        await self._loop.connect_accepted_socket(
            make_protocol,
            one.connection,
            ssl=self._context,
            ssl_handshake_timeout=self._seconds + SPARE_SECONDS,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )

    def _ended(self, one: _Handshake, task: asyncio.Task[None]) -> None:
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            one.connection.close()
            if one.protocol is not None:
                one.protocol.discard()
            if not isinstance(error, OSError | asyncio.CancelledError):  # ssl.SSLError is an OSError
                LOG.error("internal error in a TLS handshake", exc_info=error)
            if one in self._all:
                LOG.debug("TLS handshake failed address=%s error=%r", one.address, str(error))
                self._limited.labels("handshake").inc()
                self._places.leave(one.place)
        one.task = one.protocol = None  # breaks reference cycles that only the garbage collector would find
        self._forget(one)
        if self._running.pop(one, 0) is None:
            self._go_on()

    def _give_up(self, one: _Handshake, reason: str) -> bool:
        """Close at once. False if the handshake has ended meanwhile."""
        if one not in self._all or one.is_made:
            return False
        self._limited.labels(reason).inc()
        self._places.leave(one.place)
        self._forget(one)
        if one.task is not None:
            self._running.pop(one, None)
            one.task.cancel()  # its resources are released when the task ends
            return True
        of_address = self._waiting.get(one.address)
        if of_address is not None and of_address.pop(one, 0) is None:
            if not of_address:
                del self._waiting[one.address]
        else:
            self._loop.remove_reader(one.connection)
        one.connection.close()
        return True

    def _forget(self, one: _Handshake) -> None:
        if self._all.pop(one, 0) is None:
            self._gauge.dec()
