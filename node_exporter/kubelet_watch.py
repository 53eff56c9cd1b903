"""Detects at once that the kubelet stops or starts. Only a hint: the agent's interval covers what it misses.

Rules of this file
- A connection to the kubelet's podresources socket is kept open, and nothing is sent on it. It breaks when the
  kubelet's process ends, even if the process is killed and its socket file remains.
- A gRPC server closes a connection on which nothing was sent (after 120 s). The watcher then connects again. Only a
  refused connection, or a new socket, counts as a change.
"""

import logging
import selectors
import socket
import threading
from collections.abc import Callable
from pathlib import Path

from node_exporter.files import identity

LOG = logging.getLogger(__name__)

RETRY_SECONDS = 0.5
"""The pause between two attempts to connect while no process listens."""
CONNECT_SECONDS = 2.0
"""Longest wait for a kubelet that does not accept because its queue is full."""
READ_BYTES = 4096


class KubeletWatcher:
    """Calls `on_change`, from its own thread, when the kubelet stops or starts listening on its socket."""

    def __init__(self, path: Path, on_change: Callable[[], None]) -> None:
        self._path = path
        self._on_change = on_change
        self._stopped, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="kubelet-watcher", daemon=True)

    def start(self) -> None:
        """Start watching. The socket may appear later."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for it."""
        self._stop.close()
        self._thread.join(CONNECT_SECONDS + RETRY_SECONDS)
        self._stopped.close()

    def _run(self) -> None:
        before: tuple[int, int] | None = None
        is_first = True
        while True:
            connection, made = self._connect(), identity(self._path)
            now = made if connection else None
            if now != before and not is_first:
                self._on_change()
            before, is_first = now, False
            if self._wait(connection):
                return

    def _connect(self) -> socket.socket | None:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(CONNECT_SECONDS)
        try:
            connection.connect(str(self._path))
        except OSError as error:
            LOG.debug("cannot connect to the kubelet reason=%r", str(error))
            connection.close()
            return None
        connection.settimeout(0.0)
        return connection

    def _wait(self, connection: socket.socket | None) -> bool:
        """Wait until the connection breaks, or for the next attempt. True: stop watching."""
        with selectors.DefaultSelector() as selector:
            selector.register(self._stopped, selectors.EVENT_READ)
            if connection is None:
                return bool(selector.select(RETRY_SECONDS))
            with connection:
                selector.register(connection, selectors.EVENT_READ)
                while True:
                    ready = {key.fileobj for key, _ in selector.select()}
                    if self._stopped in ready:
                        return True
                    if connection in ready and _has_ended(connection):
                        return False


def _has_ended(connection: socket.socket) -> bool:
    """Whether the other side has closed the connection. Its greeting is discarded."""
    try:
        return not connection.recv(READ_BYTES)
    except BlockingIOError:
        return False
    except OSError:
        return True
