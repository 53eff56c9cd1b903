"""Hints and their merge in the Topology Manager.

Rules of this file
- The merge never iterates over the cross product of hints. Preferred results are intersections of preferred families.
  The families are folded only if these have nothing in common.
- The result does not depend on the order of providers, resources or hints.
- The three empty values have names: `NO_PREFERENCE`, `IMPOSSIBLE`, and affinity None ("any node").

Mirrors: kubelet `cm/topologymanager/policy.go` (filterProvidersHints, HintMerger) and `numa_info.go`, all versions.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.errors import KubeletPanicError
from extender.kubelet.sets import MAX_NUMA_ID, MAX_NUMA_NODES, Universe, fold, iter_bits, universe
from extender.kubelet.verdict import Provider, Reason, Refusal


@dataclass(frozen=True, slots=True)
class Hints:
    """What one resource allows: every feasible mask, and which of them are preferred.

    For 4 CPUs where NUMA node 0 has 2 free CPUs and node 1 has 6, the masks 10 and 11 are feasible. 10 is preferred if
    4 CPUs fit on one node of this machine while nothing runs.

    `feasible` and `preferred` are families of `universe`, without the empty mask; preferred is part of feasible. An
    empty `feasible` means that the request cannot be met (`IMPOSSIBLE`). `minimum_width`, for explanations: the NUMA
    nodes that the hardware needs for the request.
    """

    universe: Universe
    feasible: int
    preferred: int
    minimum_width: int | None = None

    @property
    def masks(self) -> tuple[int, ...]:
        """The feasible raw masks, ascending."""
        return tuple(self.universe.masks(self.feasible))

    @property
    def preferred_masks(self) -> tuple[int, ...]:
        """The preferred raw masks, ascending."""
        return tuple(self.universe.masks(self.preferred))

    @classmethod
    def preferring_width(cls, space: Universe, feasible: int, width: int, *, also: int = 0) -> "Hints":
        """Hints that prefer the masks of *width* nodes, and those in the family *also*."""
        feasible &= ~1
        return cls(space, feasible, feasible & (space.by_width[width] | also), width)


IMPOSSIBLE: Final = Hints(universe(()), 0, 0)
NO_PREFERENCE: Final = None
"""The provider has no preference: any node, preferred."""


class TopologyHint(NamedTuple):
    """A merge result: raw mask (None: any node) and whether it is preferred."""

    affinity: int | None
    preferred: bool


NIL_POINTER: Final = "runtime error: invalid memory address or nil pointer dereference"
NIL_DEFAULT_MASK: Final = "interface conversion: bitmask.BitMask is nil, not *bitmask.bitMask"
"""The panic of a merge if the mask of all NUMA nodes is nil, because an id does not fit into it."""


class Distances:
    """Average NUMA distance of a mask, computed as the kubelet does: rows indexed by position = NUMA id.

    Source: cm/topologymanager/numa_info.go, CalculateAverageFor.
    """

    def __init__(self, rows: Mapping[int, Sequence[int]]) -> None:
        self._rows = rows
        self._known: dict[int, float] = {}

    def __reduce__(self) -> tuple[type, tuple[Mapping[int, Sequence[int]]]]:
        return type(self), (self._rows,)

    def average(self, mask: int) -> float:
        """Mean over all ordered pairs of nodes in the mask, including each node with itself.

        Raises:
            KubeletPanicError: the machine's NUMA ids are not contiguous and a row is too short for one of them.
        """
        known = self._known.get(mask)
        if known is not None:
            return known
        if (panic := self._panic(mask)) is not None:
            raise KubeletPanicError(panic)
        ids = tuple(iter_bits(mask))
        total = 0.0
        for i in ids:
            row = self._rows[i]
            for j in ids:
                total += row[j]
        result = total / (len(ids) * len(ids))
        self._known[mask] = result
        return result

    def closest(self, masks: Sequence[int]) -> int:
        """The mask with the smallest average distance. Among equal ones, the smallest number.

        Raises:
            KubeletPanicError: as `average`. The kubelet visits the masks in random order, so the message of each is an
                alternative.
        """
        try:
            return min(masks, key=lambda m: (self.average(m), m))
        except KubeletPanicError as panic:
            messages = {message for mask in masks if (message := self._panic(mask)) is not None}
            raise KubeletPanicError(str(panic), tuple(sorted(messages))) from None

    def _panic(self, mask: int) -> str | None:
        """The message of the panic caused by averaging the mask. None if there is none."""
        ids = tuple(iter_bits(mask))
        for i in ids:
            length = len(self._rows[i])
            for j in ids:
                if j >= length:
                    return f"runtime error: index out of range [{j}] with length {length}"
        return None


def walked_universe(ids: Sequence[int], provider: Provider) -> Universe:
    """The universe of the NUMA ids over whose subsets a provider iterates.

    The kubelet iterates over them one by one. From about 30 nodes on this takes hours. Between the limit here and 30 it
    may finish.

    Raises:
        Refusal: KubeletHang, for more ids than the replay supports.
        KubeletPanicError: the set has an id that the kubelet's bit mask cannot hold, so that its mask is nil.
    """
    if ids and ids[-1] > MAX_NUMA_ID:
        raise KubeletPanicError(NIL_POINTER)
    if len(ids) > MAX_NUMA_NODES:
        raise Refusal(
            Reason.KUBELET_HANG,
            f"the {provider} manager would walk 2^{len(ids)} sets of NUMA nodes",
            provider=provider,
            wanted=len(ids),
            had=MAX_NUMA_NODES,
        )
    return universe(tuple(ids))


def narrowest(space: Universe, family: int, distances: Distances | None = None, budget: Budget = UNLIMITED) -> int:
    """The best raw mask: the narrowest, then with *distances* the closest, then the one with the smallest number.

    Distances are computed only for different masks of equal width, as in the kubelet (computing them can panic). The
    family must have a non-empty member.
    """
    width = space.width(family)
    assert width is not None
    rivals = family & space.by_width[width]
    if distances is None or rivals & (rivals - 1) == 0:
        return space.mask((rivals & -rivals).bit_length() - 1)
    budget.spend(rivals.bit_count() * width * width)
    return distances.closest(tuple(space.masks(rivals)))


def merge(
    lists: Sequence[Hints],
    default_mask: int,
    distances: Distances | None,
    budget: Budget = UNLIMITED,
    *,
    preferred_only: bool = False,
) -> tuple[TopologyHint, str]:
    """Combine one hint of every resource into the best candidate.

    Returns the merged hint, whose affinity is never None here, and the name of the rule that chose it.

    An example with two NUMA nodes. 4 CPUs are free on node 1 only, so the CPU manager offers the masks 10 and 11 and
    prefers 10. A GPU is on node 0, so the device manager offers 01 and 11 and prefers 01. No mask is preferred by both.
    The combinations 10 and 01, 10 and 11, 11 and 01, 11 and 11 give 00, 10, 01 and 11. Both need one node, so the
    narrowest masks are best, and of these the smallest number: 01, not preferred. `restricted` refuses the pod.

    Args: lists: hints of the resources with a preference. An empty `Hints` excludes every preferred result.
        default_mask: all NUMA nodes of the machine. distances: for `prefer-closest-numa-nodes`, where the closer nodes
        win a tie. budget: of the replay. preferred_only: the caller refuses a result that is not preferred, and does
        not use its mask: *default_mask*.

    Source: cm/topologymanager/policy.go, HintMerger.Merge and compare, in closed form.

    Raises:
        Refusal: KubeletHang, if the hints contain too many NUMA nodes together.
    """
    if not lists:
        return TopologyHint(default_mask, preferred=True), "no resource has an opinion"
    # 1. A mask that all resources prefer is the best result. Preferred hints merge to a preferred one only if they have
    # such a mask in common.
    space, common = preferred_by_all(lists, budget)
    if common:
        best = narrowest(space, common, distances, budget)
        return TopologyHint(best, preferred=True), "preferred by all"
    if preferred_only:
        return TopologyHint(default_mask, preferred=False), "no mask is preferred by all"
    # 2. Otherwise no result is preferred. Collect every mask that some combination of feasible hints gives
    # (filterProvidersHints, the bitwise and).
    feasible = [space.embed(h.feasible, h.universe, budget) for h in lists if h.feasible]
    reachable = fold(feasible, len(space.ids), budget) & ~1 if feasible else 0
    # 3. If all combinations are empty, the kubelet keeps its default, which is not preferred.
    if not reachable:
        return TopologyHint(default_mask, preferred=False), "no combination leaves a node in common"
    # 4. Compare the masks: closest to the width that the most demanding resource needs, then narrowest (compare).
    width = max((h.universe.width(h.feasible) or 0) for h in lists)
    best = narrowest(space, _best_tier(space, reachable, width), distances, budget)
    return TopologyHint(best, preferred=False), "no mask is preferred by all"


def preferred_by_all(lists: Sequence[Hints], budget: Budget = UNLIMITED) -> tuple[Universe, int]:
    """The universe of all these hints together, and the family of the masks that all of them prefer.

    Raises:
        Refusal: KubeletHang, if they contain too many NUMA nodes together.
    """
    space = _common_universe(lists)
    budget.spend(len(lists))
    common = space.everything & ~1
    for hints in lists:
        common &= space.embed(hints.preferred, hints.universe, budget)
    return space, common


def _common_universe(lists: Sequence[Hints]) -> Universe:
    first = lists[0].universe
    if all(h.universe is first for h in lists):
        return first
    return walked_universe(sorted({i for h in lists for i in h.universe.ids}), Provider.TOPOLOGY)


def _best_tier(space: Universe, reachable: int, width: int) -> int:
    """The masks of the best width: *width* nodes, else the widest narrower ones, else the narrowest wider ones."""
    for size in range(width, 0, -1):
        if reachable & space.by_width[size]:
            return reachable & space.by_width[size]
    return reachable
