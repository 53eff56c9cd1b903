"""Defragment: what moves would gain, counted in aligned copies of one pod.

Rules of this file
- A step is the cheapest eviction on one node after which that node has more aligned copies. It counts with what the
  whole cluster gains, so a move that takes the room of a copy elsewhere gains nothing.
- Steps with the highest gain for each move come first. Another choice of as many moves may gain more.
- Copies are counted by replay, node by node, as in capacity. Each pod moves at most once.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from extender.questions.capacity import Capacity
from extender.questions.evictions import Eviction, Evictions
from extender.questions.free_room import numa_room
from extender.questions.subjects import Subject
from extender.replay.alignment import Alignment
from extender.scheduling.judge import Judge
from extender.wire.workloads import PodWorkload

MAX_COPIES: Final = 1000
MAX_TRIALS: Final = 20_000
"""Sets of pods and placements that are tried in one question."""
MAX_PODS_A_STEP: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class CurvePoint:
    """The cluster after some moves. `eviction` None: before the first. `largest_cpus`: free on one NUMA node."""

    moves: int
    copies: int
    largest_cpus: int
    eviction: Eviction | None = None


class Defragment:
    """The curve for one pod."""

    def __init__(self, workload: PodWorkload, evictions: Evictions, judge: Judge, max_moves: int) -> None:
        self.evictions, self._max_moves = evictions, max_moves
        self._capacity: Final = Capacity([workload], judge, MAX_COPIES)
        self._counts: dict[str, tuple[Subject, int]] = {}
        self._steps: dict[str, tuple[float, Eviction]] = {}
        """The best known step of each node: gain for each move."""

    def run(self) -> Iterator[CurvePoint | None]:
        """The points of the curve, from the present on. None for each node that was searched before the first move."""
        moves = 0
        yield self._point(moves, None)
        for subject in list(self.evictions.subjects):
            self._search(subject)
            yield None
        while self._steps and moves < self._max_moves and self.evictions.trials_left > 0:
            name = max(self._steps, key=lambda n: self._steps[n][0])
            expected = self._steps.pop(name)[0]
            found = self._search(next(s for s in self.evictions.subjects if s.name == name))
            if found is None or found[0] < expected or len(found[1].moves) > self._max_moves - moves:
                if found is not None and len(found[1].moves) > self._max_moves - moves:
                    del self._steps[name]
                continue
            eviction = found[1]
            del self._steps[name]
            self.evictions = self.evictions.carried_out(eviction)
            moves += len(eviction.moves)
            changed = {name, *(move.placed.node for move in eviction.moves)}
            for subject in self.evictions.subjects:
                if subject.name in changed:
                    self._search(subject)
            yield self._point(moves, eviction)

    def _search(self, subject: Subject) -> tuple[float, Eviction] | None:
        """Find the step of a node and remember it; None if it gains nothing."""
        before = self._count(subject)
        candidates = self.evictions.candidates(subject)
        found = self.evictions.cheapest(
            subject, candidates, lambda left: self._copies(left) > before, most=MAX_PODS_A_STEP
        )
        self._steps.pop(subject.name, None)
        if found is None:
            return None
        known = {each.name: each for each in self.evictions.subjects}
        after = self.evictions.carried_out(found).subjects
        gained = sum(self._copies(e) - self._count(known[e.name]) for e in after if e is not known[e.name])
        if gained <= 0:
            return None
        self._steps[subject.name] = gained / len(found.moves), found
        return self._steps[subject.name]

    def _point(self, moves: int, eviction: Eviction | None) -> CurvePoint:
        subjects = self.evictions.subjects
        rooms = (room.cpus for s in subjects if s.kubelet for room in numa_room(s.kubelet, s.states[0]).values())
        copies = sum(map(self._count, subjects))
        return CurvePoint(moves=moves, copies=copies, largest_cpus=max(rooms, default=0), eviction=eviction)

    def _count(self, subject: Subject) -> int:
        """Aligned copies on a node of the cluster as it is; each is counted once."""
        known = self._counts.get(subject.name)
        if known is None or known[0] is not subject:
            known = self._counts[subject.name] = subject, self._copies(subject)
        return known[1]

    def _copies(self, subject: Subject) -> int:
        (room,) = self._capacity.rooms([subject])
        return room.alignments.get(Alignment.ALIGNED, 0)
