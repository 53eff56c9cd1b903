"""Tune: the pods of the cluster, or a list of pods, replayed under other kubelet configurations.

Rules of this file
- Every node keeps its machine, its devices and the size of its reservation. A change applies to every node; where a
  kubelet does not start with it, none of the node's pods is admitted.
- Pods arrive in random orders, drawn from a seed, and of the kubelet's random picks of devices one is drawn as well.
  Without a list every node gets its own pods; the pods of a list are dealt to the nodes in turn. No scheduler chooses
  here. A pod is refused by the managers or by the node's totals.
- The numbers of a listed configuration are from other orders than those of the search, which favour what it chose.
- The search is seeded. A third of the changes are drawn at random, a third change one field of the best so far, and
  the last third leave out one field of a change on the front, so that no change is larger than needed.
- The work is bounded: of a large cluster, only as many nodes are replayed as `MAX_REPLAYS` allows, drawn by the seed.
- A configuration is on the Pareto front if no other has at least as many pods admitted, as many aligned and as few
  CPUs stranded, and is better in one of these. Of equal ones the one with the fewest changes is on it.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, product, zip_longest
from math import ceil, floor, sqrt
from operator import itemgetter
from statistics import fmean, variance
from typing import Final

from extender.questions.node_pods import pods_of
from extender.questions.random_orders import Draw
from extender.questions.restart_check import allocatable_after
from extender.questions.subjects import Subject
from extender.replay.admission import admit, start_pod
from extender.replay.alignment import Alignment, alignment_of_outcome
from extender.replay.config import KubeletConfig, KubeletConfigError, ReservedMemory
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod
from extender.replay.resolve import resolve
from extender.replay.sets import iter_bits
from extender.replay.startup import initial_state, start
from extender.scheduling.totals import add, exceeds, pod_requests
from extender.wire.workloads import PodWorkload

FIRST_NUMA, EVERY_NUMA = "first NUMA node", "every NUMA node"
FIELDS: Final[Mapping[str, tuple[object, ...]]] = {
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "cpuManagerPolicyOptions": ("", "full-pcpus-only", "distribute-cpus-across-numa"),
    "topologyManagerPolicyOptions": ("", "prefer-closest-numa-nodes"),
    "memoryManagerPolicy": ("None", "Static"),
    "reservedSystemCPUs": (FIRST_NUMA, EVERY_NUMA),
}
"""What is varied; options by name, empty: none. `reservedSystemCPUs`: where as many reserved CPUs as now are."""
MAX_FRONT: Final = 6
"""How many configurations of the front are listed, and replayed in more orders of arrival."""
MIN_ORDERS, MAX_ORDERS = 3, 20
"""Orders of arrival for each of them and for the present one; one for the others."""
MAX_SAMPLES: Final = 8
"""How many of equal nodes get an order of their own. The others count as these do."""
_T_VALUES: Final = (12.8, 4.31, 3.19, 2.78, 2.58, 2.45, 2.37, 2.31, 2.27, 2.23, 2.21, 2.18, 2.17, 2.15, 2.14)
"""Student's t for 19 of 20, by degrees of freedom from 1 on. With more it is below 2.12."""
MAX_REPLAYS: Final = 260_000
"""Pods that are replayed for one question: 4,900 pods under 32 configurations."""
SEARCH_SHARE, ORDERS_SHARE = 0.4, 0.6
"""The share of the time after which no further configuration, and no further order, is tried."""
MAX_CHOICES: Final = 4
"""How many random choices of devices are followed for one pod."""
Change = tuple[tuple[str, str], ...]
"""Field and value; empty: nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The pods by alignment, and the free CPUs of NUMA nodes with too few of them for any pod that the node admits.

    All CPUs of a node that admits none of its pods are stranded.

    `by_group`: for each group of equal nodes, the pods admitted on each of its samples.
    """

    alignments: Mapping[Alignment, int]
    by_group: Sequence[Sequence[int]]
    refused: int
    stranded_cpus: int
    failing_nodes: int

    @property
    def admitted(self) -> int:
        """Pods that were admitted."""
        return sum(self.alignments.values())

    @property
    def aligned(self) -> int:
        """Of these, on one NUMA node."""
        return self.alignments.get(Alignment.ALIGNED, 0)


