"""Kubelet configurations that start, but have pitfalls."""

from collections.abc import Iterator
from typing import Final

from extender.kubelet.config import KubeletConfig
from extender.kubelet.rules import parse_minor
from extender.kubelet.sets import parse_list
from extender.lint.catalogue import Finding, found
from extender.lint.documents import Located
from extender.lint.values import go_seconds
from extender.wire.errors import WireError
from extender.wire.parsing import parse_milli

SLOW_RECONCILE_SECONDS: Final = 30.0
_TRUE: Final = frozenset({"1", "t", "T", "TRUE", "true", "True"})
MEMORY_GATE_LOCKED: Final = 32


def lint_traps(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    """Findings about a configuration whose values are all valid."""
    yield from _topology(document, config)
    yield from _memory(document, config)
    yield from _reservations(document, config)
    if _is_on(config, "full-pcpus-only"):
        yield found(
            "full-pcpus-only",
            document.near("cpuManagerPolicyOptions", "full-pcpus-only"),
            "a Guaranteed container fails with SMTAlignmentError unless its CPUs are a multiple of a core's threads",
            "request even numbers of CPUs on machines with two threads a core",
        )
    seconds = go_seconds(document.plain("cpuManagerReconcilePeriod"))
    if seconds is not None and seconds > SLOW_RECONCILE_SECONDS:
        yield found(
            "cpu-reconcile-slow",
            document.near("cpuManagerReconcilePeriod"),
            f"CPUs of a pod that ended may stay allocated for {seconds:g} s",
            "leave the default, 10s",
        )


def _is_on(config: KubeletConfig, option: str) -> bool:
    return config.cpu_manager_policy_options.get(option) in _TRUE


def _topology(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    policy, options = config.topology_manager_policy, config.topology_manager_policy_options
    place = document.near("topologyManagerPolicy")
    if policy != "none" and config.cpu_manager_policy != "static":
        yield found(
            "topology-without-static-cpu",
            place,
            f"topologyManagerPolicy {policy} aligns only what has hints, and cpuManagerPolicy "
            f"{config.cpu_manager_policy} gives none",
            "set cpuManagerPolicy: static",
        )
    if policy == "none" and config.cpu_manager_policy == "static":
        yield found(
            "static-cpu-without-topology",
            document.near("cpuManagerPolicy"),
            "with topologyManagerPolicy none, CPUs, memory and devices are chosen independently",
            "set topologyManagerPolicy: single-numa-node, or restricted",
        )
    if policy == "single-numa-node" and options.get("prefer-closest-numa-nodes") in _TRUE:
        yield found(
            "prefer-closest-no-effect",
            document.near("topologyManagerPolicyOptions", "prefer-closest-numa-nodes"),
            "with a single NUMA node there is no distance to compare",
            "remove the option",
        )
    if policy == "none" and options:
        yield found(
            "topology-options-ignored",
            document.near("topologyManagerPolicyOptions"),
            "topologyManagerPolicy is none",
            "set a policy, or remove the options",
        )


def _memory(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    policy, place = config.topology_manager_policy, document.near("memoryManagerPolicy")
    if config.memory_manager_policy != "Static":
        if config.reserved_memory:
            yield found(
                "reserved-memory-unused",
                document.near("reservedMemory"),
                f"memoryManagerPolicy is {config.memory_manager_policy}",
                "set memoryManagerPolicy: Static, or remove reservedMemory",
            )
        return
    if config.feature_gates.get("MemoryManager") is False and parse_minor(config.kubelet_version) < MEMORY_GATE_LOCKED:
        yield found(
            "memory-manager-gate",
            document.near("featureGates", "MemoryManager"),
            "memoryManagerPolicy Static is ignored while the gate is off",
            "remove the gate",
        )
    if policy == "none":
        yield found(
            "memory-without-topology",
            place,
            "memory and CPUs are pinned independently",
            "set topologyManagerPolicy: single-numa-node, or restricted",
        )
    elif policy in ("restricted", "best-effort"):
        yield found(
            "memory-groups",
            place,
            f"under {policy} a pod larger than a NUMA node takes several; from then on these serve only pods that take "
            "the same ones, and until it ends refuse pods of a single node",
            "use single-numa-node, or keep pods that span NUMA nodes on nodes of their own",
        )
    if policy == "best-effort":
        yield found(
            "best-effort-refuses",
            place,
            "when memory cannot be taken from the chosen NUMA nodes the pod fails with UnexpectedAdmissionError",
            "expect refusals, or use restricted, which refuses before it allocates anything",
        )
    threshold = document.text("evictionHard", "memory.available")
    if threshold.endswith("%"):
        yield found(
            "eviction-percent",
            document.near("evictionHard", "memory.available"),
            f"{threshold} of each machine's memory is part of the sum that reservedMemory must equal",
            "set evictionHard memory.available to an amount",
        )


def _reservations(document: Located, config: KubeletConfig) -> Iterator[Finding]:
    if config.reserved_system_cpus:
        for key in ("systemReserved", "kubeReserved"):
            if document.get(key, "cpu") is not None:
                yield found(
                    "reserved-cpus-override",
                    document.near(key, "cpu"),
                    "the CPUs of reservedSystemCPUs are used, this amount is not",
                    "remove one of the two",
                )
        return
    if config.cpu_manager_policy != "static":
        return
    milli = reserved_millicpu(document)
    if milli % 1000:
        place = next(
            document.near(key, "cpu") for key in ("kubeReserved", "systemReserved") if document.get(key, "cpu")
        )
        yield found(
            "reserved-cpu-fraction",
            place,
            f"{milli / 1000:g} CPUs are reserved in the node's allocatable, but {-(-milli // 1000)} by the static "
            "policy",
            "let the reservations sum up to whole CPUs, or list them in reservedSystemCPUs",
        )


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
