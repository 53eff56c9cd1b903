"""The node as the agent sees it: all sources together, with what may be kept between two looks."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from node_exporter.build import build_report
from node_exporter.devices import Remembered, remember
from node_exporter.observation import RunningConfig
from node_exporter.observe import Fixed, observe, read_fixed
from node_exporter.podresources import PodResourcesClient
from node_exporter.report import NodeReport

if TYPE_CHECKING:
    from node_exporter.kubelet_api import KubeletApi

SOCKET = "pod-resources/kubelet.sock"
REFRESH_SECONDS = 600.0
"""How often machine and configuration are read again although no restart of the kubelet was noticed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Where the node's files lie and what is said by hand. None: found on the node.

    `kubelet_api` None: the kubelet is not asked; configuration comes from files, the version from `kubelet_version`.
    `rules`: what the kubelet's vendor back-ported, see `NodeReport`.
    """

    root: Path
    node_name: str
    kubelet_dir: str | None = None
    kubelet_version: str | None = None
    kubelet_api: "KubeletApi | None" = None
    rules: Mapping[str, bool] = field(default_factory=dict)


class Node:
    """Looks at one node. Keeps the sources that the kubelet reads only once, until the kubelet restarts."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._fixed: Fixed | None = None
        self._fixed_at = 0.0
        self._running = RunningConfig()
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
        settings = self._settings
        return build_report(
            observation, node_name=settings.node_name, rules=settings.rules, remembered=self._remembered
        )

    def _refreshed(self, *, is_tick: bool) -> Fixed:
        """Read again what changes only with the kubelet: after its restart, in due time, or while parts are missing."""
        identity = _identity(self._fixed.kubelet_dir / SOCKET) if self._fixed else None
        is_restart = identity != self._socket_identity
        is_old = time.monotonic() - self._fixed_at > REFRESH_SECONDS
        is_incomplete = identity is None or bool(self._running.problems)
        if self._fixed is None or is_restart or is_old or (is_tick and is_incomplete):
            if is_restart:
                self._running, self._remembered = RunningConfig(), {}
            self._fixed = self._read_fixed()
            self._fixed_at = time.monotonic()
            self._socket_identity = _identity(self._fixed.kubelet_dir / SOCKET)
            self._podresources.close()
            self._podresources = PodResourcesClient(self._fixed.kubelet_dir / SOCKET)
        return self._fixed

    def _read_fixed(self) -> Fixed:
        settings = self._settings
        if settings.kubelet_api is not None:
            from node_exporter.kubelet_api import ask_kubelet  # noqa: PLC0415 - loads an HTTP client

            answer = ask_kubelet(settings.kubelet_api)
            self._running = replace(
                answer,
                document=answer.document or self._running.document,
                version=answer.version or self._running.version,
            )
        return read_fixed(
            settings.root,
            running=self._running,
            kubelet_dir=settings.kubelet_dir,
            kubelet_version=settings.kubelet_version,
        )


def _identity(path: Path) -> tuple[int, int] | None:
    """What differs between two sockets at one path: the kubelet makes a new one whenever it starts."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return stat.st_ino, stat.st_ctime_ns
