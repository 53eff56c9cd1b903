"""Which CPUs a request gets with distribute-cpus-across-numa (§6.9)."""

import math
from collections.abc import Iterator, Sequence

from tests.oracle.cpu_take import PackedTake, TakeOptions, not_enough
from tests.oracle.errors import allocate_failed
from tests.oracle.machine import Machine
from tests.oracle.rules import OracleRules


class SharedArray:
    """A growing array whose shorter views share its memory until an append finds it full.

    The kubelet remembers its best combination as such a view, and later combinations write into it.
    """

    def __init__(self, memory: list[int], length: int) -> None:
        self.memory = memory
        self.length = length

    def appended(self, value: int) -> "SharedArray":
        memory = self.memory
        if self.length == len(memory):
            memory = memory + [0] * max(1, len(memory))
        memory[self.length] = value
        return SharedArray(memory, self.length + 1)

    def values(self) -> list[int]:
        return self.memory[: self.length]


def walked_combinations(items: Sequence[int], size: int) -> Iterator[SharedArray]:
    """As itertools.combinations, but over shared arrays."""

    def walk(chosen: SharedArray, start: int) -> Iterator[SharedArray]:
        if chosen.length == size:
            yield chosen
            return
        missing = size - chosen.length
        for position in range(start, len(items) - missing + 1):
            yield from walk(chosen.appended(items[position]), position + 1)

    return walk(SharedArray([], 0), 0)


def take(
    machine: Machine,
    rules: OracleRules,
    options: TakeOptions,
    available: frozenset[int],
    need: int,
    hint_nodes: int = 0,
) -> frozenset[int]:
    """Take by the algorithm that the options ask for; *hint_nodes*: NUMA nodes of the hint, 0 without one."""
    if options.across_numa:
        return DistributedTake(machine, rules, options, available).run(need, hint_nodes)
    packed = PackedTake(machine, rules, available, need)
    return packed.run(spread=options.across_cores, by_uncore=options.by_uncore)


class DistributedTake:
    def __init__(self, machine: Machine, rules: OracleRules, options: TakeOptions, available: frozenset[int]) -> None:
        self.machine = machine
        self.rules = rules
        self.spread = options.across_cores
        self.group = machine.per_core if options.full_cores else 1
        self.free = set(available)
        self.taken: set[int] = set()
        self.numas = PackedTake(machine, rules, available, 0).numas()
        self.count = {node: len(machine.cpus_of_numa[node] & available) for node in self.numas}

    def run(self, need: int, hint_nodes: int) -> frozenset[int]:
        group = self.group
        if need % group != 0:
            return self._packed(frozenset(self.free), need)
        if need < 1:
            return frozenset()
        if need > len(self.free):
            raise not_enough(self.rules, need, len(self.free))
        groups = math.ceil(len(self.machine.cpus) / group)
        per_numa = math.ceil(groups / len(self.machine.cpu_numa_ids))
        needed_groups = math.ceil(need / group)
        smallest, largest = math.ceil(needed_groups / per_numa), min(needed_groups, len(self.numas))
        if self.rules.distribute_inside_hint and smallest < hint_nodes <= largest:
            smallest = hint_nodes
        for size in range(smallest, largest + 1):
            winner = self._best_combination(size, need)
            if winner is not None:
                return self._allocate(winner[0].values(), winner[1].values(), size, need)
        return self._packed(frozenset(self.free), need)

    def _best_combination(self, size: int, need: int) -> tuple[SharedArray, SharedArray] | None:
        """The combination of nodes that leaves the machine most balanced, and the nodes that give the remainder."""
        best: tuple[SharedArray, SharedArray] | None = None
        best_score = math.inf
        each = need // size // self.group * self.group
        for combination in walked_combinations(self.numas, size):
            if best_score == 0:
                break
            nodes = combination.values()
            if not self._can_give(nodes, need, each):
                continue
            after = {node: self.count[node] - (each if node in nodes else 0) for node in self.numas}
            rest = need - each * size
            if rest == 0:
                score, givers = _deviation(list(after.values())), SharedArray([], 0)
            else:
                score, givers = self._best_givers([n for n in nodes if after[n] >= self.group], after, rest)
            if score < best_score:
                best, best_score = (combination, givers), score
        return best

    def _can_give(self, nodes: list[int], need: int, each: int) -> bool:
        counts = [self.count[node] for node in nodes]
        in_groups = sum(count // self.group * self.group for count in counts)
        return sum(counts) >= need and in_groups >= need and min(counts) >= each

    def _best_givers(self, nodes: list[int], after: dict[int, int], rest: int) -> tuple[float, SharedArray]:
        best = SharedArray([], 0)
        best_score = math.inf
        for size in range(len(nodes), 0, -1):
            for subset in walked_combinations(nodes, size):
                givers = subset.values()
                if sum(after[node] for node in givers) < rest:
                    continue
                if (
                    self.rules.distribute_whole_groups
                    and sum(after[n] // self.group for n in givers) * self.group < rest
                ):
                    continue
                left = dict(after)
                if not self._spread_rest(left, givers, rest):
                    continue
                score = _deviation(list(left.values()))
                if score < best_score:
                    best, best_score = subset, score
        return best_score, best

    def _spread_rest(self, left: dict[int, int], givers: list[int], rest: int) -> bool:
        while rest > 0:
            before = rest
            for node in givers:
                if rest == 0:
                    break
                if left[node] >= self.group:
                    left[node] -= self.group
                    rest -= self.group
            if rest == before:
                return False
        return True

    def _allocate(self, nodes: list[int], givers: list[int], size: int, need: int) -> frozenset[int]:
        each = need // size // self.group * self.group
        left = need
        for node in nodes:
            left -= self._take_from(node, each)
        while left > 0:
            before = left
            for node in givers:
                if left == 0:
                    break
                if len(self._free_of(node)) >= self.group:
                    left -= self._take_from(node, self.group)
            if left == before:
                break
        if left > 0:
            raise allocate_failed(f"accounting error, not enough CPUs allocated, remaining: {left}")
        if left < 0:
            raise allocate_failed(f"accounting error, too many CPUs allocated, remaining: {left}")
        return frozenset(self.taken)

    def _take_from(self, node: int, count: int) -> int:
        cpus = self._packed(self._free_of(node), count)
        self.taken |= cpus
        self.free -= cpus
        return len(cpus)

    def _free_of(self, node: int) -> frozenset[int]:
        return self.machine.cpus_of_numa[node] & self.free

    def _packed(self, available: frozenset[int], need: int) -> frozenset[int]:
        return PackedTake(self.machine, self.rules, available, need).run(spread=self.spread, by_uncore=False)


def _rounded(value: float) -> float:
    """To three decimals, halves away from zero."""
    return math.floor(value * 1000 + 0.5) / 1000


def _deviation(values: list[int]) -> float:
    mean = _rounded(sum(values) / len(values))
    return _rounded(math.sqrt(sum((value - mean) ** 2 for value in values) / len(values)))
