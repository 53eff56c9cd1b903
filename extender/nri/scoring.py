"""Chooses the pool of a container.

Mirrors: `policy/resources.go` (GetScore) and `policy/pools.go` (sortPoolsByScore, compareScores).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from extender.nri.affinity import affinity_score
from extender.nri.books import Books, Setup
from extender.nri.hints import is_from_kubelet, node_mask, scores
from extender.nri.machine import HIGH, LOW, NORMAL, PRESERVE_MEMORY
from extender.nri.memory import BEST_EFFORT, BURSTABLE, GUARANTEED, Offer
from extender.nri.objects import NriContainer, NriHint, QoS
from extender.nri.pools import Pool, PoolRule
from extender.nri.requests import UNLIMITED_CPU, CPUType, Request, unlimited_burstable_level

MEMORY_PRIORITY = {QoS.BEST_EFFORT: BEST_EFFORT, QoS.BURSTABLE: BURSTABLE, QoS.GUARANTEED: GUARANTEED}

_RULES: Final = tuple(PoolRule)
(
    _CPU, _ISOLATED, _AFFINITY, _HINTS, _NO_MEMORY, _MEMORY_TYPES, _MEMORY_SIZE, _CPU_LIMIT, _BURST_LEVEL,
    _MEMORY_NODES, _CPU_PRIORITY, _DEPTH, _ISOLATED_LEFT, _CPU_LEFT, _CONTAINERS, _ID,
) = range(1, len(_RULES))  # fmt: skip
"""The positions of the rules in `PoolRule`, from `CPU` on."""
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


def memory_offer(
    books: Books, pool: Pool, container: str, request: Request, hints: Mapping[str, NriHint]
) -> Offer | None:
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


def _nodes_by_hints(hints: Mapping[str, NriHint], start: int) -> int:
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
    books: Books, container: NriContainer, request: Request, hints: Mapping[str, NriHint], affinities: Mapping[int, int]
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

    def __init__(self, books: Books, container: NriContainer, request: Request, *, has_hints: bool) -> None:
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

    def separating_rule(self, x: Score, y: Score) -> PoolRule:
        """The first rule that decides between two pools."""
        return _RULES[abs(self._compare(x, y))]

    def _precedes(self, x: Score, y: Score) -> bool:
        return self._compare(x, y) > 0

    def _compare(self, x: Score, y: Score) -> int:
        """The number of the first rule that decides between two pools: above 0 if *x* is better, else below 0."""
        if x.isolated < 0 or y.isolated < 0 or x.shared < 0 or y.shared < 0:
            by_capacity = _by_capacity(x, y) or -_by_capacity(y, x)
            if by_capacity:
                return by_capacity
        return (
            _sign(x.affinity, y.affinity) * _AFFINITY
            or self._by_hints(x, y)
            or self._by_offer(x, y)
            or self._by_burst(x, y)
            or self._by_memory(x, y)
            or self._by_cpus(x, y)
            or _lower_id(x, y)
        )

    def _by_hints(self, x: Score, y: Score) -> int:
        if not self._has_hints:
            return 0
        first = _sign(x.hint_product, y.hint_product)
        if not first and x.hint_product == 0:
            first = _sign(x.hint_non_zero, y.hint_non_zero)
        if first or x.hint_non_zero != y.hint_non_zero or not (x.hint_product or x.hint_non_zero):
            return first * _HINTS
        return _deeper(x, y) or _lower_id(x, y)

    def _by_offer(self, x: Score, y: Score) -> int:
        if x.offer is None or y.offer is None:
            return ((x.offer is not None) - (y.offer is not None)) * _NO_MEMORY
        types = self._request.memory_types
        exact = (x.offer_types == types) - (y.offer_types == types)
        limit = self._request.memory_limit_bytes
        if exact or self._request.memory_bytes == limit:
            return exact * _MEMORY_TYPES
        if not limit:
            return _sign(x.capacity_bytes, y.capacity_bytes) * _MEMORY_SIZE
        return ((x.capacity_bytes >= limit) - (y.capacity_bytes >= limit)) * _MEMORY_SIZE

    def _by_burst(self, x: Score, y: Score) -> int:
        if self._request.qos is not QoS.BURSTABLE:
            return 0
        limit = self._request.limit
        if limit != UNLIMITED_CPU:
            return ((x.available >= limit) - (y.available >= limit)) * _CPU_LIMIT
        level_x, level_y, target = x.pool.kind.level, y.pool.kind.level, self._target_level
        if (level_x == target) != (level_y == target):
            return _BURST_LEVEL if level_x == target else -_BURST_LEVEL
        if level_x == target:
            return _sign(x.available, y.available) * _CPU_LEFT or _lower_id(x, y)
        # Of a pool above and one below the target, the plugin prefers the one that it visits first.
        if min(level_x, level_y) < target < max(level_x, level_y):
            return _BURST_LEVEL
        return _lower_id(x, y)

    def _by_memory(self, x: Score, y: Score) -> int:
        if x.offer is not None and y.offer is not None:
            fewer = _sign(y.offer.zone.bit_count(), x.offer.zone.bit_count())
            if fewer:
                return fewer * _MEMORY_NODES
        types = self._request.memory_types
        if types and types != PRESERVE_MEMORY:
            return ((x.pool.memory_types & types == types) - (y.pool.memory_types & types == types)) * _MEMORY_TYPES
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
            return _sign(x.isolated, y.isolated) * _ISOLATED_LEFT or _lower_id(x, y)
        if request.priority == NORMAL:
            by_class = _fits(x, y, NORMAL)
            if by_class:
                return by_class
        if request.full > 0 and (x.shared > 0 or y.shared > 0):
            return _sign(x.shared, y.shared) * _CPU_LEFT or _lower_id(x, y)
        return _sign(y.colocated, x.colocated) * _CONTAINERS or _sign(x.shared, y.shared) * _CPU_LEFT


def _by_capacity(x: Score, y: Score) -> int:
    """Whether *x* fits where *y* does not. If two pools lack different things, each comes before the other."""
    if y.isolated < 0 <= x.isolated:
        return _ISOLATED
    return _CPU if y.shared < 0 <= x.shared else 0


def _sign(x: float, y: float) -> int:
    return (x > y) - (x < y)


def _deeper(x: Score, y: Score) -> int:
    return _sign(x.pool.depth, y.pool.depth) * _DEPTH


def _lower_id(x: Score, y: Score) -> int:
    return _sign(y.pool.id, x.pool.id) * _ID


def _fits(x: Score, y: Score, priority: int) -> int:
    return ((x.priority[priority] >= 0) - (y.priority[priority] >= 0)) * _CPU_PRIORITY
