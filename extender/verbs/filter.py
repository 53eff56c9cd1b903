"""The filter verb: which of the scheduler's candidates would admit the pod.

Names keep their order, and every candidate is either passed or refused with a reason: the scheduler shows none at all
for a node that a reply leaves out.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from extender.cluster.classes import NodeClass
from extender.verbs.memo import Judgements
from extender.verbs.refusals import Refusal


@dataclass(frozen=True, slots=True, kw_only=True)
class Filtered:
    """`passed` in the order asked; the refused ones by name."""

    passed: Sequence[str]
    refused: Mapping[str, Refusal] = field(default_factory=dict)


def filter_nodes(names: Sequence[str], classes: Sequence[NodeClass], judgements: Judgements) -> Filtered:
    """Sort the candidates by their class's judgement; *classes* are those of *names*, in the same order."""
    refusals = {node_class: judgements[node_class.id].refusal for node_class in set(classes)}
    candidates = zip(names, classes, strict=True)
    if not any(refusals.values()):
        return Filtered(passed=list(names))
    refused = {name: refusal for name, node_class in candidates if (refusal := refusals[node_class]) is not None}
    return Filtered(passed=[name for name in names if name not in refused], refused=refused)
