"""What is free and used in each pool of the NRI topology-aware policy, for people.

Rules of this file
- The root is first, and every pool comes before those inside it.
- From grants everything is known. Counts alone leave some fields None: no value is guessed.
- `free_bytes` is what the policy counts: what is booked on NUMA nodes outside the pool as well is not subtracted
  (`pkg/resmgr/lib/memory/zones.go` zoneFree). `left_bytes` is at most what the pools around have left.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from extender.cluster.node import NodeRecord
from extender.kubelet.state import ManagerState
from extender.nri.books import Books, Grant
from extender.nri.counts import NriCounts, PoolCounts
from extender.nri.machine import DRAM, HBM, PMEM
from extender.nri.pools import Pool
from extender.nri.state import NriState
from extender.replay.creation import grants_of

TYPE_NAMES: Final = {DRAM: "DRAM", PMEM: "PMEM", HBM: "HBM"}


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolMemory:
    """Memory of one type in a pool, in bytes. `type` "": of all types together. `nodes`: its NUMA nodes, as bits.

    Where a pool has several types, what is booked over several of them is only in the entry of all together.
    """

    type: str
    nodes: int
    total_bytes: int
    free_bytes: int
    left_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolGrant:
    """What a container holds at a pool. `cpu_type`: `normal`, `reserved` or `preserve`. CPUs and nodes are bits."""

    pod_uid: str
    namespace: str
    pod: str
    container: str
    cpu_type: str
    cpus: int
    millicpu: int
    memory_nodes: int
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolRoom:
    """One pool. Sets of CPUs are bits; None: not known.

    `capacity_millicpu`: what shared and reserved CPUs have if nothing is granted. `free_millicpu`: what one more
    container could get of the shared CPUs, below 0 if there is not even a share of 0. `shared`: CPUs that are shared
    now. `shared_used_millicpu`: granted shares of them in this pool and below. `isolated`: all of them.
    """

    name: str
    kind: str
    parent: str
    depth: int
    cpus: int | None
    capacity_millicpu: int
    free_millicpu: int
    shared: int
    shared_used_millicpu: int | None
    exclusive: int | None
    exclusive_count: int
    reserved: int
    isolated: int
    free_isolated: int | None
    memory: tuple[PoolMemory, ...]
    grants: tuple[PoolGrant, ...] | None


def pools_of(record: NodeRecord, *, grants: bool = False) -> tuple[PoolRoom, ...]:
    """The pools of a node; empty if it does not run the policy, or nothing is known of them.

    *grants*: whether to list what each container holds.
    """
    if record.state is not None and (granted := grants_of(record.state)) is not None:
        return _pools_of_state(granted, grants=grants)
    published = _published(record)
    return () if published is None else _pools_of_counts(published)


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


def _pools_of_state(state: NriState, *, grants: bool) -> tuple[PoolRoom, ...]:
    books = state.node.books
    pools, available = books.setup.tree.pools, books.allocatable_now()
    held: dict[int, list[PoolGrant]] = {}
    for grant in books.grants.values() if grants else ():
        held.setdefault(grant.pool, []).append(_grant(books, grant))
    rooms: dict[int, PoolRoom] = {}
    for pool in _from_the_root(pools):
        above = rooms[pool.parent].memory if pool.parent >= 0 else ()
        rooms[pool.id] = _room(books, pool, available[pool.id], above, held.get(pool.id, []) if grants else None)
    return tuple(rooms.values())


def _grant(books: Books, grant: Grant) -> PoolGrant:
    container = books.containers[grant.container]
    namespace, pod, name = container.full_name.split("/")
    return PoolGrant(
        pod_uid=container.pod_id,
        namespace=namespace,
        pod=pod,
        container=name,
        cpu_type=grant.cpu_type.value,
        cpus=grant.exclusive,
        millicpu=grant.portion,
        memory_nodes=grant.memory_nodes,
        memory_bytes=grant.memory_bytes,
    )


def _from_the_root(pools: Sequence[Pool]) -> list[Pool]:
    """Parents before children, children in the order of their ids."""
    order, stack = list[Pool](), [pools[-1]]
    children: dict[int, list[Pool]] = {}
    for pool in pools:
        children.setdefault(pool.parent, []).append(pool)
    while stack:
        pool = stack.pop()
        order.append(pool)
        stack += reversed(children.get(pool.id, []))
    return order


def _room(
    books: Books, pool: Pool, available: int, above: Sequence[PoolMemory], grants: list[PoolGrant] | None
) -> PoolRoom:
    tree, machine = books.setup.tree, books.setup.topology.machine
    exclusive = (pool.isolated & ~books.isolated[pool.id]) | (pool.sharable & ~books.sharable[pool.id])
    by_type = dict(zip(TYPE_NAMES.values(), (pool.dram, pool.pmem, pool.hbm), strict=True))
    memory = [(type_, nodes & machine.memory_nodes) for type_, nodes in by_type.items() if nodes & machine.memory_nodes]
    if len(memory) > 1:
        memory.insert(0, ("", _memory_nodes(pool) & machine.memory_nodes))
    return PoolRoom(
        name=pool.name,
        kind=pool.kind.value,
        parent="" if pool.parent < 0 else tree.pools[pool.parent].name,
        depth=pool.depth,
        cpus=pool.isolated | pool.reserved | pool.sharable,
        capacity_millicpu=1000 * (pool.sharable | pool.reserved).bit_count(),
        free_millicpu=available,
        shared=books.sharable[pool.id],
        shared_used_millicpu=books.shared[pool.id],
        exclusive=exclusive,
        exclusive_count=exclusive.bit_count(),
        reserved=pool.reserved,
        isolated=pool.isolated,
        free_isolated=books.isolated[pool.id].bit_count(),
        memory=tuple(
            _memory(type_, nodes, machine.capacity_bytes(nodes), books.memory.free_bytes(nodes), above)
            for type_, nodes in memory
        ),
        grants=None if grants is None else tuple(sorted(grants, key=lambda g: (g.namespace, g.pod, g.container))),
    )


def _memory(type_: str, nodes: int, total_bytes: int, free_bytes: int, above: Sequence[PoolMemory]) -> PoolMemory:
    """*above*: the memory of the pool around."""
    left = min([free_bytes, *(memory.left_bytes for memory in above if memory.type in (type_, ""))])
    return PoolMemory(type=type_, nodes=nodes, total_bytes=total_bytes, free_bytes=free_bytes, left_bytes=max(0, left))


def _pools_of_counts(counts: NriCounts) -> tuple[PoolRoom, ...]:
    rooms: dict[str, PoolRoom] = {}
    children: dict[str, list[PoolCounts]] = {}
    for pool in counts.pools:
        children.setdefault(pool.parent, []).append(pool)
    stack = [counts.root]
    while stack:
        pool = stack.pop()
        rooms[pool.name] = _counted_room(pool, rooms.get(pool.parent))
        stack += reversed(children.get(pool.name, []))
    return tuple(rooms.values())


def _counted_room(pool: PoolCounts, above: PoolRoom | None) -> PoolRoom:
    shared_at_most = pool.capacity_millicpu // 1000 - pool.reserved.bit_count()
    memory = _memory(
        "",
        pool.memory_nodes,
        pool.capacity_memory_bytes,
        pool.available_memory_bytes,
        () if above is None else above.memory,
    )
    return PoolRoom(
        name=pool.name,
        kind=pool.kind,
        parent=pool.parent,
        depth=0 if above is None else above.depth + 1,
        cpus=None,
        capacity_millicpu=pool.capacity_millicpu,
        free_millicpu=pool.available_millicpu,
        shared=pool.shared,
        shared_used_millicpu=None,
        exclusive=None,
        exclusive_count=max(0, shared_at_most - pool.shared.bit_count()),
        reserved=pool.reserved,
        isolated=pool.isolated,
        free_isolated=None,
        memory=(memory,),
        grants=None,
    )


def numa_room_of(state: ManagerState) -> dict[int, tuple[int, int]]:
    """What one container can still get on each NUMA node: (whole CPUs, bytes of memory).

    Empty without the policy. Both are at most what every pool around the node has left.
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
