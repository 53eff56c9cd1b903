"""Nodes that surely take a pod, known by name: a call about thousands of them is then one operation on sets.

Laws of this file
- A name is in the set only if the node's class, as of the set's moment, was judged to take the pod with certainty
  EXACT. Whatever changed since is taken out before the set is used, and comes in again when it was judged again.
- A set that is behind gives no answers: `follow` comes before `split`, with nothing awaited in between.
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


def is_sure(judgement: Judgement) -> bool:
    """Whether nodes of which this was said surely take the pod."""
    return judgement.refusal is None and judgement.certainty is Certainty.EXACT


class Split(NamedTuple):
    """`sure`: whether each name is, in order; empty if all of them are. `others`: those that are not, in order."""

    sure: Sequence[bool]
    others: Sequence[str]


class SureNodes:
    """Those of one pod shape; none at first."""

    def __init__(self) -> None:
        self._names: set[str] = set()
        self._moment = 0

    def follow(self, moment: int, changed: Collection[str] | None) -> Sequence[str]:
        """Come to *moment*. *changed*: nodes that changed since `moment` was last followed; None: any may have.

        Returns those of *changed* that are sure no more; it is worth while to judge and learn a few of them at once.
        """
        self._moment = moment
        if changed is None:
            self._names.clear()
            return ()
        lost = sorted(self._names.intersection(changed))
        self._names.difference_update(lost)
        return lost

    @property
    def moment(self) -> int:
        """What was followed last."""
        return self._moment

    def split(self, names: Sequence[str]) -> Split:
        """Which of *names* are sure. Cost: a lookup a name, all of them in C."""
        if self._names.issuperset(names):
            return Split((), ())
        sure = list(map(self._names.__contains__, names))
        return Split(sure, list(compress(names, map(not_, sure))))

    def learn(self, candidates: Candidates, judgements: Mapping[int, Judgement], picture: ClusterSnapshot) -> None:
        """Take in which *candidates* are sure, as of *picture*; nothing if the set has come further since."""
        if picture.generation != self._moment:
            return
        sure = {each for each in candidates.distinct if is_sure(judgements[each.id])}
        known = len(self._names)
        names = compress(candidates.names, map(sure.__contains__, candidates.classes))
        self._names.update(map(intern, names))  # one text for all pod shapes: less memory, and most of it at hand
        if len(self._names) > 2 * known:
            self._names = set(self._names)  # grown name by name it is twice as large, and slower to look into
