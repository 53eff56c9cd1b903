"""POST /v1/advice/NAME: the answers. The questions are in `extender.answers.advice_requests`."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import AlignedNUMA, AlignmentCertain, AlignmentName, Answer, ContainerPlacement
from extender.replay.resize import ResizeResult
from extender.replay.verdict import Certainty

Notes = Annotated[list[str], Field(description="What the answer takes for granted, and what was not checked.")]


class PodPlacement(Answer):
    """Where a pod would be placed on one node, or why not."""

    node: Annotated[str, Field(description="Its name.")]
    outcome: Annotated[
        Literal["fits", "topology", "scheduler", "unknown"], Field(description="As `NodeAnswer.outcome`.")
    ]
    alignment: Annotated[AlignmentName | None, Field(description="Null: it does not fit.")]
    alignment_certain: AlignmentCertain
    numa: AlignedNUMA
    containers: Annotated[dict[str, ContainerPlacement], Field(description="By name; empty: it does not fit.")]
    reason: Annotated[str, Field(description="Why not, in one sentence with amounts; empty: it fits.")]
    certainty: Annotated[Certainty, Field(description="How sure this is.")]


class ResizeCheckReply(Answer):
    """What the kubelet would make of the resize."""

    pod: Annotated[str, Field(description="NAMESPACE/NAME.")]
    node: Annotated[str, Field(description="Its node.")]
    container: Annotated[str, Field(description="Name of the container.")]
    before: Annotated[dict[str, str], Field(description="What it requests now, of what changes.")]
    after: Annotated[dict[str, str], Field(description="What it would request.")]
    result: Annotated[
        ResizeResult,
        Field(
            description="`fits`. `deferred`: not as long as the other pods are there. `infeasible`: never on this node "
            "with its configuration. `not-supported`: this kubelet does not resize pods in place."
        ),
    ]
    reason: Annotated[str, Field(description="Why not, in one sentence; empty: it fits.")]
    exclusive_cpus: Annotated[
        str, Field(description="CPUs that the container has for itself, before and after; a resize changes none.")
    ]
    shared_cpus: Annotated[str, Field(description="The node's shared pool; empty: the CPU Manager keeps none.")]
    recreated: Annotated[PodPlacement, Field(description="The pod created anew on its own node, without the old one.")]
    elsewhere: Annotated[
        list[PodPlacement], Field(description="Other nodes that it fits on, the best first; at most 5.")
    ]
    other_nodes: Annotated[int, Field(description="How many other nodes it fits on.")]
    notes: Notes
