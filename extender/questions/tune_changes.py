"""What tune changes: the fields, a node's configuration with a change, and the change as KubeletConfiguration."""

from collections.abc import Mapping
from dataclasses import replace
from itertools import chain, zip_longest
from typing import Final

import yaml

from extender.kubelet.config import KubeletConfig, ReservedMemory
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.sets import format_list, iter_bits
from extender.questions.hypothetical import attributes_of
from extender.questions.node_context import Subject

Change = tuple[tuple[str, str], ...]
"""Field and value; empty: nothing is changed."""
FIRST_NUMA, EVERY_NUMA = "first NUMA node", "every NUMA node"
FIELDS: Final[Mapping[str, tuple[object, ...]]] = {
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "cpuManagerPolicyOptions": ("", "full-pcpus-only", "distribute-cpus-across-numa"),
    "topologyManagerPolicyOptions": ("", "prefer-closest-numa-nodes"),
    "memoryManagerPolicy": ("None", "Static"),
    "reservedSystemCPUs": (FIRST_NUMA, EVERY_NUMA),
}
"""What is varied; options by name, empty: none. `reservedSystemCPUs`: where as many reserved CPUs as now are."""
WITH_POLICY: Final = {"topologyManagerScope", "topologyManagerPolicyOptions"}
"""Fields without a meaning under policy none."""


def config_with(subject: Subject, change: Change) -> KubeletConfig:
    """The configuration of a node, whose kubelet is known, with a change."""
    assert subject.kubelet is not None
    config = subject.kubelet.config
    for name, value in change:
        config = _with(config, subject.kubelet, name, value)
    return config


def _with(config: KubeletConfig, kubelet: Kubelet, name: str, value: str) -> KubeletConfig:
    if name in ("cpuManagerPolicyOptions", "reservedSystemCPUs") and not kubelet.cpu_static:
        return config
    if name == "reservedSystemCPUs":
        cpus = _reserved_cpus(kubelet, value)
        if cpus == kubelet.reserved_cpus:
            return config
        return replace(config, reserved_system_cpus=cpus, reservation_cpu_milli=cpus.bit_count() * 1000)
    if name == "memoryManagerPolicy" and value != config.memory_manager_policy:
        return replace(config, memory_manager_policy=value, reserved_memory=_reserved_memory(config, kubelet, value))
    changed: object = value
    if name.endswith("Options"):
        changed = {value: "true"} if value else {}
    (attribute,) = attributes_of(name)
    return replace(config, **{attribute: changed})  # type: ignore[arg-type]


def _reserved_cpus(kubelet: Kubelet, where: str) -> int:
    """As many CPUs as are reserved now, as bits: core by core, from the first NUMA nodes or from all in turn."""
    machine, left = kubelet.machine, kubelet.reserved_cpus.bit_count()
    by_numa = [
        sorted((core for core in machine.core_cpus.values() if core & bits), key=lambda core: core & -core)
        for bits in machine.numa_cpus.values()
    ]
    if where == FIRST_NUMA:
        cores = [core for each in by_numa for core in each]
    else:
        cores = [core for turn in zip_longest(*by_numa, fillvalue=0) for core in turn]
    bits = 0
    for cpu in chain.from_iterable(map(iter_bits, cores)):
        if left <= 0:
            break
        bits, left = bits | 1 << cpu, left - 1
    return bits


def _reserved_memory(config: KubeletConfig, kubelet: Kubelet, policy: str) -> tuple[ReservedMemory, ...]:
    """`reservedMemory` for a policy: its own, or the node's reservation on the first NUMA nodes with memory."""
    if policy != "Static" or config.reserved_memory:
        return config.reserved_memory if policy == "Static" else ()
    left, found = config.reservation_bytes.get("memory", 0), []
    for node in kubelet.machine.numa_nodes:
        amount = min(left, node.memory_bytes // 2)
        if amount:
            found.append(ReservedMemory(numa=node.id, limits_bytes={"memory": amount}))
        left -= amount
    return tuple(found)


def different(before: KubeletConfig, after: KubeletConfig, change: Change) -> dict[str, object]:
    """The fields of KubeletConfiguration that a node needs for a change; empty: it has them."""
    fields: dict[str, object] = {}
    for name, _ in change:
        (attribute,) = attributes_of(name)
        old, new = getattr(before, attribute), getattr(after, attribute)
        if old != new:
            fields[name] = format_list(new) if isinstance(new, int) else dict(new) if isinstance(new, Mapping) else new
    if fields.get("memoryManagerPolicy") == "Static":
        fields["reservedMemory"] = [
            {"numaNode": each.numa, "limits": {name: str(amount) for name, amount in each.limits_bytes.items()}}
            for each in after.reserved_memory
        ]
    return fields


def patch_of(fields: Mapping[str, object]) -> str:
    """The fields as a KubeletConfiguration, YAML."""
    document = {"apiVersion": "kubelet.config.k8s.io/v1beta1", "kind": "KubeletConfiguration", **fields}
    return str(yaml.safe_dump(document, sort_keys=False))
