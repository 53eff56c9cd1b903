"""The server: plain HTTP on loopback and TLS on the network, for one application.

Rules of this file
- On SIGTERM readiness fails first (`Lifecycle.draining`) while requests are still served for `drain_seconds`. Then no
  connection is accepted, and requests in progress end. A second signal, or Ctrl-C, skips the wait.
- Both listeners accept connections themselves (`Listener`), so that every connection is counted from `accept`.
- Headers such as X-Forwarded-For are never used: they would let any caller look like loopback.
"""

import asyncio
import logging
import signal
import socket
import sys
import time
from functools import partial
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from extender.config.settings import Settings
from extender.observability.lifecycle import Lifecycle
from extender.observability.metrics import Metrics
from extender.transport.accepting import Listener, bind, room_for_files
from extender.transport.certificates import Certificates
from extender.transport.handshakes import Handshakes
from extender.transport.places import ConnectionSlots, Place
from extender.transport.protocol import SWEEP_SECONDS, BeginShort, BoundedProtocol, sweep

LOG: Final = logging.getLogger(__name__)
_TICKS_PER_SECOND: Final = 10


class Server(uvicorn.Server):
    """uvicorn with a second listener, a drain, a limit on connections, and deadlines for clients.

    *certificates*: listen with TLS too. *begin_short*: takes calls that need no ASGI.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        settings: Settings,
        lifecycle: Lifecycle,
        metrics: Metrics,
        *,
        certificates: Certificates | None,
        begin_short: BeginShort,
    ) -> None:
        super().__init__(config)
        self._settings, self._lifecycle, self._metrics = settings, lifecycle, metrics
        self._certificates, self._begin_short = certificates, begin_short
        self._places: Final = ConnectionSlots(settings.max_connections)
        self._handshakes: Handshakes | None = None
        self._connecting: set[asyncio.Task[Any]] = set()
        self._drained_at = float("inf")
        self.tls_port = 0
        """The TLS port. 0 before startup and without TLS."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on both ports. *sockets*: use these for plain HTTP instead of the configured port."""
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(STARTUP_FAILURE)
        self._places.max_connections = room_for_files(self._places.max_connections)
        listeners: list[Any] = []
        self.servers = listeners
        plain = sockets if sockets is not None else await self._bind(self.config.host, self.config.port)
        listeners.extend(Listener(each, self._welcome, self._places, self._metrics) for each in plain)
        if sockets is None:
            self._log_started_message(plain)
        if self._certificates is not None:
            self._handshakes = Handshakes(
                self._certificates.context,
                self._protocol,
                self._places,
                self._metrics,
                seconds=self._settings.head_seconds,
            )
            secure = await self._bind(self._settings.tls_host, self._settings.tls_port)
            welcome = self._handshakes.welcome
            listeners.extend(Listener(each, welcome, self._places, self._metrics) for each in secure)
            self.tls_port = listeners[-1].port
            LOG.info("listening with TLS host=%s port=%d", self._settings.tls_host, self.tls_port)
        self.started = True

    async def _bind(self, host: str, port: int) -> list[socket.socket]:
        try:
            return await bind(host, port)
        except OSError as error:
            LOG.error("cannot listen host=%s port=%d error=%s", host, port, error)  # noqa: TRY400
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)

    def _welcome(self, connection: socket.socket, address: str) -> None:
        """Handle a connection to the plain port."""
        loop = asyncio.get_running_loop()
        place = Place(address, loop.time(), lambda _reason: task.cancel())
        if not self._places.enter(place):
            self._metrics.limited.labels("connections").inc()
            connection.close()
            return
        task = loop.create_task(loop.connect_accepted_socket(lambda: self._protocol(place), connection))
        self._connecting.add(task)
        task.add_done_callback(partial(self._connected, connection, place))

    def _connected(self, connection: socket.socket, place: Place, task: asyncio.Task[Any]) -> None:
        self._connecting.discard(task)
        if task.cancelled() or task.exception() is not None:  # it has closed, or was closed to make room
            self._places.leave(place)
            connection.close()

    async def on_tick(self, counter: int) -> bool:
        """Called ten times a second."""
        if counter % int(_TICKS_PER_SECOND * SWEEP_SECONDS) == 0:
            self._sweep()
        if time.monotonic() >= self._drained_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End open connections, including those of slow clients."""
        self._lifecycle.draining = True
        if self._handshakes is not None:
            self._handshakes.close()
        sweeping = asyncio.ensure_future(self._keep_sweeping())
        try:
            await super().shutdown(sockets)
        finally:
            sweeping.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Handle a signal. The first SIGTERM starts the drain."""
        if sig == signal.SIGTERM and not self._lifecycle.draining and self._settings.drain_seconds > 0:
            self._captured_signals.append(sig)
            self._lifecycle.draining = True
            self._drained_at = time.monotonic() + self._settings.drain_seconds
            return
        self._lifecycle.draining = True
        super().handle_exit(sig, frame)

    async def _keep_sweeping(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            self._sweep()

    def _sweep(self) -> None:
        now = asyncio.get_running_loop().time()
        sweep(self.server_state, now)
        if self._handshakes is not None:
            self._handshakes.sweep(now)

    def _protocol(self, place: Place) -> BoundedProtocol:
        return BoundedProtocol(
            self._settings,
            self._metrics,
            self._places,
            place,
            self._begin_short,
            config=self.config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
