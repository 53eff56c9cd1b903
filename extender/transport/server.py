"""The server: plain HTTP on loopback, TLS for everybody else, one application.

Laws of this file
- Ending begins with saying so: after a SIGTERM readiness fails (`Lifecycle.draining`) while everything is still
  answered for `drain_seconds`; then no connection is accepted and requests under way end. A second signal, or Ctrl-C,
  skips the waiting.
- Headers such as X-Forwarded-For are never believed: they would make anybody a loopback caller.
"""

import asyncio
import logging
import signal
import socket
import sys
import time
from dataclasses import dataclass
from types import FrameType
from typing import Any, Final

import uvicorn
from uvicorn.config import STARTUP_FAILURE

from extender.lifecycle import Lifecycle
from extender.transport.certificates import Certificates
from extender.transport.protocol import SWEEP_SECONDS, sweep

LOG: Final = logging.getLogger(__name__)
HANDSHAKE_SECONDS: Final = 10.0
_TICKS_PER_SECOND: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class TLSListener:
    """Where to listen with TLS. *port* 0 takes a free one."""

    host: str
    port: int
    certificates: Certificates


class Server(uvicorn.Server):
    """uvicorn with a second listener, a drain, and no patience with late clients."""

    def __init__(
        self, config: uvicorn.Config, lifecycle: Lifecycle, *, tls: TLSListener | None, drain_seconds: float
    ) -> None:
        super().__init__(config)
        self._lifecycle, self._tls, self._drain_seconds = lifecycle, tls, drain_seconds
        self._drained_at = float("inf")
        self.tls_port = 0
        """Where TLS is spoken; 0 before the start and without TLS."""

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen on both."""
        await super().startup(sockets)
        if self._tls is None or self.should_exit:
            return
        loop = asyncio.get_running_loop()
        self.started = False
        try:
            server = await loop.create_server(
                self._protocol,
                host=self._tls.host,
                port=self._tls.port,
                ssl=self._tls.certificates.context,
                ssl_handshake_timeout=HANDSHAKE_SECONDS,
                ssl_shutdown_timeout=HANDSHAKE_SECONDS,
                backlog=self.config.backlog,
            )
        except OSError as error:
            LOG.error("cannot listen host=%s port=%d error=%s", self._tls.host, self._tls.port, error)  # noqa: TRY400
            await self.lifespan.shutdown()
            sys.exit(STARTUP_FAILURE)
        self.servers.append(server)
        self.tls_port = server.sockets[0].getsockname()[1]
        self.started = True
        LOG.info("listening with TLS host=%s port=%d", self._tls.host, self.tls_port)

    async def on_tick(self, counter: int) -> bool:
        """Ten times a second."""
        if counter % int(_TICKS_PER_SECOND * SWEEP_SECONDS) == 0:
            sweep(self.server_state, asyncio.get_running_loop().time())
        if time.monotonic() >= self._drained_at:
            self.should_exit = True
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what is under way, late clients included."""
        self._lifecycle.draining = True
        sweeping = asyncio.ensure_future(self._sweep())
        try:
            await super().shutdown(sockets)
        finally:
            sweeping.cancel()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal: the first SIGTERM begins the drain."""
        if sig == signal.SIGTERM and not self._lifecycle.draining and self._drain_seconds > 0:
            self._captured_signals.append(sig)
            self._lifecycle.draining = True
            self._drained_at = time.monotonic() + self._drain_seconds
            return
        self._lifecycle.draining = True
        super().handle_exit(sig, frame)

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            sweep(self.server_state, asyncio.get_running_loop().time())

    def _protocol(self) -> asyncio.Protocol:
        make: Any = self.config.http_protocol_class
        protocol: asyncio.Protocol = make(
            config=self.config, server_state=self.server_state, app_state=self.lifespan.state
        )
        return protocol
