"""How distribute-cpus-across-numa splits a request over NUMA nodes: a search over counts, no CPU ids.

Laws:
- The answer is the kubelet's, including what its remembered slices turn into: the winning combination lives in a buffer
  that later steps of the enumeration overwrite (`_combinations`), which shows from four NUMA nodes on.
- A search is skipped only where it cannot change the answer: equal counts in equal order score equally, and only a
  strictly smaller score wins.

Mirrors: kubelet `cm/cpumanager/cpu_assignment.go`, takeByTopologyNUMADistributed; all versions.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Slot = list[int]
"""A Go slice's backing array: the list's length is its capacity."""


class DistributionHangError(Exception):
    """The kubelet's loop over remainder nodes never ends: none of them has a whole group left, yet CPUs are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Distribution:
    """Take `each` CPUs from every node of `nodes` in order, then `group` at a time round `remainder_nodes`."""

    nodes: tuple[int, ...]
    each: int
    remainder_nodes: tuple[int, ...]
    group: int


def distribute(
    free: Mapping[int, int], needed: int, group: int, *, machine_cpus: int, machine_numa_nodes: int
) -> Distribution | None:
    """The most balanced split of *needed* CPUs, in groups of *group*, over the fewest nodes that can carry it.

    Args:
        free: free CPUs by NUMA id, in the kubelet's node order, nodes without free CPUs left out.
        needed: CPUs, a multiple of *group*.
        group: CPUs per core with full-pcpus-only, else 1.
        machine_cpus: CPUs of the machine.
        machine_numa_nodes: its NUMA nodes that have CPUs.

    Returns None when no combination can be balanced (the kubelet then packs).

    Raises:
        DistributionHangError: see there.
    """
    groups = -(-machine_cpus // group)
    per_node = -(-groups // machine_numa_nodes)
    needed_groups = -(-needed // group)
    fewest = -(-needed_groups // per_node)
    for k in range(fewest, min(needed_groups, len(free)) + 1):
        search = _Search(free, needed, group, k)
        _combinations(tuple(free), k, search.visit)
        if search.best_nodes is not None:
            return Distribution(
                nodes=tuple(search.best_nodes[:k]),
                each=search.each,
                remainder_nodes=tuple(search.best_remainder[0][: search.best_remainder[1]]),
                group=group,
            )
    return None


class _Search:
    """The walk over all combinations of one size; keeps the first with the smallest score."""

    def __init__(self, free: Mapping[int, int], needed: int, group: int, k: int) -> None:
        self.free = free
        self.needed = needed
        self.group = group
        self.each = needed // k // group * group
        self.remainder = needed - self.each * k
        self.best_score = math.inf
        self.best_nodes: Slot | None = None
        self.best_remainder: tuple[Slot, int] = ([], 0)
        self._seen: set[tuple[int, ...]] = set()
        self._floor = _balanced_score(sum(free.values()) - needed, len(free))

    def visit(self, combo: Slot, k: int) -> bool:
        """Score one combination; True ends the walk."""
        if self.best_score == 0.0:
            return True
        nodes = combo[:k]
        counts = tuple(self.free[x] for x in nodes)
        if self._cannot_be_beaten() or counts in self._seen:
            return False
        self._seen.add(counts)
        whole = sum(c // self.group * self.group for c in counts)
        if whole < self.needed or min(counts) < self.each:
            return False
        remainder: tuple[Slot, int] = ([], 0)
        after = {x: c - self.each if x in nodes else c for x, c in self.free.items()}
        if not self.remainder:
            score = _deviation(list(after.values()))
        else:
            score, remainder = self._score_remainder(after, [x for x in nodes if after[x] >= self.group])
        if score < self.best_score:
            self.best_score, self.best_nodes, self.best_remainder = score, combo, remainder
        return False

    def _cannot_be_beaten(self) -> bool:
        """Whether looking further is pointless; with groups it never is, because looking may hang the kubelet."""
        return self.group == 1 and self.best_score <= self._floor

    def _score_remainder(self, after: Mapping[int, int], candidates: Sequence[int]) -> tuple[float, tuple[Slot, int]]:
        """The best subset of *candidates* to take the remainder from, group by group."""
        best: list[tuple[float, tuple[Slot, int]]] = [(math.inf, ([], 0))]
        seen: set[tuple[int, ...]] = set()

        def visit(subset: Slot, j: int) -> bool:
            counts = tuple(after[x] for x in subset[:j])
            if counts in seen:
                return False
            seen.add(counts)
            if sum(counts) < self.remainder:
                return False
            left = dict(after)
            self._spend(left, subset[:j])
            score = _deviation(list(left.values()))
            if score < best[0][0]:
                best[0] = (score, (subset, j))
            return False

        for j in range(len(candidates), 0, -1):
            _combinations(candidates, j, visit)
        return best[0]

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
                raise DistributionHangError


def _combinations(items: Sequence[int], k: int, visit: Callable[[Slot, int], bool]) -> None:
    """Every k-combination in lexicographic order of position, as *views* into growing Go slices.

    `append` writes in place while capacity lasts and copies when it does not (capacities 0, 1, 2, 4, 8…), so a slice
    kept by *visit* changes when a sibling is generated later. *visit* answers True to end the walk.
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

    extend(k, 0, [], 0)


def _deviation(counts: Sequence[int]) -> float:
    """Population standard deviation of free CPUs, mean and result rounded to three decimals as the kubelet does."""
    mean = _round3(sum(counts) / len(counts))
    return _round3(math.sqrt(sum((c - mean) * (c - mean) for c in counts) / len(counts)))


def _round3(x: float) -> float:
    scaled = x * 1000
    whole = math.trunc(scaled)
    return (whole + 1 if scaled - whole >= 0.5 else whole) / 1000


def _balanced_score(total: int, nodes: int) -> float:
    """A score that no split of *total* free CPUs over *nodes* can beat."""
    low, more = divmod(total, nodes)
    return _deviation([low + 1] * more + [low] * (nodes - more))
