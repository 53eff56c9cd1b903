"""Rightsize: shapes of pods whose request just misses a boundary, and what a smaller request would gain.

Rules of this file
- A boundary is a part of a NUMA node's CPUs or memory, a last-level cache, or whole cores. A shape "just misses" it if
  a request that is smaller by at most `MAX_REDUCTION` reaches it.
- The gain is counted by replay: aligned copies on an empty node of each kind that runs such pods, before and after.
  A change without gain is no suggestion.
"""

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from operator import attrgetter
from typing import Final, NamedTuple

from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerKind
from extender.kubelet.resolve import is_aligned, resolve
from extender.kubelet.state import MemoryState
from extender.questions.asked import Asked
from extender.questions.capacity import Capacity
from extender.questions.finding import MAX_SHARE, OUT_OF_TIME, blind_spots, placed_by_kubelet, progress, subjects_of
from extender.questions.node_context import Subject, empty_node
from extender.questions.node_pods import NodePod, pods_of
from extender.questions.reading import question_of
from extender.questions.resize_check import resized
from extender.questions.snapshot import Snapshot
from extender.questions.words import plural
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.scheduling.node_totals import format_milli
from extender.wire.advice_replies import RightsizeReply, RightsizeSuggestion
from extender.wire.questions import RightsizeRequest
from extender.wire.replies import ReplyBody
from extender.wire.workloads import PodWorkload

MAX_REDUCTION: Final = 0.2
MAX_SHAPES: Final = 200
MAX_KINDS: Final = 8
"""How many kinds of nodes are tried for one shape: those with the most pods of it."""
MAX_COPIES: Final = 1000
MAX_EXAMPLES: Final = 3


class Rightsizing(NamedTuple):
    """A suggestion. `gain`: the share of copies that it wins, times the pods of the shape."""

    gain: float
    suggestion: RightsizeSuggestion


class Rightsize:
    """The search over all shapes of the nodes *subjects*, which have the pods of their reports."""

    def __init__(self, subjects: Sequence[Subject], judge: Judge) -> None:
        self._judge: Final = judge
        self._empty: dict[object, Subject] = {}
        self._nodes: dict[str, Subject] = {s.name: s for s in subjects if s.kubelet is not None and s.states}
        self._shapes: dict[object, list[tuple[NodePod, str]]] = defaultdict(list)
        for subject in self._nodes.values():
            assert subject.kubelet is not None
            for pod in pods_of(subject):
                if is_aligned(resolve(pod.workload.pod, subject.kubelet.rules)):
                    self._shapes[pod.workload.pod.shape].append((pod, subject.name))
        self.shapes: Final = min(len(self._shapes), MAX_SHAPES)

    def run(self) -> Iterator[Sequence[Rightsizing]]:
        """The suggestions of each shape, the shapes with most pods first."""
        for found in sorted(self._shapes.values(), key=len, reverse=True)[:MAX_SHAPES]:
            yield list(self._of_shape([pod for pod, _ in found], Counter(node for _, node in found)))

    def _of_shape(self, pods: Sequence[NodePod], on_nodes: Counter[str]) -> Iterator[Rightsizing]:
        workload = pods[0].workload
        kinds: Counter[object] = Counter()
        for name, count in on_nodes.items():
            kinds[self._kind(self._nodes[name])] += count
        kept = [kind for kind, _ in kinds.most_common(MAX_KINDS)]
        nodes = {kind: sum(self._kind(self._nodes[name]) == kind for name in on_nodes) for kind in kept}
        best: dict[tuple[str, str], Rightsizing] = {}
        copies_before = self._copies(workload, nodes)
        for container, resource, after, boundary in sorted(set(self._candidates(workload.pod, kept))):
            changed = replace(workload, pod=resized(workload.pod, container, {resource: after}))
            before = next(c.requests_milli[resource] for c in workload.pod.containers if c.name == container)
            copies_after = self._copies(changed, nodes)
            gain = len(pods) * (copies_after - copies_before) / max(1, copies_before)
            known = best.get((container, resource))
            if gain <= (0 if known is None else known.gain):
                continue
            suggestion = RightsizeSuggestion(
                pods=len(pods),
                examples=[pod.name for pod in pods[:MAX_EXAMPLES]],
                nodes=len(on_nodes),
                container=container,
                resource=resource,
                before=format_milli(resource, before),
                after=format_milli(resource, after),
                boundary=boundary,
                copies_before=copies_before,
                copies_after=copies_after,
                freed=format_milli(resource, (before - after) * len(pods)),
            )
            best[container, resource] = Rightsizing(gain, suggestion)
        yield from best.values()

    def _candidates(self, pod: Pod, kinds: Sequence[object]) -> Iterator[tuple[str, str, int, str]]:
        """Container, resource, smaller request in thousandths, and the boundary that it reaches."""
        for container in pod.containers:
            if container.kind is ContainerKind.INIT:
                continue
            cpus, rest = divmod(container.requests_milli.get("cpu", 0), 1000)
            memory = container.requests_milli.get("memory", 0) // 1000
            for kind in kinds:
                empty = self._empty[kind]
                assert empty.kubelet is not None
                found = list(_cpu_boundaries(empty.kubelet, cpus)) if empty.kubelet.cpu_static and not rest else []
                for after, boundary in found:
                    if after and cpus > after >= cpus * (1 - MAX_REDUCTION):
                        yield container.name, "cpu", after * 1000, boundary
                for after, boundary in _memory_boundaries(empty.states[0].memory, memory):
                    if after and memory > after >= memory * (1 - MAX_REDUCTION):
                        yield container.name, "memory", after * 1000, boundary

    def _kind(self, subject: Subject) -> object:
        """Equal for nodes that are alike when empty; the empty node is kept."""
        kubelet = subject.kubelet
        assert kubelet is not None
        devices = subject.states[0].devices.devices
        empty = empty_node(subject.name, kubelet, devices, subject.around, len(self._empty) + 2)
        kind = kubelet.identity, empty.states[0].devices.key
        self._empty.setdefault(kind, empty)
        return kind

    def _copies(self, workload: PodWorkload, nodes: Mapping[object, int]) -> int:
        """Aligned copies on so many empty nodes of each kind."""
        capacity = Capacity([workload], self._judge, MAX_COPIES)
        return sum(count * capacity.aligned(self._empty[kind]) for kind, count in nodes.items())


