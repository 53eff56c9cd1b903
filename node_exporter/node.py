"""Observes the node for the agent: reads all sources to one consistent snapshot, and makes the report of it.

Rules of this file
- Every source is optional. If one fails, only its own part of the report is missing, and there is a Problem.
- The state files are read before and after podresources is called. The reply belongs to them only if both readings are
  equal. The number of attempts is limited; if the files still change, the snapshot is published with a Problem.
- What the kubelet reads once at its start (machine, configuration) is cached, see `read_fixed` and `NodeReader`.
- A state that contradicts itself is held back for `TORN_SECONDS`: meanwhile the last whole report is sent again.
"""

import math
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from node_exporter import checkpoints
from node_exporter.bounded_http import Connection
from node_exporter.build import build_report
from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.dra_cpus import ClaimedCpus
from node_exporter.files import describe, identity, is_directory, is_there, read_text, under
from node_exporter.kubelet_config import effective_config, load_documents
from node_exporter.kubelet_flags import Flags, find_command_line, last_value, parse_flags
from node_exporter.nri_policy import NriObserver, ReadNriConfig
from node_exporter.observation import Fixed, NodeSnapshot, PodResources, RunningConfig
from node_exporter.podresources import PodResourcesClient, ask_kubelet
from node_exporter.pods import Remembered, read_pod_logs, remember
from node_exporter.report import KubeletState, NodeReport, PodResourcesService, Problem, ReportedKubeletConfig
from node_exporter.sysfs import MAX_ATTRIBUTE_BYTES, mem_total, read_machine, read_pcie_roots

DEFAULT_KUBELET_DIR = "/var/lib/kubelet"
POD_LOG_DIR = "/var/log/pods"
ATTEMPTS = 6
PAUSE_SECONDS = 0.02
"""The pause between two attempts. The kubelet's two writes of one allocation are a few milliseconds apart."""

AskPodResources = Callable[[], tuple[PodResources | None, tuple[Problem, ...]]]


def read_fixed(
    root: Path, *, running: RunningConfig, kubelet_dir: str | None = None, kubelet_version: str | None = None
) -> Fixed:
    """Read machine, boot id and configuration.

    `kubelet_dir` and `kubelet_version` take precedence over what is found.
    """
    machine, problems = read_machine(root)
    boot_id, boot_problems = _read_boot_id(root)
    arguments = find_command_line(root)
    flags = parse_flags(arguments) if arguments is not None else None
    config: ReportedKubeletConfig | None
    if running.document is not None:
        config, config_problems = effective_config(
            running.document, memory_capacity=_memory_capacity(root), is_running_config=True
        )
    else:
        config, config_problems = _config_from_files(root, flags)
    directory = kubelet_dir or last_value(flags, "root-dir") or DEFAULT_KUBELET_DIR
    version = kubelet_version or running.version
    if version is None:
        unknown = Problem(source="kubelet", path="version", reason="unknown: not set, and not reported by the kubelet")
        config_problems = (*config_problems, unknown)
    return Fixed(
        machine=machine,
        kubelet=config,
        kubelet_version=version,
        boot_id=boot_id,
        kubelet_dir=under(root, directory),
        problems=(*problems, *boot_problems, *running.problems, *config_problems),
        pcie_roots=read_pcie_roots(root),
    )


def observe(root: Path, fixed: Fixed, ask: AskPodResources, pause: Callable[[float], None]) -> NodeSnapshot:
    """Read what changes: the state files, podresources and the pods' log directories."""
    snapshot = _consistent_snapshot(fixed, ask, pause)
    problems = [*fixed.problems, *snapshot.problems]
    if not is_directory(fixed.kubelet_dir):
        problems = [problem for problem in problems if problem.source != "kubelet state"]
        path = f"/{fixed.kubelet_dir.relative_to(root)}"
        problems.append(Problem(source="kubelet state", path=path, reason="no such directory", severity="error"))
    logs = read_pod_logs(under(root, POD_LOG_DIR))
    if logs is None:
        reason = "not readable: UIDs are known only for pods with CPUs or devices"
        problems.append(Problem(source="pods", path=POD_LOG_DIR, reason=reason, severity="info"))
    return replace(snapshot, pod_logs=logs, problems=tuple(problems))


def _consistent_snapshot(fixed: Fixed, ask: AskPodResources, pause: Callable[[float], None]) -> NodeSnapshot:
    """Read the files, call podresources, read the files again. Repeat while they change or are incomplete."""
    files = checkpoints.read_files(fixed.kubelet_dir)
    for attempt in range(ATTEMPTS):
        is_last = attempt == ATTEMPTS - 1
        state, problems = checkpoints.parse_files(files)
        torn = torn_state(state, fixed)
        podresources, ask_problems = (None, ()) if torn and not is_last else ask()
        again = checkpoints.read_files(fixed.kubelet_dir)
        moved = again != files
        if is_last or not (torn or moved):
            break
        files = again
        pause(PAUSE_SECONDS)
    problems = (*problems, *torn, *ask_problems)
    if moved:
        reason = f"changed during each of {ATTEMPTS} attempts: podresources may be from another moment"
        problems = (*problems, Problem(source="kubelet state", path="", reason=reason))
    return NodeSnapshot(
        fixed=fixed,
        state=state,
        podresources=podresources,
        never_had_devices=files.never_had_devices,
        is_torn=bool(torn),
        problems=problems,
    )


