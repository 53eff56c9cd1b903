"""The part of a TopologyAwarePolicy's spec that decides placement, and its evaluation when the policy starts.

Mirrors: `pkg/apis/config/v1alpha1/resmgr/policy/{config.go,topologyaware/config.go}` and
`policy/topology-aware-policy.go` (checkConstraints).
"""

from dataclasses import dataclass
from typing import Final

from extender.kubelet.sets import format_list
from extender.nri.cpu_allocator import CPUTopology, take_cpus
from extender.nri.machine import HIGH, LOW, NO_PRIORITY, NORMAL
from extender.nri.text import parse_id_list

LEVELS: Final = {
    "system": 1, "package": 2, "die": 3, "numa": 4, "l3cache": 5, "l2cache": 6, "core": 7, "thread": 8,
}  # fmt: skip
"""Topology levels that an annotation may name; no pool has one of the last three (`policy/config.go`)."""

PRIORITIES: Final = {"high": HIGH, "normal": NORMAL, "low": LOW, "none": NO_PRIORITY}


class PolicyStartError(Exception):
    """The policy refuses its configuration: a starting plugin manages no container, a running one keeps the old one."""


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """Settings of the policy. None: not set.

    `available_cpus` and `reserved_cpus`: the text of the setting (`cpuset:…`, `exclude-cpuset:…` or a quantity).
    `reserved_millicpu`: the quantity in `reserved_cpus`; None if the text is not a quantity. `pod_resource_api`: hints
    come from the kubelet's PodResources API as well. `controllable_interrupts`: globs; empty: all interrupts.
    `uses_speed_select`: a CPU class prefers CPUs by the state of Intel Speed Select, which is not known.
    """

    pin_cpu: bool = False
    pin_memory: bool = False
    prefer_isolated: bool | None = None
    prefer_shared: bool | None = None
    colocate_pods: bool = False
    colocate_namespaces: bool = False
    reserved_namespaces: tuple[str, ...] = ()
    available_cpus: str | None = None
    reserved_cpus: str | None = None
    reserved_millicpu: int | None = None
    default_priority: int = NO_PRIORITY
    unlimited_burstable: str = ""
    cpu_classes: frozenset[str] = frozenset()
    default_exclusive_cpu_class: str = ""
    uses_speed_select: bool = False
    pod_resource_api: bool = False
    controllable_interrupts: tuple[str, ...] = ()

    @property
    def limits_interrupts(self) -> bool:
        """Whether there are interrupts that containers cannot name. Which ones, depends on the machine."""
        return bool(self.controllable_interrupts) and "*" not in self.controllable_interrupts


@dataclass(frozen=True, slots=True)
class CPUShare:
    """How the policy divides the machine's CPUs. `isolated` and `reserved` are part of `allowed`."""

    allowed: int
    isolated: int
    reserved: int


def divide_cpus(config: PolicyConfig, topology: CPUTopology) -> CPUShare:
    """The CPUs that the policy manages and those it reserves (`topology-aware-policy.go` checkConstraints).

    Raises:
        PolicyStartError: the policy would not start with *config*.
    """
    machine = topology.machine
    allowed = machine.online & _available(config.available_cpus, machine.present)
    isolated = machine.isolated & allowed
    setting = config.reserved_cpus
    if setting is None:
        raise PolicyStartError("cannot start without CPU reservation")
    if setting.startswith("cpuset:"):
        reserved = _cpu_list(setting, "cpuset:")
    elif setting.startswith("exclude-cpuset:"):
        reserved = allowed & ~_cpu_list(setting, "exclude-cpuset:")
    else:
        return CPUShare(allowed, isolated, _reserve_by_count(config, topology, allowed & ~isolated))
    if reserved & ~allowed:
        raise PolicyStartError(f"reserved CPUs {format_list(reserved & ~allowed)} are not available")
    if reserved & isolated and (reserved & ~isolated or (reserved & isolated).bit_count() > 1):
        raise PolicyStartError("reserved CPUs may be normal ones, or one isolated CPU")
    if not reserved:
        raise PolicyStartError("cannot start without CPU reservation")
    return CPUShare(allowed, isolated, reserved)


def _available(setting: str | None, present: int) -> int:
    if setting is None:
        return present
    if setting.startswith("cpuset:"):
        return _cpu_list(setting, "cpuset:")
    if setting.startswith("exclude-cpuset:"):
        return present & ~_cpu_list(setting, "exclude-cpuset:")
    raise PolicyStartError("availableResources.cpu is a quantity, which the policy cannot handle")


def _cpu_list(setting: str, prefix: str) -> int:
    bits = parse_id_list(setting.removeprefix(prefix))
    if bits is None:
        raise PolicyStartError(f"{setting!r} names no CPUs")
    return bits


def _reserve_by_count(config: PolicyConfig, topology: CPUTopology, candidates: int) -> int:
    if config.reserved_millicpu is None:
        raise PolicyStartError(f"{config.reserved_cpus!r} is not a quantity")
    count = (config.reserved_millicpu + 999) // 1000
    reserved = take_cpus(topology, candidates, count, NORMAL)
    if reserved is None:
        raise PolicyStartError(f"cannot reserve {count} CPUs of {format_list(candidates)}")
    if not reserved:
        raise PolicyStartError("cannot start without CPU reservation")
    return reserved
