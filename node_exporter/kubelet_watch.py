"""Notice at once that the kubelet stops or starts. Only a hint: the agent's interval covers whatever is missed.

Laws of this file
- A connection to the kubelet's podresources socket is held open, and nothing is sent on it. It breaks in the moment in
  which the kubelet's process ends, also when the process is killed and leaves the file of its socket behind.
- A gRPC server closes a connection on which nothing was sent (after 120 s). It is then made again; only a socket that
  does not take it, or another socket, is a change.
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
"""Between two attempts to connect while nobody listens."""
CONNECT_SECONDS = 2.0
"""The longest wait for a kubelet that does not accept; its queue is full then."""
READ_BYTES = 4096


class KubeletWatcher:
    """Calls `on_change`, from a thread of its own, when the kubelet ceases or begins to listen on its socket."""

    def __init__(self, path: Path, on_change: Callable[[], None]) -> None:
        self._path = path
        self._on_change = on_change
        self._stopped, self._stop = socket.socketpair()
        self._thread = threading.Thread(target=self._run, name="kubelet-watcher", daemon=True)

    def start(self) -> None:
        """Begin to watch; the socket may appear later."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread, and wait for it."""
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
            LOG.debug("kubelet not reached reason=%r", str(error))
            connection.close()
            return None
        connection.settimeout(0.0)
        return connection

    def _wait(self, connection: socket.socket | None) -> bool:
        """Wait until the connection breaks, or for the next attempt; True: the watch is over."""
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
    """Whether the other side closed; what it sends is its greeting, and is thrown away."""
    try:
        return not connection.recv(READ_BYTES)
    except BlockingIOError:
        return False
    except OSError:
        return True
