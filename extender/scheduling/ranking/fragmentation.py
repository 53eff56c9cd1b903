"""The strategy least-fragmentation: keep the largest aligned request possible.

Rules of this file
- The largest aligned request of a resource is what one NUMA node alone could still serve. A pod's cost is what it takes
  away from that, as a part of what it takes in all: 0 if another NUMA node has as much, 1 if all of it is lost.
- Among placements of the same cost, the one on fuller NUMA nodes is better: it leaves empty NUMA nodes empty.
- Costs are relative to what the pod takes, so that nodes of all sizes compare.
"""

from typing import Final

from extender.scheduling.ranking.elementwise import Amount, greatest, least
from extender.scheduling.ranking.outcome import Headroom, RankedAdmission
from extender.scheduling.ranking.weights import Weights

WHOLE: Final = 1000
"""A part of 1."""
LARGEST_FACTOR: Final = 10
"""How much the largest aligned request counts against the fullness of the NUMA nodes that are used."""


def least_fragmentation(outcome: RankedAdmission, weights: Weights) -> int:
    """Minus the weighted mean of each taken resource's cost; 0 (best) to -11,000.

    The cost of a resource is 10 x the loss of the largest aligned request / what the pod takes, + how empty the NUMA
    nodes that it uses were (1: all from the emptiest one, which stays nearly empty); both in thousandths.
    """
    costs = [(_cost(before, after), weights[name]) for name, before, after in outcome.taken()]
    total = sum(weight for _, weight in costs)
    return -(sum(cost * weight for cost, weight in costs) // total) if total else 0


def _cost(before: Headroom, after: Headroom) -> Amount:
    largest, taken = before.largest, before.free - after.free
    lost = least((taken, greatest((largest - after.largest,))))
    # where no NUMA node has anything, nothing is lost
    most = taken * 2 * greatest((1, largest))
    return (LARGEST_FACTOR * (WHOLE * lost // taken) + _emptiness(before, after, most)) * (largest > 0)


def _emptiness(before: Headroom, after: Headroom, most: Amount) -> Amount:
    """The decrease of the sum of squares of the free amounts per NUMA node, in thousandths of *most*.

    Taking k from a NUMA node with f free lowers the sum by k (2f - k): little if little was left. Devices of several
    NUMA nodes and memory in groups can lower it by more than *most*; that counts as *most*.
    """
    fall = sum(free * free for free in before.aligned) - sum(free * free for free in after.aligned)
    return greatest((least((WHOLE, WHOLE * fall // most)),))
