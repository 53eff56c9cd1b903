"""Strategies by how much of the node its managers have given away: least-allocated, most-allocated, balanced.

Laws of this file
- They look at the node as a whole, because that alone keeps their promise: with less given away, a node is never worse
  under least-allocated and never better under most-allocated. (On which NUMA node a pod lands can change with what is
  free, and with it any measure of that NUMA node.) `least-numa` and `fragmentation` look at NUMA nodes.
- Only resources of which the pod takes something count, each with its weight; where none counts, the merit is 0.
- Integers only: parts of `FULL`.
"""

from math import isqrt
from typing import Final

from extender.scheduling.ranking.outcome import Landing
from extender.scheduling.ranking.weights import Weights

FULL: Final = 1_000_000
"""A share of 1: resources given away to the last."""


def least_allocated(landing: Landing, weights: Weights) -> int:
    """The free share after the admission: the weighted mean of free / capacity. 0 to FULL."""
    shares = _free_shares(landing, weights)
    total = sum(weight for _, weight in shares)
    return sum(free * weight for free, weight in shares) // total if total else 0


def most_allocated(landing: Landing, weights: Weights) -> int:
    """The used share after the admission: the weighted mean of 1 - free / capacity. 0 to FULL."""
    shares = _free_shares(landing, weights)
    total = sum(weight for _, weight in shares)
    return sum((FULL - free) * weight for free, weight in shares) // total if total else 0


def balanced(landing: Landing, weights: Weights) -> int:
    """How equally the resources are used: FULL less the weighted standard deviation of their used shares.

    At least FULL / 2, which is one half of the weight used up and the other half untouched; 0 where nothing counts.
    """
    shares = _free_shares(landing, weights)
    total = sum(weight for _, weight in shares)
    if not total:
        return 0
    mean = sum(free * weight for free, weight in shares) // total
    variance = sum(weight * (free - mean) ** 2 for free, weight in shares) // total
    return FULL - isqrt(variance)


def _free_shares(landing: Landing, weights: Weights) -> list[tuple[int, int]]:
    """(free share after the admission, weight) of each resource that the pod takes from."""
    return [(FULL * after.free // after.capacity, weights[name]) for name, _, after in landing.taken()]
