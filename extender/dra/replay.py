"""The answers of kube-scheduler's allocator on a node: one, or all that are possible.

Rules of this file
- Where slices of a pool disagree about their number, the first one that the informer lists wins. Any can be first.
- Where pools and slices are not sorted (1.34, 1.35), any order is possible. Pools and slices of which no request can
  take a device are left as they are: their place changes nothing.
- More than `MAX_ORDERS` of them, or more than `MAX_STEPS` steps, are not replayed: the answer is `unknown`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from math import factorial, prod
from typing import Any, Final, NamedTuple

from extender.dra.allocation import allocations
from extender.dra.errors import AllocationError, NotReplayedError
from extender.dra.objects import DeviceClass, DraNode, ResourceClaim, ResourceSlice
from extender.dra.pools import DevicePool, SliceIndex
from extender.dra.requests import AllocatedState, Ask, Matcher, Surroundings, prepare
from extender.dra.rules import AllocatorRules
from extender.dra.search import Search
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError

MAX_STEPS: Final = 1_000_000
"""Steps on one node: a device that is looked at, a level of the search, a counter or a constraint.

The most that a recorded answer takes is 221,420, and 1 of 100 takes more than 4,600."""
MAX_ORDERS: Final = 720
ALLOCATED, NONE, NODE_ERROR, ERROR, UNKNOWN = "allocated", "none", "node-error", "error", "unknown"


class AllocatorAnswer(NamedTuple):
    """One answer. `allocations`: for each claim, as JSON. `reason`: of errors and of `unknown`.

    `steps`: how often the allocator's recursive function ran.
    """

    verdict: str
    allocations: Sequence[Any] = ()
    reason: str = ""
    steps: int = 0


@dataclass(frozen=True, slots=True)
class ClusterDevices:
    """What is the same for all nodes: the slices, the classes, what claims hold, and how expressions are evaluated."""

    index: SliceIndex
    classes: Mapping[str, DeviceClass]
    held: AllocatedState
    matches: Matcher
    rules: AllocatorRules


def allocate(
    cluster: ClusterDevices, node: DraNode, claims: Sequence[ResourceClaim], steps: int = MAX_STEPS
) -> list[AllocatorAnswer]:
    """The possible answers for *claims* on *node*, the likeliest first. An `unknown` answer is the only one."""
    budget = Budget(steps)
    disagreeing = cluster.index.counts(node)
    answers: dict[str, AllocatorAnswer] = {}
    if prod(map(len, disagreeing.values())) > MAX_ORDERS:
        return [AllocatorAnswer(UNKNOWN, reason="the slices of too many pools disagree about their number")]
    try:
        for counts in product(*disagreeing.values()):
            pools = cluster.index.gather(node, dict(zip(disagreeing, counts, strict=True)), budget)
            around = Surroundings(node, pools, cluster.classes, cluster.held, cluster.matches, cluster.rules, budget)
            for order in [pools] if cluster.rules.sorts_pools else _orders(claims, around):
                answer = _search(claims, around._replace(pools=order))
                answers.setdefault(f"{answer.verdict}{answer.allocations}", answer)
    except (NotReplayedError, BudgetError) as error:
        return [AllocatorAnswer(UNKNOWN, reason=str(error))]
    return list(answers.values())


def _search(claims: Sequence[ResourceClaim], around: Surroundings) -> AllocatorAnswer:
    search = None
    try:
        search = Search(claims, around)
        if search.run():
            found = allocations(search, claims, around.node, around.rules)
            return AllocatorAnswer(ALLOCATED, found, steps=search.steps)
    except AllocationError as error:
        return AllocatorAnswer(ERROR, reason=str(error), steps=search.steps if search else 0)
    if any(pool.is_invalid for pool in around.pools):
        return AllocatorAnswer(NODE_ERROR, reason="a pool of the node is invalid", steps=search.steps)
    return AllocatorAnswer(NONE, steps=search.steps)


def _orders(claims: Sequence[ResourceClaim], around: Surroundings) -> Iterator[Sequence[DevicePool]]:
    """Every order of the pools and slices that matter, the sorted one first."""
    pools = sorted(around.pools, key=lambda pool: pool.id)
    try:
        asks = [ask for claim in claims for each in prepare(claim, around) for ask in each.options]
    except AllocationError:  # in every order
        yield pools
        return
    moving = [pool for pool in pools if any(_can_matter(pool, each, asks) for each in pool.slices)]
    slices = [[each for each in pool.slices if _can_matter(pool, each, asks)] for pool in moving]
    sizes = [len(moving), *(len(each) for each in slices)]
    if max(sizes) > MAX_ORDERS or prod([factorial(size) for size in sizes]) > MAX_ORDERS:
        raise NotReplayedError("the pools and slices of the node have too many possible orders")
    fixed = [pool for pool in pools if pool not in moving]
    for order in permutations(range(len(moving))):
        for inner in product(*(permutations(each) for each in slices)):
            yield [*(replace(moving[at], slices=tuple(inner[at])) for at in order), *fixed]


def _can_matter(pool: DevicePool, in_slice: ResourceSlice, asks: Sequence[Ask]) -> bool:
    """Whether any request can take a device of the slice, or fails on one."""
    try:
        return any(ask.selects(candidate) for candidate in pool.of_slice(in_slice) for ask in asks)
    except AllocationError:
        return True
