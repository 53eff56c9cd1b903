"""Topology hints: their sources, and how well a pool satisfies them.

Mirrors: `pkg/resmgr/cache/container.go` (generateTopologyHints, checkAllowedAndDeniedPaths, isReadOnlyDevice),
`pkg/topology/topology.go` (NewTopologyHints, MergeTopologyHints, ResolvePartialHints), `pkg/agent/podresapi`
(GetDeviceTopologyHints), `policy/hint.go`, `policy/node.go` (HintScore) and `pkg/utils/topology/hints.go`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final, TypeAlias

from extender.kubelet.budget import Budget
from extender.kubelet.sets import format_list, iter_bits
from extender.nri.machine import NriDevice, NriMachine
from extender.nri.objects import ContainerDevice, NriHint, NriPod
from extender.nri.pools import Pool, PoolKind, PoolTree
from extender.nri.text import (
    PatternError,
    as_texts,
    glob_match,
    json_fields,
    parse_bool,
    parse_id_list,
    parse_int,
)
from extender.nri.verdict import NriRefusal, RefusalError

POD_RESOURCE_PROVIDER: Final = "podresourceapi:"
_OVERFIT: Final = 0.9
_MAX_NODE_ID: Final = 63

_Paths: TypeAlias = tuple[bool, tuple[str, ...]] | None
"""A list of paths: (whether they are globs, the paths). None if there is no valid list."""


def container_hints(
    machine: NriMachine,
    pod: NriPod,
    container: str,
    devices: Sequence[ContainerDevice],
    budget: Budget,
    *,
    wildcard_rule: bool,
) -> Mapping[str, NriHint]:
    """The hints of a new container by provider. *wildcard_rule*: a cgroup rule for all devices comes first.

    Raises:
        BudgetError: matching the allowed and denied paths takes too many steps.
    """
    kinds = _wanted_kinds(pod.effective("topologyhints", container))
    if kinds is None:
        return {}
    allowed, denied = (_paths(pod.document(f"{kind}.topologyhints", container)) for kind in ("allow", "deny"))
    hints: dict[str, NriHint] = {}
    if "devices" in kinds:
        rules = _first_rules(devices)
        for device in devices:
            facts = _facts_of(machine, device)
            if (
                facts is not None
                and (wildcard_rule or "w" in rules.get(_numbers(device), ""))
                and not _is_denied(facts.path, allowed, denied, budget)
            ):
                hint = _device_hint(facts)
                if hint is not None:
                    hints.setdefault(facts.path, hint)
        hints.update(pod.device_hints.get(container, ()))
    if "pod-resources" in kinds:
        from_kubelet: dict[str, NriHint] = {}
        for resource, nodes in pod.device_nodes.get(container, ()):
            provider = POD_RESOURCE_PROVIDER + resource
            if nodes and not _is_denied(provider, allowed, denied, budget):
                from_kubelet[provider] = NriHint(numas=",".join(map(str, nodes)))
        for provider, hint in from_kubelet.items():
            hints.setdefault(provider, hint)
    for provider, hint in annotated_hints(pod, container):
        if not _is_denied(provider, allowed, denied, budget):
            hints.setdefault(provider, hint)
    return hints


def _wanted_kinds(preference: str | None) -> frozenset[str] | None:
    """The kinds of hints to generate; None: none at all, not even those of the test annotation."""
    every = frozenset({"mounts", "devices", "pod-resources"})
    if preference is None:
        return every
    switch = parse_bool(preference)
    if switch is not None:
        return every if switch else None
    kinds: frozenset[str] = frozenset()
    for word in preference.split(","):
        if word == "none":
            return None
        kinds |= every if word == "all" else {word} & every
    return kinds


def _paths(document: object) -> _Paths:
    fields = json_fields(document)
    if fields is None:
        return None
    kind, paths = fields.get("type", "prefix"), as_texts(fields.get("paths"))
    if kind not in ("prefix", "glob") or paths is None:
        return None
    return kind == "glob", tuple(paths)


def _is_denied(path: str, allowed: _Paths, denied: _Paths, budget: Budget) -> bool:
    """The deny list is applied first, then the allow list. A malformed glob ends the search."""
    is_denied = False
    try:
        is_denied = _is_listed(path, denied, budget)
    except PatternError:
        return False
    try:
        return is_denied and not _is_listed(path, allowed, budget)
    except PatternError:
        return is_denied


def _is_listed(path: str, paths: _Paths, budget: Budget) -> bool:
    if paths is None:
        return False
    are_globs, listed = paths
    budget.spend(len(listed))
    return any(glob_match(entry, path, budget) if are_globs else path.startswith(entry) for entry in listed)


def _facts_of(machine: NriMachine, device: ContainerDevice) -> NriDevice | None:
    wanted = _numbers(device)
    return next((d for d in machine.devices if (d.type, d.major, d.minor) == wanted), None)


def _numbers(device: ContainerDevice) -> tuple[str, int, int]:
    return device.type, device.major, device.minor


def _first_rules(devices: Sequence[ContainerDevice]) -> Mapping[tuple[str, int, int], str]:
    """The access that each device has. If a device is listed twice, the first rule counts for both.

    Source: pkg/resmgr/cache/container.go isReadOnlyDevice.
    """
    return {_numbers(each): each.access for each in reversed(devices) if each.access is not None}


def _device_hint(device: NriDevice) -> NriHint | None:
    """`topology.go` getTopologyHint: a NUMA node without a CPU list ends up as a socket."""
    numas = "" if device.numa_node is None or device.numa_node == -1 else str(device.numa_node)
    cpus = (device.local_cpus or "").strip()
    if numas and not cpus:
        return NriHint(sockets=numas)
    return NriHint(cpus=cpus, numas=numas) if cpus or numas else None


def annotated_hints(pod: NriPod, container: str) -> list[tuple[str, NriHint]]:
    """(provider, hint) of the test annotation; empty if it is malformed."""
    document = pod.document("test.topologyhints", container)
    if not isinstance(document, dict):
        return []
    result = []
    for _, entry in sorted(document.items(), key=lambda item: str(item[0])):
        if entry is not None and not isinstance(entry, dict):
            return []
        fields = json_fields(entry) or {}
        values = as_texts([fields.get(name) for name in ("provider", "cpus", "numas", "sockets")])
        if values is None:
            return []
        result.append((values[0], NriHint(*values[1:])))
    return result


def is_from_kubelet(provider: str) -> bool:
    """Whether CPUs can be picked by a hint of *provider*."""
    return provider.startswith(POD_RESOURCE_PROVIDER)


def resolved(hints: Mapping[str, NriHint], machine: NriMachine) -> Mapping[str, NriHint]:
    """*hints* with CPUs for those that name only NUMA nodes (`topology.go` ResolvePartialHints)."""
    if not any(hint.numas and not hint.cpus for hint in hints.values()):
        return hints
    return {
        provider: replace(hint, cpus=_cpus_of_numas(hint.numas, machine)) if hint.numas and not hint.cpus else hint
        for provider, hint in hints.items()
    }


def _cpus_of_numas(numas: str, machine: NriMachine) -> str:
    nodes = parse_id_list(numas)
    return "" if nodes is None else format_list(machine.cpus_of_nodes(nodes) & machine.online)


def scores(hints: Mapping[str, NriHint], pool: Pool, tree: PoolTree, machine: NriMachine) -> tuple[float, float]:
    """(product of the scores of *hints* at *pool*, product of those that are not 0); `pools.go` combineHintScores.

    Raises:
        RefusalError: PANIC, see `_score`.
    """
    product, non_zero = 1.0, 0.0
    for hint in hints.values():
        score = _score(hint, pool, tree, machine)
        product *= score
        if score:
            non_zero = non_zero * score if non_zero else score
    return (product, non_zero) if hints else (0.0, 0.0)


def _score(hint: NriHint, pool: Pool, tree: PoolTree, machine: NriMachine) -> float:
    """How well *pool* satisfies *hint*, 0 to 1 (`node.go` HintScore).

    Raises:
        RefusalError: PANIC. An L3 pool below a socket or a die looks up the NUMA nodes of its parent, which looks up
            those of its children: the plugin's stack overflows.
    """
    if hint.cpus:
        cpus = parse_id_list(hint.cpus)
        return (cpus & pool.hint_cpus).bit_count() / cpus.bit_count() if cpus else 0.0
    if hint.numas:
        return _numa_score(hint, pool, tree, machine)
    return _socket_score(hint, pool, tree, machine) if hint.sockets else 0.0


def _numa_score(hint: NriHint, pool: Pool, tree: PoolTree, machine: NriMachine) -> float:
    if pool.kind is PoolKind.VIRTUAL:
        return _OVERFIT * _OVERFIT
    if pool.kind is PoolKind.NUMA:
        return _membership(hint.numas, (pool.sysfs_id,))
    if pool.kind is PoolKind.L3:
        parent = tree.pools[pool.parent]
        if parent.kind is not PoolKind.NUMA:
            raise RefusalError(
                NriRefusal.PANIC, f"a hint without CPUs makes the plugin recurse without end at {pool.name}"
            )
        return _OVERFIT * _membership(hint.numas, (parent.sysfs_id,))
    package = machine.packages[pool.package]
    nodes = package.die_nodes[pool.sysfs_id] if pool.kind is PoolKind.DIE else package.node_ids
    return _OVERFIT * _membership(hint.numas, nodes)


def _socket_score(hint: NriHint, pool: Pool, tree: PoolTree, machine: NriMachine) -> float:
    if pool.kind is PoolKind.VIRTUAL:
        return _OVERFIT
    if pool.kind is PoolKind.L3:
        return _OVERFIT * _socket_score(hint, tree.pools[pool.parent], tree, machine)
    if pool.kind is PoolKind.NUMA:
        id_ = next((cpu.package for cpu in machine.cpus if cpu.node == pool.sysfs_id), pool.package)
        return _membership(hint.sockets, (id_,)) / len(machine.packages[id_].node_ids)
    score = _membership(hint.sockets, (pool.package,))
    return score / len(machine.packages[pool.package].die_nodes[pool.sysfs_id]) if pool.kind is PoolKind.DIE else score


def _membership(text: str, ids: Sequence[int]) -> float:
    """1 if *text* lists one of *ids* before its first entry that is not a number (such as a range), else 0."""
    for part in text.split(","):
        value = parse_int(part)
        if value is None:
            return 0.0
        if value in ids:
            return 1.0
    return 0.0


def node_mask(text: str) -> int | None:
    """The NUMA nodes of a list; None if it does not parse (`lib/memory/nodes.go` ParseNodeMask)."""
    nodes = parse_id_list(text)
    return None if nodes is None or nodes.bit_length() > _MAX_NODE_ID + 1 else nodes


def misaligned(hint: NriHint, cpus: int, machine: NriMachine) -> int:
    """The CPUs of *cpus* that a strict *hint* forbids (`hints.go` MisalignedCPUSet).

    Raises:
        RefusalError: PANIC, for a NUMA node that does not exist.
    """
    result = 0
    by_cpus = parse_id_list(hint.cpus) or 0
    if by_cpus:
        result |= cpus & ~by_cpus
    nodes = parse_id_list(hint.numas) or 0
    if any(i >= len(machine.nodes) for i in iter_bits(nodes)):
        raise RefusalError(NriRefusal.PANIC, f"the strict hint names NUMA nodes {hint.numas} that do not exist")
    by_nodes = machine.cpus_of_nodes(nodes)
    return result | (cpus & ~by_nodes if by_nodes else 0)
