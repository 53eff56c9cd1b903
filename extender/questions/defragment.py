"""Defragment: what moves would gain, counted in aligned copies of one pod.

Rules of this file
- A step is the cheapest eviction on one node after which the whole cluster has more aligned copies: a move that takes
  the room of a copy elsewhere gains nothing. Then other places are tried for the moved pod.
- Steps with the highest gain for each move come first. Another choice of as many moves may gain more.
- Copies are counted by replay, node by node, as in capacity. Each pod moves at most once.
- The largest request is that of the same pod with other CPUs in its largest container. It is found by replay as well.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from extender.kubelet.admission import is_indifferent
from extender.kubelet.pod import ContainerKind
from extender.questions.asked import Asked
from extender.questions.capacity import Capacity
from extender.questions.dra import with_forecast
from extender.questions.evictions import Eviction, Evictions, Move
from extender.questions.finding import OUT_OF_TIME, blind_spots, limits_of, progress, subjects_of
from extender.questions.free_room import numa_room
from extender.questions.make_room import evicted, eviction_objects
from extender.questions.node_context import Subject
from extender.questions.node_pods import without
from extender.questions.notes import all_notes
from extender.questions.pod_summary import pod_summary
from extender.questions.reading import question_of, workload_of
from extender.questions.resize_check import resized
from extender.questions.snapshot import Snapshot
from extender.questions.words import plural
from extender.scheduling.judge import Judge
from extender.scheduling.pod_shape import PodShape
from extender.wire.advice_replies import DefragmentPoint, DefragmentReply
from extender.wire.questions import DefragmentRequest
from extender.wire.replies import ReplyBody
from extender.wire.workloads import PodWorkload

MAX_COPIES: Final = 1000
MAX_TRIALS: Final = 20_000
"""Sets of pods and placements that are tried in one question."""
MIN_TRIALS_A_NODE: Final = 25
"""A node may use more where there are few nodes. The first search of all nodes uses half of the tries at most."""
MAX_PODS_A_STEP: Final = 2
COUNT_SHARE, SEARCH_SHARE, MOVES_SHARE = 0.3, 0.5, 0.8
"""The shares of the time after which no further node is counted, no node is searched, and no move is made."""
MAX_SIZES: Final = 16
"""How many sizes are tried on one node for the largest request, from the free CPUs of its NUMA nodes downwards, before
it is searched by bisection."""


class Defragment:
    """The curve for one pod."""

    def __init__(
        self,
        workload: PodWorkload,
        evictions: Evictions,
        judge: Judge,
        max_moves: int,
        spent: Callable[[], float] = lambda: 0.0,
    ) -> None:
        """*spent*: the share of the time that is over. The search ends with what it has: see `SEARCH_SHARE`."""
        self._spent, self.nodes_searched, self.nodes_left_out, self.is_late = spent, 0, 0, False
        self._trials_a_node: Final = max(MIN_TRIALS_A_NODE, MAX_TRIALS // 2 // max(1, len(evictions.subjects)))
        self.evictions, self._max_moves = evictions, max_moves
        self._capacity: Final = Capacity([workload], judge, MAX_COPIES)
        self._workload, self._judge = workload, judge
        self._shape: Final = PodShape(workload.copy(0))
        self._sizes: dict[int, Capacity] = {}
        self._largest: dict[str, tuple[Subject, int]] = {}
        self._steps: dict[str, tuple[float, Eviction]] = {}
        """The best known step of each node: gain for each move."""

    def run(self) -> Iterator[DefragmentPoint | None]:
        """The points of the curve, from the present on. None for each node that was searched before the first move."""
        moves = 0
        self._count_all()
        yield self._point(moves, ())
        self.evictions.is_late = lambda: self._late(SEARCH_SHARE)
        # the most free CPUs on one NUMA node first: there the fewest pods have to leave
        for subject in sorted(self.evictions.subjects, key=_free_cpus, reverse=True):
            if self._late(SEARCH_SHARE) or self.evictions.trials_left <= MAX_TRIALS // 2:
                break
            self._search(subject)
            self.nodes_searched += 1
            yield None
        self.evictions.is_late = lambda: self._late(MOVES_SHARE)
        while self._steps and moves < self._max_moves and self.evictions.trials_left > 0:
            if self._late(MOVES_SHARE):
                break
            name = max(self._steps, key=lambda n: self._steps[n][0])
            expected = self._steps.pop(name)[0]
            found = self._search(next(s for s in self.evictions.subjects if s.name == name))
            if found is None or found[0] < expected:
                continue
            _, eviction = self._steps.pop(name)
            if len(eviction.moves) > self._max_moves - moves:
                continue
            self.evictions = self.evictions.carried_out(eviction)
            moves += len(eviction.moves)
            changed = {name, *(move.node for move in eviction.moves)}
            for subject in self.evictions.subjects:
                if subject.name in changed:
                    self._search(subject)
            yield self._point(moves, eviction.moves)

    def _count_all(self) -> None:
        """Count the copies on each node. Nodes for which the time is over are left out of the question."""
        subjects = self.evictions.subjects
        for done, subject in enumerate(subjects):
            if done and self._late(COUNT_SHARE):
                self.nodes_left_out, self.evictions.subjects = len(subjects) - done, subjects[:done]
                return
            self._capacity.aligned(subject)

    def _late(self, share: float) -> bool:
        is_late = self._spent() > share
        self.is_late = self.is_late or is_late
        return is_late

    def _search(self, subject: Subject) -> tuple[float, Eviction] | None:
        """Find the step of a node and remember it; None if it gains nothing."""
        self._steps.pop(subject.name, None)
        kubelet = subject.kubelet
        if kubelet is None or is_indifferent(kubelet, self._shape.request(kubelet.rules)):
            return None  # no copy is ever aligned
        before = self._capacity.aligned(subject)
        candidates = self.evictions.candidates(subject)
        left = self.evictions.trials_left
        self.evictions.trials_left = allowed = min(left, self._trials_a_node)
        known = {each.name: each for each in self.evictions.subjects}

        def gain(left: Subject, others: Sequence[Subject]) -> int:
            return sum(
                self._capacity.aligned(each) - self._capacity.aligned(known[each.name]) for each in (left, *others)
            )

        found = self.evictions.cheapest(
            subject,
            candidates,
            lambda left: self._capacity.aligned(left) > before,
            most=MAX_PODS_A_STEP,
            is_worth=lambda left, others: gain(left, others) > 0,
        )
        self.evictions.trials_left += left - allowed
        if found is None:
            return None
        gone = [move.pod for move in found.moves if move.source == subject.name]
        gained = gain(without(subject, gone, 1), found.after)
        self._steps[subject.name] = gained / len(found.moves), found
        return self._steps[subject.name]

    def _point(self, moves: int, step: Sequence[Move]) -> DefragmentPoint:
        subjects = self.evictions.subjects
        copies, largest = sum(map(self._capacity.aligned, subjects)), 0
        for free, subject in sorted(((_free_cpus(s), s) for s in subjects), key=lambda pair: -pair[0]):
            if free <= largest or self._late(MOVES_SHARE):
                break
            largest = max(largest, self._largest_cpus(subject, free))
        return DefragmentPoint(moves=moves, copies=copies, largest_cpus=largest, evictions=list(map(evicted, step)))

    def _largest_cpus(self, subject: Subject, free: int) -> int:
        """The most CPUs of an aligned pod on a node now. *free*: the free CPUs of the NUMA node that has most."""
        known = self._largest.get(subject.name)
        if known is None or known[0] is not subject:
            sizes = range(free, max(0, free - MAX_SIZES), -1)
            found = next((size for size in sizes if self._is_aligned(subject, size)), 0)
            known = self._largest[subject.name] = subject, found or self._bisected(subject, free - MAX_SIZES)
        return known[1]

    def _bisected(self, subject: Subject, most: int) -> int:
        """The largest aligned request of whole cores up to *most* CPUs, if every smaller request is aligned as well."""
        assert subject.kubelet is not None
        threads = max(1, subject.kubelet.machine.cpus_per_core)
        low, high = 0, max(0, most) // threads + 1
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self._is_aligned(subject, middle * threads) else (low, middle)
        return low * threads

    def _is_aligned(self, subject: Subject, cpus: int) -> bool:
        """Whether the pod with so many CPUs is aligned on the node."""
        if cpus not in self._sizes:
            pod = self._workload.pod
            running = [c for c in pod.containers if c.kind is not ContainerKind.INIT]
            name = max(running, key=lambda c: c.requests_milli.get("cpu", 0)).name
            workload = replace(self._workload, pod=resized(pod, name, {"cpu": cpus * 1000}))
            self._sizes[cpus] = Capacity([workload], self._judge, 1)
        return self._sizes[cpus].aligned(subject) > 0


def _free_cpus(subject: Subject) -> int:
    """The most exclusive CPUs that are free on one NUMA node."""
    if subject.kubelet is None:
        return 0
    return max((room.cpus for room in numa_room(subject.kubelet, subject.states[0]).values()), default=0)


def defragment_documents(asked: Asked, snapshot: Snapshot, judge: Judge) -> Iterator[ReplyBody]:
    """Progress, then one `DefragmentReply`."""
    question = question_of(asked, DefragmentRequest)
    workload = workload_of(asked, question.pod, "pod")
    subjects = with_forecast(asked.forecast, [workload.pod], subjects_of(snapshot, question.nodes))
    evictions = Evictions(
        subjects,
        asked.budgets,
        judge,
        max_priority=question.priority,
        max_trials=MAX_TRIALS,
        workload=workload,
        namespaces=question.namespaces,
    )
    notes = [*all_notes([workload], subjects, 0 if asked.forecast else None), *blind_spots(subjects)]
    search = Defragment(workload, evictions, judge, question.max_moves, asked.spent)
    of = len(evictions.subjects) + question.max_moves
    points: list[DefragmentPoint] = []
    for done, point in enumerate(search.run(), start=1):
        points += [point] if point is not None else []
        yield from progress(min(done, of), of)
    yield DefragmentReply(
        pod=pod_summary(workload),
        curve=points,
        objects=eviction_objects([each for point in points for each in point.evictions]),
        complete=not list(_left_out(search)),
        notes=[*notes, *_left_out(search)],
    )


def _left_out(search: Defragment) -> Iterator[str]:
    nodes = len(search.evictions.subjects)
    if search.nodes_left_out:
        yield f"{plural(search.nodes_left_out, 'node')} of {nodes + search.nodes_left_out} left out of all numbers"
    yield from limits_of(search.evictions, MAX_TRIALS)
    if search.is_late:
        yield f"the time was over: {search.nodes_searched} of {plural(nodes, 'node')} were searched; {OUT_OF_TIME}"
    elif search.nodes_searched < nodes:
        yield f"{search.nodes_searched} of {plural(nodes, 'node')} were searched, those with the most free CPUs first"
