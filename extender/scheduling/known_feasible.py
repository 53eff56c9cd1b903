"""Nodes that are certain to admit a pod shape, by name. A filter call about thousands of them is one set operation.

Rules of this file
- A name is in the set only if the judgement of the node's class, at the set's generation, is feasible and EXACT.
  Nodes that changed later leave the set before it is used, and return once they are judged again.
- Call `advance` before `split`, with no `await` between: a set that is behind must not answer.
"""

from collections.abc import Collection, Mapping, Sequence
from itertools import compress
from operator import not_
from sys import intern
from typing import NamedTuple

from extender.cluster.snapshot import ClusterSnapshot
from extender.replay.verdict import Certainty
from extender.scheduling.candidates import Candidates
from extender.scheduling.judge import Judgement


def is_certainly_feasible(judgement: Judgement) -> bool:
    """Whether nodes with this judgement are certain to admit the pod."""
    return judgement.refusal is None and judgement.certainty is Certainty.EXACT


class Split(NamedTuple):
    """`known`: for each name, in order, whether it is known to be feasible; empty if all are.

    `others`: the names that are not, in order.
    """

    known: Sequence[bool]
    others: Sequence[str]


class KnownFeasible:
    """The nodes of one pod shape; empty at first."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._generation = 0

    @property
    def generation(self) -> int:
        """The generation of the snapshot that the set was last advanced to."""
        return self._generation

    def advance(self, generation: int, changed: Collection[str] | None) -> Sequence[str]:
        """Advance the set to *generation*.

        *changed*: nodes that changed since `generation`; None if any node may have. Returns the names that left the
        set. If they are few, it pays to judge and record them at once.
        """
        self._generation = generation
        if changed is None:
            self._names.clear()
            return ()
        lost = sorted(self._names.intersection(changed))
        self._names.difference_update(lost)
        return lost

    def split(self, names: Sequence[str]) -> Split:
        """Separate *names* into known and other ones. Cost: one lookup per name, all of them in C."""
        if self._names.issuperset(names):
            return Split((), ())
        known = list(map(self._names.__contains__, names))
        return Split(known, list(compress(names, map(not_, known))))

    def record(self, candidates: Candidates, judgements: Mapping[int, Judgement], snapshot: ClusterSnapshot) -> None:
        """Add the *candidates* that are certainly feasible. No effect if the set is at another generation by now."""
        if snapshot.generation != self._generation:
            return
        feasible = {each for each in candidates.distinct if is_certainly_feasible(judgements[each.id])}
        before = len(self._names)
        names = compress(candidates.names, map(feasible.__contains__, candidates.classes))
        self._names.update(map(intern, names))  # one string for all pod shapes: less memory, and better cached
        if len(self._names) > 2 * before:
            self._names = set(self._names)  # a set that grew name by name is twice as large, and slower to search
