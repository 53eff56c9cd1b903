"""The strategy least-fragmentation: keep the largest aligned room free, measured as what still fits afterwards.

Laws of this file
- The aligned room of a resource is the largest request that one NUMA node alone could still serve. A pod costs what it
  takes away from that, as a part of what it takes at all: 0 if another NUMA node has as much, 1 if all of it is lost.
- Among landings that cost the same there, the one on fuller NUMA nodes is better: it fills holes and leaves whole NUMA
  nodes whole.
- Costs are relative to what the pod takes, so that nodes of all sizes compare.
"""

from typing import Final

from extender.scheduling.ranking.outcome import Landing, Room
from extender.scheduling.ranking.weights import Weights

WHOLE: Final = 1000
"""A part of 1."""
LARGEST_FACTOR: Final = 10
"""How much the largest aligned room counts against the fullness of the NUMA nodes that are taken from."""


def least_fragmentation(landing: Landing, weights: Weights) -> int:
    """Minus the weighted mean of each taken resource's cost; 0 (best) to -11,000.

    The cost of a resource is 10 x the loss of the largest aligned room / what the pod takes, + how empty the NUMA nodes
    were that it takes from (1: all taken from the emptiest one, hardly touching it); both in thousandths.
    """
    costs = [(_cost(before, after), weights[name]) for name, before, after in landing.taken()]
    total = sum(weight for _, weight in costs)
    return -(sum(cost * weight for cost, weight in costs) // total) if total else 0


def _cost(before: Room, after: Room) -> int:
    largest = before.largest
    if not largest:
        return 0
    taken = before.free - after.free
    lost = min(taken, max(0, largest - after.largest))
    return LARGEST_FACTOR * (WHOLE * lost // taken) + _emptiness(before, after, taken * 2 * largest)


def _emptiness(before: Room, after: Room, most: int) -> int:
    """The fall of the sum of squares of the NUMA nodes' rooms, in thousandths of *most*.

    Taking k from a NUMA node with f free lowers the sum by k (2f - k): little where little was left. Devices of several
    NUMA nodes and memory glued into groups can lower it by more than *most*; that counts as all of it.
    """
    fall = sum(free * free for free in before.aligned) - sum(free * free for free in after.aligned)
    return max(0, min(WHOLE, WHOLE * fall // most))
