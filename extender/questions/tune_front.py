"""Which configurations of tune no other one surpasses.

Rules of this file
- A configuration surpasses another one if it is better in pods admitted, pods aligned or CPUs stranded, and worse in
  none of them, by more than the orders differ, and if it guarantees no less. Of equal ones the one with the fewest
  changes is left. What no other one surpasses is on the Pareto front.
- Trials of two configurations are compared order by order, because every configuration gets the same orders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, variance
from typing import Final, NamedTuple

from extender.kubelet.config import KubeletConfig
from extender.replay.alignment import Alignment

Change = tuple[tuple[str, str], ...]
"""Field and value; empty: nothing is changed."""
_T_VALUES: Final = (12.8, 4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27, 2.23, 2.21, 2.18, 2.17, 2.15, 2.14)
"""Student's t for 19 of 20, by degrees of freedom from 1 on. With more it is below 2.12."""
_LEVELS: Final = {"restricted": 1, "single-numa-node": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The pods by alignment, and the free CPUs of NUMA nodes with too few of them for any pod that the node admits.

    All CPUs of a node that admits none of its pods are stranded.

    `by_group`: for each group of equal nodes, the measures of each of its samples.
    """

    alignments: Mapping[Alignment, int]
    by_group: Sequence[Sequence["Measures"]]
    refused: int
    stranded_cpus: int
    failing_nodes: int

    @property
    def admitted(self) -> int:
        """Pods that were admitted."""
        return sum(self.alignments.values())

    @property
    def aligned(self) -> int:
        """How many of the admitted pods are on one NUMA node."""
        return self.alignments.get(Alignment.ALIGNED, 0)

    @property
    def measures(self) -> "Measures":
        """What configurations are compared by."""
        return Measures(self.admitted, self.aligned, self.stranded_cpus)


class Measures(NamedTuple):
    """Pods admitted, pods aligned and CPUs stranded, of a node or of all."""

    admitted: int
    aligned: int
    stranded_cpus: int


class Guarantee(NamedTuple):
    """What a node's kubelet guarantees its pods. Larger is more.

    `policy`: 2: no container, or pod, is on several NUMA nodes; 1: none that fits on one; 0: nothing. `is_for_pods`:
    containers of a pod are together. `has_memory`: memory is counted too.
    """

    policy: int
    is_for_pods: bool
    has_memory: bool

    def is_weaker(self, than: "Guarantee") -> bool:
        """Whether it is less in any part."""
        return any(mine < other for mine, other in zip(self, than, strict=True))


def guarantee_of(config: KubeletConfig) -> Guarantee:
    """The guarantee of a configuration."""
    level = _LEVELS.get(config.topology_manager_policy, 0)
    is_for_pods = bool(level) and config.topology_manager_scope == "pod"
    return Guarantee(level, is_for_pods, bool(level) and config.memory_manager_policy == "Static")


@dataclass(slots=True)
class Tuned:
    """One configuration with its trials, one for each order.

    `guarantees`: what each group of equal nodes guarantees.
    """

    change: Change
    trials: list[Trial] = field(default_factory=list)
    guarantees: Sequence[Guarantee] = ()
    is_best: bool = False

    def is_weaker(self, than: "Tuned") -> bool:
        """Whether some node guarantees its pods less."""
        return any(mine.is_weaker(other) for mine, other in zip(self.guarantees, than.guarantees, strict=True))

    @property
    def rank(self) -> tuple[float, float, float]:
        """Means of what counts; larger is better."""
        count = len(self.trials)
        return (
            sum(t.admitted for t in self.trials) / count,
            sum(t.aligned for t in self.trials) / count,
            -sum(t.stranded_cpus for t in self.trials) / count,
        )


def front(found: Sequence[Tuned]) -> list[Tuned]:
    """What no other one surpasses: those that keep the present guarantee first, then the best."""
    kept = [each for each in found if not any(_surpasses(other, each) for other in found)]
    return sorted(kept, key=lambda each: (each.is_weaker(found[0]), [-value for value in each.rank]))


def _surpasses(one: Tuned, other: Tuned) -> bool:
    """Whether one configuration is better than another one by the rules of this file."""
    if one is other or one.is_weaker(other):
        return False
    signs = [_difference(one, other, each) for each in Measures._fields]
    if any(signs):
        return min(signs) >= 0
    if other.is_weaker(one):
        return len(one.change) <= len(other.change)
    return (len(one.change), one.change) < (len(other.change), other.change)


def _difference(one: Tuned, other: Tuned, measure: str) -> int:
    """1: *one* is better in this measure; -1: worse; 0: by no more than the orders of arrival differ."""
    pairs = zip(one.trials, other.trials, strict=False)
    found = [getattr(a.measures, measure) - getattr(b.measures, measure) for a, b in pairs]
    mean = fmean(found)
    margin = t_value(len(found) - 1) * sqrt(variance(found) * (1 + 1 / len(found))) if len(found) > 1 else 0.0
    if abs(mean) <= margin:
        return 0
    return 1 if (mean > 0) is (measure != "stranded_cpus") else -1


def t_value(freedom: int) -> float:
    """Student's t for 19 of 20."""
    return _T_VALUES[freedom - 1] if freedom <= len(_T_VALUES) else 2.12
