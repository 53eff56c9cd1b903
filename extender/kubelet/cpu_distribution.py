"""How distribute-cpus-across-numa splits a request over NUMA nodes: a search over counts, without CPU ids.

Rules of this file
- The result is the kubelet's, including an effect of its slices: the winning combination is in a buffer that later
  steps of the enumeration overwrite (`_combinations`), which is visible from four NUMA nodes on.
- A search is skipped only if it cannot change the result: equal counts in equal order have equal scores, and only a
  strictly smaller score wins. If the search may hang the kubelet, nothing is skipped.
- The kubelet tries every set of NUMA nodes, one by one. If that takes hours, the pod hangs the kubelet.

Mirrors: kubelet `cm/cpumanager/cpu_assignment.go`, takeByTopologyNUMADistributed; all versions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heapreplace
from typing import Final

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.errors import DistributionHangError

Slot = list[int]
"""A Go slice's backing array: the list's length is its capacity."""


MAX_SETS: Final = 1 << 30
"""Sets of NUMA nodes that the kubelet tries within about an hour, at a few microseconds each."""

_STEPS_OF_A_SET: Final = 4

NO_WHOLE_GROUP: Final = "no remainder node has a whole group of CPUs left"


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Take `each` CPUs from every node of `nodes` in order, then `group` at a time from `remainder_nodes` in turn."""

    nodes: tuple[int, ...]
    each: int
    remainder_nodes: tuple[int, ...]
    group: int