def _memory_boundaries(state: MemoryState, memory: int) -> Iterator[tuple[int, str]]:
    """Smaller amounts in whole MiB at which one more fits on a NUMA node."""
    for node in state.nodes:
        amounts = dict(node.amounts).get("memory")
        if memory and amounts is not None:
            count = amounts.allocatable // memory + 1
            yield amounts.allocatable // count >> 20 << 20, f"{_part(count)} the memory of NUMA node {node.id}"


def _cpu_boundaries(kubelet: Kubelet, cpus: int) -> Iterator[tuple[int, str]]:
    """Smaller numbers of CPUs at which something new fits."""
    machine = kubelet.machine
    if not cpus:
        return
    for numa, bits in machine.numa_cpus.items():
        free = (bits & ~kubelet.reserved_cpus).bit_count()
        count = free // cpus + 1
        yield free // count, f"{_part(count)} the {free} CPUs of NUMA node {numa} that are not reserved"
    threads = machine.cpus_per_core
    if threads > 1 and cpus % threads:
        yield cpus - cpus % threads, f"whole cores of {threads} CPUs"
    for size in sorted({bits.bit_count() for bits in machine.uncore_cpus.values()}):
        if cpus > size:
            yield cpus // size * size, f"whole last-level caches of {size} CPUs"


def _part(count: int) -> str:
    return {1: "all of", 2: "half of"}.get(count, f"1/{count} of")


def rightsize_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `RightsizeReply`."""
    question = question_of(asked, RightsizeRequest)
    subjects, left_out = placed_by_kubelet(subjects_of(snapshot, question.nodes))
    notes = [*left_out, *blind_spots(subjects)]
    search = Rightsize(subjects, judge)
    found: list[Rightsizing] = []
    done = 0
    for done, suggestions in enumerate(search.run(), start=1):
        found += suggestions
        yield from progress(done, search.shapes)
        if asked.spent() > MAX_SHARE:
            break
    if done < search.shapes:
        notes.append(f"the time was over after {done} of {plural(search.shapes, 'shape')} of pods; {OUT_OF_TIME}")
    if search.shapes == MAX_SHAPES:
        notes.append(f"only the {MAX_SHAPES} shapes with the most pods were examined")
    found.sort(key=attrgetter("gain"), reverse=True)
    yield RightsizeReply(
        suggestions=[each.suggestion for each in found[: question.limit]],
        shapes=search.shapes,
        found=len(found),
        notes=notes,
    )
