"""Starts a kubelet from machine and configuration, or raises the error with which it does not start.

Rules of this file
- Every refusal is a `KubeletConfigError` naming the field, with the kubelet's own text if it has one.

Mirrors: kubelet `cm/{cpu,memory,topology}manager`: NewManager, validateState, `policy_options.go`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, TypeVar

from extender.kubelet import state
from extender.kubelet.budget import Budget
from extender.kubelet.config import (
    DEFAULT_MAX_NUMA_NODES,
    CPUOptions,
    KubeletConfig,
    Scope,
    TopologyOptions,
    TopologyPolicy,
)
from extender.kubelet.cpu_assignment import Assignment
from extender.kubelet.errors import DistributionHangError, KubeletConfigError, NotEnoughCPUsError, UnknownVersionError
from extender.kubelet.hints import Distances
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.rules import (
    CPU_OPTION_LEVELS,
    NEWEST_MINOR,
    TOPOLOGY_OPTION_LEVELS,
    OptionLevels,
    Rules,
    gate_enabled,
)
from extender.kubelet.sets import MAX_NUMA_ID, bits_of, format_list
from extender.kubelet.verdict import Certainty

E = TypeVar("E", TopologyPolicy, Scope)

_STATIC_ERROR: Final = "cpumanager: new static policy error: "
_CONFLICTS: Final = (
    ("full-pcpus-only", "distribute-cpus-across-cores"),
    ("distribute-cpus-across-numa", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-cores"),
    ("prefer-align-cpus-by-uncorecache", "distribute-cpus-across-numa"),
)
"""Pairs of options that the static policy refuses, in the order in which it checks them."""
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
_FALSE: Final = frozenset({"0", "f", "F", "FALSE", "false", "False"})


def start(machine: Machine, config: KubeletConfig, budget: Budget | None = None) -> Kubelet:
    """Start the managers of a kubelet.

    Raises:
        KubeletConfigError: the kubelet of that version does not start with this configuration on this machine.
        BudgetError: the choice of the reserved CPUs takes too long; *budget* None: `budget.MAX_STEPS` steps.
    """
    rules = _rules(config)
    _check_option_gates(config, rules.minor)
    policy = _one_of(TopologyPolicy, config.topology_manager_policy, "topologyManagerPolicy")
    scope = _one_of(Scope, config.topology_manager_scope, "topologyManagerScope")
    topology_options, distances = _start_topology_manager(machine, config, rules, policy)
    cpu_static = _one_of_texts(config.cpu_manager_policy, ("none", "static"), "cpuManagerPolicy") == "static"
    cpu_options = _start_cpu_options(machine, config, rules, policy, cpu_static=cpu_static)
    assignment = Assignment(
        machine=machine,
        options=cpu_options,
        error_counts=rules.cpu_error_counts,
        uncore_rounds_up=rules.uncore_partial_rounds_up,
        inside_hint=rules.distribute_inside_hint,
        whole_groups=rules.distribute_whole_groups,
        spread_by_topology=rules.spread_by_topology,
    )
    reserved = _reserved_cpus(machine, config, assignment, budget or Budget()) if cpu_static else 0
    memory_static = _memory_static(config, rules)
    return Kubelet(
        machine=machine,
        config=config,
        rules=rules,
        policy=policy,
        scope=scope,
        topology_options=topology_options,
        distances=distances,
        default_mask=bits_of(machine.numa_ids),
        cpu_static=cpu_static,
        cpu_options=cpu_options,
        assignment=assignment,
        reserved_cpus=reserved,
        reserved_physical_cpus=bits_of_cores(machine, reserved),
        memory_static=memory_static,
        memory_nodes=_memory_nodes(machine, config) if memory_static else (),
        crashes_on_any_pod=policy is not TopologyPolicy.NONE and max(machine.numa_ids, default=0) > MAX_NUMA_ID,
        certainty=Certainty.ASSUMED if rules.newer_than_known else Certainty.EXACT,
        caveats=_caveats(config, rules),
    )


def _caveats(config: KubeletConfig, rules: Rules) -> tuple[str, ...]:
    if not rules.newer_than_known:
        return ()
    known = f"1.{NEWEST_MINOR}"
    return (f"kubelet {config.kubelet_version} is newer than {known}, the newest known: replayed with its rules",)


def bits_of_cores(machine: Machine, cpus: int) -> int:
    """All threads of every core that has one of *cpus*."""
    bits = 0
    for core in machine.core_cpus.values():
        if core & cpus:
            bits |= core
    return bits


def _rules(config: KubeletConfig) -> Rules:
    try:
        return Rules.of(config.kubelet_version, config.feature_gates, config.rule_overrides)
    except UnknownVersionError as error:
        raise KubeletConfigError("kubelet_version", str(error)) from None
    except KeyError as error:
        raise KubeletConfigError("rules", f"{error.args[0]!r} is not a rule of the replay") from None


def _one_of(kind: type[E], text: str, field: str) -> E:
    return kind(_one_of_texts(text, tuple(kind), field))


def _one_of_texts(text: str, known: tuple[str, ...], field: str) -> str:
    if text not in known:
        raise KubeletConfigError(field, f"unknown {field} {text[:40]!r}: one of {', '.join(known)}")
    return text


def _check_option_gates(config: KubeletConfig, minor: int) -> None:
    """Refuse policy options whose gate is switched off, before any manager looks at them.

    A gate that is off by default (TopologyManagerPolicyOptions in 1.27) is left to the manager's own check of levels.

    Source: cmd/kubelet/app/server.go, run; up to 1.32 for the CPU Manager, 1.31 for the Topology Manager.
    """
    cpu, topology = "CPUManagerPolicyOptions", "TopologyManagerPolicyOptions"
    if config.cpu_manager_policy_options and not gate_enabled(cpu, minor, config.feature_gates):
        raise KubeletConfigError(
            "cpuManagerPolicyOptions",
            f"CPU Manager policy options {_go_map(config.cpu_manager_policy_options)} require feature gates "
            f'"CPUManager", "{cpu}" enabled',
        )
    is_off = config.feature_gates.get(topology) is False and not gate_enabled(topology, minor, config.feature_gates)
    if config.topology_manager_policy_options and is_off:
        raise KubeletConfigError(
            "topologyManagerPolicyOptions",
            f"topology manager policy options {_go_map(config.topology_manager_policy_options)} require feature gates "
            f'"{topology}" enabled',
        )


def _go_map(options: Mapping[str, str]) -> str:
    """Options as Go prints a map."""
    return f"map[{' '.join(f'{name}:{value}' for name, value in sorted(options.items()))}]"


def _start_topology_manager(
    machine: Machine, config: KubeletConfig, rules: Rules, policy: TopologyPolicy
) -> tuple[TopologyOptions, Distances | None]:
    """Source: cm/topologymanager/topology_manager.go, NewManager; numa_info.go, NewNUMAInfo."""
    if policy is TopologyPolicy.NONE and rules.topology_options_ignored_by_none:
        return TopologyOptions(), None
    options = _parse_topology_options(config, rules.minor)
    rows = {n.id: n.distances for n in machine.numa_nodes}
    if options.prefer_closest_numa:
        for numa, row in rows.items():
            if not row:
                raise KubeletConfigError(
                    "topologyManagerPolicyOptions",
                    f"topologymanager: error getting NUMA distances from cadvisor: node {numa} has none",
                )
    if policy is TopologyPolicy.NONE:
        return options, None
    if len(machine.numa_ids) > options.max_allowable_numa_nodes:
        raise KubeletConfigError(
            "topologyManagerPolicy",
            f"topologymanager: unsupported on machines with more than {options.max_allowable_numa_nodes} NUMA Nodes",
        )
    use_distances = options.prefer_closest_numa and policy is not TopologyPolicy.SINGLE_NUMA_NODE
    return options, Distances(rows) if use_distances else None


def _start_cpu_options(
    machine: Machine, config: KubeletConfig, rules: Rules, policy: TopologyPolicy, *, cpu_static: bool
) -> CPUOptions:
    """Source: cm/cpumanager/policy_options.go, NewStaticPolicyOptions and ValidateStaticPolicyOptions."""
    where = "cpuManagerPolicyOptions"
    if not cpu_static:
        if config.cpu_manager_policy_options:
            raise KubeletConfigError(
                where, "cpumanager: new none policy error: options are not supported by policy none"
            )
        return CPUOptions()
    options = _parse_cpu_options(config, rules.minor)
    if options.align_by_socket:
        if policy is TopologyPolicy.SINGLE_NUMA_NODE:
            raise KubeletConfigError(
                where,
                f"{_STATIC_ERROR}Topolgy manager {policy} policy is incompatible with CPUManager align-by-socket "
                "policy option",
            )
        if machine.num_sockets > len(machine.cpu_numa_ids):
            raise KubeletConfigError(
                where,
                f"{_STATIC_ERROR}Align by socket is not compatible with hardware where number of sockets are more "
                "than number of NUMA",
            )
    return options


def _parse_cpu_options(config: KubeletConfig, minor: int) -> CPUOptions:
    """The options of the static CPU policy, checked for availability and conflicts.

    Source: kubelet cm/cpumanager/policy_options.go (CheckPolicyOptionAvailable, NewStaticPolicyOptions).

    Raises:
        KubeletConfigError: an unknown or unavailable option, a value that is not a boolean, or two options in conflict.
    """
    family = _OptionFamily("cpuManagerPolicyOptions", "CPU Manager Policy", CPU_OPTION_LEVELS, _STATIC_ERROR)
    where = family.field
    options = config.cpu_manager_policy_options
    _check_available(family, options, config, minor)
    on = {name: _parse_bool(where, name, value) for name, value in sorted(options.items())}
    for first, second in _CONFLICTS:
        if on.get(first) and on.get(second):
            raise KubeletConfigError(
                where, f"{_STATIC_ERROR}static policy options {first} and {second} can not be used at the same time"
            )
    return CPUOptions(
        full_pcpus_only=on.get("full-pcpus-only", False),
        distribute_across_numa=on.get("distribute-cpus-across-numa", False),
        align_by_socket=on.get("align-by-socket", False),
        distribute_across_cores=on.get("distribute-cpus-across-cores", False),
        strict_reservation=on.get("strict-cpu-reservation", False),
        prefer_align_by_uncore_cache=on.get("prefer-align-cpus-by-uncorecache", False),
    )


def _parse_topology_options(config: KubeletConfig, minor: int) -> TopologyOptions:
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


def _reserved_cpus(machine: Machine, config: KubeletConfig, assignment: Assignment, budget: Budget) -> int:
    """The reserved CPUs: the explicit list, or the reservation rounded up to whole CPUs, chosen as for any request.

    Source: cm/cpumanager/cpu_manager.go NewManager, policy_static.go NewStaticPolicy.
    """
    if config.reserved_system_cpus:
        unknown = config.reserved_system_cpus & ~machine.all_cpus
        if unknown:
            raise KubeletConfigError("reservedSystemCPUs", f"CPUs {format_list(unknown)} do not exist on this machine")
        return config.reserved_system_cpus
    count = -(-config.reservation_cpu_milli // 1000)
    if count <= 0:
        raise KubeletConfigError(
            "reservation",
            "cpumanager: the static policy requires systemreserved.cpu + kubereserved.cpu to be greater than zero",
        )
    try:
        reserved = assignment.take(machine.all_cpus, count, budget)
    except (NotEnoughCPUsError, DistributionHangError) as error:
        raise KubeletConfigError("reservation", f"{_STATIC_ERROR}unable to reserve {count} CPUs: {error}") from None
    if reserved.bit_count() != count:
        raise KubeletConfigError(
            "reservation",
            f"{_STATIC_ERROR}unable to reserve the required amount of CPUs (size of {format_list(reserved)} did not "
            f"equal {count})",
        )
    return reserved


def _memory_static(config: KubeletConfig, rules: Rules) -> bool:
    policy = _one_of_texts(config.memory_manager_policy, ("None", "Static"), "memoryManagerPolicy")
    return policy == "Static" and gate_enabled("MemoryManager", rules.minor, config.feature_gates)


def _check_reserved_memory(machine: Machine, config: KubeletConfig) -> None:
    """Source: cm/memorymanager/memory_manager.go, validateReservedMemory and getSystemReservedMemory."""
    where = "reservedMemory"
    totals: dict[str, int] = {}
    for i, entry in enumerate(config.reserved_memory):
        if entry.numa not in machine.numa_ids:
            raise KubeletConfigError(f"{where}[{i}].numaNode", f"memorymanager: NUMA node {entry.numa} does not exist")
        for name, amount in entry.limits_bytes.items():
            totals[name] = totals.get(name, 0) + amount
    for name in sorted({*totals, *config.reservation_bytes} - {"cpu", "ephemeral-storage"}):
        reserved, wanted = totals.get(name, 0), config.reservation_bytes.get(name, 0)
        if reserved != wanted:
            raise KubeletConfigError(
                where,
                f"memorymanager: the total amount {reserved} of type {name} is not equal to the value {wanted} "
                "determined by Node Allocatable feature",
            )
    if not totals.get("memory"):
        raise KubeletConfigError(where, "memorymanager: the Static policy requires reserved memory greater than zero")


def initial_state(kubelet: Kubelet, devices: Mapping[str, Mapping[str, state.Device]]) -> state.ManagerState:
    """The managers' state on a node where nothing runs yet.

    Source: cm/cpumanager/policy_static.go validateState; cm/memorymanager/policy_static.go getDefaultMachineState.
    """
    shared = kubelet.machine.all_cpus & ~(kubelet.reserved_cpus if kubelet.cpu_options.strict_reservation else 0)
    return state.ManagerState(
        cpu=state.CPUState(default=shared if kubelet.cpu_static else 0),
        memory=state.MemoryState(nodes=kubelet.memory_nodes),
        devices=state.DeviceState.of(devices),
        runtime=None if kubelet.runtime is None else kubelet.runtime.start(),
    )


def _memory_nodes(machine: Machine, config: KubeletConfig) -> tuple[state.NUMANodeMemory, ...]:
    """The memory manager's machine state with nothing allocated, ascending by NUMA id. Raises KubeletConfigError."""
    _check_reserved_memory(machine, config)
    reserved: dict[tuple[int, str], int] = {}
    for entry in config.reserved_memory:
        for name, amount in entry.limits_bytes.items():
            reserved[entry.numa, name] = reserved.get((entry.numa, name), 0) + amount
    result = []
    for node in machine.numa_nodes:
        amounts, hugepages_bytes = dict[str, state.MemoryAmounts](), 0
        for page_bytes, pages in node.hugepages.items():
            name = f"hugepages-{format_bytes(page_bytes)}"
            total = page_bytes * pages
            hugepages_bytes += total
            held_back = reserved.get((node.id, name), 0)
            free = total - held_back
            amounts[name] = state.MemoryAmounts(total, held_back, free, 0, free)
        held_back = reserved.get((node.id, "memory"), 0)
        free = (node.memory_bytes - held_back - hugepages_bytes) % (1 << 64)
        amounts["memory"] = state.MemoryAmounts(node.memory_bytes, held_back, free, 0, free)
        result.append(state.NUMANodeMemory(node.id, 0, 1 << node.id, tuple(sorted(amounts.items()))))
    return tuple(result)


def format_bytes(size: int) -> str:
    """Bytes as a quantity without rounding: `16Gi`, `1536Mi`, `1000`. The names of page sizes are such quantities."""
    for power, unit in ((6, "Ei"), (5, "Pi"), (4, "Ti"), (3, "Gi"), (2, "Mi"), (1, "Ki")):
        if size and size % 1024**power == 0:
            return f"{size // 1024**power}{unit}"
    return str(size)
