"""Detects at once that a state file of the kubelet or of the NRI plugin changes, and that the kubelet stops or starts.

Rules of this file
- A change is only a hint: the agent's interval covers what is missed.
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

from watchfiles import watch

from node_exporter.dra_cpus import DIRECTORY, is_spec
from node_exporter.files import describe, identity, under
from node_exporter.nri_plugin import STATE_FILE

LOG = logging.getLogger(__name__)

DIRECTORIES = ("", "device-plugins", "pod-resources")
NAMES = frozenset({
    "cpu_manager_state", "memory_manager_state", "kubelet_internal_checkpoint", "kubelet.sock", Path(STATE_FILE).name,
})  # fmt: skip
DEBOUNCE_MILLISECONDS = 100
"""Longest delay of a report during continuous changes."""
STEP_MILLISECONDS = 50
ARMING_SECONDS = 0.3
"""After this time a new watch certainly works. An observation then covers earlier changes."""
CHECK_MILLISECONDS = 5_000
"""How often to check whether the watched directories were replaced."""
RETRY_SECONDS = 0.5
"""The pause between two attempts to connect while no process listens."""
CONNECT_SECONDS = 2.0
"""Longest wait for a kubelet that does not accept because its queue is full."""
READ_BYTES = 4096


class StateWatcher:
    """Calls `on_change`, from its own thread, when a state file or the kubelet's socket is written or replaced.

    `root`: where the node's files are, for the NRI plugin's state file and the files of dra-driver-cpu.
    """

    def __init__(self, root: Path, kubelet_dir: Path, on_change: Callable[[], None]) -> None:
        others = ((root / STATE_FILE).parent, under(root, DIRECTORY))
        self._watched = (*(kubelet_dir / name for name in DIRECTORIES), *others)
        self._on_change = on_change
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="state-watcher", daemon=True)

    def start(self) -> None:
        """Start watching. Directories may appear later."""
        self._thread.start()

    def stop(self) -> None:
        """Stop the thread, and wait for it."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._watch_until_directories_change()
            except (OSError, RuntimeError) as error:
                LOG.warning("watching files failed reason=%r fallback=interval", describe(error))
                self._stop.wait(CHECK_MILLISECONDS / 1000)

    def _watch_until_directories_change(self) -> None:
        watched = self._directories()
        if not watched:
            self._stop.wait(CHECK_MILLISECONDS / 1000)
            return
        changes = watch(
            *watched,
            watch_filter=lambda _, path: (name := path.rpartition("/")[2]) in NAMES or is_spec(name),
            debounce=DEBOUNCE_MILLISECONDS,
            step=STEP_MILLISECONDS,
            stop_event=self._stop,
            rust_timeout=CHECK_MILLISECONDS,
            yield_on_timeout=True,
            raise_interrupt=False,
            recursive=False,
        )
        catch_up = threading.Timer(ARMING_SECONDS, self._on_change)
        catch_up.daemon = True
        catch_up.start()
        for batch in changes:
            if batch:
                self._on_change()
            if self._directories() != watched:
                return

    def _directories(self) -> dict[Path, int]:
        """The directories that exist now, each with its inode, so that a replacement is detected."""
        found: dict[Path, int] = {}
        for path in self._watched:
            try:
                found[path] = path.stat().st_ino
            except OSError:
                continue
        return found


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
