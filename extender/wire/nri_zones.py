"""Zones of a NodeResourceTopology object that the plugin of the NRI topology-aware policy publishes: one for each pool.

Rules of this file
- Such an object has the attribute `TopologyPolicy: topology-aware` (`pkg/agent/node-resource-topology.go` updateNrtCR).
- Pools form one tree, children before their parent. Anything else is an error, because half a tree would be misleading.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from extender.kubelet.sets import parse_list
from extender.nri.counts import PoolCounts
from extender.wire.errors import WireError, shown
from extender.wire.quantity import parse_milli

POLICY_ATTRIBUTE: Final = "TopologyPolicy"
POLICY: Final = "topology-aware"
MAX_POOLS: Final = 1024
"""A pool is a package, a die, a NUMA node or an L3 cache. The largest recorded machine has 41."""
_KINDS: Final = frozenset({"virtual node", "socket", "die", "numa node", "L3 cache"})
_SETS: Final = {"memory set": "memory_nodes", "shared cpuset": "shared", "reserved cpuset": "reserved",
                "isolated cpuset": "isolated"}  # fmt: skip


def pool_counts(
    name: str,
    kind: str,
    parent: str,
    resources: Mapping[str, tuple[str | int, str | int]],
    attributes: Mapping[str, str],
    field: str,
) -> PoolCounts:
    """The pool of one zone. *resources*: (allocatable, available) by name. Raises WireError."""
    if kind not in _KINDS:
        raise WireError(f"{field}.type", f"{shown(kind)} is not a kind of pool of the NRI topology-aware policy")
    missing = {"cpu", "memory"} - resources.keys()
    if missing:
        raise WireError(f"{field}.resources", f"{', '.join(sorted(missing))}: missing")
    (cpu, cpu_left), (memory, memory_left) = resources["cpu"], resources["memory"]
    where = f"{field}.resources"
    return PoolCounts(
        name=name,
        parent=parent,
        kind=kind,
        capacity_millicpu=parse_milli(cpu, f"{where}.cpu.capacity"),
        available_millicpu=_signed_milli(cpu_left, f"{where}.cpu.available"),
        capacity_memory_bytes=parse_milli(memory, f"{where}.memory.capacity") // 1000,
        available_memory_bytes=_signed_milli(memory_left, f"{where}.memory.available") // 1000,
        **{to: _set(attributes.get(name, ""), f"{field}.attributes.{name}") for name, to in _SETS.items()},
    )


def tree_of(pools: Iterable[PoolCounts]) -> tuple[PoolCounts, ...]:
    """*pools*, checked: names differ, parents come after their children, and only the last one has none.

    Raises:
        WireError: they are no such tree, or a pool has more than the one above it.
    """
    found = tuple(pools)
    if not 0 < len(found) <= MAX_POOLS:
        raise WireError("zones", f"{len(found)} pools, where 1 to {MAX_POOLS} are expected")
    above: dict[str, PoolCounts] = {}
    for position, pool in reversed(list(enumerate(found))):
        where, is_root = f"zones[{position}]", position == len(found) - 1
        parent = above.get(pool.parent)
        if pool.name in above or (pool.parent != "" if is_root else parent is None):
            raise WireError(where, f"pool {shown(pool.name)}: its name or its parent is not that of a tree")
        if parent is not None and (
            pool.capacity_millicpu > parent.capacity_millicpu
            or pool.capacity_memory_bytes > parent.capacity_memory_bytes
        ):
            raise WireError(where, f"pool {shown(pool.name)} has more than its parent")
        if pool.available_millicpu > pool.capacity_millicpu or pool.available_memory_bytes > pool.capacity_memory_bytes:
            raise WireError(where, f"pool {shown(pool.name)} has more available than there is")
        above[pool.name] = pool
    return found


def _signed_milli(value: str | int, where: str) -> int:
    """A quantity that may be below zero: a drained pool with a container that requests no CPU shows -1m."""
    if isinstance(value, str) and value.startswith("-"):
        return -parse_milli(value[1:], where)
    return parse_milli(value, where)


def _set(text: str, where: str) -> int:
    try:
        return parse_list(text)
    except ValueError as error:
        raise WireError(where, str(error)) from None
