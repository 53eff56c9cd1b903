"""A new configuration for a running policy.

Mirrors: `policy/topology-aware-policy.go` (Reconfigure, reallocateResources), `policy/cache.go` (restoreAllocations,
reinstateGrants), `policy/resources.go` (Reserve, grant.Clone), `pkg/resmgr/cache/container.go` (SortContainers) and
`pkg/resmgr/resource-manager.go` (reconfigure).
"""

from dataclasses import replace
from typing import Final

from extender.replay.budget import MAX_STEPS, Budget
from extender.replay.nri.books import Books, Grant, Setup
from extender.replay.nri.config import PolicyConfig, PolicyStartError
from extender.replay.nri.events import Node, Outcome, set_up
from extender.replay.nri.objects import Container, QoS
from extender.replay.nri.pinning import Updates, apply_grant, update_shared, widen_memory
from extender.replay.nri.placing import place, release
from extender.replay.nri.requests import CPUType
from extender.replay.nri.scoring import MEMORY_PRIORITY
from extender.replay.nri.verdict import Refusal, RefusalError

_QOS_ORDER = {QoS.GUARANTEED: 0, QoS.BURSTABLE: 1, QoS.BEST_EFFORT: 2, QoS.UNKNOWN: 3}


class _ReconfigureError(Exception):
    """The grants cannot be kept under the new configuration. `refusal`: of the first container that has no place."""

    def __init__(self, refusal: Refusal | None = None) -> None:
        super().__init__()
        self.refusal: Final = refusal


def reconfigure(node: Node, config: PolicyConfig) -> tuple[Node, Outcome, bool]:
    """Apply *config*: the node, what is sent, and whether it was accepted. Else the old configuration applies again.

    Either way reserved grants lose what they had booked: the plugin copies only shared portions.
    """
    updates = node.updates.copy()
    accepted, refusal = True, None
    try:
        books = _apply(node.books, updates, set_up(node.books.setup.topology, config))
    except (_ReconfigureError, PolicyStartError) as error:
        accepted, refusal = False, error.refusal if isinstance(error, _ReconfigureError) else None
        try:
            books = _apply(node.books, updates, node.books.setup)
        except _ReconfigureError:
            books = node.books
    sent = updates.send_all() if accepted or books is not node.books else {}
    return replace(node, books=books, updates=updates), Outcome(refusal, updates=sent), accepted


def _apply(old: Books, updates: Updates, setup: Setup) -> Books:
    grants = []
    for grant in old.grants.values():
        pool = setup.tree.by_name(old.setup.tree.pools[grant.pool].name)
        if pool is None:
            raise _ReconfigureError
        grants.append(replace(grant, pool=pool.id, portion=grant.shared_portion))
    books = Books(setup, Budget(MAX_STEPS))
    books.adopt(old)
    books.memory = old.memory.copy(books.budget)
    for grant in grants:
        books.memory.release(grant.container)
    if all(_reinstate(books, updates, grant) for grant in grants):
        update_shared(books, updates, None)
    else:
        _place_again(books, updates, grants)
    return books


def _reinstate(books: Books, updates: Updates, grant: Grant) -> bool:
    """Book *grant* as it was; whether that is possible (`cache.go` reinstateGrants)."""
    container = books.containers[grant.container]
    priority = MEMORY_PRIORITY.get(books.qos(container), 0)
    types = books.setup.topology.machine.types_of(grant.memory_nodes)
    offer = books.memory.offer(grant.container, grant.memory_bytes, priority, grant.memory_nodes, types)
    if offer is None or not _can_reserve(books, grant):
        return False
    pool = books.setup.tree.pools[grant.pool]
    books.take_exclusive(grant.exclusive)
    books.book_portion(pool, grant.cpu_type, grant.portion)
    moves = books.memory.commit(offer)
    for id_, zone in moves.items():
        if id_ in books.grants:
            books.grants[id_] = replace(books.grants[id_], memory_nodes=zone)
    widen_memory(books, updates, moves)
    books.grants[grant.container] = replace(grant, memory_nodes=offer.zone)
    apply_grant(books, updates, books.grants[grant.container])
    return True


def _can_reserve(books: Books, grant: Grant) -> bool:
    pool = books.setup.tree.pools[grant.pool]
    if grant.cpu_type is CPUType.NORMAL:
        isolated = grant.exclusive & pool.isolated
        sliced = grant.exclusive & ~isolated
        if isolated & ~books.isolated[pool.id] or sliced & ~books.sharable[pool.id]:
            return False
        return books.allocatable_now()[pool.id] >= 1000 * sliced.bit_count() + grant.portion
    if grant.cpu_type is CPUType.RESERVED:
        wanted = 1000 * grant.exclusive.bit_count()
        return not wanted or books.allocatable_reserved(pool) >= wanted
    return True


def _place_again(books: Books, updates: Updates, grants: list[Grant]) -> None:
    """Release all and place them in a fixed order, each in its old pool (reallocateResources)."""
    pool_of = {g.container: books.setup.tree.pools[g.pool].name for g in grants}
    containers = sorted((books.containers[id_] for id_ in pool_of), key=lambda c: _sort_key(books, c))
    for container in containers:
        release(books, container.id)
    failed, first = False, None
    for container in containers:
        if container.pod_id not in books.pods:
            failed = True
            continue
        try:
            widen_memory(books, updates, place(books, container, pool_of[container.id]))
            apply_grant(books, updates, books.grants[container.id])
        except RefusalError as error:
            failed, first = True, first or error.refusal
    if failed:
        raise _ReconfigureError(first)
    update_shared(books, updates, None)


def _sort_key(books: Books, container: Container) -> tuple[object, ...]:
    requirements = container.requirements
    sizes = (
        -source.get(key, 0) for key in ("memory", "cpu") for source in (requirements.requests, requirements.limits)
    )
    pod = books.pods.get(container.pod_id)
    return (_QOS_ORDER[books.qos(container)], *sizes, "" if pod is None else pod.name, container.name)
