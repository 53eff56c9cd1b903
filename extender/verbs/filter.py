"""The filter verb: which of the scheduler's candidates would admit the pod.

Names keep their order, and every candidate is either passed or refused with a reason: the scheduler shows none at all
for a node that a reply leaves out.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from extender.cluster.classes import NodeClass
from extender.verbs.memo import Judgements
from extender.verbs.refusals import Refusal


@dataclass(slots=True, kw_only=True)
class Filtered:
    """`passed` in the order asked; the refused ones by name."""

    passed: list[str] = field(default_factory=list)
    refused: dict[str, Refusal] = field(default_factory=dict)


def filter_nodes(names: Sequence[str], classes: Sequence[NodeClass], judgements: Judgements) -> Filtered:
    """Sort the candidates by their class's judgement; *classes* are those of *names*, in the same order."""
    passed: list[str] = []
    refused: dict[str, Refusal] = {}
    for name, node_class in zip(names, classes, strict=True):
        refusal = judgements[node_class.id].refusal
        if refusal is None:
            passed.append(name)
        else:
            refused[name] = refusal
    return Filtered(passed=passed, refused=refused)
