"""Takes one consistent snapshot of a node: reads every source, and reads again if something changed meanwhile.

Rules of this file
- Every source is optional. If one fails, only its own part of the report is missing, and there is a Problem.
- The state files are read before and after podresources is called. The reply belongs to them only if both readings are
  equal. The number of attempts is limited; if the files still change, the snapshot is published with a Problem.
- What the kubelet reads once at its start (machine, configuration) is cached, see `read_fixed`.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from node_exporter.checkpoints import (
    CPU_FILE,
    MEMORY_FILE,
    bad_checksum,
    parse_files,
    read_files,
    torn_cpu,
    torn_memory,
)
from node_exporter.cpu_lists import parse_cpu_list
from node_exporter.files import describe, is_directory, read_text, under
from node_exporter.kubelet_config import effective_config, load_documents
from node_exporter.kubelet_flags import Flags, find_command_line, last_value, parse_flags
from node_exporter.observation import Fixed, NodeSnapshot, PodResources, RunningConfig
from node_exporter.pods import read_pod_logs
from node_exporter.report import KubeletState, Problem, ReportedKubeletConfig
from node_exporter.sysfs import MAX_ATTRIBUTE_BYTES, mem_total, read_machine

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
    files = read_files(fixed.kubelet_dir)
    for attempt in range(ATTEMPTS):
        is_last = attempt == ATTEMPTS - 1
        state, problems = parse_files(files)
        torn = torn_state(state, fixed)
        podresources, ask_problems = (None, ()) if torn and not is_last else ask()
        again = read_files(fixed.kubelet_dir)
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
        (CPU_FILE, torn_cpu(cpu, *expected) if cpu and expected else None),
        (CPU_FILE, bad_checksum(cpu) if cpu else None),
        (MEMORY_FILE, torn_memory(memory) if memory else None),
        (MEMORY_FILE, bad_checksum(memory) if memory else None),
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
