"""Everything that differs between kubelet versions: named switches, and the options each version knows.

A node's kubelet version and feature gates select the switches once (`Rules.of`); nothing else in the replay uses
a version. Vendors back-port single changes, so every switch can be overridden (`overrides`).

Source: the version history of kubelet `cm/{topologymanager,cpumanager,memorymanager,devicemanager}`, 1.27 to 1.37.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import lru_cache
from typing import Any, Final

from extender.kubelet.errors import UnknownVersionError

OLDEST_MINOR: Final = 27
NEWEST_MINOR: Final = 37
"""The newest kubelet whose behaviour is known. A newer one is replayed with these rules, and verdicts say so."""

_VERSION = re.compile(r"v?1\.(\d{1,4})(?:[.+\-~_].*)?\Z")

GATE_DEFAULTS: Final[Mapping[str, tuple[tuple[int, bool], ...]]] = {
    "CPUManagerPolicyAlphaOptions": ((27, False),),
    "CPUManagerPolicyBetaOptions": ((27, True),),
    "CPUManagerPolicyOptions": ((27, True),),
    "TopologyManagerPolicyOptions": ((27, False), (28, True)),
    "TopologyManagerPolicyAlphaOptions": ((27, False),),
    "TopologyManagerPolicyBetaOptions": ((27, False), (28, True)),
    "MemoryManager": ((27, True),),
    "InPlacePodVerticalScaling": ((27, False), (33, True)),
    "PodLevelResources": ((27, False), (34, True)),
    "PodLevelResourceManagers": ((27, False),),  # beta in 1.37, and still off by default there
    "PodLevelResourcesFixKubeletQOSClass": ((27, False), (37, True)),
    "DRAExtendedResource": ((27, False), (36, True)),
}
"""Gates that the replay reads: (since minor, default)."""

_GATE_SINCE: Final[Mapping[str, int]] = {
    "SidecarContainers": 28,
    "PodLevelResources": 32,
    "DRAExtendedResource": 34,
    "NodeDeclaredFeatures": 35,
    "PodLevelResourceManagers": 36,
    "HugepageAwareEviction": 37,
    "KubeletAllocatedPodsEndpoint": 37,
    "PodLevelResourcesFixDefaulting": 37,
    "PodLevelResourcesFixKubeletQOSClass": 37,
}
_GATE_LOCKED_SINCE: Final[Mapping[str, int]] = {
    "CPUManager": 26,
    "TopologyManager": 27,
    "TopologyManagerPolicyOptions": 32,
    "MemoryManager": 32,
    "CPUManagerPolicyOptions": 33,
    "SidecarContainers": 33,
    "DynamicResourceAllocation": 35,
    "InPlacePodVerticalScaling": 35,
    "DRAExtendedResource": 37,
    "DisableCPUQuotaWithExclusiveCPUs": 37,
    "NodeDeclaredFeatures": 37,
}
"""Gates that exist from this minor on, and gates that are locked on from this minor on."""
_GATE_REMOVED_SINCE: Final[Mapping[str, int]] = {
    "TopologyManager": 29,
    "CPUManager": 33,
    "MemoryManager": 36,
    "SidecarContainers": 37,
}


def parse_minor(kubelet_version: str) -> int:
    """The minor of a kubelet version in any patch form or with a vendor suffix (`v1.33.4-eks-1-33` -> 33).

    Raises:
        UnknownVersionError: no such version, or a kubelet older than the oldest known rules.
    """
    match = _VERSION.match(kubelet_version.strip()) if len(kubelet_version) <= 200 else None
    if match is None:
        raise UnknownVersionError(f"{kubelet_version[:60]!r} is not a kubelet version such as v1.33.4")
    minor = int(match[1])
    if minor < OLDEST_MINOR:
        raise UnknownVersionError(f"kubelet {kubelet_version[:60]} is older than 1.{OLDEST_MINOR}, the oldest known")
    return minor


def _since(since: int, *gates: str, until: int = NEWEST_MINOR) -> Any:  # noqa: ANN401 - as of dataclasses
    """A switch that is on in these minors, if all its *gates* are on."""

    def holds(minor: int, given: Mapping[str, bool]) -> bool:
        return since <= minor <= until and all(gate_enabled(gate, minor, given) for gate in gates)

    return field(metadata={"holds": holds})


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The switches. Each name says what is true of a kubelet that has it."""

    minor: int
    newer_than_known: bool
    """The version is newer than any known one. The newest known rules are used."""
    sidecars: bool = _since(29)
    """Restartable init containers count as long-running: never reusable, in pod-scope totals (1.29).

    The managers do not look at the gate SidecarContainers.
    """
    sidecars_in_device_totals: bool = _since(28)
    """Restartable init containers count as long-running in the pod-scope totals of devices (1.28)."""
    qos_from_status: bool = _since(29)
    """`status.qosClass` is used verbatim when present (1.29)."""
    cpu_error_counts: bool = _since(29)
    """`not enough cpus…` names requested and available counts (1.29)."""
    topology_options_ignored_by_none: bool = _since(28)
    """Policy none parses no topology options and has no NUMA limit (1.28)."""
    memory_group_check: bool = _since(32)
    """A multi-node mask that would break a memory group is refused in Allocate (1.32)."""
    smt_message_fixed: bool = _since(32)
    """The SMT error about missing free cores names their number even if it is 0 (1.32)."""
    pod_level_qos: bool = _since(32, "PodLevelResources")
    """QoS of a pod with `spec.resources` comes from there alone (1.32, gate PodLevelResources)."""
    pod_level_qos_needs_amounts: bool = _since(37, "PodLevelResourcesFixKubeletQOSClass")
    """`spec.resources` without any amount does not decide the QoS (1.37, gate PodLevelResourcesFixKubeletQOSClass)."""
    uncore_partial_rounds_up: bool = _since(33)
    """A partial uncore take rounds cores up and trims odd requests (1.33)."""
    allocated_resources_from_status: bool = _since(33, "InPlacePodVerticalScaling", until=34)
    """CPU and memory requests come from `status.containerStatuses[].allocatedResources` when there (1.33, 1.34)."""
    pod_level_skips_managers: bool = _since(34, "PodLevelResources")
    """CPU and memory managers ignore pods with pod-level resources (1.34, gate PodLevelResources)."""
    pod_level_managers: bool = _since(36, "PodLevelResources", "PodLevelResourceManagers")
    """Pod-level resources are allocated as one bubble (1.36, gate PodLevelResourceManagers)."""
    device_numa_narrowing: bool = _since(36)
    """Device hints are enumerated over NUMA nodes that have devices of the resource (1.36)."""
    empty_memory_request_skipped: bool = _since(37)
    """The memory manager allocates nothing for a container that requests nothing of it (1.37)."""
    smt_check_after_held: bool = _since(37)
    """A container that already has CPUs keeps them; full-pcpus-only checks only new containers (1.37)."""
    dra_extended_skip: bool = _since(35, "DRAExtendedResource")
    """Extended resources satisfied by DRA are skipped in device allocation (1.35, gate DRAExtendedResource)."""

    # Fixes that no known minor has, and that patch releases or vendors may carry: see `FIXES`.
    distribute_inside_hint: bool = False
    """distribute-cpus-across-numa uses at least as many NUMA nodes as the hint has, if that many can be used."""
    distribute_whole_groups: bool = False
    """distribute-cpus-across-numa counts what is left of a NUMA node in whole cores, so that it never hangs."""
    spread_by_topology: bool = False
    """distribute-cpus-across-cores takes one CPU of each core in turn, instead of CPUs in order of their number."""
    memory_hints_restored: bool = False
    """In pod scope a pod that is admitted again gets hints from the memory blocks that it holds."""
    pod_cpus_restored: bool = False
    """A pod with pod-level resources that is admitted again keeps its CPUs instead of getting others."""
    pod_memory_restored: bool = False
    """A pod with pod-level resources that is admitted again keeps its memory instead of getting more."""

    @classmethod
    def of(cls, kubelet_version: str, gates: Mapping[str, bool], overrides: Mapping[str, bool]) -> "Rules":
        """The rules of a kubelet.

        Raises:
            UnknownVersionError: see `parse_minor`.
            KeyError: *overrides* names no switch; the argument is the name.
        """
        real_minor = parse_minor(kubelet_version)
        minor = min(real_minor, NEWEST_MINOR)
        for name in overrides:
            if name not in SWITCHES:
                raise KeyError(name)
        known = {each.name: each.metadata["holds"](minor, gates) for each in fields(cls) if each.metadata}
        return _one(cls(minor=minor, newer_than_known=real_minor > NEWEST_MINOR, **{**known, **overrides}))


