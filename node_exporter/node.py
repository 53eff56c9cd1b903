"""The node as the agent sees it: all sources together, with what may be kept between two looks."""

import time
from dataclasses import dataclass
from pathlib import Path

from node_exporter.build import build_report
from node_exporter.devices import Remembered, remember
from node_exporter.observe import Fixed, RunningConfig, observe, read_fixed
from node_exporter.podresources import PodResourcesClient
from node_exporter.report import NodeReport

SOCKET = "pod-resources/kubelet.sock"
REFRESH_SECONDS = 600.0
"""How often machine and configuration are read again although no restart of the kubelet was noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Where the node's files lie and what is said by hand. None: found on the node."""

    root: Path
    node_name: str
    kubelet_dir: str | None = None
    kubelet_version: str | None = None


class Node:
    """Looks at one node. Keeps the sources that the kubelet reads only once, until the kubelet restarts."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._fixed: Fixed | None = None
        self._fixed_at = 0.0
        self._socket_identity: tuple[int, int] | None = None
        self._remembered: Remembered = {}
        self._podresources = PodResourcesClient(settings.root / SOCKET)

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's root directory, below the settings' root."""
        return self._refreshed(is_tick=False).kubelet_dir

    def look(self, *, is_tick: bool) -> NodeReport:
        """Take one look. Without podresources a regular look reads machine and configuration again."""
        fixed = self._refreshed(is_tick=is_tick)
        observation = observe(self._settings.root, fixed, self._podresources.ask, time.sleep)
        self._remembered = remember(self._remembered, observation.podresources)
        return build_report(observation, node_name=self._settings.node_name, remembered=self._remembered)

    def _refreshed(self, *, is_tick: bool) -> Fixed:
        identity = _identity(self._fixed.kubelet_dir / SOCKET) if self._fixed else None
        age = time.monotonic() - self._fixed_at
        is_restart = identity != self._socket_identity
        if self._fixed is None or is_restart or age > REFRESH_SECONDS or (is_tick and identity is None):
            settings = self._settings
            self._fixed = read_fixed(
                settings.root,
                running=RunningConfig(),
                kubelet_dir=settings.kubelet_dir,
                kubelet_version=settings.kubelet_version,
            )
            self._fixed_at = time.monotonic()
            self._socket_identity = _identity(self._fixed.kubelet_dir / SOCKET)
            self._remembered = {} if is_restart else self._remembered
            self._podresources.close()
            self._podresources = PodResourcesClient(self._fixed.kubelet_dir / SOCKET)
        return self._fixed


def _identity(path: Path) -> tuple[int, int] | None:
    """What differs between two sockets at one path: the kubelet makes a new one whenever it starts."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_ctime_ns
