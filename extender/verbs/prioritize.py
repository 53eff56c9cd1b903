"""The prioritize verb: which of the admitting nodes is best, as ints from 0 to 10.

Laws of this file
- Scores are ints: kube-scheduler silently drops a whole reply that holds one float.
- The merits of one request are stretched over the whole range: best 10, worst 0, all equal 10.
- What is not certain ranks lower: a stale node gets half its score, an unknown or refused one 0.
"""

from collections.abc import Sequence
from typing import Final

from extender.cluster.classes import NodeClass
from extender.replay.verdict import Certainty
from extender.verbs.judge import Judgement
from extender.verbs.memo import Judgements

MAX_SCORE: Final = 10


def prioritize_nodes(classes: Sequence[NodeClass], judgements: Judgements) -> list[int]:
    """The score of each candidate, in order."""
    asked = {node_class.id: judgements[node_class.id] for node_class in set(classes)}
    scores = _scores(asked)
    return [scores[node_class.id] for node_class in classes]


def _scores(judgements: Judgements) -> dict[int, int]:
    merits = [j.merit for j in judgements.values() if j.merit is not None and j.refusal is None]
    worst, best = (min(merits), max(merits)) if merits else (0, 0)
    return {class_id: _score(judgement, worst, best) for class_id, judgement in judgements.items()}


def _score(judgement: Judgement, worst: int, best: int) -> int:
    if judgement.refusal is not None or judgement.certainty is Certainty.UNKNOWN:
        return 0
    if judgement.merit is None or best == worst:
        score = MAX_SCORE
    else:
        score = (2 * MAX_SCORE * (judgement.merit - worst) + best - worst) // (2 * (best - worst))
    return score // 2 if judgement.certainty is Certainty.STALE else score
