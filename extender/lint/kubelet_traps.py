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
        yield found("full-pcpus-only", document.near("cpuManagerPolicyOptions", "full-pcpus-only"))
    seconds = go_seconds(document.plain("cpuManagerReconcilePeriod"))
    if seconds is not None and seconds > SLOW_RECONCILE_SECONDS:
        yield found("cpu-reconcile-slow", document.near("cpuManagerReconcilePeriod"), seconds=seconds)


def _is_on(config: KubeletConfig, option: str) -> bool:
    return config.cpu_manager_policy_options.get(option) in _TRUE


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
