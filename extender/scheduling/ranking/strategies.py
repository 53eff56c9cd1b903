"""Strategies: how good an admitting node is for a pod.

A strategy is one pure function from a replayed admission to a merit: any int, more is better. Only order and
proportions within one request count, because `scoring` stretches the merits over 0..10. A strategy runs once for each
pod shape and class of nodes. `docs/strategies.md` has the formulas side by side.
"""

from collections.abc import Callable, Mapping
from typing import Final

from extender.kubelet.machine import Machine
from extender.kubelet.sets import iter_bits
from extender.scheduling.ranking.allocation import balanced, least_allocated, most_allocated
from extender.scheduling.ranking.fragmentation import least_fragmentation
from extender.scheduling.ranking.outcome import RankedAdmission, Strategy
from extender.scheduling.ranking.weights import Weights

NODE_COST: Final = 1000
"""Cost of each NUMA node beyond the first that a container spans."""
NOT_PREFERRED_COST: Final = 500
"""Cost of a container that got more NUMA nodes than the hardware requires."""


def least_numa(outcome: RankedAdmission) -> int:
    """Fewest NUMA nodes, then preferred hints, then the closest nodes.

    The cost of a container is 1000 for each NUMA node beyond the first that its CPUs, memory and devices are on, 500 if
    its hint is not preferred, and the mean distance between its nodes beyond the local distance (sysfs units, 10 is
    local). Merit is minus the sum over containers.
    """
    cost = 0
    for span, is_preferred in outcome.spans():
        if span & (span - 1):
            cost += NODE_COST * (span.bit_count() - 1) + _mean_distance_beyond_local(outcome.machine, span)
        if span and not is_preferred:
            cost += NOT_PREFERRED_COST
    return -cost


_WEIGHTED: Final[Mapping[str, Callable[[RankedAdmission, Weights], int]]] = {
    "least-fragmentation": least_fragmentation,
    "least-allocated": least_allocated,
    "most-allocated": most_allocated,
    "balanced": balanced,
}
BY_PLACEMENT: Final[frozenset[Strategy]] = frozenset({least_numa})
"""Strategies whose merit follows from the placements and the hardware alone, whatever else is free."""
STRATEGIES: Final = ("least-numa", *_WEIGHTED)
"""The names of all strategies, the default first."""


def make_strategy(name: str, weights: Weights) -> Strategy:
    """The strategy of that name, which is one of `STRATEGIES`. least-numa ignores the weights."""
    if name == STRATEGIES[0]:
        return least_numa
    weighted = _WEIGHTED[name]
    return lambda outcome: weighted(outcome, weights)


def _mean_distance_beyond_local(machine: Machine, span: int) -> int:
    """Mean of the distances from each node of the span to each other one, less the local distance; 0 if not known."""
    rows = {node.id: node.distances for node in machine.numa_nodes}
    position = {numa: i for i, numa in enumerate(machine.numa_ids)}
    ids = [i for i in iter_bits(span) if i in position and len(rows[i]) == len(position)]
    if len(ids) < 2:
        return 0
    beyond = [rows[a][position[b]] - rows[a][position[a]] for a in ids for b in ids if a != b]
    return sum(beyond) // len(beyond)
