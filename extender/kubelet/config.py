"""The kubelet configuration that decides admissions. `startup` checks it against version and machine.

Mirrors: KubeletConfiguration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

DEFAULT_MAX_NUMA_NODES: Final = 8
"""The Topology Manager's limit if `max-allowable-numa-nodes` is not set."""


class TopologyPolicy(StrEnum):
    """`topologyManagerPolicy`."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_NUMA_NODE = "single-numa-node"


class Scope(StrEnum):
    """`topologyManagerScope`."""

    CONTAINER = "container"
    POD = "pod"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReservedMemory:
    """One entry of `reservedMemory`: bytes by memory type (`memory`, `hugepages-2Mi`…)."""

    numa: int
    limits_bytes: Mapping[str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletConfig:
    """The kubelet's configuration, with its own field names and quantities as exact integers.

    `reserved_system_cpus` is raw CPU bits, 0 if not set. `reservation_*` is the node-allocatable reservation:
    systemReserved + kubeReserved + hard eviction.
    """

    kubelet_version: str
    cpu_manager_policy: str = "none"
    cpu_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    memory_manager_policy: str = "None"
    reserved_memory: tuple[ReservedMemory, ...] = ()
    topology_manager_policy: str = "none"
    topology_manager_scope: str = "container"
    topology_manager_policy_options: Mapping[str, str] = field(default_factory=dict)
    reserved_system_cpus: int = 0
    reservation_cpu_milli: int = 0
    reservation_bytes: Mapping[str, int] = field(default_factory=dict)
    feature_gates: Mapping[str, bool] = field(default_factory=dict)
    rule_overrides: Mapping[str, bool] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class CPUOptions:
    """The CPU manager's policy options, on or off."""

    full_pcpus_only: bool = False
    distribute_across_numa: bool = False
    align_by_socket: bool = False
    distribute_across_cores: bool = False
    strict_reservation: bool = False
    prefer_align_by_uncore_cache: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopologyOptions:
    """The Topology Manager's policy options."""

    prefer_closest_numa: bool = False
    max_allowable_numa_nodes: int = DEFAULT_MAX_NUMA_NODES
