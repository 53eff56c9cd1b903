"""uvicorn's HTTP protocol with bounds: on time, on the size of heads, on the number of connections.

Laws of this file
- Every moment of a connection has a deadline: the head, the body, the answer; silence between requests has uvicorn's
  keep-alive. One sweep a second over all connections closes those that are late: no timer for each request.
- A connection that has sent nothing yet is as patient as one between requests: Go clients keep spare connections.
- A new connection is never turned away for lack of room; the one that has been silent longest makes room. Those of
  clients with a certificate and on loopback stay: the scheduler does not repeat a request that meets a closed socket.
- What a connection proved goes to the application in `scope["state"]["peer"]`.
"""

import asyncio
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from extender.identity import Peer
from extender.metrics import Metrics

MAX_HEAD_BYTES: Final = 64 << 10
"""Request line, headers, chunk sizes and trailers of one request; Go's own limit for heads is 1 MiB."""
SWEEP_SECONDS: Final = 1.0
_NO_CERTIFICATE: Final[Mapping[str, object]] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    """Seconds for the parts of a request, and how many connections are kept."""

    head_seconds: float
    body_seconds: float
    answer_seconds: float
    max_connections: int


class PipeliningError(Exception):
    """A request before the answer to the last one: answered with 400. uvicorn loses track of such when they break off.

    No client of ours does it: Go's, Python's and browsers wait for the answer.
    """


class BoundedProtocol(HttpToolsProtocol):
    """One connection. `make_protocol` binds the first two arguments."""

    def __init__(self, patience: Patience, metrics: Metrics, **uvicorn_arguments: Any) -> None:
        super().__init__(**uvicorn_arguments)
        self.patience, self._metrics = patience, metrics
        self.late: str = ""
        """Which part of a request is under way, as in the metric `limited`; empty between requests."""
        self.deadline = 0.0
        self.quiet_since = 0.0
        self.peer = Peer()
        self._listener = "plain"
        self._head_bytes = 0

    @property
    def is_kept(self) -> bool:
        """Whether it is never closed to make room."""
        return bool(self.peer.certificate) or self.peer.is_loopback

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Note who it is; make room if there are too many."""
        super().connection_made(transport)
        tls = transport.get_extra_info("ssl_object")
        self._listener = "tls" if tls is not None else "plain"
        self.peer = Peer(self.client[0] if self.client else "", _certificate(tls))
        self.app_state = {**self.app_state, "peer": self.peer}
        self.quiet_since = self.loop.time()
        self._metrics.connections.labels(self._listener).inc()
        if len(self.connections) > self.patience.max_connections:
            _make_room(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Count it out."""
        self._metrics.connections.labels(self._listener).dec()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Feed the parser, unless there is too much that is no body."""
        if not self.late:
            self._head_bytes = 0
            self._allow("head_timeout", self.patience.head_seconds)
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes > MAX_HEAD_BYTES and not self.transport.is_closing():
            self._metrics.limited.labels("head").inc()
            self.send_400_response("Request head too large.")

    def on_headers_complete(self) -> None:
        """The head is here; now the body.

        Raises:
            PipeliningError: the answer to the request before is still to come.
        """
        if self.cycle is not None and not self.cycle.response_complete:
            self._metrics.limited.labels("pipelining").inc()
            raise PipeliningError
        self._allow("body_timeout", self.patience.body_seconds)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        """A piece of the body: bounded by whoever reads it."""
        self._head_bytes -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """The request is here; now the answer, and the client's reading of it."""
        super().on_message_complete()
        self._rest_or_answer()

    def on_response_complete(self) -> None:
        """The answer is written; the next request may take its time."""
        super().on_response_complete()
        self._rest_or_answer()

    def is_late(self, now: float) -> bool:
        """Whether it is past its deadline, or has not read an answer that was written long ago."""
        if self.late:
            return now > self.deadline
        return now > self.quiet_since + self.patience.answer_seconds and self.transport.get_write_buffer_size() > 0

    def give_up(self, reason: str) -> None:
        """Close at once, whatever is under way."""
        self._metrics.limited.labels(reason).inc()
        self.transport.abort()

    def _rest_or_answer(self) -> None:
        if self.cycle.response_complete:
            self.late, self.quiet_since = "", self.loop.time()
        else:
            self._allow("answer_timeout", self.patience.answer_seconds)

    def _allow(self, part: str, seconds: float) -> None:
        self.late, self.deadline = part, self.loop.time() + seconds


def make_protocol(patience: Patience, metrics: Metrics) -> Callable[..., BoundedProtocol]:
    """What `uvicorn.Config(http=…)` takes."""

    def protocol(
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
    ) -> BoundedProtocol:
        return BoundedProtocol(
            patience, metrics, config=config, server_state=server_state, app_state=app_state, _loop=_loop
        )

    return protocol


def sweep(state: ServerState, now: float) -> None:
    """Close every connection that is late. *now*: the loop's time."""
    for connection in list(state.connections):
        if isinstance(connection, BoundedProtocol) and connection.is_late(now):
            connection.give_up(connection.late or "answer_timeout")


def _make_room(newcomer: BoundedProtocol) -> None:
    """Close the connection that has been silent longest; the newcomer itself if all others are at work or kept."""
    idle = [
        c
        for c in newcomer.connections
        if isinstance(c, BoundedProtocol) and c is not newcomer and not c.late and not c.is_kept
    ]
    quietest = min(idle, key=lambda c: c.quiet_since, default=newcomer)
    if quietest is newcomer and newcomer.is_kept:
        return
    quietest.give_up("connections")


def _certificate(tls: ssl.SSLObject | None) -> Mapping[str, object]:
    """What the client's certificate says; empty without one. OpenSSL has verified the chain by now."""
    return (tls.getpeercert() if tls is not None else None) or _NO_CERTIFICATE