@lru_cache(maxsize=1024)
def _one(rules: Rules) -> Rules:
    """The one object for equal rules. Rules are looked up for each node, and one object compares by identity."""
    return rules


SWITCHES: Final = frozenset(f.name for f in fields(Rules)) - {"minor", "newer_than_known"}

FIXES: Final[Mapping[str, int]] = {
    "distribute_inside_hint": 139456,
    "distribute_whole_groups": 140730,
    "spread_by_topology": 140766,
    "memory_hints_restored": 141070,
    "pod_cpus_restored": 141041,
    "pod_memory_restored": 141077,
}
"""Switches that are off in every known minor, and the pull request of kubernetes/kubernetes that each comes from.

Their behaviour is known from these pull requests, not from recorded answers.
"""


def gate_enabled(gate: str, minor: int, gates: Mapping[str, bool]) -> bool:
    """Whether a gate is on: as set, else the version's default. The setting of a locked or unknown gate is ignored."""
    default = next(value for since, value in reversed(GATE_DEFAULTS[gate]) if minor >= since)
    if minor >= _GATE_LOCKED_SINCE.get(gate, minor + 1) or minor < _GATE_SINCE.get(gate, 0):
        return default
    return gates.get(gate, default)


def gate_fault(gate: str, minor: int, *, is_on: bool) -> str | None:
    """The error with which a kubelet does not start because of one entry of `featureGates`; None: it starts.

    Gates that this program does not know are not judged. Source: component-base/featuregate/feature_gate.go, setUnsafe.
    """
    minor = min(minor, NEWEST_MINOR)
    if minor < _GATE_SINCE.get(gate, 0) or minor >= _GATE_REMOVED_SINCE.get(gate, minor + 1):
        return f"unrecognized feature gate: {gate}"
    if minor >= _GATE_LOCKED_SINCE.get(gate, minor + 1) and not is_on:
        return f"cannot set feature gate {gate} to false, feature is locked to true"
    return None


