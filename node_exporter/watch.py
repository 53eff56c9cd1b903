"""Detects changes of the state files of the kubelet and of the NRI plugin at once.

Only a hint: the agent's interval covers what it misses.
"""

import logging
import threading
from collections.abc import Callable
from pathlib import Path

from watchfiles import Change, watch

from node_exporter.files import describe
from node_exporter.nri_grants import STATE_FILE

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


class StateWatcher:
    """Calls `on_change`, from its own thread, when a state file or the kubelet's socket is written or replaced.

    `root`: where the node's files are, for the NRI plugin's state file.
    """

    def __init__(self, root: Path, kubelet_dir: Path, on_change: Callable[[], None]) -> None:
        self._watched = (*(kubelet_dir / name for name in DIRECTORIES), (root / STATE_FILE).parent)
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
            watch_filter=_is_state_file,
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


def _is_state_file(_change: Change, path: str) -> bool:
    return path.rpartition("/")[2] in NAMES
