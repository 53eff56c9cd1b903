"""Chooses the pool of a container.

Mirrors: `policy/resources.go` (GetScore) and `policy/pools.go` (sortPoolsByScore, compareScores).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from extender.replay.nri.affinity import affinity_score
from extender.replay.nri.books import Books, Setup
from extender.replay.nri.hints import is_from_kubelet, node_mask, scores
from extender.replay.nri.machine import HIGH, LOW, NORMAL, PRESERVE_MEMORY
from extender.replay.nri.memory import BEST_EFFORT, BURSTABLE, GUARANTEED, Offer
from extender.replay.nri.objects import Container, Hint, QoS
from extender.replay.nri.pools import Pool
from extender.replay.nri.requests import UNLIMITED_CPU, CPUType, Request, unlimited_burstable_level

MEMORY_PRIORITY = {QoS.BEST_EFFORT: BEST_EFFORT, QoS.BURSTABLE: BURSTABLE, QoS.GUARANTEED: GUARANTEED}


_INSERTION_SORT = 12
"""Go's sort uses insertion sort for up to this many elements."""


@dataclass(frozen=True, slots=True)
class Score:
    """What a pool has left with the request in it; negative where it does not fit.

    `isolated` in CPUs; `shared`, `available` (before the request) and `priority` (per class high, normal, low) in mCPU.
    `hint_product` and `hint_non_zero`: see `hints.scores`. `colocated`: grants of the same CPU type at the pool.
    """

    pool: Pool
    isolated: int
    shared: int
    available: int
    affinity: float
    hint_product: float
    hint_non_zero: float
    offer: Offer | None
    offer_types: int
    capacity_bytes: int
    priority: tuple[int, int, int]
    colocated: int


def memory_offer(books: Books, pool: Pool, container: str, request: Request, hints: Mapping[str, Hint]) -> Offer | None:
    """Memory for the request at *pool* (`libmem.go` getMemOffer, getMemOfferByHints)."""
    size, priority = request.memory_bytes, MEMORY_PRIORITY.get(request.qos, BEST_EFFORT)
    machine = books.setup.topology.machine
    if request.memory_types == PRESERVE_MEMORY:
        root = books.setup.tree.root
        start = root.dram | root.pmem | root.hbm
        return books.memory.offer(container, size, priority, start, machine.types_of(start))
    start = pool.memory_nodes(request.memory_types)
    if request.pick_by_hints:
        wanted = _nodes_by_hints(hints, start)
        if wanted and machine.types_of(wanted) == request.memory_types:
            offer = books.memory.offer(container, size, priority, wanted, request.memory_types)
            if offer is not None:
                return offer
    return books.memory.offer(container, size, priority, start, request.memory_types)


def _nodes_by_hints(hints: Mapping[str, Hint], start: int) -> int:
    """The nodes of all device hints; 0 if one of them does not parse or is not within *start*."""
    wanted = 0
    for provider, hint in hints.items():
        if is_from_kubelet(provider):
            nodes = node_mask(hint.numas)
            if nodes is None or nodes & ~start:
                return 0
            wanted |= nodes
    return wanted


def score_pools(
    books: Books, container: Container, request: Request, hints: Mapping[str, Hint], affinities: Mapping[int, int]
) -> list[Score]:
    """The score of every pool, in order of id.

    Raises:
        RefusalError: PANIC, from the hints.
    """
    setup = books.setup
    machine, tree = setup.topology.machine, setup.tree
    available = books.allocatable_now()
    wanted = 1000 * request.full + (request.fraction or (0 if request.full else 1))
    classes = _priority_classes(setup)
    colocated = [0] * len(tree.pools)
    for grant in books.grants.values():
        colocated[grant.pool] += grant.cpu_type is request.cpu_type
    result = []
    for pool in tree.pools:
        books.budget.spend(1 + len(hints))
        isolated = books.isolated[pool.id].bit_count() - request.full if request.isolate else 0
        from_shared = wanted - (1000 * request.full if request.isolate and isolated >= 0 else 0)
        product, non_zero = scores(hints, pool, tree, machine)
        offer = memory_offer(books, pool, container.id, request, hints)
        sharable = books.sharable[pool.id]
        high, normal, low = (1000 * (c & sharable).bit_count() - wanted for c in classes)
        result.append(
            Score(
                pool=pool,
                isolated=isolated,
                shared=available[pool.id] - from_shared,
                available=available[pool.id],
                affinity=affinity_score(affinities, pool, tree) if affinities else 0.0,
                hint_product=product,
                hint_non_zero=non_zero,
                offer=offer,
                offer_types=0 if offer is None else machine.types_of(offer.zone),
                capacity_bytes=machine.capacity_bytes(pool.memory_nodes(request.memory_types)),
                priority=(high, normal, low),
                colocated=colocated[pool.id],
            )
        )
    return result


def _priority_classes(setup: Setup) -> tuple[int, int, int]:
    machine, classes = setup.topology.machine, setup.topology.classes
    return machine.performance or classes[HIGH], classes[NORMAL], machine.efficient or classes[LOW]