def torn_state(state: KubeletState, fixed: Fixed) -> tuple[Problem, ...]:
    """Contradictions of the state files with themselves, their checksums, the machine, or the configuration."""
    cpu, memory = state.cpu_manager_state, state.memory_manager_state
    expected = _expected_cpus(fixed)
    faults = [
        (checkpoints.CPU_FILE, checkpoints.torn_cpu(cpu, *expected) if cpu and expected else None),
        (checkpoints.CPU_FILE, checkpoints.bad_checksum(cpu) if cpu else None),
        (checkpoints.MEMORY_FILE, checkpoints.torn_memory(memory) if memory else None),
        (checkpoints.MEMORY_FILE, checkpoints.bad_checksum(memory) if memory else None),
    ]
    return tuple(
        Problem(source="kubelet state", path=path, reason=fault[:1000], severity="error")
        for path, fault in faults
        if fault
    )


def _expected_cpus(fixed: Fixed) -> tuple[frozenset[int], ...]:
    """The sets that shared pool and assignments may add up to (CPU/policy_static.go validateState).

    All online CPUs; or all except the reserved ones, with strict-cpu-reservation and with OpenShift's workload
    partitioning. Reserved CPUs are never assigned, so accepting both is safe. Empty: the reserved CPUs matter and are
    unknown.
    """
    online = frozenset(cpu[0] for cpu in fixed.machine.cpus)
    options = fixed.kubelet.cpuManagerPolicyOptions if fixed.kubelet else {}
    is_strict = options.get("strict-cpu-reservation", "").lower() in {"1", "t", "true"}
    try:
        reserved = parse_cpu_list(fixed.kubelet.reservedSystemCPUs if fixed.kubelet else "")
    except ValueError:
        return ()
    if reserved:
        return (online, online - reserved)
    return () if is_strict else (online,)


def _config_from_files(root: Path, flags: Flags | None) -> tuple[ReportedKubeletConfig | None, tuple[Problem, ...]]:
    document, problems = load_documents(root, flags)
    if document is None:
        return None, problems
    config, more = effective_config(document, memory_capacity=_memory_capacity(root), is_running_config=False)
    return config, (*problems, *more)


def _memory_capacity(root: Path) -> int:
    """The machine's memory in bytes, as cadvisor reads it from /proc/meminfo. 0 if unknown."""
    try:
        return mem_total(read_text(root / "proc/meminfo", MAX_ATTRIBUTE_BYTES)) or 0
    except (OSError, ValueError):
        return 0


def _read_boot_id(root: Path) -> tuple[str, tuple[Problem, ...]]:
    path = "proc/sys/kernel/random/boot_id"
    try:
        return read_text(root / path, MAX_ATTRIBUTE_BYTES).strip()[:64], ()
    except (OSError, ValueError) as error:
        reason = f"{describe(error)}: reports are ordered by sequence only"
        return "", (Problem(source="node", path=f"/{path}", reason=reason),)


SOCKET = "pod-resources/kubelet.sock"
REFRESH_SECONDS = 600.0
"""How often machine and configuration are read again if no restart of the kubelet was detected."""
SETTLING_SECONDS = 20.0
"""How long after a start or stop of the kubelet the node is observed more often. After a start pods appear one after
another, and the CPU manager's reconciliation (every 10 s by default) releases what ended pods held. A kubelet that
seemed to stop may only have been slow to answer."""
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
        self._claimed_cpus = ClaimedCpus(settings.root)
        self._served: PodResourcesService | None = None
        self._last_whole: NodeReport | None = None
        self._torn_at: float | None = None

    @property
    def seconds_to_next_look(self) -> float:
        """When to observe the node again if nothing is detected. Infinite if the regular interval is enough."""
        if self._is_held_back:
            return TORN_LOOK_SECONDS
        served = self._served
        is_young = served is not None and abs(time.time() - served.since) < SETTLING_SECONDS
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
        return self._whole(self._claimed_cpus.added_to(report), is_torn=observation.is_torn)

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
        """What the last request showed; None: nothing, or no socket was ever there. `since` is of the last change."""
        is_answering, before = self._podresources.is_answering, self._served
        if is_answering is None or (before is None and not is_there(socket, stat.S_ISSOCK)):
            return None
        if is_answering:
            made_at = _made_at(socket)
            return None if made_at is None else PodResourcesService(available=True, since=made_at, certain=True)
        if before is not None and not before.available:
            return before
        return PodResourcesService(available=False, since=round(time.time(), 3), certain=True)

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