@dataclass(frozen=True, slots=True)
class OptionLevels:
    """The minors at which a policy option entered each stability level; None: never (yet)."""

    alpha: int | None = None
    beta: int | None = None
    stable: int | None = None

    def level(self, minor: int) -> str | None:
        """`alpha`, `beta`, `stable`, or None if the version does not know the option."""
        for name in ("stable", "beta", "alpha"):
            since: int | None = getattr(self, name)
            if since is not None and minor >= since:
                return name
        return None


CPU_OPTION_LEVELS: Final[Mapping[str, OptionLevels]] = {
    "full-pcpus-only": OptionLevels(beta=23, stable=33),
    "distribute-cpus-across-numa": OptionLevels(alpha=23, beta=33),
    "align-by-socket": OptionLevels(alpha=25),
    "distribute-cpus-across-cores": OptionLevels(alpha=31),
    "strict-cpu-reservation": OptionLevels(alpha=32, beta=33, stable=35),
    "prefer-align-cpus-by-uncorecache": OptionLevels(alpha=32, beta=34, stable=36),
}

TOPOLOGY_OPTION_LEVELS: Final[Mapping[str, OptionLevels]] = {
    "prefer-closest-numa-nodes": OptionLevels(alpha=26, beta=28, stable=32),
    "max-allowable-numa-nodes": OptionLevels(beta=31, stable=35),
}
