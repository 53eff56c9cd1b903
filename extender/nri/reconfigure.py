"""A new configuration for a running policy, and a restart of the plugin, which places every running container again.

Mirrors: `policy/topology-aware-policy.go` (Reconfigure, reallocateResources, Sync), `policy/cache.go`
(restoreAllocations, reinstateGrants), `policy/resources.go` (Reserve, grant.Clone), `pkg/resmgr/cache/container.go`
(SortContainers), `pkg/resmgr/resource-manager.go` (reconfigure) and `pkg/resmgr/nri.go` (Synchronize, syncWithNRI).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final

from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.nri.books import Books, Grant, Setup
from extender.nri.config import PolicyConfig, PolicyStartError
from extender.nri.events import Node, NriOutcome, allocate, set_up
from extender.nri.objects import NriContainer, QoS
from extender.nri.orders import MAX_SEARCH_STEPS, Results, explore
from extender.nri.pinning import Updates, apply_grant, update_shared, widen_memory
from extender.nri.placing import place, release
from extender.nri.requests import CPUType
from extender.nri.scoring import MEMORY_PRIORITY
from extender.nri.verdict import NriRefusal, RefusalError


@dataclass(frozen=True, slots=True)
class _State:
    books: Books
    updates: Updates
    has_died: bool = False


def restart(
    node: Node, keep: Callable[[str, Grant | None], bool] = lambda _id, _grant: True, budget: Budget | None = None
) -> Results[tuple[Node, NriOutcome]]:
    """All possible results of a restart of the plugin on *node*. The first one is for the order of creation.

    A container without a place gets no grant, and there is no message about it. *keep*: whether orders in which a
    container gets this grant are needed; None: no grant. *budget*: the steps for all orders together.
    """
    budget = budget or Budget(MAX_SEARCH_STEPS)
    books = Books(node.books.setup, budget)
    books.adopt(node.books)
    for id_, container in node.books.containers.items():
        if id_ in books.uncached or container.pod_id not in books.pods:
            del books.containers[id_]
    books.uncached = set()
    running = [id_ for id_ in books.containers if id_ not in node.stopped]

    def place(state: _State, id_: str) -> _State | None:
        after = _State(state.books.copy(budget), state.updates.copy())
        grant = None
        try:
            grant = allocate(after.books, after.updates, after.books.containers[id_])
        except RefusalError as error:
            if error.refusal is NriRefusal.PANIC:
                return replace(after, has_died=True)
        return after if keep(id_, grant) else None

    def key(state: _State) -> Hashable:
        return state.has_died or state_key(state.books, state.updates)

    found = explore(
        _State(books, node.updates), running, place, key, budget=budget, is_over=lambda state: state.has_died
    )
    names = {books.containers[id_].full_name: id_ for id_ in running}
    return Results(tuple(_finish(node, state, names) for state in found.states), found.complete)


def _finish(node: Node, state: _State, names: dict[str, str]) -> tuple[Node, NriOutcome]:
    if state.has_died:
        return node, NriOutcome(NriRefusal.PANIC)
    updates = state.updates.copy()
    sent = updates.send_all()
    return Node(state.books, updates, names, node.failed, node.stopped), NriOutcome(updates=sent)


def state_key(books: Books, updates: Updates) -> Hashable:
    """Equal for states with the same answer to every event.

    Among memory requests of equal size and priority the youngest one moves first, so their order matters.
    """
    alike: dict[tuple[int, int], list[tuple[int, str]]] = {}
    for request in books.memory.requests.values():
        alike.setdefault((request.size_bytes, request.priority), []).append((request.age, request.id))
    return (
        frozenset(books.grants.items()),
        frozenset(books.memory.zones.items()),
        frozenset(tuple(id_ for _, id_ in sorted(group)) for group in alike.values()),
        frozenset(updates.pending.items()),
    )


_QOS_ORDER = {QoS.GUARANTEED: 0, QoS.BURSTABLE: 1, QoS.BEST_EFFORT: 2, QoS.UNKNOWN: 3}


class _ReconfigureError(Exception):
    """The grants cannot be kept under the new configuration.

    `refusal`: why the first container without room is refused.
    """

    def __init__(self, refusal: NriRefusal | None = None) -> None:
        super().__init__()
        self.refusal: Final = refusal


@dataclass(frozen=True, slots=True)
class _Course:
    """Grants that are carried over so far.

    `refusal`: why the first container without room is refused. `is_over`: some could not be carried over, so that all
    were placed again. `is_rejected`: some had no place even then. `has_moved`: memory of some was widened.
    """

    books: Books
    updates: Updates
    refusal: NriRefusal | None = None
    is_over: bool = False
    is_rejected: bool = False
    has_moved: bool = False


def reconfigurations(
    node: Node, config: PolicyConfig, budget: Budget | None = None
) -> Results[tuple[Node, NriOutcome, bool]]:
    """Every answer that the plugin may give to *config*: the node, what is sent, and whether it was accepted.

    The plugin carries grants over in a random order. A configuration that is not accepted leaves the old one in place.
    In both cases reserved grants lose their portion: the plugin copies only shared portions. *budget*: the steps for
    all orders together; None: `MAX_SEARCH_STEPS` for the new configuration, and as many for the old one.

    The refusal is PANIC if the plugin must place a container again whose pod it no longer has: its process ends.
    """
    results: list[tuple[Node, NriOutcome, bool]] = []
    rejections = dict[Hashable, _Course]()
    complete = True
    try:
        applied = _apply(node.books, node.updates, set_up(node.books.setup.topology, config), budget)
    except (_ReconfigureError, PolicyStartError):
        rejections[None] = _Course(node.books, node.updates)
    else:
        complete = applied.complete
        for course in applied.states:
            if course.refusal is NriRefusal.PANIC:
                results.append((node, NriOutcome(NriRefusal.PANIC), False))
            elif course.is_rejected:
                rejections.setdefault((state_key(course.books, course.updates), course.refusal), course)
            else:
                results.append((*_sent(node, course, None), True))
    budget = budget or Budget(MAX_SEARCH_STEPS)
    for rejected in rejections.values():
        restored, is_all = _restore(node, rejected, budget)
        results += restored
        complete &= is_all
    return Results(tuple(results), complete)


def _restore(node: Node, rejected: _Course, budget: Budget) -> tuple[list[tuple[Node, NriOutcome, bool]], bool]:
    """The answers after the plugin has returned from *rejected* to the old configuration, and whether these are all.

    If the plugin cannot apply the old configuration either, it keeps the old grants. But it no longer books the memory
    of grants that it could not place again.
    """
    refusal, old = rejected.refusal, node.books.copy(budget)
    old.memory = rejected.books.memory
    try:
        applied = _apply(old, rejected.updates, old.setup, budget)
    except _ReconfigureError:
        return [(replace(node, books=old, updates=rejected.updates), NriOutcome(refusal), False)], True
    results = []
    for course in applied.states:
        if course.refusal is NriRefusal.PANIC:
            results.append((node, NriOutcome(NriRefusal.PANIC), False))
        elif course.is_rejected:
            kept = old.copy(budget)
            kept.memory = course.books.memory
            results.append((replace(node, books=kept, updates=course.updates), NriOutcome(refusal), False))
        else:
            results.append((*_sent(node, course, refusal), False))
    return results, applied.complete


def _sent(node: Node, course: _Course, refusal: NriRefusal | None) -> tuple[Node, NriOutcome]:
    updates = course.updates.copy()
    sent = updates.send_all()
    return replace(node, books=course.books, updates=updates), NriOutcome(refusal, updates=sent)


def _apply(old: Books, updates: Updates, setup: Setup, budget: Budget | None) -> Results[_Course]:
    """The grants of *old* under *setup*, carried over in every order.

    Raises:
        _ReconfigureError: a pool is no longer there.
    """
    budget, grants = budget or Budget(MAX_SEARCH_STEPS), {}
    for grant in old.grants.values():
        pool = setup.tree.by_name(old.setup.tree.pools[grant.pool].name)
        if pool is None:
            raise _ReconfigureError
        grants[grant.container] = replace(grant, pool=pool.id, portion=grant.shared_portion)
    books = Books(setup, budget)
    books.adopt(old)
    books.memory = old.memory.copy(budget)
    for id_ in grants:
        books.memory.release(id_)

    def carry_over(course: _Course, id_: str) -> _Course:
        books, updates = course.books.copy(budget), course.updates.copy()
        has_moved = _reinstate(books, updates, grants[id_])
        if has_moved is None:
            return _placed_again(books, updates, list(grants.values()))
        return _Course(books, updates, has_moved=has_moved or course.has_moved)

    def key(course: _Course) -> Hashable:
        return (state_key(course.books, course.updates), course.is_over, course.is_rejected, course.refusal)

    begin = _Course(books, updates)
    try:
        usual = reduce(lambda course, id_: course if course.is_over else carry_over(course, id_), grants, begin)
    except BudgetError:
        return Results((), complete=False)
    if _is_same_in_any_order(usual):
        found = Results((usual,), complete=True)
    else:
        found = explore(begin, list(grants), carry_over, key, budget=budget, is_over=lambda course: course.is_over)
    return Results(tuple(_settled(course) for course in found.states), found.complete)


def _is_same_in_any_order(course: _Course) -> bool:
    """Whether all grants were carried over, and none of them affected another one.

    A grant only reduces what is free. So if no pool with a grant is overbooked at the end, no order fails; and if no
    memory moved in this order, none moves in another one.
    """
    if course.is_over or course.has_moved:
        return False
    available = course.books.allocatable_now()
    return all(available[grant.pool] >= 0 for grant in course.books.grants.values())


def _settled(course: _Course) -> _Course:
    if course.is_over:
        return course
    updates = course.updates.copy()
    update_shared(course.books, updates, None)
    return replace(course, updates=updates)


def _placed_again(books: Books, updates: Updates, grants: list[Grant]) -> _Course:
    try:
        _place_again(books, updates, grants)
    except _ReconfigureError as error:
        return _Course(books, updates, error.refusal, is_over=True, is_rejected=True)
    return _Course(books, updates, is_over=True)


def _reinstate(books: Books, updates: Updates, grant: Grant) -> bool | None:
    """Book *grant* as it was (`cache.go` reinstateGrants).

    Whether memory moved for it; None if it cannot be booked.
    """
    container = books.containers[grant.container]
    priority = MEMORY_PRIORITY.get(books.qos(container), 0)
    types = books.setup.topology.machine.types_of(grant.memory_nodes)
    offer = books.memory.offer(grant.container, grant.memory_bytes, priority, grant.memory_nodes, types)
    if offer is None or not _can_reserve(books, grant):
        return None
    pool = books.setup.tree.pools[grant.pool]
    books.take_exclusive(pool, grant.exclusive)
    books.book_portion(pool, grant.cpu_type, grant.portion)
    moves = books.commit_memory(offer)
    widen_memory(books, updates, moves)
    books.grants[grant.container] = replace(grant, memory_nodes=offer.zone)
    apply_grant(books, updates, books.grants[grant.container])
    return bool(moves) or offer.zone != grant.memory_nodes


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
        try:
            widen_memory(books, updates, place(books, container, pool_of[container.id]))
            apply_grant(books, updates, books.grants[container.id])
        except RefusalError as error:
            if error.refusal is NriRefusal.PANIC:
                raise _ReconfigureError(error.refusal) from None
            failed, first = True, first or error.refusal
    if failed:
        raise _ReconfigureError(first)
    update_shared(books, updates, None)


def _sort_key(books: Books, container: NriContainer) -> tuple[object, ...]:
    requirements = container.requirements
    sizes = (
        -source.get(key, 0) for key in ("memory", "cpu") for source in (requirements.requests, requirements.limits)
    )
    pod = books.pods.get(container.pod_id)
    return (_QOS_ORDER[books.qos(container)], *sizes, "" if pod is None else pod.name, container.name)
