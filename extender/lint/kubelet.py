"""Checks whether a kubelet starts with a KubeletConfiguration, using the replay itself, and whether it has pitfalls.

The machine is assumed: it has every CPU and NUMA node that the configuration names, and enough memory. What depends on
the real machine (too few CPUs, eight NUMA nodes, sockets) cannot be checked.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Final

from extender.kubelet.config import KubeletConfig
from extender.kubelet.errors import KubeletConfigError, UnknownVersionError
from extender.kubelet.machine import CPUFacts, Machine, NUMANodeFacts
from extender.kubelet.rules import NEWEST_MINOR, parse_minor
from extender.kubelet.sets import iter_bits, parse_list
from extender.kubelet.startup import start
from extender.lint import fields
from extender.lint.catalogue import Finding, found
from extender.lint.context import Context
from extender.lint.documents import Located
from extender.lint.values import go_seconds
from extender.wire.errors import WireError
from extender.wire.known_fields import start_fault, unknown_gates
from extender.wire.parsing import parse_milli
from extender.wire.scenarios import kubelet_config_from_json

CPUS_PER_NUMA_NODE: Final = 64
NUMA_NODE_BYTES: Final = 1 << 40
SLOW_RECONCILE_SECONDS: Final = 30.0
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
MEMORY_GATE_LOCKED: Final = 32
_FIXES: Final[Mapping[str, str]] = {
    "reservedMemory": "make the sums equal: reservedMemory over all NUMA nodes = systemReserved + kubeReserved + "
    "evictionHard memory.available (100Mi if not set); hugepages cannot be reserved",
    "reservation": "reserve at least one CPU: systemReserved.cpu, kubeReserved.cpu, or reservedSystemCPUs",
    "cpuManagerPolicyOptions": "remove the option, enable its feature gate, or upgrade the kubelet",
    "topologyManagerPolicyOptions": "remove the option, enable its feature gate, or upgrade the kubelet",
}


def lint_kubelet(document: Located, context: Context) -> Iterator[Finding]:
    """All findings about one KubeletConfiguration."""
    if document.text("apiVersion") != "kubelet.config.k8s.io/v1beta1":
        yield found("kubelet-api-version", document.near("apiVersion"), version=document.text("apiVersion"))
    yield from _misspelled(document)
    value = document.value
    assert isinstance(value, dict)
    effective, faults = context.effective_kubelet(value)
    for field, reason in faults:
        place = _place(document, field)
        yield found("kubelet-value-invalid", place, field=field, reason=reason, fix="write a value of its type")
    if faults:
        return
    try:
        config = kubelet_config_from_json(context.kubelet_version, effective, "kubelet")
    except WireError as error:
        field = error.field.removeprefix("kubelet.")
        place = _place(document, field)
        yield found("kubelet-value-invalid", place, field=field, reason=error.reason, fix="correct the value")
        return
    yield from _gates(document, config)
    yield from _start(document, config)
    yield from _traps(document, config)


def _misspelled(document: Located) -> Iterator[Finding]:
    for name, value in document.entries().items():
        if name in fields.KUBELET or name in fields.KUBELET_NEIGHBOURS:
            continue
        meant = fields.meant(name, fields.KUBELET, cutoff=0.9)
        if meant is not None and meant not in document.entries():
            yield found("kubelet-field-misspelled", value, name=name, meant=meant)


def _gates(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    try:
        minor = parse_minor(config.kubelet_version)
    except UnknownVersionError:
        return  # the start fails with that
    for gate in sorted(config.feature_gates):
        fault = start_fault(gate, minor, config.feature_gates)
        if fault is not None:
            place = document.near("featureGates", gate)
            yield found("kubelet-gate", place, version=config.kubelet_version, fault=fault, gate=gate)
    for gate, meant in unknown_gates(config.feature_gates):
        place = document.near("featureGates", gate)
        yield found("kubelet-gate-unknown", place, gate=gate, newest=NEWEST_MINOR, meant=meant or None)


def _start(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    """The errors of all managers. Each is also started alone, because the first error hides those of the others."""
    is_percent = document.text("evictionHard", "memory.available").endswith("%")
    machine = assumed_machine(config)
    reported: set[tuple[str, str]] = set()
    for variant in (config, *_managers_alone(config)):
        try:
            kubelet = start(machine, variant)
        except KubeletConfigError as error:
            if (error.field, error.reason) in reported or (error.field == "reservedMemory" and is_percent):
                continue
            reported.add((error.field, error.reason))
            name = re.split(r"[.\[]", error.field)[0]
            place = _place(document, "systemReserved" if name == "reservation" else error.field)
            fix = _FIXES.get(name, f"correct {error.field}")
            version = config.kubelet_version
            yield found("kubelet-does-not-start", place, version=version, reason=error.reason, fix=fix)
        else:
            if kubelet.rules.newer_than_known and variant is config:
                minor, place = kubelet.rules.minor, document.near("kind")
                version = config.kubelet_version
                yield found("kubelet-newer-than-known", place, version=version, newest=NEWEST_MINOR, minor=minor)


def _managers_alone(config: KubeletConfig) -> tuple[KubeletConfig, ...]:
    """The configuration with one manager only. The CPU manager keeps the topology policy, because it reads it."""
    no_cpu = replace(config, cpu_manager_policy="none", cpu_manager_policy_options={})
    return (
        replace(no_cpu, memory_manager_policy="None"),
        replace(config, memory_manager_policy="None", topology_manager_policy_options={}),
        replace(no_cpu, topology_manager_policy="none", topology_manager_policy_options={}),
    )


def assumed_machine(config: KubeletConfig) -> Machine:
    """Two NUMA nodes, or those that are named; two threads per core; every CPU that is reserved."""
    numa_ids = sorted({0, 1} | {entry.numa for entry in config.reserved_memory})
    last_reserved = max(iter_bits(config.reserved_system_cpus), default=0)
    cores = max(CPUS_PER_NUMA_NODE * len(numa_ids), last_reserved + 1) // 2 + 1
    cpus = []
    for core in range(cores):
        numa = core * len(numa_ids) // cores
        cpus += [CPUFacts(cpu, core, numa, numa_ids[numa], None) for cpu in (core, core + cores)]
    row = (10,) * (numa_ids[-1] + 1)
    return Machine.build(cpus, [NUMANodeFacts(numa, NUMA_NODE_BYTES, {}, row) for numa in numa_ids])


def _place(document: Located, field: str) -> Located:
    """The place of a field such as `reservedMemory[0].numaNode`, or the closest existing one."""
    keys = [int(key) if key.isdecimal() else key for key in re.findall(r"[^.\[\]]+", field)]
    return document.near(*keys)


def _traps(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    """Findings about a configuration whose values are all valid."""
    yield from _topology(document, config)
    yield from _memory(document, config)
    yield from _reservations(document, config)
    if config.cpu_manager_policy_options.get("full-pcpus-only") in _TRUE:
        yield found("full-pcpus-only", document.near("cpuManagerPolicyOptions", "full-pcpus-only"))
    seconds = go_seconds(document.plain("cpuManagerReconcilePeriod"))
    if seconds is not None and seconds > SLOW_RECONCILE_SECONDS:
        yield found("cpu-reconcile-slow", document.near("cpuManagerReconcilePeriod"), seconds=seconds)


def _topology(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    policy, options = config.topology_manager_policy, config.topology_manager_policy_options
    place = document.near("topologyManagerPolicy")
    if policy != "none" and config.cpu_manager_policy != "static":
        yield found("topology-without-static-cpu", place, policy=policy, cpu_policy=config.cpu_manager_policy)
    if policy == "none" and config.cpu_manager_policy == "static":
        yield found("static-cpu-without-topology", document.near("cpuManagerPolicy"))
    if policy == "single-numa-node" and options.get("prefer-closest-numa-nodes") in _TRUE:
        yield found(
            "prefer-closest-no-effect", document.near("topologyManagerPolicyOptions", "prefer-closest-numa-nodes")
        )
    if policy == "none" and options:
        yield found("topology-options-ignored", document.near("topologyManagerPolicyOptions"))


def _memory(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    policy, place = config.topology_manager_policy, document.near("memoryManagerPolicy")
    if config.memory_manager_policy != "Static":
        if config.reserved_memory:
            yield found("reserved-memory-unused", document.near("reservedMemory"), policy=config.memory_manager_policy)
        return
    if config.feature_gates.get("MemoryManager") is False and parse_minor(config.kubelet_version) < MEMORY_GATE_LOCKED:
        yield found("memory-manager-gate", document.near("featureGates", "MemoryManager"))
    if policy == "none":
        yield found("memory-without-topology", place)
    elif policy in ("restricted", "best-effort"):
        yield found("memory-groups", place, policy=policy)
    if policy == "best-effort":
        yield found("best-effort-refuses", place)
    threshold = document.text("evictionHard", "memory.available")
    if threshold.endswith("%"):
        yield found("eviction-percent", document.near("evictionHard", "memory.available"), threshold=threshold)


def _reservations(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    if config.reserved_system_cpus:
        for key in ("systemReserved", "kubeReserved"):
            if document.get(key, "cpu") is not None:
                yield found("reserved-cpus-override", document.near(key, "cpu"))
        return
    if config.cpu_manager_policy != "static":
        return
    milli = reserved_millicpu(document)
    if milli % 1000:
        place = next(
            document.near(key, "cpu") for key in ("kubeReserved", "systemReserved") if document.get(key, "cpu")
        )
        yield found("reserved-cpu-fraction", place, cpus=milli / 1000, whole=-(-milli // 1000))


def reserved_millicpu(document: Located) -> int:
    """The CPU that the kubelet takes off what the scheduler can give to pods."""
    listed = document.text("reservedSystemCPUs")
    if listed:
        try:
            return 1000 * parse_list(listed).bit_count()
        except ValueError:
            return 0
    return sum(_milli(document.plain(key, "cpu")) for key in ("systemReserved", "kubeReserved"))


def _milli(value: object) -> int:
    try:
        return 0 if value is None else parse_milli(value, "cpu")
    except WireError:
        return 0
