"""The filter verb: which of the scheduler's candidates would admit the pod.

Names keep their order, and every candidate is either passed or refused with a reason: the scheduler shows none at all
for a node that a reply leaves out.
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
from extender.scheduling.reasons import Refusal

PASSED: Final = "passed"
"""What counts are filed under for nodes that are offered; refused ones under the text of their refusal."""

AVOIDED: Final = Judgement(Refusal.UNSETTLED, Certainty.POSSIBLE)
"""Said of nodes that the bind gate held the pod back from a moment ago."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """`passed` in the order asked; the texts of the refusals by name."""

    passed: Sequence[str]
    refused: Mapping[str, str] = field(default_factory=dict)


def all_of(names: Sequence[str], sure: Sequence[bool], rest: Filtered) -> Filtered:
    """The answer about *names*: those that are *sure* pass, and *rest* is the answer about the others."""
    if not rest.refused:
        return Filtered(passed=names)
    passed = filterfalse(rest.refused.__contains__, names) if rest.passed else compress(names, sure)
    return Filtered(passed=list(passed), refused=rest.refused)


def avoid(filtered: Filtered, names: Collection[str]) -> Filtered:
    """The answer with those of *names* that pass refused as `AVOIDED`; as it was, if no other node passes."""
    passed = [name for name in filtered.passed if name not in names]
    if not passed or len(passed) == len(filtered.passed):
        return filtered
    avoided = dict.fromkeys((name for name in filtered.passed if name in names), Refusal.UNSETTLED.text)
    return Filtered(passed=passed, refused={**filtered.refused, **avoided})


def with_passed(filtered: Filtered, name: str) -> Filtered:
    """The answer with one refused node passed after all."""
    return Filtered(
        passed=[*filtered.passed, name], refused={each: why for each, why in filtered.refused.items() if each != name}
    )


def filter_nodes(candidates: Candidates, judgements: Judgements) -> Filtered:
    """Sort the candidates by the judgement of their class.

    Cost: one lookup a node, and where some are refused two walks in C.
    """
    texts = {c: None if (r := judgements[c.id].refusal) is None else r.text for c in candidates.distinct}
    if not any(texts.values()):
        return Filtered(passed=candidates.names)
    names, answers = candidates.names, list(map(texts.__getitem__, candidates.classes))
    return Filtered(
        passed=list(compress(names, map(not_, answers))),
        refused=dict(zip(compress(names, answers), filter(None, answers), strict=True)),
    )


def count_answers(
    filtered: Filtered, candidates: Candidates, judgements: Judgements
) -> Mapping[tuple[str, Certainty], int]:
    """How many nodes got each answer, by (PASSED or the refusal's text, certainty)."""
    kinds = {c: _kind(judgements, c.id) for c in candidates.distinct}
    certainties = dict(kinds.values())
    if len(certainties) == len(set(kinds.values())):  # one certainty for each answer: counting answers will do
        results = Counter(filtered.refused.values())
        if filtered.passed:
            results[PASSED] = len(filtered.passed)
        return {(result, certainties[result]): count for result, count in results.items()}
    counts: Counter[tuple[str, Certainty]] = Counter()
    for node_class, count in Counter(candidates.classes).items():
        counts[kinds[node_class]] += count
    return counts


def _kind(judgements: Judgements, class_id: int) -> tuple[str, Certainty]:
    judgement = judgements[class_id]
    return PASSED if judgement.refusal is None else judgement.refusal.text, judgement.certainty
