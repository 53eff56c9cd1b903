"""Whether the NRI plugin still runs, although its files and objects stay when it is removed.

Rules of this file
- The plugin's state file, its status in a TopologyAwarePolicy and its NodeResourceTopology object all stay when the
  plugin is removed. None of them shows that it runs.
- The plugin connects to the runtime's NRI socket. Without the socket there is no plugin.
- The plugin writes its state file at each start of itself and of the runtime, and for every pod and container that the
  runtime creates (`pkg/resmgr/nri.go` Synchronize, RunPodSandbox, CreateContainer; `pkg/resmgr/cache/cache.go` Save).
  A file that is older than such an event was not written by a running plugin.
- A sign that the plugin is gone is a doubt after `DOUBTED_SECONDS`, and counts after `SETTLED_SECONDS`. An update of
  the plugin and the start of a runtime look the same for a short time.
- What cannot be seen proves nothing.
"""

import re
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from node_exporter.files import list_names, read_text
from node_exporter.kubelet_flags import running_programs
from node_exporter.nri_grants import STATE_FILE
from node_exporter.pods import MAX_POD_LOGS

DOUBTED_SECONDS: Final = 10.0
"""A time in which a running plugin certainly writes its state file after an event."""
SETTLED_SECONDS: Final = 300.0
"""Longer than the runtime and the kubelet wait for a plugin, and longer than an update of the plugin usually takes."""
NRI_SOCKETS: Final = ("run/nri/nri.sock", "var/run/nri/nri.sock")
POD_LOGS: Final = "var/log/pods"
PROGRAM: Final = "topology-aware"
"""Part of the name of the plugin's program, which is `nri-resource-policy-topology-aware`, sometimes after an index."""
NEWER_PODS: Final = 2
"""The number of pods with containers newer than the state file that shows that the plugin does not run.

One such pod proves nothing: the creation of its container may have failed before the plugin was asked.
"""
MAX_CONTAINERS: Final = 1000


class PluginWatch:
    """Tells from the files below *root* whether the plugin is gone, and why. *now*: Unix seconds, as file times."""

    def __init__(self, root: Path, now: Callable[[], float] = time.time) -> None:
        self._root = root
        self._now = now
        self._process_at = now()

    def absence(self, seconds: float = SETTLED_SECONDS) -> str:
        """What shows for *seconds* that the plugin is gone, for people; "" if nothing does."""
        before = self._now() - seconds
        return self._no_socket(before) or self._no_process(before) or self._old_state_file(before)

    def _no_socket(self, before: float) -> str:
        for path in (self._root / name for name in NRI_SOCKETS):
            since = _modified(path.parent)
            if since is not None:
                gone = _modified(path) is None and since < before
                return f"the runtime has no NRI socket in /{path.parent.relative_to(self._root)}" if gone else ""
        return ""

    def _no_process(self, before: float) -> str:
        """Whether the plugin has no process. Counts only where the exporter sees the kubelet's process."""
        programs = [word.rpartition("/")[2] for words in running_programs(self._root) for word in words]
        if "kubelet" not in programs or any(PROGRAM in program for program in programs):
            self._process_at = self._now()
        return "no process of the plugin runs" if self._process_at < before else ""

    def _old_state_file(self, before: float) -> str:
        written = _modified(self._root / STATE_FILE)
        if written is None:
            return ""
        starts = (("node", self._boot_time()), ("runtime", self._runtime_start()))
        for what, since in starts:
            if since is not None and written < since < before:
                return f"the {what} has started since the plugin last wrote its state file"
        return self._newer_pods(written, before)

    def _runtime_start(self) -> float | None:
        """The runtime creates its NRI socket when it starts."""
        found = [since for name in NRI_SOCKETS if (since := _modified(self._root / name)) is not None]
        return found[0] if found else None

    def _boot_time(self) -> float | None:
        try:
            match = re.match(r"(\d{1,12})(?:\.\d+)? ", read_text(self._root / "proc/uptime", 256))
        except (OSError, ValueError):
            return None
        return self._now() - float(match[1]) if match else None

    def _newer_pods(self, written: float, before: float) -> str:
        """The kubelet adds a directory to the pod's log directory just before it creates a container."""
        directory = self._root / POD_LOGS
        try:
            pods = list_names(directory, MAX_POD_LOGS)
        except (OSError, ValueError):
            return ""
        newer = 0
        for name in pods:
            since = _modified(directory / name)
            if since is not None and written < since < before and _has_entries(directory / name):
                newer += 1
                if newer == NEWER_PODS:
                    return "containers have been created since the plugin last wrote its state file"
        return ""


def _has_entries(directory: Path) -> bool:
    try:
        return bool(list_names(directory, MAX_CONTAINERS))
    except (OSError, ValueError):
        return False


def _modified(path: Path) -> float | None:
    """When a file was written, or a directory changed. None: it is not there, or cannot be seen."""
    try:
        return path.stat().st_mtime
    except OSError:
        return None
