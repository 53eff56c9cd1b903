"""Hints and their merge: the algebra of the Topology Manager.

Laws:
- The merge never walks the cross product of hints. Preferred results come from intersecting preferred masks; only where
  there is none are the reachable ANDs folded, and a fold costs at most O(n * 2^n) for n NUMA nodes.
- The result does not depend on the order of providers, resources or hints.
- The three empties have names: `NO_PREFERENCE`, `IMPOSSIBLE`, and affinity None ("any node").

Mirrors: kubelet `cm/topologymanager/policy.go` (filterProvidersHints, HintMerger) and `numa_info.go`, all versions.
"""

import sys
from array import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Final, NamedTuple

from extender.replay.sets import iter_bits, narrowness, numa_masks
from extender.replay.verdict import Provider, Reason, Refusal


@dataclass(frozen=True, slots=True)
class Hints:
    """What one resource allows: every feasible mask, and which of them are preferred.

    `preferred` is a subset of `masks`. No masks at all means that the request cannot be met (`IMPOSSIBLE`).
    `minimum_width` is kept for explanations: the NUMA nodes that the hardware needs for the request.
    """

    masks: Collection[int]
    preferred: Collection[int]
    minimum_width: int | None = None


IMPOSSIBLE: Final = Hints((), ())
NO_PREFERENCE: Final = None
"""The provider has no opinion: any node, preferred."""

ResourceHints = Mapping[str, Hints | None]
"""A provider's answer by resource; empty: no opinion at all."""


class TopologyHint(NamedTuple):
    """A merge result: raw mask (None: any node) and whether it is preferred."""

    affinity: int | None
    preferred: bool


class KubeletPanicError(Exception):
    """The real code indexes out of range here and the kubelet crashes; the message is Go's."""


class Distances:
    """Average NUMA distance of a mask, computed as the kubelet does: rows indexed by position = NUMA id.

    Source: cm/topologymanager/numa_info.go, CalculateAverageFor.
    """

    def __init__(self, rows: Mapping[int, Sequence[int]]) -> None:
        self._rows = rows
        self._known: dict[int, float] = {}

    def average(self, mask: int) -> float:
        """Mean over all ordered pairs of the mask, a node with itself included.

        Raises:
            KubeletPanicError: the machine's NUMA ids are not contiguous and a row is too short for one of them.
        """
        known = self._known.get(mask)
        if known is not None:
            return known
        ids = [i for i in range(mask.bit_length()) if mask >> i & 1]
        total = 0.0
        for i in ids:
            row = self._rows[i]
            for j in ids:
                if j >= len(row):
                    raise KubeletPanicError(f"runtime error: index out of range [{j}] with length {len(row)}")
                total += row[j]
        result = total / (len(ids) * len(ids))
        self._known[mask] = result
        return result


def best_mask(masks: Iterable[int], distances: Distances | None) -> int:
    """The mask that wins among equals: narrowest; with *distances* then closest; then the smallest number.

    Distances are looked at only between different masks of equal width, as the kubelet does (which matters where
    looking panics). *masks* must not be empty.
    """
    if distances is None:
        return min(masks, key=narrowness)
    candidates = sorted(set(masks), key=narrowness)
    width = candidates[0].bit_count()
    rivals = [m for m in candidates if m.bit_count() == width]
    if len(rivals) == 1:
        return rivals[0]
    return min(rivals, key=lambda m: (distances.average(m), m))


class MergeResult(NamedTuple):
    """`hint` as merged (affinity never None here) and the name of the rule that chose it."""

    hint: TopologyHint
    why: str


def merge(lists: Sequence[Hints], default_mask: int, distances: Distances | None) -> MergeResult:
    """Combine one hint of every resource into the best candidate.

    Args:
        lists: resources that have an opinion; an empty `Hints` blocks every preferred result.
        default_mask: all NUMA nodes of the machine.
        distances: given when ties go to the closer nodes (`prefer-closest-numa-nodes`).

    Source: cm/topologymanager/policy.go, HintMerger.Merge and compare, in closed form.
    """
    common = _common_preferred(lists, default_mask)
    if common:
        return MergeResult(TopologyHint(best_mask(common, distances), preferred=True), "preferred by every resource")
    reachable = _reachable(lists, default_mask)
    if not reachable:
        return MergeResult(TopologyHint(default_mask, preferred=False), "no combination leaves a node in common")
    width = max((min((m.bit_count() for m in h.masks), default=0) for h in lists), default=0)
    best = best_mask(_best_tier(reachable, width), distances)
    return MergeResult(TopologyHint(best, preferred=False), "no mask is preferred by every resource")


