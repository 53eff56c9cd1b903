"""Scores of the candidates, as ints from 0 to 10.

Rules of this file
- Scores are ints: kube-scheduler silently drops a whole reply that holds one float.
- The merits of one request are stretched over the whole range: best 10, worst 0, all equal 10.
- Uncertain nodes score lower. A stale node gets half of its score. A node of which only counts are known gets half of
  the score of a node without merit. An unknown or refused node gets 0.
- A node that admits the pod without aligning it gets 0 if another node aligns it. A node that would split a pod that
  prefers one NUMA node gets 0 as well, if another node would not split it.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from extender.kubelet.verdict import Certainty
from extender.scheduling.judgement import Judgement

MAX_SCORE: Final = 10


class Scale(NamedTuple):
    """What scores of one request are relative to.

    `merits`: the worst and the best one; None if no node has any. `is_met`: a node has what the pod prefers.
    """

    merits: tuple[int, int] | None
    is_met: bool


def score_nodes(judgements: Sequence[Judgement]) -> list[int]:
    """The score of each candidate, from the judgement of each candidate."""
    different = set(judgements)
    scale = scale_of(different)
    score_of = {judgement: score_of_one(judgement, scale) for judgement in different}
    return list(map(score_of.__getitem__, judgements))


def scale_of(judgements: Iterable[Judgement]) -> Scale:
    """The scale of a request whose nodes have these judgements."""
    feasible = [j for j in judgements if j.merit is not None and j.refusal is None]
    is_met = any(not j.misses for j in feasible)
    merits = [j.merit for j in feasible if j.merit is not None and not (is_met and j.misses)]
    return Scale((min(merits), max(merits)) if merits else None, is_met)


def score_of_one(judgement: Judgement, scale: Scale) -> int:
    """The score of a node, in a request with this scale."""
    if judgement.refusal is not None or judgement.certainty is Certainty.UNKNOWN:
        return 0
    if scale.is_met and judgement.misses:
        return 0
    if scale.merits is None:
        score = MAX_SCORE
    elif judgement.merit is None:
        score = 0
    else:
        score = _stretch(judgement.merit, *scale.merits)
    return score // 2 if judgement.certainty in (Certainty.STALE, Certainty.DEGRADED) else score


def _stretch(merit: int, worst: int, best: int) -> int:
    """Position of *merit* between worst (0) and best (10), rounded half up; 10 if all are equal."""
    if best == worst:
        return MAX_SCORE
    return (2 * MAX_SCORE * (merit - worst) + best - worst) // (2 * (best - worst))
