"""Models of GET /v1/decisions and /v1/pods/UID/decision: why the last scheduling calls gave their answers."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import Answer, Verdict
from extender.replay.verdict import Certainty


class DecidedPod(Answer):
    """The pod that kube-scheduler sent."""

    uid: Annotated[str, Field(description="Empty if the scheduler sent none.")]
    namespace: Annotated[str, Field(description="Its namespace.")]
    name: Annotated[str, Field(description="Its name.")]


class ReasonCount(Answer):
    """The number of nodes refused for one reason."""

    reason: Annotated[str, Field(description="A fixed text, as `kubectl describe pod` shows it.")]
    never: Annotated[bool, Field(description="True if the pod can never fit on these nodes.")]
    nodes: Annotated[int, Field(description="How many.")]
    examples: Annotated[list[str], Field(description="Names of some of them, at most 10.")]


class Scored(Answer):
    """One node that prioritize ranked."""

    node: Annotated[str, Field(description="Its name.")]
    score: Annotated[int, Field(description="0 is worst, 10 is best.", ge=0, le=10)]


class DecisionCall(Answer):
    """One call of kube-scheduler."""

    verb: Annotated[Literal["filter", "prioritize"], Field(description="What was asked.")]
    seconds_ago: Annotated[float, Field(description="Seconds since the reply.")]
    candidates: Annotated[int, Field(description="Number of nodes that the scheduler sent.")]
    passed: Annotated[int, Field(description="Nodes that admit the pod. All are offered, unless `place` names one.")]
    refused: Annotated[int, Field(description="Nodes not offered, by `reasons`.")]
    place: Annotated[
        str, Field(description="The only node that was offered: the pod has its place in a group there. May be empty.")
    ]
    aligned: Annotated[
        bool, Field(description="False if no node aligns anything that the pod requests; nothing was replayed.")
    ]
    certainty: Annotated[dict[Certainty, int], Field(description="Candidates by certainty of the answer.")]
    reasons: Annotated[list[ReasonCount], Field(description="Most frequent first.")]
    best: Annotated[list[Scored], Field(description="The best nodes, at most 10. Empty for filter.")]


class DecisionSummary(Answer):
    """The last calls about one pod."""

    pod: Annotated[DecidedPod, Field(description="The pod.")]
    calls: Annotated[list[DecisionCall], Field(description="The newest first.")]


class DecisionIndex(Answer):
    """Pods of the last calls, newest first."""

    decisions: Annotated[list[DecisionSummary], Field(description="The newest first.")]
    forgotten: Annotated[int, Field(description="Number of calls that were dropped since the service started.")]


class DecidedNode(Answer):
    """The answer for one node, and the verdict behind it, replayed on the node's state at that time."""

    node: Annotated[str, Field(description="Its name.")]
    passed: Annotated[bool, Field(description="Whether the node was returned to the scheduler.")]
    reason: Annotated[str, Field(description="Empty if it passed.")]
    certainty: Annotated[Certainty, Field(description="Certainty of the answer.")]
    score: Annotated[int | None, Field(description="From prioritize, 0 to 10. Null if it was not called.")]
    verdict: Annotated[Verdict | None, Field(description="Null if there was no report of the node.")]


class PodDecision(DecisionSummary):
    """The last calls about one pod, with full details of one node if one was named."""

    node: Annotated[DecidedNode | None, Field(description="The node named in the request. Null if none was.")] = None
