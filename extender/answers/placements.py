"""Where a pod would be placed on a node, in a few fields."""

from typing import Annotated

from extender.kubelet.verdict import Admitted, Certainty
from extender.questions.what_if import NodeWhatIf, Outcome
from extender.replay.creation import whole_placements
from extender.wire.replies import ReplyBody, about
from extender.wire.verdicts import (
    AlignedNUMA,
    AlignmentCertain,
    AlignmentName,
    ContainerPlacement,
    alignment_fields,
    container_placements,
)


class PodPlacement(ReplyBody):
    """Where a pod would be placed on one node, or why not."""

    node: Annotated[str, about("Its name.")]
    outcome: Annotated[Outcome, about("See `NodeAnswer.outcome`.")]
    alignment: Annotated[AlignmentName | None, about("Null: it does not fit.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    containers: Annotated[dict[str, ContainerPlacement], about("By name; empty: it does not fit.")]
    reason: Annotated[str, about("Why not, in one sentence with amounts; empty: it fits.")]
    certainty: Annotated[Certainty, about("How certain the placement is.")]


def placement_of(answer: NodeWhatIf) -> PodPlacement:
    """One node's answer to a pod, without the reasons of kube-scheduler in detail."""
    verdict = answer.verdict
    is_placed = answer.outcome == "fits" and isinstance(verdict, Admitted)
    return PodPlacement.filled(
        answer,
        node=answer.subject.name,
        **alignment_fields(answer.alignment),
        containers=container_placements(whole_placements(verdict), answer.admitted_as)
        if is_placed and isinstance(verdict, Admitted)
        else {},
    )
