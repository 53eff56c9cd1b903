"""The values that the sources pass to `build`. Data only.

Rule of this file: a source that could not be read is None, never an empty value. The reason is among the problems.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from node_exporter.report import KubeletState, Problem, ReportedContainer, ReportedKubeletConfig, ReportedMachine

DeviceNuma = Mapping[str, frozenset[int] | None]
"""Device id -> its NUMA ids; None: no topology reported."""

PodLogs = Mapping[tuple[str, str], frozenset[str]]
"""(namespace, name) -> UIDs of the pods of that name that have, or had, logs on this node."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedPod:
    """A pod of podresources List, which has no UIDs.

    `cpus`: the CPUs of the pod as a whole, including those of its containers; from 1.37 on, for pods whose pod-level
    resources the managers allocate. Containers that share these CPUs list none of their own. Empty otherwise.
    """

    namespace: str
    name: str
    containers: tuple[ReportedContainer, ...]
    cpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PodResources:
    """The kubelet's podresources service: List and GetAllocatableResources.

    `devices`: healthy devices by resource, allocated or not. `allocatable_cpus`: all CPUs except the reserved ones;
    empty for CPU manager policy none.
    """

    pods: tuple[ListedPod, ...]
    devices: Mapping[str, DeviceNuma]
    allocatable_cpus: frozenset[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningConfig:
    """The configuration document and version that the kubelet reports over https. None if it reports none."""

    document: dict[str, object] | None = None
    version: str | None = None
    problems: tuple[Problem, ...] = ()


REREAD_SOURCES = frozenset({"sysfs", "node"})
"""Sources whose problems are always unreadable files. A healthy node has none of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """What does not change until the kubelet restarts. `pcie_roots`: see `NodeReport`."""

    machine: ReportedMachine
    kubelet: ReportedKubeletConfig | None
    kubelet_version: str | None
    boot_id: str
    kubelet_dir: Path
    problems: tuple[Problem, ...] = ()
    pcie_roots: Mapping[str, int] = field(default_factory=dict)

    @property
    def is_incomplete(self) -> bool:
        """Whether a source could not be read, so that it is read again before the kubelet restarts."""
        return self.kubelet is None or any(
            problem.severity == "error" or problem.source in REREAD_SOURCES for problem in self.problems
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSnapshot:
    """One consistent snapshot of a node, unless `problems` says otherwise.

    `pod_logs` None: the pods' log directories are not readable. `never_had_devices`: no device plugin ever registered.
    `is_torn`: a state file contradicts itself, the machine or the configuration, as between two writes of the kubelet.
    """

    fixed: Fixed
    state: KubeletState
    podresources: PodResources | None
    pod_logs: PodLogs | None = None
    never_had_devices: bool = False
    is_torn: bool = False
    problems: tuple[Problem, ...] = ()
