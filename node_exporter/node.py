"""The node as the agent sees it: all sources together, and what is cached between two observations."""

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from node_exporter.bounded_http import Connection
from node_exporter.build import build_report
from node_exporter.devices import Remembered, remember
from node_exporter.files import identity
from node_exporter.kubelet_api import ask_kubelet
from node_exporter.nri_policy import NriObserver, ReadNriConfig
from node_exporter.observation import Fixed, RunningConfig
from node_exporter.observe import observe, read_fixed
from node_exporter.podresources import PodResourcesClient
from node_exporter.report import NodeReport, PodResourcesService

SOCKET = "pod-resources/kubelet.sock"
REFRESH_SECONDS = 600.0
"""How often machine and configuration are read again if no restart of the kubelet was detected."""
SETTLING_SECONDS = 20.0
"""How long after a start of the kubelet the node is observed more often. Its pods appear one after another, and the CPU
manager's reconciliation (every 10 s by default) releases what ended pods held."""
SETTLING_LOOK_SECONDS = 1.0
TORN_SECONDS = 5.0
"""How long a state that contradicts itself is not published. The kubelet's writes of one allocation take milliseconds,
on a slow disk a second. A contradiction that lasts longer has another cause, and is published with its problem."""
TORN_LOOK_SECONDS = 0.2


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSettings:
    """Where the node's files are, and values from options. None: read from the node.

    `kubelet_api` None: configuration comes from files, and the version from `kubelet_version`. `rules`: see
    `NodeReport`. `nri_config`: where the configuration of an NRI topology-aware policy is; None: such a policy is known
    by its state file only. `nri_release`: the release of its plugin.
    """

    root: Path
    node_name: str
    kubelet_dir: str | None = None
    kubelet_version: str | None = None
    kubelet_api: Connection | None = None
    rules: Mapping[str, bool] = field(default_factory=dict)
    nri_config: ReadNriConfig | None = None
    nri_release: str = ""


class NodeReader:
    """Observes one node. Caches, until the kubelet restarts, the sources that the kubelet reads only at its start."""

    def __init__(self, settings: NodeSettings) -> None:
        self._settings = settings
        self._fixed: Fixed | None = None
        self._fixed_at = 0.0
        self._running = RunningConfig()
        self._socket_identity: tuple[int, int] | None = None
        self._remembered: Remembered = {}
        self._podresources = PodResourcesClient(settings.root / SOCKET)
        self._nri = NriObserver(settings.root, settings.nri_config, settings.nri_release)
        self._served: PodResourcesService | None = None
        self._last_whole: NodeReport | None = None
        self._torn_at: float | None = None

    @property
    def seconds_to_next_look(self) -> float:
        """When to observe the node again if nothing is detected. Infinite if the regular interval is enough."""
        if self._is_held_back:
            return TORN_LOOK_SECONDS
        served = self._served
        is_young = served is not None and served.available and abs(time.time() - served.since) < SETTLING_SECONDS
        return min(SETTLING_LOOK_SECONDS if is_young else math.inf, self._nri.seconds_to_next_look)

    @property
    def kubelet_dir(self) -> Path:
        """The kubelet's root directory, below the root of the settings."""
        return self._refreshed(is_tick=False).kubelet_dir

    def look(self, *, is_tick: bool) -> NodeReport:
        """Observe once.

        A regular observation reads machine and configuration again if there is no podresources service.
        """
        fixed = self._refreshed(is_tick=is_tick)
        observation = observe(self._settings.root, fixed, self._podresources.ask, time.sleep)
        self._remembered = remember(self._remembered, observation.podresources)
        self._served = self._service(fixed.kubelet_dir / SOCKET)
        settings = self._settings
        nri, nri_problems = self._nri.look(is_tick=is_tick)
        report = build_report(
            replace(observation, problems=(*observation.problems, *nri_problems)),
            node_name=settings.node_name,
            rules=settings.rules,
            remembered=self._remembered,
            podresources_service=self._served,
            nri=nri,
        )
        return self._whole(report, is_torn=observation.is_torn)

    @property
    def _is_held_back(self) -> bool:
        """Whether the state contradicts itself, but only for a short time so far."""
        return self._torn_at is not None and time.monotonic() - self._torn_at < TORN_SECONDS

    def _whole(self, report: NodeReport, *, is_torn: bool) -> NodeReport:
        """The report. For a short time the last one that did not contradict itself, with the current `podresources`."""
        if not is_torn:
            self._torn_at, self._last_whole = None, report
            return report
        self._torn_at = time.monotonic() if self._torn_at is None else self._torn_at
        if self._last_whole is None or not self._is_held_back:
            return report
        return replace(self._last_whole, podresources=report.podresources)

    def _service(self, socket: Path) -> PodResourcesService | None:
        """What the last request showed of the podresources service. `since` stays until `available` changes."""
        is_listening, before = self._podresources.is_listening, self._served
        if is_listening is None:
            return None
        if is_listening:
            made_at = _made_at(socket)
            return None if made_at is None else PodResourcesService(available=True, since=made_at)
        if before is not None and not before.available:
            return before
        return PodResourcesService(available=False, since=round(time.time(), 3))

    def _refreshed(self, *, is_tick: bool) -> Fixed:
        """Read again what changes only with the kubelet: after its restart, when due, or while parts are missing."""
        found = identity(self._fixed.kubelet_dir / SOCKET) if self._fixed else None
        is_restart = found != self._socket_identity
        is_old = time.monotonic() - self._fixed_at > REFRESH_SECONDS
        is_incomplete = found is None or self._fixed is None or self._fixed.is_incomplete
        if self._fixed is None or is_restart or is_old or (is_tick and is_incomplete):
            if is_restart:
                self._running, self._remembered = RunningConfig(), {}
            self._fixed = self._read_fixed()
            self._fixed_at = time.monotonic()
            self._socket_identity = identity(self._fixed.kubelet_dir / SOCKET)
            self._podresources.close()
            self._podresources = PodResourcesClient(self._fixed.kubelet_dir / SOCKET)
        return self._fixed

    def _read_fixed(self) -> Fixed:
        settings = self._settings
        if settings.kubelet_api is not None:
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


def _made_at(socket: Path) -> float | None:
    """When the socket was created, in Unix seconds by the node's clock."""
    found = identity(socket)
    return None if found is None else found[1] // 1_000_000 / 1000
