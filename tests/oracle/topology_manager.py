"""The topology manager's merge of hints (§5)."""

import math
from itertools import product
from typing import Any

from tests.oracle.errors import NaiveKubeletError
from tests.oracle.hints import Hint, Hints, Mask, as_integer
from tests.oracle.machine import Machine
from tests.oracle.rules import TOPOLOGY_OPTIONS, OracleRules, read_options

WALK_CAP = 20_000
"""Larger cross products are folded list by list: the same candidates, without repetitions."""


class TopologyManager:
    def __init__(self, machine: Machine, kubelet: dict[str, Any], rules: OracleRules) -> None:
        self.policy = kubelet.get("topologyManagerPolicy") or "none"
        self.scope = kubelet.get("topologyManagerScope") or "container"
        if self.policy not in {"none", "best-effort", "restricted", "single-numa-node"}:
            raise NaiveKubeletError(f"topologymanager: no policy {self.policy}")
        if self.scope not in {"container", "pod"}:
            raise NaiveKubeletError(f"topologymanager: no scope {self.scope}")
        self.default: Mask = frozenset(machine.numa_ids)
        self.closest = False
        self.distances: dict[int, list[int]] = {}
        options = kubelet.get("topologyManagerPolicyOptions") or {}
        if self.policy == "none" and rules.topology_options_ignored_by_none:
            return
        try:
            found = read_options("Topology Manager", options, TOPOLOGY_OPTIONS, rules)
        except NaiveKubeletError as error:
            raise NaiveKubeletError(f"topologymanager: {error}") from error
        most = found.get("max-allowable-numa-nodes", 8)
        if most < 8:
            raise NaiveKubeletError("topologymanager: max-allowable-numa-nodes is less than 8")
        if self.policy != "none" and len(machine.numa_ids) > most:
            raise NaiveKubeletError(f"topologymanager: more than {most} NUMA nodes")
        if found.get("prefer-closest-numa-nodes"):
            for node, record in machine.numa_records.items():
                self.distances[node] = record.get("distances") or []
                if not self.distances[node]:
                    raise NaiveKubeletError(f"topologymanager: NUMA node {node} has no distances")
            self.closest = self.policy in {"best-effort", "restricted"}

    def merge(self, answers: list[Hints | None]) -> tuple[Hint, bool]:
        """The chosen hint and whether the policy admits it."""
        lists = _normalise(answers)
        single = self.policy == "single-numa-node"
        if single:
            lists = [[h for h in hints if h.preferred and (h.mask is None or len(h.mask) == 1)] for hints in lists]
        best = self._choose(self._candidates(lists), _widest_of_narrowest(lists))
        if single and best.mask == self.default:
            best = Hint(None, best.preferred)
        return best, self.policy == "best-effort" or best.preferred

    def _candidates(self, lists: list[list[Hint]]) -> set[Hint]:
        """Every combination of one hint from each list (§5.3)."""
        if math.prod(len(hints) for hints in lists) > WALK_CAP:
            return self._folded(lists)
        found = set()
        for chosen in product(*lists):
            mask = self.default
            masks = set()
            for hint in chosen:
                if hint.mask is not None:
                    mask &= hint.mask
                    masks.add(hint.mask)
            if mask:
                found.add(Hint(mask, all(hint.preferred for hint in chosen) and len(masks) <= 1))
        return found

    def _folded(self, lists: list[list[Hint]]) -> set[Hint]:
        """As the walk, but equal part-way results are kept once: mask so far, can it be preferred, with which mask."""
        reached: set[tuple[Mask, bool, Mask | None]] = {(self.default, True, None)}
        for hints in lists:
            step = set()
            for mask, preferred, common in reached:
                for hint in hints:
                    if hint.mask is None:
                        step.add((mask, preferred and hint.preferred, common if hint.preferred else None))
                        continue
                    still = preferred and hint.preferred and common in {None, hint.mask}
                    if mask & hint.mask:
                        step.add((mask & hint.mask, still, hint.mask if still else None))
            reached = step
        return {Hint(mask, preferred) for mask, preferred, _ in reached}

    def _choose(self, candidates: set[Hint], wanted: int) -> Hint:
        """The best: of the best tier, the closest where distances count, then the smaller integer."""
        if not candidates:
            return Hint(self.default, preferred=False)
        best_tier = min(_tier(hint, wanted) for hint in candidates)
        masks = [hint.mask for hint in candidates if _tier(hint, wanted) == best_tier and hint.mask is not None]
        preferred = best_tier[0] == 0
        if len(masks) > 1 and self.closest:
            return Hint(min(masks, key=lambda mask: (self._distance(mask), as_integer(mask))), preferred)
        return Hint(min(masks, key=as_integer), preferred)

    def _distance(self, mask: Mask) -> float:
        total = 0.0
        for row in sorted(mask):
            for column in sorted(mask):
                if column >= len(self.distances[row]):
                    length = len(self.distances[row])
                    raise NaiveKubeletError(f"panic: runtime error: index out of range [{column}] with length {length}")
                total += self.distances[row][column]
        return total / len(mask) ** 2


def _tier(hint: Hint, wanted: int) -> tuple[int, int]:
    """Sort key, best first: preferred; then masks of the wanted size, smaller ones from the top, larger ones (§5.5)."""
    size = len(hint.mask or ())
    if hint.preferred:
        return (0, size)
    if size == wanted:
        return (1, size)
    return (2, -size) if size < wanted else (3, size)


def _normalise(answers: list[Hints | None]) -> list[list[Hint]]:
    """§5.2."""
    lists = []
    for answer in answers:
        if not answer:
            lists.append([Hint(None, preferred=True)])
            continue
        for hints in answer.values():
            if hints is None:
                lists.append([Hint(None, preferred=True)])
            elif not hints:
                lists.append([Hint(None, preferred=False)])
            else:
                lists.append(list(hints))
    return lists


def _widest_of_narrowest(lists: list[list[Hint]]) -> int:
    sizes = [min((len(h.mask) for h in hints if h.mask is not None), default=0) for hints in lists]
    return max(sizes, default=0)
