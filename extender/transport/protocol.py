"""uvicorn's HTTP protocol with limits on time, on the size of heads and on the number of connections.

Rules of this file
- A connection always has a deadline: for the head, the body and the reply. Between requests uvicorn's keep-alive
  timeout applies. One sweep a second closes late connections, so that requests need no timers of their own.
- A connection that has sent nothing yet may wait as long as one between requests: Go clients keep spare connections.
- `ConnectionSlots` decides which connection is closed when there are too many. This file says which are busy or idle.
- The identity of a connection is passed to the application in `scope["state"]["peer"]`.
- A call that the short way takes is answered without ASGI, and its reply is one call of the system and one TLS record.
  Every other call on the same connection is uvicorn's. Deadlines and limits are the same for both.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Protocol

from starlette.responses import Response
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol
from uvicorn.server import ServerState

from extender.config.settings import Settings
from extender.identity import LOOPBACK_ADDRESSES, Peer
from extender.observability.metrics import Metrics
from extender.transport.places import ConnectionSlots, Place

MAX_HEAD_BYTES: Final = 64 << 10
"""Request line, headers, chunk sizes and trailers of one request; Go's own limit for heads is 1 MiB."""
MAX_HEAD_FIELDS: Final = 256
"""Header fields of one request. kube-scheduler sends 7. Each costs the event loop a few microseconds."""
SWEEP_SECONDS: Final = 1.0


class ShortCall(Protocol):
    """A call without ASGI, from its head on."""

    def take(self, piece: bytes) -> bool:
        """A piece of the body has arrived. False: the rest is not wanted, and `reply` can be called."""

    def cut(self) -> None:
        """The client has gone before the end of the body."""

    async def reply(self) -> Response:
        """The reply. Raises nothing."""

    def end(self, status: int) -> None:
        """The reply is written. *status* 0: the client has gone before that."""


BeginShort = Callable[[dict[str, Any], bytes, bytes], ShortCall | None]
"""From ASGI's scope, the method and the target of a request. None: the call is not taken."""


class ShortCycle:
    """Stands for a request that uvicorn does not run itself, with what uvicorn reads of a request in progress."""

    message_event: Final = asyncio.Event()

    def __init__(self, call: ShortCall, *, keep_alive: bool) -> None:
        self.call, self.keep_alive = call, keep_alive
        self.is_begun = self.response_complete = self.disconnected = False


class RefusedHeadError(Exception):
    """A head that is answered with 400, and not parsed further.

    It has more than `MAX_HEAD_FIELDS` fields, or the request before it is not answered yet: uvicorn loses track if such
    a client disconnects. Go's and Python's clients and browsers wait for the reply.
    """


