"""Tune: the pods of the cluster, or a list of pods, replayed under other kubelet configurations.

Rules of this file
- Every node keeps its machine, its devices and its reservation. A change applies to every node; where a kubelet does
  not start with it, none of the node's pods is admitted.
- Pods arrive in random orders, drawn from a seed. Without a list every node gets its own pods; the pods of a list are
  dealt to the nodes in turn. No scheduler chooses here.
- The search is seeded: half of the changes are drawn at random, the others change one field of the best so far.
- A configuration is on the Pareto front if no other has at least as many pods admitted, as many aligned and as few
  CPUs stranded, and is better in one of these. Of equal ones the one with the fewest changes is on it.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from extender.questions.node_pods import pods_of
from extender.questions.random_orders import Draw
from extender.questions.subjects import Subject
from extender.replay.admission import admit, start_pod
from extender.replay.alignment import Alignment, alignment_of_outcomes
from extender.replay.config import KubeletConfig, KubeletConfigError, ReservedMemory
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod, resolve
from extender.replay.startup import initial_state, start
from extender.replay.verdict import Admitted

FIELDS: Final[Mapping[str, tuple[object, ...]]] = {
    "topologyManagerPolicy": ("none", "best-effort", "restricted", "single-numa-node"),
    "topologyManagerScope": ("container", "pod"),
    "cpuManagerPolicyOptions": ("", "full-pcpus-only", "distribute-cpus-across-numa"),
    "topologyManagerPolicyOptions": ("", "prefer-closest-numa-nodes"),
    "memoryManagerPolicy": ("None", "Static"),
}
"""What is varied; options by name, empty: none."""
ORDERS: Final = 3
"""Orders of arrival for each configuration of the front; one for the others."""
MAX_REPLAYS: Final = 4
Change = tuple[tuple[str, str], ...]
"""Field and value; empty: nothing is changed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """The pods by alignment, and the CPUs that are free where no pod of the list fits any more."""

    alignments: Mapping[Alignment, int]
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


class Tune:
    """The search. *pods*: a list to replay; None: every node's own pods (then *subjects* have their facts)."""

    def __init__(self, subjects: Sequence[Subject], pods: Sequence[Pod] | None, seed: int, limit: int) -> None:
        self.subjects: Final = [s for s in subjects if s.kubelet is not None and s.states]
        self.steps: Final = limit
        self._draw, self._seed = Draw(seed), seed
        self._groups: Final = self._grouped(pods)
        self._tried: dict[Change, Tuned] = {}

    def run(self) -> Iterator[Sequence[Tuned]]:
        """All configurations so far, after each one more; the present one first."""
        self._try(())
        yield list(self._tried.values())
        while len(self._tried) < self.steps:
            change = self._next(len(self._tried) * 2 >= self.steps)
            if change is None:
                break
            self._try(change)
            yield list(self._tried.values())
        found = list(self._tried.values())
        for each in found:
            each.is_best = not any(_is_better(other, each) for other in found)
        for each in found:
            if each.is_best or not each.change:
                each.trials += [self._trial(each.change, order) for order in range(1, ORDERS)]
        yield found

    def config(self, subject: Subject, change: Change) -> KubeletConfig:
        """The node's configuration with a change."""
        assert subject.kubelet is not None
        config = subject.kubelet.config
        for name, value in change:
            config = _with(config, subject.kubelet, name, value)
        return config

    def _grouped(self, pods: Sequence[Pod] | None) -> list[tuple[Subject, list[Pod], int]]:
        """Equal nodes with equal pods, and how many they are."""
        groups: dict[object, tuple[Subject, list[Pod], int]] = {}
        for number, subject in enumerate(self.subjects):
            assert subject.kubelet is not None
            own = (
                [p.workload.pod for p in pods_of(subject)] if pods is None else list(pods[number :: len(self.subjects)])
            )
            own = [replace(p, uid=f"what-if-{i}") for i, p in enumerate(sorted(own, key=lambda p: repr(p.shape)))]
            empty = initial_state(subject.kubelet, subject.states[0].devices.devices)
            key = subject.kubelet.identity, empty.devices.key, tuple(repr(p.shape) for p in own)
            first = groups.get(key, (subject, own, 0))
            groups[key] = (first[0], first[1], first[2] + 1)
        return list(groups.values())

    def _next(self, improve: bool) -> Change | None:  # noqa: FBT001 - one of two ways
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
        draw = Draw(self._seed * 1000 + order)
        for subject, pods, nodes in self._groups:
            assert subject.kubelet is not None
            try:
                kubelet = start(subject.kubelet.machine, self.config(subject, change))
            except KubeletConfigError:
                refused, failing = refused + nodes * len(pods), failing + nodes
                continue
            found, left, waste = _replay(kubelet, subject, draw.shuffled(pods))
            alignments.update({alignment: count * nodes for alignment, count in found.items()})
            refused, stranded = refused + nodes * left, stranded + nodes * waste
        return Trial(alignments=alignments, refused=refused, stranded_cpus=stranded, failing_nodes=failing)


def _replay(kubelet: Kubelet, subject: Subject, pods: Sequence[Pod]) -> tuple[Counter[Alignment], int, int]:
    """Alignments, refusals, and stranded CPUs of one node."""
    state = initial_state(kubelet, subject.states[0].devices.devices)
    found: Counter[Alignment] = Counter()
    refused, smallest = 0, 0
    for pod in pods:
        request = resolve(pod, kubelet.rules)
        cpus = max((c.cpus for c in request.containers), default=0)
        smallest = min(smallest or cpus, cpus or smallest)
        outcome = admit(kubelet, state, request, max_replays=MAX_REPLAYS)
        alignment = alignment_of_outcomes(kubelet, (outcome, *outcome.alternatives))
        if not isinstance(outcome.verdict, Admitted) or alignment is None:
            refused += 1
            continue
        found[alignment.alignment] += 1
        state = start_pod(outcome.state, request)
    free = state.cpu.default & ~kubelet.reserved_cpus if kubelet.cpu_static else 0
    rests = [(free & bits).bit_count() for bits in kubelet.machine.numa_cpus.values()]
    return found, refused, sum(rest for rest in rests if rest < smallest)


def _with(config: KubeletConfig, kubelet: Kubelet, name: str, value: str) -> KubeletConfig:
    if name == "topologyManagerPolicy":
        return replace(config, topology_manager_policy=value)
    if name == "topologyManagerScope":
        return replace(config, topology_manager_scope=value)
    options = {value: "true"} if value else {}
    if name == "cpuManagerPolicyOptions":
        return replace(config, cpu_manager_policy_options=options) if config.cpu_manager_policy == "static" else config
    if name == "topologyManagerPolicyOptions":
        return replace(config, topology_manager_policy_options=options)
    if value == config.memory_manager_policy:
        return config
    return replace(config, memory_manager_policy=value, reserved_memory=reserved_memory(config, kubelet, value))


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


def _is_better(one: Tuned, other: Tuned) -> bool:
    """Whether *one* surpasses the other, or is as good with fewer changes."""
    if one.rank == other.rank:
        return (len(one.change), one.change) < (len(other.change), other.change)
    return all(a >= b for a, b in zip(one.rank, other.rank, strict=True))
