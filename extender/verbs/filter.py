"""The filter verb: which of the scheduler's candidates would admit the pod.

Names keep their order, and every candidate is either passed or refused with a reason: the scheduler shows none at all
for a node that a reply leaves out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.verbs.candidates import Candidates
from extender.verbs.memo import Judgements
from extender.verbs.refusals import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """`passed` in the order asked; the refused ones by name."""

    passed: Sequence[str]
    refused: Mapping[str, Refusal] = field(default_factory=dict)


def filter_nodes(candidates: Candidates, judgements: Judgements) -> Filtered:
    """Sort the candidates by the judgement of their class."""
    refusals = {
        node_class: refusal
        for node_class in candidates.distinct
        if (refusal := judgements[node_class.id].refusal) is not None
    }
    if not refusals:
        return Filtered(passed=candidates.names)
    answers = list(map(refusals.get, candidates.classes))
    return Filtered(
        passed=[name for name, refusal in zip(candidates.names, answers, strict=True) if refusal is None],
        refused={name: refusal for name, refusal in zip(candidates.names, answers, strict=True) if refusal is not None},
    )
