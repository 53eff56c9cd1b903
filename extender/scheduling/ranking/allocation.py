"""Strategies by how much of the node is allocated: least-allocated, most-allocated, balanced.

Rules of this file
- They measure the node as a whole. Otherwise a node with less allocated could be worse under least-allocated, or better
  under most-allocated. (The NUMA node on which a pod is placed can change with what is free, and with it any measure of
  that NUMA node.) `least-numa` and `fragmentation` measure NUMA nodes.
- Only resources of which the pod takes something count, each with its weight. If none counts, the merit is 0.
- Integers only: parts of `FULL`.
"""

from typing import Final

from extender.scheduling.ranking.elementwise import Amount, root
from extender.scheduling.ranking.outcome import RankedAdmission
from extender.scheduling.ranking.weights import Weights

FULL: Final = 1_000_000
"""A share of 1: everything is allocated."""


def least_allocated(outcome: RankedAdmission, weights: Weights) -> int:
    """The free share after the admission: the weighted mean of free / capacity. 0 to FULL."""
    shares = _free_shares(outcome, weights)
    total = sum(weight for _, weight in shares)
    return sum(free * weight for free, weight in shares) // total if total else 0


def most_allocated(outcome: RankedAdmission, weights: Weights) -> int:
    """The used share after the admission: the weighted mean of 1 - free / capacity. 0 to FULL."""
    shares = _free_shares(outcome, weights)
    total = sum(weight for _, weight in shares)
    return sum((FULL - free) * weight for free, weight in shares) // total if total else 0


def balanced(outcome: RankedAdmission, weights: Weights) -> Amount:
    """How equally the resources are used: FULL less the weighted standard deviation of their used shares.

    At least FULL / 2 (one half of the weight fully used, the other half free); 0 if nothing counts.
    """
    shares = _free_shares(outcome, weights)
    total = sum(weight for _, weight in shares)
    if not total:
        return 0
    mean = sum(free * weight for free, weight in shares) // total
    variance = sum(weight * (free - mean) ** 2 for free, weight in shares) // total
    return FULL - root(variance)


def _free_shares(outcome: RankedAdmission, weights: Weights) -> list[tuple[int, int]]:
    """(free share after the admission, weight) of each resource that the pod takes from."""
    return [(FULL * after.free // after.capacity, weights[name]) for name, _, after in outcome.taken()]