@dataclass(slots=True)
class Tuned:
    """One configuration with its trials, one for each order."""

    change: Change
    trials: list[Trial] = field(default_factory=list)
    is_best: bool = False

    @property
    def rank(self) -> tuple[float, float, float]:
        """Means of what counts; larger is better."""
        count = len(self.trials)
        return (
            sum(t.admitted for t in self.trials) / count,
            sum(t.aligned for t in self.trials) / count,
            -sum(t.stranded_cpus for t in self.trials) / count,
        )


@dataclass(frozen=True, slots=True)
class _EqualNodes:
    """Equal nodes with equal pods: one of them, its pods with their requests, and how many nodes they are."""

    subject: Subject
    pods: Sequence[tuple[Pod, Mapping[str, int]]]
    nodes: int

    def samples(self) -> Iterator[int]:
        """For how many nodes each sample stands. One sample is enough where all pods have one shape."""
        count = min(self.nodes, MAX_SAMPLES) if len({pod.shape for pod, _ in self.pods}) > 1 else 1
        return (self.nodes // count + (number < self.nodes % count) for number in range(count))


class Tune:
    """The search. *pods*: a list to replay; None: every node's own pods (then *subjects* have their facts).

    `nodes_left_out`: nodes of *subjects* that are not replayed, because there are too many.
    """

    def __init__(
        self,
        subjects: Sequence[Subject],
        pods: Sequence[PodWorkload] | None,
        seed: int,
        limit: int,
        spent: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """*spent*: the share of the time that is over. The search ends at `SEARCH_SHARE` of it."""
        known = [s for s in subjects if s.kubelet is not None and s.states]
        self._draw, self._seed, self._limit, self._spent = Draw(seed), seed, limit, spent
        self.is_late = False
        drawn = self._drawn(known, pods, MAX_REPLAYS // (limit + MIN_ORDERS * (MAX_FRONT + 1)))
        self.subjects: Final = [subject for subject, _ in drawn]
        self.nodes_left_out: Final = len(known) - len(drawn)
        self.steps: Final = limit + MIN_ORDERS * (MAX_FRONT + 1)
        self._groups: Final = _grouped(drawn)
        self.pods: Final = sum(len(group.pods) * group.nodes for group in self._groups)
        self._tried: dict[Change, Tuned] = {}

    def run(self) -> Iterator[Sequence[Tuned]]:
        """All configurations so far, after each one more; the present one first."""
        self._try(())
        yield list(self._tried.values())
        while len(self._tried) < self._limit and not self._late(SEARCH_SHARE):
            third = 3 * len(self._tried) // self._limit
            change = (self._smaller() if third == 2 else None) or (self._next(improve=True) if third else None)
            change = change or self._next(improve=False)
            if change is None:
                break
            self._try(change)
            yield list(self._tried.values())
        found = list(self._tried.values())
        front = sorted((each for each in found if _is_on_front(each, found)), key=lambda e: e.rank, reverse=True)
        listed = [found[0], *(each for each in front[:MAX_FRONT] if each.change)]
        orders = min(MAX_ORDERS, max(MIN_ORDERS, MAX_REPLAYS // 8 // max(1, self.pods * len(listed))))
        for each in listed:
            each.trials.clear()
        for order, each in product(range(1, orders + 1), listed):
            if order <= MIN_ORDERS or not self._late(ORDERS_SHARE):
                each.trials.append(self._trial(each.change, order))
                yield found
        for each in listed:
            each.is_best = _is_on_front(each, listed)
        yield found

    def config(self, subject: Subject, change: Change) -> KubeletConfig:
        """The node's configuration with a change."""
        assert subject.kubelet is not None
        config = subject.kubelet.config
        for name, value in change:
            config = _with(config, subject.kubelet, name, value)
        return config

    def _late(self, share: float) -> bool:
        self.is_late = self.is_late or self._spent() > share
        return self._spent() > share

    def spread(self, tuned: Tuned) -> tuple[int, int]:
        """The range in which the number of admitted pods is in 19 of 20 orders of arrival: a prediction interval.

        It has the variance of one more order, and that of the mean; the degrees of freedom are those of Satterthwaite.
        """
        mean = fmean(trial.admitted for trial in tuned.trials)
        squares = doubts = 0.0
        for number, group in enumerate(self._groups):
            counts = [count for trial in tuned.trials for count in trial.by_group[number]]
            if len(set(counts)) > 1:
                square = variance(counts) * (group.nodes + group.nodes**2 / len(counts))
                squares, doubts = squares + square, doubts + square**2 / (len(counts) - 1)
        freedom = max(1, int(squares**2 / doubts)) if doubts else 1
        margin = (_T_VALUES[freedom - 1] if freedom <= len(_T_VALUES) else 2.12) * sqrt(squares)
        return max(0, floor(mean - margin)), min(self.pods, ceil(mean + margin))

    def _drawn(
        self, subjects: Sequence[Subject], pods: Sequence[PodWorkload] | None, most: int
    ) -> list[tuple[Subject, Sequence[PodWorkload]]]:
        """Nodes with their pods, as many as have at most *most* pods, and at least one."""
        numbers = list(range(len(subjects)))
        drawn: dict[int, Sequence[PodWorkload]] = {}
        left = most
        for number in Draw(self._seed).shuffled(numbers):
            own = [pod.workload for pod in pods_of(subjects[number])] if pods is None else pods[number :: len(subjects)]
            if drawn and len(own) > left:
                break
            drawn[number], left = own, left - max(1, len(own))
        return [(subjects[number], drawn[number]) for number in sorted(drawn)]

    def _smaller(self) -> Change | None:
        """A change on the front without one of its fields, if it was not tried; None: there is none left."""
        found = list(self._tried.values())
        front = (each.change for each in found if _is_on_front(each, found))
        shorter = (change[:i] + change[i + 1 :] for change in front for i in range(len(change)))
        return next((change for change in shorter if change not in self._tried), None)

    def _next(self, *, improve: bool) -> Change | None:
        """A change that was not tried: at random, or one field away from the best; None: there is none left."""
        for _ in range(200):
            base = max(self._tried.values(), key=lambda t: t.rank).change if improve else ()
            fields = dict(base)
            names = [name for name in sorted(FIELDS) if self._draw.below(2)]
            for name in [self._draw.one_of(sorted(FIELDS))] if improve else names:
                fields[name] = str(self._draw.one_of(FIELDS[name]))
            if fields.get("topologyManagerPolicy") == "none":
                fields.pop("topologyManagerScope", None)
                fields.pop("topologyManagerPolicyOptions", None)
            change = tuple(sorted(fields.items()))
            if change and change not in self._tried:
                return change
        return None

    def _try(self, change: Change) -> None:
        self._tried[change] = Tuned(change, [self._trial(change, 0)])

    def _trial(self, change: Change, order: int) -> Trial:
        alignments: Counter[Alignment] = Counter()
        refused = stranded = failing = 0
        by_group: list[list[int]] = []
        draw = Draw(self._seed * 1000 + order)
        picks = Draw(~(self._seed * 1000 + order))  # apart, so that every configuration gets the same orders
        for group in self._groups:
            assert group.subject.kubelet is not None
            by_group.append([])
            try:
                kubelet = start(group.subject.kubelet.machine, self.config(group.subject, change))
            except KubeletConfigError:
                refused, failing = refused + group.nodes * len(group.pods), failing + group.nodes
                now = group.subject.kubelet
                stranded += group.nodes * (now.machine.all_cpus & ~now.reserved_cpus).bit_count()
                continue
            for nodes in group.samples():
                found, waste = _replay(kubelet, group.subject, draw.shuffled(group.pods), picks)
                by_group[-1].append(found.total())
                alignments.update({alignment: count * nodes for alignment, count in found.items()})
                refused += nodes * (len(group.pods) - found.total())
                stranded += nodes * waste
        return Trial(
            alignments=alignments, by_group=by_group, refused=refused, stranded_cpus=stranded, failing_nodes=failing
        )


def _grouped(drawn: Sequence[tuple[Subject, Sequence[PodWorkload]]]) -> list[_EqualNodes]:
    groups: dict[object, _EqualNodes] = {}
    for subject, pods in drawn:
        assert subject.kubelet is not None
        own = sorted(
            ((repr(each.pod.shape), each.pod, pod_requests(each.pod, each.rules.overhead_milli)) for each in pods),
            key=itemgetter(0),
        )
        numbered = [(replace(pod, uid=f"what-if-{i}"), requests) for i, (_, pod, requests) in enumerate(own)]
        empty = initial_state(subject.kubelet, subject.states[0].devices.devices)
        key = subject.kubelet.identity, empty.devices.key, tuple(shape for shape, _, _ in own)
        known = groups.get(key)
        groups[key] = _EqualNodes(subject, numbered, 1) if known is None else replace(known, nodes=known.nodes + 1)
    return list(groups.values())


def _replay(
    kubelet: Kubelet, subject: Subject, pods: Sequence[tuple[Pod, Mapping[str, int]]], picks: Draw
) -> tuple[Counter[Alignment], int]:
    """Alignments of the admitted pods, and stranded CPUs, of one node."""
    before, devices = subject.kubelet, subject.states[0].devices
    assert before is not None
    state = initial_state(kubelet, devices.devices)
    allocatable = allocatable_after(subject, before, kubelet)
    used: Mapping[str, int] = {}
    found: Counter[Alignment] = Counter()
    sizes = set()
    for pod, wanted in pods:
        request = resolve(pod, kubelet.rules)
        outcome = admit(kubelet, state, request, max_replays=MAX_CHOICES)
        if outcome.alternatives:
            outcome = picks.one_of((outcome, *outcome.alternatives))
        alignment = alignment_of_outcome(kubelet, outcome)
        if alignment is None or exceeds(wanted, allocatable, [used]):
            continue
        found[alignment.alignment] += 1
        sizes.add(max((c.cpus for c in request.containers), default=0))
        used = add(used, wanted)
        state = start_pod(outcome.state, request)
    free = state.cpu.default & ~kubelet.reserved_cpus if kubelet.cpu_static else 0
    smallest = min(sizes - {0}, default=0 if sizes or not pods else kubelet.machine.num_cpus + 1)
    rests = [(free & bits).bit_count() for bits in kubelet.machine.numa_cpus.values()]
    return found, sum(rest for rest in rests if rest < smallest)


def _with(config: KubeletConfig, kubelet: Kubelet, name: str, value: str) -> KubeletConfig:
    if name == "topologyManagerPolicy":
        return replace(config, topology_manager_policy=value)
    if name == "topologyManagerScope":
        return replace(config, topology_manager_scope=value)
    options = {value: "true"} if value else {}
    if name == "cpuManagerPolicyOptions":
        return replace(config, cpu_manager_policy_options=options) if kubelet.cpu_static else config
    if name == "topologyManagerPolicyOptions":
        return replace(config, topology_manager_policy_options=options)
    if name == "reservedSystemCPUs":
        cpus = reserved_cpus(kubelet, value)
        if not kubelet.cpu_static or cpus == kubelet.reserved_cpus:
            return config
        return replace(config, reserved_system_cpus=cpus, reservation_cpu_milli=cpus.bit_count() * 1000)
    if value == config.memory_manager_policy:
        return config
    return replace(config, memory_manager_policy=value, reserved_memory=reserved_memory(config, kubelet, value))


def reserved_cpus(kubelet: Kubelet, where: str) -> int:
    """As many CPUs as are reserved now, as bits: core by core, from the first NUMA nodes or from all in turn."""
    machine, left = kubelet.machine, kubelet.reserved_cpus.bit_count()
    by_numa = [
        sorted((core for core in machine.core_cpus.values() if core & bits), key=lambda core: core & -core)
        for bits in machine.numa_cpus.values()
    ]
    if where == FIRST_NUMA:
        cores = [core for each in by_numa for core in each]
    else:
        cores = [core for turn in zip_longest(*by_numa, fillvalue=0) for core in turn]
    bits = 0
    for cpu in chain.from_iterable(map(iter_bits, cores)):
        if left <= 0:
            break
        bits, left = bits | 1 << cpu, left - 1
    return bits


def reserved_memory(config: KubeletConfig, kubelet: Kubelet, policy: str) -> tuple[ReservedMemory, ...]:
    """`reservedMemory` for a policy: its own, or the node's reservation on the first NUMA nodes with memory."""
    if policy != "Static" or config.reserved_memory:
        return config.reserved_memory if policy == "Static" else ()
    left, found = config.reservation_bytes.get("memory", 0), []
    for node in kubelet.machine.numa_nodes:
        amount = min(left, node.memory_bytes // 2)
        if amount:
            found.append(ReservedMemory(numa=node.id, limits_bytes={"memory": amount}))
        left -= amount
    return tuple(found)


def _is_on_front(one: Tuned, others: Sequence[Tuned]) -> bool:
    return not any(_is_better(other, one) for other in others)


def _is_better(one: Tuned, other: Tuned) -> bool:
    """Whether *one* surpasses the other, or is as good with fewer changes."""
    if one.rank == other.rank:
        return (len(one.change), one.change) < (len(other.change), other.change)
    return all(a >= b for a, b in zip(one.rank, other.rank, strict=True))
