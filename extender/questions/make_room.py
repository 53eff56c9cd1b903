"""Make-room: the cheapest evictions that open an aligned place for a pod, node by node.

Rules of this file
- If a node aligns the pod now, no pod is evicted.
- A plan is proved by replay: without the evicted pods the node aligns the pod in every state that it can be in, and
  every evicted pod has a place on another node when its turn comes (`evictions`).
- Nodes are searched in the order of the fewest pods that could suffice by CPUs. Once there are some plans, a node that
  needs more pods than the best of them is skipped: alternatives are not complete.
"""

from collections import Counter
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from itertools import accumulate
from operator import or_
from typing import Final

from extender.kubelet.admission import is_indifferent
from extender.kubelet.verdict import Admitted
from extender.questions.dra import why_no_devices
from extender.questions.evictions import Eviction, Evictions
from extender.questions.node_context import Subject
from extender.questions.node_pods import place_of, pods_of, without
from extender.questions.scheduler_checks import check_node
from extender.replay.alignment import Alignment, PodAlignment
from extender.scheduling.judgement import SHAPE_UID, PodShape
from extender.scheduling.node_totals import pod_requests
from extender.scheduling.victims import RunningPod
from extender.wire.workloads import PodWorkload

MAX_ALTERNATIVES: Final = 3
MAX_TRIALS: Final = 20_000
"""How many sets of pods one question tries at most; each takes about 0.2 ms."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedPlace:
    """A node that aligns the pod once the pods of `eviction` have left; None: it aligns the pod now."""

    subject: Subject
    admitted: Admitted
    alignment: PodAlignment
    eviction: Eviction | None = None


class MakeRoom:
    """The search for one pod."""

    def __init__(self, workload: PodWorkload, evictions: Evictions, targets: Container[str] | None = None) -> None:
        """*targets*: the nodes that may get the pod; None: all of them."""
        self._workload, self._evictions = workload, evictions
        self._shape: Final = PodShape(replace(workload.pod, uid=SHAPE_UID))
        self._wanted: Final = pod_requests(workload.pod, workload.rules.overhead_milli)
        self.subjects: Final = [s for s in evictions.subjects if targets is None or s.name in targets]
        self.steps: Final = 2 * len(self.subjects)
        """Values of `run`."""

    def now(self) -> OpenedPlace | None:
        """The first node that aligns the pod without any eviction."""
        return next(filter(None, map(self.place, self.subjects)), None)

    def run(self, max_evictions: int) -> Iterator[OpenedPlace | None]:
        """Search the nodes; None for a node without a plan. Plans that move pods of other nodes as well come last."""
        bounds: Mapping[str, tuple[int, list[RunningPod]]] = {s.name: self._bound(s) for s in self.subjects}
        targets = sorted(self.subjects, key=lambda s: bounds[s.name][0])
        sizes: list[int] = []
        for chains in (False, True):
            if chains and sizes and sizes[0] == 1:
                return  # a plan with pods of other nodes has at least two
            for subject in targets:
                bound, candidates = bounds[subject.name]
                most = max_evictions if len(sizes) < MAX_ALTERNATIVES else sizes[0]
                if chains and sizes:
                    most = min(max_evictions, sizes[0])
                found = None
                if bound <= min(most, len(candidates)):
                    found = self._search(subject, candidates, most, chains=chains)
                if found is not None and found.eviction is not None:
                    sizes = sorted([*sizes, found.eviction.cost.size])
                yield found

    def place(self, subject: Subject) -> OpenedPlace | None:
        """The pod's place on a node as it is now; None: it may not be aligned there, or the node is not offered."""
        place = place_of(subject, self._shape, self._workload)
        if place is None or place.alignment is None or place.alignment.alignment is not Alignment.ALIGNED:
            return None
        if self._evictions.is_kept_away(subject, self._workload):
            return None
        return OpenedPlace(subject=subject, admitted=place.admitted, alignment=place.alignment)

    def blocked(self) -> Counter[str]:
        """What keeps the nodes from opening a place, for an answer without a plan: how many nodes, by reason."""
        counts: Counter[str] = Counter()
        for subject in self.subjects:
            movable = {running.uid for running in self._evictions.candidates(subject)}
            pods = pods_of(subject)
            empty = without(subject, pods, 1)
            check = check_node(subject.name, self._wanted, self._workload.rules, empty.around).first_failure
            if check is not None:
                counts[f"kube-scheduler would not choose the node even if it were empty: {check.check}"] += 1
            elif self._evictions.is_kept_away(subject, self._workload):
                counts["a pod there keeps the pod away by required anti-affinity"] += 1
            elif why := why_no_devices(self._shape.pod, empty):
                counts[why] += 1
            elif self.place(empty) is None:
                counts["the pod would not be aligned there even if the node were empty"] += 1
            elif self.place(without(subject, [pod for pod in pods if pod.uid in movable], 1)) is None:
                counts["pods that may not be evicted are in the way"] += 1
            else:
                counts["too many pods would have to leave, or one of them would find no place elsewhere"] += 1
        return counts

    def _search(self, subject: Subject, candidates: list[RunningPod], most: int, *, chains: bool) -> OpenedPlace | None:
        eviction = self._evictions.cheapest(
            subject, candidates, lambda left: self.place(left) is not None, most=most, chains=chains
        )
        if eviction is None:
            return None
        place = self.place(without(subject, [m.pod for m in eviction.moves if m.source == subject.name], 1))
        return None if place is None else replace(place, eviction=eviction)

    def _bound(self, subject: Subject) -> tuple[int, list[RunningPod]]:
        """How many pods must leave at least, by the CPUs of the largest container, and which may.

        A number above that of the node's pods: no eviction helps, for example because the kubelet places no part of the
        pod.
        """
        candidates = self._evictions.candidates(subject)
        kubelet, state = subject.kubelet, subject.states[0]
        assert kubelet is not None
        request = self._shape.request(kubelet.rules)
        if is_indifferent(kubelet, request):
            return len(candidates) + 1, candidates
        if not kubelet.cpu_static:
            return 1, candidates
        need = max((c.cpus for c in request.containers), default=0)
        fewest = len(candidates) + 1
        for numa in kubelet.machine.numa_cpus.values():
            free = (state.cpu.default & ~kubelet.reserved_cpus & numa).bit_count()
            held = (reduce(or_, state.cpu.entries.get(pod.uid, {}).values(), 0) & numa for pod in candidates)
            largest_first = sorted(map(int.bit_count, held), reverse=True)
            enough = (n for n, cpus in enumerate(accumulate(largest_first, initial=free)) if cpus >= need)
            fewest = min(fewest, max(1, next(enough, fewest)))
        return fewest, candidates
