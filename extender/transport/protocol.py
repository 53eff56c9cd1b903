"""uvicorn's HTTP protocol with limits on time, on the size of heads and on the number of connections.

Rules of this file
- A connection always has a deadline: for the head, the body and the reply. Between requests uvicorn's keep-alive
  timeout applies. One sweep a second closes late connections, so that requests need no timers of their own.
- A connection that has sent nothing yet may wait as long as one between requests: Go clients keep spare connections.
- `ConnectionSlots` decides which connection is closed when there are too many. This file says which are busy or idle.
- The parts of a reply are sent together: one call of the system and one TLS record, where uvicorn writes twice. The
  client then wakes up once.
- The identity of a connection is passed to the application in `scope["state"]["peer"]`.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from extender.identity import Peer
from extender.observability.metrics import Metrics
from extender.transport.places import ConnectionSlots, Place


class JoinedWrites(asyncio.Transport):
    """*transport*, except that bytes wait until `flush`, `close`, or the next turn of *loop*."""

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._transport: Final = transport
        self._loop: Final = loop
        self._held: list[bytes] = []

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send with what is written next."""
        if not self._held:
            self._loop.call_soon(self.flush)
        self._held.append(bytes(data))

    def flush(self) -> None:
        """Send now what was written."""
        if self._held:
            held, self._held = self._held, []
            self._transport.write(b"".join(held))

    def close(self) -> None:
        """Send what was written, and close."""
        self.flush()
        self._transport.close()

    def abort(self) -> None:
        """Close at once; what was not sent is lost."""
        self._held = []
        self._transport.abort()

    def is_closing(self) -> bool:
        """Whether the connection is closed or closing."""
        return self._transport.is_closing()

    def get_extra_info(self, name: str, default: Any = None) -> Any:  # noqa: ANN401 - as asyncio declares it
        """The information that asyncio's transport has."""
        return self._transport.get_extra_info(name, default)

    def get_write_buffer_size(self) -> int:
        """Bytes that the client has not taken yet."""
        return sum(map(len, self._held)) + self._transport.get_write_buffer_size()


