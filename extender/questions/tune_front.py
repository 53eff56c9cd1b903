"""Which configurations of tune no other one surpasses.

Rules of this file
- A configuration surpasses another one if it is better in pods admitted, pods aligned or CPUs stranded by more than
  random orders differ, is on average worse in none of these, and guarantees at least as much. If two do not differ, the
  one with fewer changes surpasses the other. What no other one surpasses is on the Pareto front.
- Trials of two configurations are compared order by order, because every configuration gets the same orders.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import sqrt
from statistics import fmean, variance
from typing import Final, NamedTuple

from extender.kubelet.config import KubeletConfig
from extender.questions.tune_changes import Change
from extender.replay.alignment import Alignment

ORDERS: Final = 7
"""Orders of arrival for every configuration. A search that ended early has fewer orders, and only of the present
configuration.

Where a share p of all orders differs, n orders are all equal and the next one differs with probability p(1-p)^n. From 7
orders on this is below 1/20 for every p. So 7 equal orders may state a range of one number, and 3 may not.
"""
_T_VALUES: Final = (2.45, 2.37, 2.31, 2.27, 2.23, 2.21, 2.18, 2.17, 2.15, 2.14, 2.12)
"""Student's t for 19 of 20, by degrees of freedom from `ORDERS` - 1 on. With more than all these it is no larger."""
_LEVELS: Final = {"restricted": 1, "single-numa-node": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The pods by alignment, and the free CPUs of NUMA nodes with too few of them for any pod that the node admits.

    All CPUs of a node that admits none of its pods are stranded.

    `by_group`: for each group of equal nodes, the measures of each of its samples.
    """

    alignments: Mapping[Alignment, int]
    by_group: Sequence[Sequence["Measures"]]
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

    `policy` 2: no container, or pod, is on several NUMA nodes. 1: only one that does not fit on one NUMA node is. 0:
    any may be. `is_for_pods`: containers of a pod are together. `has_memory`: memory is counted too.
    """

    policy: int
    is_for_pods: bool
    has_memory: bool

    def is_weaker(self, than: "Guarantee") -> bool:
        """Whether this guarantees less than *than* in any part."""
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
        admitted, aligned, stranded = map(fmean, zip(*(trial.measures for trial in self.trials), strict=True))
        return admitted, aligned, -stranded


def front(found: Sequence[Tuned]) -> list[Tuned]:
    """The configurations that no other one surpasses: those that keep the present guarantee first, then the best."""
    kept = [each for each in found if not any(_surpasses(other, each) for other in found)]
    return sorted(kept, key=lambda each: (each.is_weaker(found[0]), [-value for value in each.rank]))


def _surpasses(one: Tuned, other: Tuned) -> bool:
    """Whether one configuration is better than another one by the rules of this file."""
    if one is other or one.is_weaker(other):
        return False
    signs = [_difference(one, other, each) for each in Measures._fields]
    if min(signs) < 0 or max(signs) > 0:
        return min(signs) >= 0
    if other.is_weaker(one):
        return len(one.change) <= len(other.change)
    return (len(one.change), one.change) < (len(other.change), other.change)


def _difference(one: Tuned, other: Tuned, measure: str) -> int:
    """1: *one* is better in this measure by more than chance. -1: it is worse on average. 0: neither."""
    pairs = zip(one.trials, other.trials, strict=True)
    found = [getattr(a.measures, measure) - getattr(b.measures, measure) for a, b in pairs]
    gain = fmean(found) if measure != "stranded_cpus" else -fmean(found)
    margin = t_value(len(found) - 1) * sqrt(variance(found))
    if gain < -margin / sqrt(len(found)):
        return -1
    return 1 if gain > margin * sqrt(1 + 1 / len(found)) else 0


def t_value(freedom: int) -> float:
    """Student's t for 19 of 20, with at least `ORDERS` - 1 degrees of freedom."""
    return _T_VALUES[min(max(0, freedom - ORDERS + 1), len(_T_VALUES) - 1)]
