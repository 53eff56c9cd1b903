"""How many CPUs a request takes from each NUMA node, from counts alone.

Rules of this file
- Only where `Layout.packs` holds. There the kubelet takes whole sockets and NUMA nodes, then whole cores, then single
  CPUs, and visits NUMA nodes in an order that depends on counts of free CPUs.
- Single CPUs come from the cores with the fewest free ones, so whole cores are broken last and one at a time.

Mirrors: `cpu_assignment`, and through it kubelet `cm/cpumanager/cpu_assignment.go` (takeByTopologyNUMAPacked).
"""

from collections.abc import Iterator
from dataclasses import dataclass

from extender.replay.coarse.layout import Layout


@dataclass(slots=True)
class CPUPool:
    """CPUs that a request may take, by position: free ones, and whole cores among them. Changed by `take`."""

    free: list[int]
    whole_cores: list[int]


def take_first_inside(layout: Layout, pool: CPUPool, inside: list[int], count: int) -> list[int]:
    """Take *count* CPUs from the pool, those at the positions *inside* first; returns how many at each position.

    The pool has *count* CPUs or more. Source: `cpu_manager.take`.
    """
    part = CPUPool([0] * len(pool.free), [0] * len(pool.free))
    for i in inside:
        part.free[i], part.whole_cores[i] = pool.free[i], pool.whole_cores[i]
    before = list(pool.free)
    count -= _take(layout, part, min(count, sum(part.free)))
    for i in inside:
        pool.free[i], pool.whole_cores[i] = part.free[i], part.whole_cores[i]
    _take(layout, pool, count)
    return [was - now for was, now in zip(before, pool.free, strict=True)]


def _take(layout: Layout, pool: CPUPool, count: int) -> int:
    """Take *count* CPUs, of which there are enough; returns *count*."""
    needed = count
    whole_steps = [_full_sockets, _full_numa_nodes]
    for full in whole_steps if layout.sockets_first else reversed(whole_steps):
        for positions in list(full(layout, pool)):
            size = sum(layout.sizes[i] for i in positions)
            if needed >= size:
                needed -= size
                for i in positions:
                    pool.free[i] = pool.whole_cores[i] = 0
    per_core = layout.cpus_per_core
    for i in list(_numa_order(layout, pool)):
        cores = min(pool.whole_cores[i], needed // per_core)
        needed -= cores * per_core
        pool.whole_cores[i] -= cores
        pool.free[i] -= cores * per_core
    for i in list(_numa_order(layout, pool)):
        singles = min(pool.free[i], needed)
        needed -= singles
        take_singles(layout, pool, i, singles)
    return count


def take_singles(layout: Layout, pool: CPUPool, position: int, count: int) -> None:
    """Take single CPUs: those outside whole cores first."""
    per_core = layout.cpus_per_core
    outside = pool.free[position] - pool.whole_cores[position] * per_core
    if count > outside:
        pool.whole_cores[position] -= -(-(count - outside) // per_core)
    pool.free[position] -= count


def _numa_order(layout: Layout, pool: CPUPool) -> Iterator[int]:
    """Positions with free CPUs: fewest free CPUs first, in each socket where a socket has several NUMA nodes."""
    if not layout.sockets_first:
        yield from sorted((i for i, free in enumerate(pool.free) if free), key=lambda i: pool.free[i])
        return
    for positions in _socket_order(layout, pool):
        yield from sorted((i for i in positions if pool.free[i]), key=lambda i: pool.free[i])


def _socket_order(layout: Layout, pool: CPUPool) -> list[tuple[int, ...]]:
    return sorted(layout.sockets, key=lambda positions: sum(pool.free[i] for i in positions))


def _full_sockets(layout: Layout, pool: CPUPool) -> Iterator[tuple[int, ...]]:
    for positions in _socket_order(layout, pool):
        free = sum(pool.free[i] for i in positions)
        if free and free == layout.cpus_per_socket:
            yield positions


def _full_numa_nodes(layout: Layout, pool: CPUPool) -> Iterator[tuple[int, ...]]:
    for i in _numa_order(layout, pool):
        if pool.free[i] == layout.sizes[i]:
            yield (i,)