class Order:
    """The policy's order of pools for one request.

    The plugin sorts all pools and uses the first. In all recorded decisions one pool is better than every other, so
    that `best` finds it without sorting.
    """

    __slots__ = ("_has_hints", "_request", "_target_level")

    def __init__(self, books: Books, container: Container, request: Request, *, has_hints: bool) -> None:
        self._request = request
        self._has_hints = has_hints
        level = unlimited_burstable_level(books.pods[container.pod_id], container.name)
        tree = books.setup.tree
        self._target_level = books.setup.unlimited_burstable if level is None else tree.existing_level(level)

    def best(self, scored: list[Score]) -> Score:
        """The pool that the policy uses."""
        if len(scored) > _INSERTION_SORT:
            for score in scored:
                if all(other is score or self._precedes(score, other) for other in scored):
                    return score
        ordered: list[Score] = []
        for score in scored:
            at = len(ordered)
            while at and self._precedes(score, ordered[at - 1]):
                at -= 1
            ordered.insert(at, score)
        return ordered[0]

    def separating_rule(self, x: Score, y: Score) -> str:
        """The name of the first rule that decides between two pools."""
        if (x.isolated < 0) != (y.isolated < 0) or (x.shared < 0) != (y.shared < 0):
            return "capacity"
        return next((rule.__name__.removeprefix("_by_") for rule in self._rules() if rule(x, y)), "pool id")

    def _rules(self) -> tuple[Callable[[Score, Score], int], ...]:
        return (self._by_affinity, self._by_hints, self._by_offer, self._by_burst, self._by_memory, self._by_cpus)

    def _precedes(self, x: Score, y: Score) -> bool:
        if (y.isolated < 0 <= x.isolated) or (y.shared < 0 <= x.shared):
            return True
        if (x.isolated < 0 <= y.isolated) or (x.shared < 0 <= y.shared):
            return False
        for rule in self._rules():
            preference = rule(x, y)
            if preference:
                return preference > 0
        return x.pool.id < y.pool.id

    def _by_affinity(self, x: Score, y: Score) -> int:
        return _sign(x.affinity, y.affinity)

    def _by_hints(self, x: Score, y: Score) -> int:
        if not self._has_hints:
            return 0
        first = _sign(x.hint_product, y.hint_product)
        if not first and x.hint_product == 0:
            first = _sign(x.hint_non_zero, y.hint_non_zero)
        if first or x.hint_non_zero != y.hint_non_zero or not (x.hint_product or x.hint_non_zero):
            return first
        return _deeper(x, y) or _lower_id(x, y)

    def _by_offer(self, x: Score, y: Score) -> int:
        if x.offer is None or y.offer is None:
            return (x.offer is not None) - (y.offer is not None)
        types = self._request.memory_types
        exact = (x.offer_types == types) - (y.offer_types == types)
        limit = self._request.memory_limit_bytes
        if exact or self._request.memory_bytes == limit:
            return exact
        if not limit:
            return _sign(x.capacity_bytes, y.capacity_bytes)
        return (x.capacity_bytes >= limit) - (y.capacity_bytes >= limit)

    def _by_burst(self, x: Score, y: Score) -> int:
        if self._request.qos is not QoS.BURSTABLE:
            return 0
        limit = self._request.limit
        if limit != UNLIMITED_CPU:
            return (x.available >= limit) - (y.available >= limit)
        level_x, level_y, target = x.pool.kind.level, y.pool.kind.level, self._target_level
        if (level_x == target) != (level_y == target):
            return 1 if level_x == target else -1
        if level_x == target:
            return _sign(x.available, y.available) or _lower_id(x, y)
        # Of a pool above and one below the target, the plugin prefers the one that it visits first.
        if min(level_x, level_y) < target < max(level_x, level_y):
            return 1
        return _lower_id(x, y)

    def _by_memory(self, x: Score, y: Score) -> int:
        if x.offer is not None and y.offer is not None:
            fewer = _sign(y.offer.zone.bit_count(), x.offer.zone.bit_count())
            if fewer:
                return fewer
        types = self._request.memory_types
        if types and types != PRESERVE_MEMORY:
            return (x.pool.memory_types & types == types) - (y.pool.memory_types & types == types)
        return 0

    def _by_cpus(self, x: Score, y: Score) -> int:
        request = self._request
        if request.priority in (LOW, HIGH):
            by_class = _fits(x, y, request.priority)
            if by_class:
                return by_class
        deeper = _deeper(x, y)
        if deeper:
            return deeper
        if request.cpu_type is not CPUType.NORMAL:
            return 0
        if request.isolate and (x.isolated > 0 or y.isolated > 0):
            return _sign(x.isolated, y.isolated) or _lower_id(x, y)
        if request.priority == NORMAL:
            by_class = _fits(x, y, NORMAL)
            if by_class:
                return by_class
        if request.full > 0 and (x.shared > 0 or y.shared > 0):
            return _sign(x.shared, y.shared) or _lower_id(x, y)
        return _sign(y.colocated, x.colocated) or _sign(x.shared, y.shared)


def _sign(x: float, y: float) -> int:
    return (x > y) - (x < y)


def _deeper(x: Score, y: Score) -> int:
    return _sign(x.pool.depth, y.pool.depth)


def _lower_id(x: Score, y: Score) -> int:
    return _sign(y.pool.id, x.pool.id)


def _fits(x: Score, y: Score, priority: int) -> int:
    return (x.priority[priority] >= 0) - (y.priority[priority] >= 0)