class BoundedProtocol(HttpToolsProtocol):
    """One connection, which has *place* among *places*."""

    def __init__(
        self,
        settings: Settings,
        metrics: Metrics,
        places: ConnectionSlots,
        place: Place,
        begin_short: BeginShort,
        **uvicorn_arguments: Any,
    ) -> None:
        super().__init__(**uvicorn_arguments)
        self._begin_short = begin_short
        self._short: ShortCycle | None = None
        self._settings, self._metrics, self._places, self._place = settings, metrics, places, place
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
        self.is_made = True
        tls = transport.get_extra_info("ssl_object")
        self._listener = "tls" if tls is not None else "plain"
        self.peer = Peer(self.client[0] if self.client else "", _certificate(tls))
        self.app_state = {**self.app_state, "peer": self.peer}
        self.quiet_since = self.loop.time()
        self._place.is_kept = bool(self.peer.certificate) or self.peer.address in LOOPBACK_ADDRESSES
        self._place.close = self.give_up
        self._metrics.connections.labels(self._listener).inc()

    def discard(self) -> None:
        """The connection was never made: break the cycle with the parser, which only the collector would find."""
        self.parser = None  # type: ignore[assignment]

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection from the count."""
        self._metrics.connections.labels(self._listener).dec()
        self._places.leave(self._place)
        super().connection_lost(exc)
        if self._short is not None and not self._short.is_begun:
            self._short.call.cut()
            self._run_short(self._short)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless the head is too large."""
        if not self.late:
            self._head_bytes = 0
            self._allow("head_timeout", self._settings.head_seconds)
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
            RefusedHeadError: there are more than the limit.
        """
        super().on_header(name, value)
        if len(self.headers) > MAX_HEAD_FIELDS:
            self._metrics.limited.labels("head").inc()
            raise RefusedHeadError

    def on_headers_complete(self) -> None:
        """The head is complete; the body follows.

        Raises:
            RefusedHeadError: the previous request is not answered yet.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self._metrics.limited.labels("pipelining").inc()
            raise RefusedHeadError
        self._allow("body_timeout", self._settings.body_seconds)
        self.has_asked = True
        self._places.busy(self._place)
        self._short = self._begun()
        if self._short is None:
            super().on_headers_complete()
        else:
            self.cycle = self._short  # type: ignore[assignment]

    def _begun(self) -> ShortCycle | None:
        """The call on the short way; None: uvicorn runs it."""
        if self.expect_100_continue or self.parser.should_upgrade() or self.parser.get_http_version() != "1.1":
            return None
        call = self._begin_short(self.scope, self.parser.get_method(), self.url)  # type: ignore[arg-type]
        return None if call is None else ShortCycle(call, keep_alive=self.parser.should_keep_alive())

    def on_body(self, body: bytes) -> None:
        """A piece of the body. The reader of the body limits its size."""
        self._head_bytes -= len(body)
        if self._short is None:
            super().on_body(body)
        elif not self._short.is_begun and not self._short.call.take(body):
            self._run_short(self._short)

    def on_message_complete(self) -> None:
        """The request is complete. The deadline for the reply starts."""
        if self._short is None:
            super().on_message_complete()
        elif not self._short.is_begun:
            self._run_short(self._short)
        self._rest_or_answer()

    def _run_short(self, cycle: ShortCycle) -> None:
        cycle.is_begun = True
        task = self.loop.create_task(self._answer_short(cycle))
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer_short(self, cycle: ShortCycle) -> None:
        status = 0
        try:
            reply = await cycle.call.reply()
            if not cycle.disconnected:
                status = reply.status_code
                cycle.keep_alive &= status != HTTPStatus.INTERNAL_SERVER_ERROR
                self._write_short(cycle, reply)
        finally:
            cycle.call.end(status)

    def _write_short(self, cycle: ShortCycle, reply: Response) -> None:
        fields = [*self.server_state.default_headers, *reply.raw_headers]
        if not cycle.keep_alive:
            fields.append((b"connection", b"close"))
        head = b"".join([b"%b: %b\r\n" % field for field in fields])
        self.transport.write(b"".join((STATUS_LINE[reply.status_code], head, b"\r\n", reply.body)))
        cycle.response_complete = True
        if not cycle.keep_alive:
            self.transport.close()
        self.on_response_complete()

    def on_response_complete(self) -> None:
        """The reply is written. The keep-alive timeout starts."""
        super().on_response_complete()
        self._rest_or_answer()

    def is_late(self, now: float) -> bool:
        """Whether a deadline has passed, the client does not read its reply, or it never sent anything."""
        if self.late:
            return now > self.deadline
        if not self.has_asked:
            return now > self.quiet_since + self.timeout_keep_alive
        return now > self.quiet_since + self._settings.answer_seconds and self.transport.get_write_buffer_size() > 0

    def give_up(self, reason: str) -> None:
        """Close at once, even during a request."""
        self._metrics.limited.labels(reason).inc()
        self.transport.abort()

    def _rest_or_answer(self) -> None:
        if self.cycle.response_complete:
            self.late, self.quiet_since = "", self.loop.time()
            self._places.idle(self._place)
        else:
            self._allow("answer_timeout", self._settings.answer_seconds)

    def _allow(self, part: str, seconds: float) -> None:
        self.late, self.deadline = part, self.loop.time() + seconds


def sweep(state: ServerState, now: float) -> None:
    """Close every connection past its deadline. *now*: the loop's time."""
    for connection in list(state.connections):
        if isinstance(connection, BoundedProtocol) and connection.is_late(now):
            connection.give_up(connection.late or ("answer_timeout" if connection.has_asked else "idle"))


def _certificate(tls: ssl.SSLObject | None) -> Mapping[str, object]:
    """The client's certificate, whose chain OpenSSL has verified. Empty without one."""
    return (tls.getpeercert() if tls is not None else None) or {}
