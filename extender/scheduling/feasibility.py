"""Which candidates are feasible, by the judgements of their classes.

Names keep their order, and every candidate is either feasible or refused with a reason: kube-scheduler shows no reason
at all for a node that a reply leaves out.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, filterfalse
from operator import not_
from typing import Final

from extender.replay.verdict import Certainty
from extender.scheduling.cache import Judgements
from extender.scheduling.candidates import Candidates
from extender.scheduling.judge import Judgement
from extender.scheduling.reasons import RefusalReason

PASSED: Final = "passed"
"""The label of feasible nodes in counts. Refused nodes are counted by the text of their reason."""

AVOIDED: Final = Judgement(RefusalReason.UNSETTLED, Certainty.POSSIBLE)
"""In place of the judgement of nodes that the bind verb would refuse at the moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """`feasible` in the order of the request; the text of the reason by name of each other node."""

    feasible: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)


def merge_known(names: Sequence[str], known: Sequence[bool], rest: Filtered) -> Filtered:
    """The result for *names*: those that are *known* are feasible, *rest* is the result for the others."""
    if not rest.refused:
        return Filtered(feasible=names)
    feasible = filterfalse(rest.refused.__contains__, names) if rest.feasible else compress(names, known)
    return Filtered(feasible=list(feasible), refused=rest.refused)


def avoid(filtered: Filtered, names: Collection[str]) -> Filtered:
    """*filtered* with the feasible nodes among *names* refused as `AVOIDED`; unchanged if no other node is feasible."""
    feasible = [name for name in filtered.feasible if name not in names]
    if not feasible or len(feasible) == len(filtered.feasible):
        return filtered
    avoided = dict.fromkeys((name for name in filtered.feasible if name in names), RefusalReason.UNSETTLED.text)
    return Filtered(feasible=feasible, refused={**filtered.refused, **avoided})


def with_feasible(filtered: Filtered, name: str) -> Filtered:
    """*filtered* with one refused node made feasible."""
    return Filtered(
        feasible=[*filtered.feasible, name],
        refused={each: why for each, why in filtered.refused.items() if each != name},
    )


def without(filtered: Filtered, names: Collection[str], reason: RefusalReason) -> Filtered:
    """*filtered* with the feasible nodes *names* refused for *reason*."""
    return Filtered(
        feasible=[name for name in filtered.feasible if name not in names],
        refused={**filtered.refused, **dict.fromkeys(names, reason.text)},
    )


def filter_nodes(candidates: Candidates, judgements: Judgements) -> Filtered:
    """Separate the candidates by the judgement of their class.

    Cost: one lookup a node, and where some are refused two passes in C.
    """
    texts = {c: None if (r := judgements[c.id].refusal) is None else r.text for c in candidates.distinct}
    if not any(texts.values()):
        return Filtered(feasible=candidates.names)
    names, answers = candidates.names, list(map(texts.__getitem__, candidates.classes))
    return Filtered(
        feasible=list(compress(names, map(not_, answers))),
        refused=dict(zip(compress(names, answers), filter(None, answers), strict=True)),
    )


def count_answers(
    filtered: Filtered, candidates: Candidates, judgements: Judgements
) -> Mapping[tuple[str, Certainty], int]:
    """How many candidates got each answer, by (PASSED or the text of the reason, certainty)."""
    kinds = {c: _kind(judgements, c.id) for c in candidates.distinct}
    certainties = dict(kinds.values())
    if len(certainties) == len(set(kinds.values())):  # one certainty for each answer: counting answers will do
        results = Counter(filtered.refused.values())
        if filtered.feasible:
            results[PASSED] = len(filtered.feasible)
        return {(result, certainties[result]): count for result, count in results.items()}
    counts: Counter[tuple[str, Certainty]] = Counter()
    for node_class, count in Counter(candidates.classes).items():
        counts[kinds[node_class]] += count
    return counts


def _kind(judgements: Judgements, class_id: int) -> tuple[str, Certainty]:
    judgement = judgements[class_id]
    return PASSED if judgement.refusal is None else judgement.refusal.text, judgement.certainty
