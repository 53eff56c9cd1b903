"""What is free and used in each pool of the NRI topology-aware policy, for people.

Rules of this file
- The root is first, and every pool comes before those inside it.
- With grants every field is known. With counts alone some fields are None: no value is guessed.
- `free_bytes` is what the policy counts. Memory that is booked on NUMA nodes in and outside the pool is not subtracted
  (`pkg/resmgr/lib/memory/zones.go` zoneFree). `left_bytes` is at most what the pools around have left.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Final, TypeVar

from msgspec import UNSET

from extender.cluster.node import NodeRecord
from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.state import ManagerState
from extender.nri.books import Books, Grant
from extender.nri.counts import NriCounts, PoolCounts
from extender.nri.machine import DRAM, HBM, PMEM
from extender.nri.pools import Pool, PoolKind
from extender.nri.state import NriState
from extender.replay.creation import grants_of
from extender.wire.pools import MemoryType, PoolGrantView, PoolMemoryView, PoolView

P = TypeVar("P", Pool, PoolCounts)
TYPE_NAMES: Final[dict[int, MemoryType]] = {DRAM: "DRAM", PMEM: "PMEM", HBM: "HBM"}


def pools_of(record: NodeRecord, *, grants: bool = False) -> list[PoolView]:
    """The pools of a node; empty if it does not run the policy, or nothing is known of them.

    *grants*: whether to list what each container holds.
    """
    if record.state is not None and (granted := grants_of(record.state)) is not None:
        return _pools_of_state(granted, grants=grants)
    published = _published(record)
    return [] if published is None else _pools_of_counts(published, grants=grants)


def root_room(record: NodeRecord) -> tuple[int, int, int, int] | None:
    """Of the root pool: (CPU left, all but reserved CPU, free memory, all memory) in mCPU and bytes.

    None if the node does not run the policy, or nothing is known of its pools. Isolated CPUs count.
    """
    if record.state is not None and (granted := grants_of(record.state)) is not None:
        books = granted.node.books
        root, machine = books.setup.tree.root, books.setup.topology.machine
        left = max(0, books.allocatable_now()[root.id]) + 1000 * books.isolated[root.id].bit_count()
        free = max(0, books.memory.free_bytes(machine.memory_nodes))
        return (
            left,
            1000 * (root.sharable | root.isolated).bit_count(),
            free,
            machine.capacity_bytes(machine.memory_nodes),
        )
    published = _published(record)
    if published is None:
        return None
    pool = published.root
    cpus = pool.capacity_millicpu - 1000 * pool.reserved.bit_count()
    return max(0, pool.available_millicpu), cpus, max(0, pool.available_memory_bytes), pool.capacity_memory_bytes


def _published(record: NodeRecord) -> NriCounts | None:
    counts = record.node_class.counts
    return record.node_class.pools or (None if counts is None else counts.nri)


def _pools_of_state(state: NriState, *, grants: bool) -> list[PoolView]:
    books = state.node.books
    pools, available = books.setup.tree.pools, books.allocatable_now()
    held: dict[int, list[PoolGrantView]] = {}
    for grant in books.grants.values() if grants else ():
        held.setdefault(grant.pool, []).append(_grant(books, grant))
    rooms: dict[int, PoolView] = {}
    for pool in _from_the_root(pools[-1], pools, attrgetter("id")):
        above = rooms[pool.parent].memory if pool.parent >= 0 else ()
        rooms[pool.id] = _room(books, pool, available[pool.id], above, held.get(pool.id, []) if grants else None)
    return list(rooms.values())


def _grant(books: Books, grant: Grant) -> PoolGrantView:
    container = books.containers[grant.container]
    namespace, pod, name = container.full_name.split("/")
    return PoolGrantView(
        pod_uid=container.pod_id,
        namespace=namespace,
        pod=pod,
        container=name,
        cpu_type=grant.cpu_type,
        cpus=format_list(grant.exclusive),
        millicpu=grant.portion,
        memory_numa=list(iter_bits(grant.memory_nodes)),
        memory_bytes=grant.memory_bytes,
    )


def _from_the_root(root: P, pools: Sequence[P], key: Callable[[P], object]) -> Iterator[P]:
    """Parents before children, children in their order. *key*: what `parent` of a child is."""
    stack, children = [root], defaultdict[object, list[P]](list)
    for pool in pools:
        children[pool.parent].append(pool)
    while stack:
        pool = stack.pop()
        yield pool
        stack += reversed(children[key(pool)])


def _room(
    books: Books, pool: Pool, available: int, above: Sequence[PoolMemoryView], grants: list[PoolGrantView] | None
) -> PoolView:
    tree, machine = books.setup.tree, books.setup.topology.machine
    exclusive = (pool.isolated & ~books.isolated[pool.id]) | (pool.sharable & ~books.sharable[pool.id])
    by_type = dict(zip(TYPE_NAMES.values(), (pool.dram, pool.pmem, pool.hbm), strict=True))
    memory = [(type_, nodes & machine.memory_nodes) for type_, nodes in by_type.items() if nodes & machine.memory_nodes]
    if len(memory) > 1:
        memory.insert(0, ("", _memory_nodes(pool) & machine.memory_nodes))
    return PoolView(
        name=pool.name,
        kind=pool.kind,
        parent=None if pool.parent < 0 else tree.pools[pool.parent].name,
        depth=pool.depth,
        cpus=format_list(pool.isolated | pool.reserved | pool.sharable),
        capacity_millicpu=1000 * (pool.sharable | pool.reserved).bit_count(),
        free_millicpu=available,
        shared_cpus=format_list(books.sharable[pool.id]),
        shared_used_millicpu=books.shared[pool.id],
        exclusive_cpus=format_list(exclusive),
        exclusive_count=exclusive.bit_count(),
        reserved_cpus=format_list(pool.reserved),
        isolated_cpus=format_list(pool.isolated),
        free_isolated=books.isolated[pool.id].bit_count(),
        memory=[
            _memory(type_, nodes, machine.capacity_bytes(nodes), books.memory.free_bytes(nodes), above)
            for type_, nodes in memory
        ],
        containers=UNSET if grants is None else sorted(grants, key=lambda g: (g.namespace, g.pod, g.container)),
    )


def _memory(
    type_: MemoryType, nodes: int, total_bytes: int, free_bytes: int, above: Sequence[PoolMemoryView]
) -> PoolMemoryView:
    """*above*: the memory of the pool around."""
    left = min([free_bytes, *(memory.left_bytes for memory in above if memory.type in (type_, ""))])
    return PoolMemoryView(
        type=type_, numa=list(iter_bits(nodes)), total_bytes=total_bytes, free_bytes=free_bytes, left_bytes=max(0, left)
    )


def _pools_of_counts(counts: NriCounts, *, grants: bool) -> list[PoolView]:
    rooms: dict[str, PoolView] = {}
    for pool in _from_the_root(counts.root, counts.pools, attrgetter("name")):
        rooms[pool.name] = _counted_room(pool, rooms.get(pool.parent), grants=grants)
    return list(rooms.values())


def _counted_room(pool: PoolCounts, above: PoolView | None, *, grants: bool) -> PoolView:
    shared_at_most = pool.capacity_millicpu // 1000 - pool.reserved.bit_count()
    memory = _memory(
        "",
        pool.memory_nodes,
        pool.capacity_memory_bytes,
        pool.available_memory_bytes,
        () if above is None else above.memory,
    )
    return PoolView(
        name=pool.name,
        kind=PoolKind(pool.kind),
        parent=pool.parent or None,
        depth=0 if above is None else above.depth + 1,
        cpus=None,
        capacity_millicpu=pool.capacity_millicpu,
        free_millicpu=pool.available_millicpu,
        shared_cpus=format_list(pool.shared),
        shared_used_millicpu=None,
        exclusive_cpus=None,
        exclusive_count=max(0, shared_at_most - pool.shared.bit_count()),
        reserved_cpus=format_list(pool.reserved),
        isolated_cpus=format_list(pool.isolated),
        free_isolated=None,
        memory=[memory],
        containers=None if grants else UNSET,
    )


def numa_room_of(state: ManagerState) -> dict[int, tuple[int, int]]:
    """What one container can still get on each NUMA node: (whole CPUs, bytes of memory).

    Empty without the policy. Neither amount is more than what every pool around the NUMA node has left.
    """
    if (granted := grants_of(state)) is None:
        return {}
    books = granted.node.books
    available, pools = books.allocatable_now(), books.setup.tree.pools
    free = [books.memory.free_bytes(nodes) for nodes in map(_memory_nodes, pools)]
    return {
        node.id: (
            _whole_cpus(books, _smallest_pool(pools, node.cpus), node.cpus, available),
            max(0, min(
                books.memory.free_bytes(1 << node.id),
                *(free[pool.id] for pool in pools if _memory_nodes(pool) >> node.id & 1),
            )),
        )
        for node in books.setup.topology.machine.nodes
    }  # fmt: skip


def _memory_nodes(pool: Pool) -> int:
    return pool.dram | pool.pmem | pool.hbm


def policy_free_cpus(state: ManagerState) -> int:
    """The whole CPUs that the policy can still grant on the node."""
    if (granted := grants_of(state)) is None:
        return 0
    books = granted.node.books
    return _whole_cpus(books, books.setup.tree.root, -1, books.allocatable_now())


def _smallest_pool(pools: Sequence[Pool], cpus: int) -> Pool:
    """Children come before parents, so the first pool with all of *cpus* that the policy manages is the smallest."""
    managed = cpus & (pools[-1].isolated | pools[-1].reserved | pools[-1].sharable)
    return next(pool for pool in pools if not managed & ~(pool.isolated | pool.reserved | pool.sharable))


def _whole_cpus(books: Books, pool: Pool, cpus: int, available: list[int]) -> int:
    shared = min((books.sharable[pool.id] & cpus).bit_count(), max(0, available[pool.id]) // 1000)
    return shared + (books.isolated[pool.id] & cpus).bit_count()
