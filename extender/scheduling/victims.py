"""Which running pods to evict so that the kubelet of a node admits another pod: the cheapest set.

Rules of this file
- Admission is not monotone: a pod can fit after some evictions, and no longer fit after one more. So every returned set
  was tried itself.
- Cheaper means, in this order: fewer violated disruption budgets, fewer pods, lower priorities, younger pods.
- With at most 8 candidates all sets are tried, cheapest first, and the result is optimal. With more, (1) pods are taken
  one after another, NUMA node by NUMA node, until the preemptor is admitted; (2) each pod is removed again if the rest
  still works; (3) every cheaper set is tried, up to the size that `MAX_SETS` allows (two of 22 pods, one of 255). That
  finds a set in most cases, and not always the smallest.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from math import comb
from typing import Final, NamedTuple

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.state import ManagerState
from extender.wire.placement_rules import LabelRequirement


@dataclass(frozen=True, slots=True, kw_only=True)
class DisruptionBudget:
    """One budget. `requirements` None: no selector, which covers no pod; empty: covers the whole namespace.

    `disruptions_allowed`: pods that may be evicted now. `already_disrupted`: names of pods whose eviction is already
    counted and needs no further allowance.
    """

    namespace: str
    name: str
    requirements: tuple[LabelRequirement, ...] | None
    disruptions_allowed: int
    already_disrupted: frozenset[str]

    def covers(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether a pod with these labels is covered by this budget."""
        if namespace != self.namespace or self.requirements is None:
            return False
        return all(requirement.holds(labels) for requirement in self.requirements)

    @property
    def key(self) -> str:
        """`namespace/name`."""
        return f"{self.namespace}/{self.name}"

    def counts(self, namespace: str, name: str, labels: Mapping[str, str]) -> bool:
        """Whether the eviction of a pod uses this budget up, as kube-scheduler counts it.

        A budget without a selector, or with an empty one, is never used up. A pod without labels, or one that is
        already disrupted, uses no budget up.
        """
        is_counted = bool(self.requirements and labels) and name not in self.already_disrupted
        return is_counted and self.covers(namespace, labels)

    def limits(self, namespace: str, labels: Mapping[str, str]) -> bool:
        """Whether the eviction API asks this budget before it evicts a pod: a budget with an empty selector as well.

        Source: kube-apiserver `registry/core/pod/storage/eviction.go`, getPodDisruptionBudgets.
        """
        return bool(labels) and self.covers(namespace, labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningPod:
    """A pod on a node.

    `uid` is that of its API object. The kubelet knows a static pod by another UID: evicting its API object frees
    nothing, because the kubelet keeps the pod. `started_at` in Unix seconds, None before its kubelet saw it.
    `terminating`: its deletion was requested. `budgets`: keys of the disruption budgets that count its eviction.
    """

    uid: str
    priority: int
    started_at: float | None = None
    terminating: bool = False
    budgets: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePods:
    """The pods of one node by UID, and how many evictions each of their budgets allows now."""

    pods: Mapping[str, RunningPod] = field(default_factory=dict)
    allowances: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class RunningPods:
    """What is known of running pods: nothing, until a feature that watches them replaces both functions.

    `on_node`: all pods bound to the node that are not finished. `budgets`: all disruption budgets. None: there is no
    watch, or it has not synced.
    """

    on_node: Callable[[str], NodePods | None] = lambda _node_name: None
    budgets: Callable[[], Sequence[DisruptionBudget] | None] = lambda: None


def importance(pod: RunningPod) -> tuple[float, float]:
    """Sort key, most important first, as kube-scheduler orders victims: higher priority, then running for longer."""
    return -pod.priority, float("inf") if pod.started_at is None else pod.started_at


MAX_SETS: Final = 255
"""How many sets are tried one by one on a node: all sets of 8 candidates."""

PodSet = tuple[RunningPod, ...]
Works = Callable[[PodSet], bool]
"""Whether the preemptor is admitted if these pods are gone as well. Raises OutOfReplaysError."""


class OutOfReplaysError(Exception):
    """No replays or no time are left."""


class Cost(NamedTuple):
    """The cost of a set, ordered as the rules of this file say. `violations`: budget violations that the set adds."""

    violations: int
    size: int
    importance: tuple[tuple[float, float], ...]
    uids: tuple[str, ...]


CostOf = Callable[[PodSet], Cost]


def count_violations(pods: Iterable[RunningPod], allowances: Mapping[str, int]) -> int:
    """How many of *pods* violate a disruption budget if all are evicted, counted as kube-scheduler does.

    The most important pods use the allowances up first. A pod counts if any of its budgets has none left.
    """
    left = dict(allowances)
    violating = 0
    for pod in sorted((pod for pod in pods if pod.budgets), key=importance):
        broken = False
        for budget in pod.budgets:
            left[budget] = left.get(budget, 0) - 1
            broken = broken or left[budget] < 0
        violating += broken
    return violating


def costing(victims: Sequence[RunningPod], allowances: Mapping[str, int]) -> CostOf:
    """The cost of evicting a set in addition to *victims*."""
    violations = count_violations(victims, allowances)

    def cost(pods: PodSet) -> Cost:
        ordered = sorted(pods, key=importance)
        return Cost(
            violations=count_violations([*victims, *pods], allowances) - violations,
            size=len(pods),
            importance=tuple((-a, -b) for a, b in map(importance, ordered)),
            uids=tuple(sorted(pod.uid for pod in pods)),
        )

    return cost


def cheapest_set(
    candidates: Sequence[RunningPod], groups: Iterable[Sequence[RunningPod]], cost: CostOf, works: Works
) -> PodSet | None:
    """The cheapest non-empty set of *candidates* that works; None if none was found and everything was tried.

    *groups*: candidates to take one after another, such as those of one NUMA node, if there are too many to try all
    sets.

    Raises:
        OutOfReplaysError: *works* raised it before any set was found.
    """
    best: PodSet | None = None
    try:
        if largest_size(len(candidates)) < len(candidates):
            for found in _greedy_sets(groups, cost, works):
                best = found if best is None else min(best, found, key=cost)
        for pods in sorted(_small_sets(candidates), key=cost):
            if best is not None and cost(pods) >= cost(best):
                break
            if works(pods):
                return pods
    except OutOfReplaysError:
        if best is None:
            raise
    return best


def _small_sets(candidates: Sequence[RunningPod]) -> Iterator[PodSet]:
    for size in range(1, largest_size(len(candidates)) + 1):
        yield from combinations(candidates, size)


def largest_size(count: int) -> int:
    """The largest size at which *count* pods have at most `MAX_SETS` sets of this size or smaller."""
    sets = size = 0
    while size < count and sets + comb(count, size + 1) <= MAX_SETS:
        size += 1
        sets += comb(count, size)
    return size


def _greedy_sets(groups: Iterable[Sequence[RunningPod]], cost: CostOf, works: Works) -> Iterator[PodSet]:
    for group in groups:
        taken: PodSet = ()
        for pod in sorted(group, key=lambda pod: cost((pod,))):
            taken = (*taken, pod)
            if works(taken):
                yield _reprieve(taken, cost, works)
                break


def _reprieve(taken: PodSet, cost: CostOf, works: Works) -> PodSet:
    """Remove the pods that need not be evicted, the costliest first. Each time the rest is tried."""
    for pod in sorted(taken, key=lambda pod: cost((pod,)), reverse=True):
        rest = tuple(other for other in taken if other is not pod)
        if rest and works(rest):
            taken = rest
    return taken


def numa_nodes_of(kubelet: Kubelet, state: ManagerState, uid: str) -> int:
    """The NUMA nodes on which a pod holds CPUs, memory or devices, raw bits."""
    mask = 0
    for cpus in state.cpu.entries.get(uid, {}).values():
        mask |= kubelet.machine.numa_bits_of_cpus(cpus)
    for blocks in state.memory.entries.get(uid, {}).values():
        for block in blocks:
            mask |= block.mask
    for resources in state.devices.entries.get(uid, {}).values():
        for resource, ids in resources.items():
            known = state.devices.devices.get(resource, {})
            for device_id in ids:
                device = known.get(device_id)
                mask |= (device.numa or 0) if device is not None else 0
    return mask
