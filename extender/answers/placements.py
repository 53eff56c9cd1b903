"""Where a pod would be placed on a node, in a few fields: the `PodPlacement` of the API."""

from extender.kubelet.verdict import Admitted
from extender.questions.what_if import NodeWhatIf
from extender.replay.creation import whole_placements
from extender.wire.verdicts import aligned_placements_to_json, alignment_to_json

Json = dict[str, object]


def placement_to_json(answer: NodeWhatIf) -> Json:
    """One node's answer to a pod, without the reasons of kube-scheduler in detail."""
    verdict = answer.verdict
    is_placed = answer.outcome == "fits" and isinstance(verdict, Admitted)
    return {
        "node": answer.subject.name,
        "outcome": answer.outcome,
        **alignment_to_json(answer.alignment),
        "containers": aligned_placements_to_json(whole_placements(verdict), answer.admitted_as)
        if is_placed and isinstance(verdict, Admitted)
        else {},
        "reason": answer.reason,
        "certainty": answer.certainty.value,
    }
