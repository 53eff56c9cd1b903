"""A restart of the plugin: every running container is placed again, in a random order.

Mirrors: `pkg/resmgr/nri.go` (Synchronize, syncWithNRI) and `policy/topology-aware-policy.go` (Sync).
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace

from extender.kubelet.budget import Budget
from extender.nri.books import Books, Grant
from extender.nri.events import Node, NriOutcome, allocate
from extender.nri.orders import MAX_SEARCH_STEPS, Results, explore
from extender.nri.pinning import Updates
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
    container gets this grant (None: none) are needed. *budget*: the steps for all orders together.
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
