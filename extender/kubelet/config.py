"""The kubelet configuration that decides admissions, and the errors with which a kubelet refuses to start.

Values are parsed (`KubeletConfig`), then checked against version and machine (`parse_*_options`, `startup`).
Mirrors: kubelet `cm/cpumanager/policy_options.go`, `cm/topologymanager/policy_options.go`, KubeletConfiguration.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.rules import CPU_OPTION_LEVELS, TOPOLOGY_OPTION_LEVELS, OptionLevels, gate_enabled

DEFAULT_MAX_NUMA_NODES: Final = 8
"""The Topology Manager's limit if `max-allowable-numa-nodes` is not set."""

_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


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

    @property
    def identity(self) -> tuple[object, ...]:
        """Equal for configurations that give the same verdicts. Hashable: part of the key of a node class."""
        return (
            self.kubelet_version,
            self.cpu_manager_policy,
            _items(self.cpu_manager_policy_options),
            self.memory_manager_policy,
            tuple((r.numa, _items(r.limits_bytes)) for r in self.reserved_memory),
            self.topology_manager_policy,
            self.topology_manager_scope,
            _items(self.topology_manager_policy_options),
            self.reserved_system_cpus,
            self.reservation_cpu_milli,
            _items(self.reservation_bytes),
            _items(self.feature_gates),
            _items(self.rule_overrides),
        )


def _items(mapping: Mapping[str, object]) -> tuple[tuple[str, object], ...]:
    return tuple(sorted(mapping.items()))


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


_CPU_ERRORS: Final = "cpumanager: new static policy error: "
_CONFLICTS: Final = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
"""Pairs of options that the static policy refuses, in the order in which it checks them."""


def parse_cpu_options(config: KubeletConfig, minor: int) -> CPUOptions:
    """The options of the static CPU policy, checked for availability and conflicts.

    Source: kubelet cm/cpumanager/policy_options.go (CheckPolicyOptionAvailable, NewStaticPolicyOptions).

    Raises:
        KubeletConfigError: an unknown or unavailable option, a value that is not a boolean, or two options in conflict.
    """
    family = _OptionFamily("cpuManagerPolicyOptions", "CPU Manager Policy", CPU_OPTION_LEVELS, _CPU_ERRORS)
    where = family.field
    options = config.cpu_manager_policy_options
    _check_available(family, options, config, minor)
    on = {name: _parse_bool(where, name, value) for name, value in sorted(options.items())}
    for first, second in _CONFLICTS:
        if on.get(first) and on.get(second):
            raise KubeletConfigError(
                where, f"{_CPU_ERRORS}static policy options {first} and {second} can not be used at the same time"
            )
    return CPUOptions(
        full_pcpus_only=on.get("full-pcpus-only", False),
        distribute_across_numa=on.get("distribute-cpus-across-numa", False),
        align_by_socket=on.get("align-by-socket", False),
        distribute_across_cores=on.get("distribute-cpus-across-cores", False),
        strict_reservation=on.get("strict-cpu-reservation", False),
        prefer_align_by_uncore_cache=on.get("prefer-align-cpus-by-uncorecache", False),
    )


def parse_topology_options(config: KubeletConfig, minor: int) -> TopologyOptions:
    """The options of the Topology Manager, checked for availability.

    Source: kubelet cm/topologymanager/policy_options.go.

    Raises:
        KubeletConfigError: an unknown or unavailable option, or a value that does not parse.
    """
    family = _OptionFamily(
        "topologyManagerPolicyOptions", "Topology Manager Policy", TOPOLOGY_OPTION_LEVELS, "topologymanager: "
    )
    where = family.field
    options = config.topology_manager_policy_options
    _check_available(family, options, config, minor)
    closest, max_nodes = False, DEFAULT_MAX_NUMA_NODES
    for name, value in sorted(options.items()):
        if name == "prefer-closest-numa-nodes":
            closest = _parse_bool(where, name, value)
        else:
            max_nodes = _parse_max_nodes(where, value)
    return TopologyOptions(prefer_closest_numa=closest, max_allowable_numa_nodes=max_nodes)


@dataclass(frozen=True, slots=True)
class _OptionFamily:
    field: str
    title: str
    levels: Mapping[str, OptionLevels]
    error_prefix: str


def _check_available(family: _OptionFamily, options: Mapping[str, str], config: KubeletConfig, minor: int) -> None:
    """Refuse options that the version does not have, or whose stability level is disabled by a feature gate."""
    faults = []
    for name in sorted(options):
        level = family.levels[name].level(minor) if name in family.levels else None
        if level is None:
            faults.append(f'{family.error_prefix}unknown {family.title} option: "{name[:60]}"')
            continue
        gate = f"{family.title.replace(' ', '')}{level.capitalize()}Options"
        if level != "stable" and not gate_enabled(gate, minor, config.feature_gates):
            faults.append(
                f"{family.error_prefix}{family.title} {level.capitalize()}-level Options not enabled, "
                f'but option "{name}" provided'
            )
    if faults:
        raise KubeletConfigError(family.field, faults[0], tuple(faults[1:]))


def _parse_bool(where: str, name: str, value: str) -> bool:
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise KubeletConfigError(where, f'bad value for option "{name}": {value[:40]!r} is not a boolean')


def _parse_max_nodes(where: str, value: str) -> int:
    if not (value.isascii() and value.isdigit() and len(value) <= 9):
        raise KubeletConfigError(
            where, f'unable to convert policy option to integer "max-allowable-numa-nodes": {value[:40]!r}'
        )
    if int(value) < DEFAULT_MAX_NUMA_NODES:
        raise KubeletConfigError(
            where, f"the minimum value of max-allowable-numa-nodes is {DEFAULT_MAX_NUMA_NODES}, not {value}"
        )
    return int(value)