def _common_preferred(lists: Sequence[Hints], default_mask: int) -> Collection[int]:
    if not lists:
        return (default_mask,)
    smallest = min(lists, key=lambda h: len(h.preferred))
    common = {m for m in smallest.preferred if m}
    for hints in lists:
        if hints is not smallest:
            common.intersection_update(hints.preferred)
        if not common:
            break
    return common


def _best_tier(reachable: Collection[int], width: int) -> list[int]:
    """The masks of the best standing: exactly *width* nodes; else the widest below; else the narrowest above."""
    sizes = {m.bit_count() for m in reachable}
    below = [s for s in sizes if s <= width]
    size = max(below) if below else min(sizes)
    return [m for m in reachable if m.bit_count() == size]


MAX_ENUMERATED_NUMA_NODES: Final = 16
"""NUMA nodes up to which every mask is looked at (65,535 of them); beyond it the kubelet's own walk takes for ever."""


def refuse_endless_walk(numa_nodes: int, provider: Provider) -> None:
    """Refuse where a provider would look at every subset of too many NUMA nodes.

    The kubelet does look, and does not come back within hours from about 30 nodes on; between 17 and there it may.

    Raises:
        Refusal: KubeletHang.
    """
    if numa_nodes > MAX_ENUMERATED_NUMA_NODES:
        raise Refusal(
            Reason.KUBELET_HANG,
            f"the {provider} manager would walk 2^{numa_nodes} sets of NUMA nodes",
            provider=provider,
            wanted=numa_nodes,
            had=MAX_ENUMERATED_NUMA_NODES,
        )


_DIRECT_FOLD_LIMIT: Final = 20_000
"""Pairs up to which a fold is done pair by pair; beyond it, counting supersets is cheaper."""

_LANE_BITS: Final = 64


def _reachable(lists: Sequence[Hints], default_mask: int) -> Collection[int]:
    """Every non-empty AND of one mask from each list with the default mask."""
    reachable: Collection[int] = {default_mask}
    for hints in lists:
        if not hints.masks:
            continue
        if len(reachable) * len(hints.masks) <= _DIRECT_FOLD_LIMIT:
            reachable = {a & h for a in reachable for h in hints.masks}
        else:
            reachable = _fold_by_counting(reachable, hints.masks, default_mask)
    return {m for m in reachable if m}


def _fold_by_counting(left: Collection[int], right: Collection[int], default_mask: int) -> Collection[int]:
    """{a & b} over all pairs, by counting for every mask the pairs that have it as their AND.

    Sums over supersets turn AND into a product mask by mask; the inverse sums give the counts. All 2^n counters lie
    side by side in one int, 64 bits each (a count is below 2^32), so that a sum over one NUMA node is one addition.
    """
    masks = numa_masks(tuple(iter_bits(default_mask)))
    position = {mask: i for i, mask in enumerate(masks)}
    first, second = (_superset_sums([position[m & default_mask] for m in side], len(masks)) for side in (left, right))
    products = array("Q", [a * b for a, b in zip(_lanes(first, len(masks)), _lanes(second, len(masks)), strict=True)])
    if sys.byteorder == "big":
        products.byteswap()
    counts = int.from_bytes(products.tobytes(), "little")
    for step, without in _halves(len(masks)):
        counts -= (counts >> step) & without
    return {mask for mask, count in zip(masks, _lanes(counts, len(masks)), strict=True) if count}


def _superset_sums(positions: Iterable[int], size: int) -> int:
    present = bytearray(size * _LANE_BITS // 8)
    for i in positions:
        present[i * _LANE_BITS // 8] = 1
    sums = int.from_bytes(present, "little")
    for step, without in _halves(size):
        sums += (sums >> step) & without
    return sums


def _lanes(packed: int, size: int) -> "array[int]":
    lanes = array("Q")
    lanes.frombytes(packed.to_bytes(size * _LANE_BITS // 8, "little"))
    if sys.byteorder == "big":
        lanes.byteswap()
    return lanes


@lru_cache(maxsize=2)
def _halves(size: int) -> tuple[tuple[int, int], ...]:
    """For each NUMA position: its distance in bits of the packed int, and ones in all lanes without that position."""
    result = []
    lanes = 1
    while lanes < size:
        block = (1 << lanes * _LANE_BITS) - 1
        without = 0
        for start in range(0, size, 2 * lanes):
            without |= block << start * _LANE_BITS
        result.append((lanes * _LANE_BITS, without))
        lanes *= 2
    return tuple(result)