MAX_HEAD_BYTES: Final = 64 << 10
"""Request line, headers, chunk sizes and trailers of one request; Go's own limit for heads is 1 MiB."""
MAX_HEAD_FIELDS: Final = 256
"""Header fields of one request. kube-scheduler sends 7. Each costs the event loop a few microseconds."""
SWEEP_SECONDS: Final = 1.0
_NO_CERTIFICATE: Final[Mapping[str, object]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionTimeouts:
    """Seconds allowed for each part of a request."""

    head_seconds: float
    body_seconds: float
    answer_seconds: float


class PipeliningError(Exception):
    """A second request before the first was answered.

    Answered with 400: uvicorn loses track if such a client disconnects.

    Go's and Python's clients and browsers wait for the reply and never do this.
    """


class TooManyFieldsError(Exception):
    """A head with more than `MAX_HEAD_FIELDS` fields. Answered with 400 before the rest of it is parsed."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection, which has *place* among *places*. `make_protocol` binds the first two arguments."""

    def __init__(
        self,
        patience: ConnectionTimeouts,
        metrics: Metrics,
        places: ConnectionSlots,
        place: Place,
        **uvicorn_arguments: Any,
    ) -> None:
        super().__init__(**uvicorn_arguments)
        self.patience, self._metrics, self._places, self._place = patience, metrics, places, place
        self.late: str = ""
        """The part of a request in progress, as in the metric `limited`. Empty between requests."""
        self.deadline = 0.0
        self.quiet_since = 0.0
        self.peer = Peer()
        self._listener = "plain"
        self.is_made = False
        """Whether `connection_made` was called."""
        self.has_asked = False
        """Whether the head of a request has arrived yet."""
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Record the identity of the other end."""
        super().connection_made(transport)
        self.transport = self._joined = JoinedWrites(transport, self.loop)
        self.is_made = True
        tls = transport.get_extra_info("ssl_object")
        self._listener = "tls" if tls is not None else "plain"
        self.peer = Peer(self.client[0] if self.client else "", _certificate(tls))
        self.app_state = {**self.app_state, "peer": self.peer}
        self.quiet_since = self.loop.time()
        self._place.is_kept = bool(self.peer.certificate) or self.peer.is_loopback
        self._place.close = self.give_up
        self._metrics.connections.labels(self._listener).inc()

    def discard(self) -> None:
        """The connection was never made.

        Break the cycle with the parser, which only the garbage collector would find.
        """
        self.parser = None  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        self._metrics.connections.labels(self._listener).dec()
        self._places.leave(self._place)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless the head is too large."""
        if not self.late:
            self._head_bytes = 0
            self._allow("head_timeout", self.patience.head_seconds)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._metrics.limited.labels("head").inc()
            super().send_400_response("Request head too large.")

    def send_400_response(self, msg: str) -> None:
        """Answer with 400 and close the connection."""
        self._metrics.limited.labels("malformed").inc()
        super().send_400_response(msg)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Handle a field of the head, or of the trailers.

        Raises:
            TooManyFieldsError: there are more than the limit.
        """
        super().on_header(name, value)
        if len(self.headers) > MAX_HEAD_FIELDS:
            self._metrics.limited.labels("head").inc()
            raise TooManyFieldsError

    def on_headers_complete(self) -> None:
        """The head is complete; the body follows.

        Raises:
            PipeliningError: the previous request is not answered yet.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self._metrics.limited.labels("pipelining").inc()
            raise PipeliningError
        self._allow("body_timeout", self.patience.body_seconds)
        self.has_asked = True
        self._places.busy(self._place)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body. The reader of the body limits its size."""
        self._head_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is complete. The deadline for the reply starts."""
        super().on_message_complete()
        self._rest_or_answer()

    def on_response_complete(self) -> None:
        """The reply is written. The keep-alive timeout starts."""
        self._joined.flush()
        super().on_response_complete()
        self._rest_or_answer()

    def is_late(self, now: float) -> bool:
        """Whether a deadline has passed, the client does not read its reply, or it never sent anything."""
        if self.late:
            return now > self.deadline
        if not self.has_asked:
            return now > self.quiet_since + self.timeout_keep_alive
        return now > self.quiet_since + self.patience.answer_seconds and self.transport.get_write_buffer_size() > 0

    def give_up(self, reason: str) -> None:
        """Close at once, even during a request."""
        self._metrics.limited.labels(reason).inc()
        self.transport.abort()

    def _rest_or_answer(self) -> None:
        if self.cycle.response_complete:
            self.late, self.quiet_since = "", self.loop.time()
            self._places.idle(self._place)
        else:
            self._allow("answer_timeout", self.patience.answer_seconds)

    def _allow(self, part: str, seconds: float) -> None:
        self.late, self.deadline = part, self.loop.time() + seconds


def make_protocol(patience: ConnectionTimeouts, metrics: Metrics) -> Callable[..., BoundedProtocol]:
    """The class for `uvicorn.Config(http=…)`. `Server` passes the last two arguments of `BoundedProtocol`."""
    return partial(BoundedProtocol, patience, metrics)


def sweep(state: ServerState, now: float) -> None:
    """Close every connection past its deadline. *now*: the loop's time."""
    for connection in list(state.connections):
        if isinstance(connection, BoundedProtocol) and connection.is_late(now):
            connection.give_up(connection.late or ("answer_timeout" if connection.has_asked else "idle"))


def _certificate(tls: ssl.SSLObject | None) -> Mapping[str, object]:
    """The client's certificate, whose chain OpenSSL has verified. Empty without one."""
    return (tls.getpeercert() if tls is not None else None) or _NO_CERTIFICATE