def distribute(
    free: Mapping[int, int],
    needed: int,
    group: int,
    *,
    machine_cpus: int,
    machine_numa_nodes: int,
    hint_nodes: int = 0,
    whole_groups: bool = False,
    budget: Budget = UNLIMITED,
) -> Distribution | None:
    """The most balanced split of *needed* CPUs, in groups of *group*, over the fewest nodes that have enough.

    Args: free: free CPUs by NUMA id, in the kubelet's node order, nodes without free CPUs left out. needed: CPUs, a
        multiple of *group*. group: CPUs per core with full-pcpus-only, else 1. machine_cpus: CPUs of the machine.
        machine_numa_nodes: its NUMA nodes that have CPUs. hint_nodes: use at least this many nodes; 0, or more than
        possible: as few as possible. whole_groups: take the remainder only from nodes that have enough of it in whole
        groups. budget: of the replay.

    Returns None when no combination can be balanced (the kubelet then packs).

    Raises:
        DistributionHangError: the kubelet hangs.
        BudgetError: the replay may not go on.
    """
    # 1. The fewest nodes that could have the request if they were empty, and the largest number of usable nodes.
    groups = -(-machine_cpus // group)
    per_node = -(-groups // machine_numa_nodes)
    needed_groups = -(-needed // group)
    fewest = -(-needed_groups // per_node)
    most = min(needed_groups, len(free))
    # 2. A hint can require more nodes (rule `inside_hint`).
    if hint_nodes <= most:
        fewest = max(fewest, hint_nodes)
    # 3. Try sizes from small to large. The first size with a balanced combination wins, however uneven it is.
    for k in range(fewest, most + 1):
        search = _Search(free, needed, group, k, budget, whole_groups=whole_groups)
        best_nodes = search.run()
        if best_nodes is not None:
            return Distribution(
                nodes=tuple(best_nodes[:k]),
                each=search.each,
                remainder_nodes=tuple(search.best_remainder[0][: search.best_remainder[1]]),
                group=group,
            )
    return None


class _Search:
    """The search over all combinations of one size. Keeps the first one with the smallest score."""

    def __init__(
        self, free: Mapping[int, int], needed: int, group: int, k: int, budget: Budget, *, whole_groups: bool
    ) -> None:
        self.free = free
        self.unit = group if whole_groups else 1
        self.needed = needed
        self.group = group
        self.k = k
        self.budget = budget
        self.each = needed // k // group * group
        self.remainder = needed - self.each * k
        self.best_score = math.inf
        self.best_nodes: Slot | None = None
        self.best_remainder: tuple[Slot, int] = ([], 0)
        self._seen: set[tuple[int, ...]] = set()
        self._floor = _balanced_score(sum(free.values()) - needed, len(free))
        self._may_skip = all(count % group == 0 for count in free.values())
        """Every node has whole groups only, so that trying a set of them never hangs the kubelet."""

    def run(self) -> Slot | None:
        """The NUMA nodes of the best combination, in the order that the kubelet's slice has at the end; None: none."""
        # 1. Refuse a search that would take the kubelet hours.
        items = tuple(self.free)
        sets = math.comb(len(items), self.k)
        if self._floor > 0.0 and sets > MAX_SETS:  # only a score of 0 ends the kubelet's search early
            raise DistributionHangError(f"it would try {sets} sets of NUMA nodes")
        # 2. Walk the combinations and keep the best.
        is_whole = not _combinations(items, self.k, self._visit)
        # 3. The kubelet keeps a slice and not a copy, so the winner shows what later combinations wrote into it.
        if self.best_nodes is None or is_whole or self.best_score == 0.0:
            return self.best_nodes
        return _at_the_end(self.best_nodes, items, self.k)

    def _visit(self, combo: Slot, k: int) -> bool:
        """Score one combination; True ends the walk."""
        self.budget.spend(_STEPS_OF_A_SET)
        # 1. Nothing can be better than a perfect score, or than the bound.
        if self.best_score == 0.0 or (self._may_skip and self.best_score <= self._floor):
            return True
        nodes = combo[:k]
        # 2. Equal counts in equal order give the same score, and only a smaller score wins.
        counts = tuple(self.free[x] for x in nodes)
        if counts in self._seen:
            return False
        self._seen.add(counts)
        # 3. Skip combinations without enough whole groups, or with a node that cannot give its equal share.
        whole = sum(c // self.group * self.group for c in counts)
        if whole < self.needed or min(counts) < self.each:
            return False
        self.budget.spend(len(self.free))
        remainder: tuple[Slot, int] = ([], 0)
        # 4. Score the free CPUs of all nodes after the split: their standard deviation. A remainder is placed first.
        after = {x: c - self.each if x in nodes else c for x, c in self.free.items()}
        if not self.remainder:
            score = _deviation(list(after.values()))
        else:
            score, remainder = self._score_remainder(after, [x for x in nodes if after[x] >= self.group])
        if score < self.best_score:
            self.best_score, self.best_nodes, self.best_remainder = score, combo, remainder
        return False

    def _score_remainder(self, after: Mapping[int, int], candidates: Sequence[int]) -> tuple[float, tuple[Slot, int]]:
        """The best subset of *candidates* to take the remainder from, group by group."""
        # 1. A bound: if even the best remainder cannot win, the subsets need not be walked.
        floor = self._least_score(after, candidates) if self._may_skip else -1.0
        if floor >= self.best_score:
            return math.inf, ([], 0)
        if 1 << len(candidates) > MAX_SETS:
            raise DistributionHangError(f"it would try 2^{len(candidates)} sets of NUMA nodes")
        best: list[tuple[float, tuple[Slot, int]]] = [(math.inf, ([], 0))]
        seen: set[tuple[int, ...]] = set()

        def visit(subset: Slot, j: int) -> bool:
            self.budget.spend(_STEPS_OF_A_SET)
            if best[0][0] <= floor:
                return True
            counts = tuple(after[x] for x in subset[:j])
            if counts in seen:
                return False
            seen.add(counts)
            if sum(count // self.unit * self.unit for count in counts) < self.remainder:
                return False
            self.budget.spend(len(after))
            left = dict(after)
            self._spend(left, subset[:j])
            score = _deviation(list(left.values()))
            if score < best[0][0]:
                best[0] = (score, (subset, j))
            return False

        # 2. Subsets from large to small, as in the kubelet. Among equal scores the first one wins.
        for j in range(len(candidates), 0, -1):
            if _combinations(candidates, j, visit):
                score, (subset, size) = best[0]
                return score, (_at_the_end(subset, candidates, size) if size == j else subset, size)
        return best[0]

    def _least_score(self, after: Mapping[int, int], candidates: Sequence[int]) -> float:
        """A lower bound of the score of any subset: each group comes from the node with the most free CPUs."""
        self.budget.spend(len(after))
        most = [-after[x] for x in candidates]
        heapify(most)
        for _ in range(self.remainder // self.group):
            heapreplace(most, most[0] + self.group)
        chosen = set(candidates)
        return _deviation([*(-count for count in most), *(c for x, c in after.items() if x not in chosen)])

    def _spend(self, left: dict[int, int], subset: Sequence[int]) -> None:
        remainder = self.remainder
        while remainder > 0:
            before = remainder
            for x in subset:
                if remainder <= 0:
                    break
                if left[x] >= self.group:
                    left[x] -= self.group
                    remainder -= self.group
            if remainder == before:
                raise DistributionHangError(NO_WHOLE_GROUP)


def _combinations(items: Sequence[int], k: int, visit: Callable[[Slot, int], bool]) -> bool:
    """Every k-combination in lexicographic order of position, as views of growing Go slices.

    `append` writes in place while capacity lasts and copies when it does not (capacities 0, 1, 2, 4, 8…), so a slice
    kept by *visit* changes when a sibling is generated later. *visit* returns True to end the walk.

    Returns whether *visit* has ended it.
    """

    def extend(left: int, start: int, slot: Slot, length: int) -> bool:
        if left == 0:
            return visit(slot, length)
        for i in range(start, len(items) - left + 1):
            grown = slot if length < len(slot) else slot[:length] + [0] * max(1, length)
            grown[length] = items[i]
            if extend(left - 1, i + 1, grown, length + 1):
                return True
        return False

    return extend(k, 0, [], 0)


def _at_the_end(slot: Slot, items: Sequence[int], k: int) -> Slot:
    """What a slice that `visit` of `_combinations` kept shows when the walk over all k-combinations of *items* is over.

    The slice's last array was allocated for the element at the largest power of two below k. Later combinations
    overwrite it as long as they have the same element at this position.
    """
    made_for = 1 << (k - 1).bit_length() - 1 if k > 1 else 0
    return [*slot[: made_for + 1], *items[len(items) - k + made_for + 1 :]]


def _deviation(counts: Sequence[int]) -> float:
    """Population standard deviation of free CPUs, mean and result rounded to three decimals as the kubelet does."""
    mean = _round3(sum(counts) / len(counts))
    return _round3(math.sqrt(sum((c - mean) * (c - mean) for c in counts) / len(counts)))


def _round3(x: float) -> float:
    scaled = x * 1000
    whole = math.trunc(scaled)
    return (whole + 1 if scaled - whole >= 0.5 else whole) / 1000


def _balanced_score(total: int, nodes: int) -> float:
    """A lower bound of the score of all splits of *total* free CPUs over *nodes*."""
    low, more = divmod(total, nodes)
    return _deviation([low + 1] * more + [low] * (nodes - more))
