"""Strategies: how good an admitting node is for a pod.

A strategy is one pure function from a replayed admission to a merit: any int, more is better. Only order and
proportions within one request count, because `scoring` stretches the merits over 0..10. A strategy runs once for each
pod shape and class of nodes. `docs/strategies.md` has the formulas side by side.

Rules of this file
- Only resources of which the pod takes something count, each with its weight (`cpu=2,memory=1,vendor.example/gpu=10`).
  If none counts, the merit is 0. Integers only: parts of `FULL`.
- least-allocated, most-allocated and balanced measure the node as a whole: a pod's NUMA node depends on what is free,
  so by NUMA nodes an emptier node could count as worse. least-numa and least-fragmentation measure NUMA nodes.
- least-fragmentation keeps the largest aligned request possible: what one NUMA node alone could still serve. Among
  placements that keep as much of it, the one on fuller NUMA nodes is better: it leaves empty NUMA nodes empty.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final

from extender.scheduling.ranking.headrooms import Amount, Headroom, greatest, least, root
from extender.scheduling.ranking.placement import AdmissionOutcome, Strategy, least_numa

MAX_WEIGHT: Final = 100
UNNAMED_WEIGHT: Final = 1
"""The weight of a resource that the setting does not name."""

_HUGEPAGES: Final = re.compile(r"hugepages-[1-9][0-9]*(?:Ki|Mi|Gi|Ti)")
_DEVICE: Final = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?/[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?")


class Weights:
    """The weight of every resource: an int from 0 (left out) to `MAX_WEIGHT`; `UNNAMED_WEIGHT` where none is given."""

    __slots__ = ("_named",)

    def __init__(self, named: Mapping[str, int]) -> None:
        self._named: Final = dict(named)

    def __getitem__(self, resource: str) -> int:
        return self._named.get(resource, UNNAMED_WEIGHT)

    @classmethod
    def parse(cls, text: str) -> "Weights":
        """The weights that *text* names; empty: all alike.

        Raises:
            ValueError: not of the form NAME=WEIGHT, a name that is not managed per NUMA node, a weight out of
                range, or a name given twice.
        """
        named: dict[str, int] = {}
        for entry in filter(None, (part.strip() for part in text.split(","))):
            name, equals, number = (part.strip() for part in entry.partition("="))
            if not equals:
                raise ValueError(f"{_shown(entry)} is not of the form NAME=WEIGHT")
            _check_name(name)
            if name in named:
                raise ValueError(f"{name} is given twice")
            named[name] = _weight(name, number)
        return cls(named)


def _check_name(name: str) -> None:
    if name not in ("cpu", "memory") and not _HUGEPAGES.fullmatch(name) and not _DEVICE.fullmatch(name):
        raise ValueError(
            f"{_shown(name)} is not a resource that a kubelet manages per NUMA node; these are cpu, memory, "
            "hugepages-SIZE (hugepages-1Gi) and devices (vendor.example/gpu)"
        )


def _weight(name: str, text: str) -> int:
    if text.isascii() and text.isdigit() and len(text) <= 3 and int(text) <= MAX_WEIGHT:
        return int(text)
    raise ValueError(f"the weight of {name} is an integer from 0 to {MAX_WEIGHT}, not {_shown(text)}")


def _shown(text: str) -> str:
    return repr(text if len(text) <= 60 else f"{text[:57]}...")


FULL: Final = 1_000_000
"""A share of 1: everything is allocated."""


def least_allocated(outcome: AdmissionOutcome, weights: Weights) -> int:
    """The free share after the admission: the weighted mean of free / capacity. 0 to FULL."""
    shares = _free_shares(outcome, weights)
    total = sum(weight for _, weight in shares)
    return sum(free * weight for free, weight in shares) // total if total else 0


def most_allocated(outcome: AdmissionOutcome, weights: Weights) -> int:
    """The used share after the admission: the weighted mean of 1 - free / capacity. 0 to FULL."""
    shares = _free_shares(outcome, weights)
    total = sum(weight for _, weight in shares)
    return sum((FULL - free) * weight for free, weight in shares) // total if total else 0


def balanced(outcome: AdmissionOutcome, weights: Weights) -> Amount:
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


def _free_shares(outcome: AdmissionOutcome, weights: Weights) -> list[tuple[int, int]]:
    """(free share after the admission, weight) of each resource that the pod takes from."""
    return [(FULL * after.free // after.capacity, weights[name]) for name, _, after in outcome.taken()]


WHOLE: Final = 1000
"""A part of 1."""
LARGEST_FACTOR: Final = 10
"""How many times more the largest aligned request counts than the fullness of the NUMA nodes that are used."""


def least_fragmentation(outcome: AdmissionOutcome, weights: Weights) -> int:
    """Minus the weighted mean of each taken resource's cost; 0 (best) to -11,000.

    The cost of a resource is in thousandths: 10 x the loss of the largest aligned request / what the pod takes, + how
    empty the NUMA nodes were that it uses (1: it takes all from the emptiest one, which stays nearly empty).
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


PLACEMENT_FACTOR: Final = 12
"""How much `least_numa` counts against `least_fragmentation`, whose worst merit is -11,000."""


def least_numa_fragmentation(outcome: AdmissionOutcome, weights: Weights) -> int:
    """As `least_numa`, and among equal placements as `least_fragmentation`.

    One NUMA node more costs 12,000, and losing all room for aligned requests costs 11,000.
    """
    return PLACEMENT_FACTOR * least_numa(outcome) + least_fragmentation(outcome, weights)


_WEIGHTED: Final[Mapping[str, Callable[[AdmissionOutcome, Weights], int]]] = {
    "least-numa-fragmentation": least_numa_fragmentation,
    "least-fragmentation": least_fragmentation,
    "least-allocated": least_allocated,
    "most-allocated": most_allocated,
    "balanced": balanced,
}

STRATEGIES: Final = ("least-numa", *_WEIGHTED)
"""The names of all strategies."""


def make_strategy(name: str, weights: Weights) -> Strategy:
    """The strategy of that name, which is one of `STRATEGIES`. least-numa ignores the weights."""
    if name == "least-numa":
        return least_numa
    weighted = _WEIGHTED[name]
    return lambda outcome: weighted(outcome, weights)
