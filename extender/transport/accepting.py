"""Accepts connections: limited backlog, a few at a time, and a pause when no file descriptor is left.

Rules of this file
- The event loop stays responsive: one round accepts as many connections as take a few milliseconds.
- A failed `accept` (no file descriptor, no memory) is counted, logged once a minute and retried after a pause. Each
  failure also closes one idle or unfinished connection, so that the server recovers by itself.
"""

import asyncio
import errno
import logging
import resource
import socket
from collections.abc import Callable
from typing import Final

from extender.observability.metrics import Metrics
from extender.transport.places import ConnectionSlots

LOG: Final = logging.getLogger(__name__)
BACKLOG: Final = 4096
"""Connections that the kernel completes before we accept them. Linux limits this to `net.core.somaxconn` (4096)."""
AT_ONCE: Final = 16
PAUSE_SECONDS: Final = 0.25
LOG_SECONDS: Final = 60.0
OTHER_FILES: Final = 128
"""File descriptors reserved for everything but client connections: the API server, files, worker processes."""
_REASONS: Final = {errno.EMFILE: "files", errno.ENFILE: "files", errno.ENOBUFS: "memory", errno.ENOMEM: "memory"}


class Listener:
    """Accepts on *listening* and passes each connection to *welcome*, with its remote address.

    It has the methods that uvicorn calls on shutdown: `close` and `wait_closed`.
    """

    def __init__(
        self,
        listening: socket.socket,
        welcome: Callable[[socket.socket, str], None],
        places: ConnectionSlots,
        metrics: Metrics,
    ) -> None:
        self._listening, self._welcome, self._places, self._metrics = listening, welcome, places, metrics
        self._loop = asyncio.get_running_loop()
        self._resume: asyncio.TimerHandle | None = None
        self._logged_at = -LOG_SECONDS
        self._is_open = True
        listening.settimeout(0)
        listening.listen(BACKLOG)
        self._loop.add_reader(listening, self._accept)

    @property
    def port(self) -> int:
        """The port it listens on."""
        port: int = self._listening.getsockname()[1]
        return port

    def close(self) -> None:
        """Stop accepting."""
        if not self._is_open:
            return
        self._is_open = False
        if self._resume is not None:
            self._resume.cancel()
        self._loop.remove_reader(self._listening)
        self._listening.close()

    async def wait_closed(self) -> None:
        """Return at once: it is closed when `close` returns."""

    def _accept(self) -> None:
        for _ in range(AT_ONCE):
            try:
                connection, address = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._pause(error)
                return
            connection.settimeout(0)
            self._welcome(connection, str(address[0]) if isinstance(address, tuple) else "")

    def _pause(self, error: OSError) -> None:
        """Stop reading for a while. The socket stays readable, so that accepting again at once would be a busy loop."""
        self._metrics.accept_failures.labels(_REASONS.get(error.errno or 0, "other")).inc()
        now = self._loop.time()
        if now - self._logged_at >= LOG_SECONDS:
            self._logged_at = now
            LOG.error("cannot accept connections open=%d error=%r", len(self._places), str(error))
        self._places.make_room()
        self._loop.remove_reader(self._listening)
        self._resume = self._loop.call_later(PAUSE_SECONDS, self._loop.add_reader, self._listening, self._accept)


async def bind(host: str, port: int) -> list[socket.socket]:
    """One socket for each address of *host*, which may be a name.

    Raises:
        OSError: one of them cannot be bound.
    """
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    sockets: list[socket.socket] = []
    try:
        for family, address in dict.fromkeys((info[0], info[4]) for info in found):
            sockets.append(socket.create_server(address, family=family, backlog=BACKLOG))
    except OSError:
        for each in sockets:
            each.close()
        raise
    return sockets


def room_for_files(max_connections: int) -> int:
    """How many connections the limit on open files allows, at most *max_connections*.

    The soft limit is raised as far as needed and allowed.
    """
    wanted = max_connections + max_connections // 16 + OTHER_FILES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        soft = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return max_connections
    room = max(16, (soft - OTHER_FILES) * 16 // 17)
    LOG.warning("the limit on open files reduces max_connections files=%d connections=%d", soft, room)
    return room
