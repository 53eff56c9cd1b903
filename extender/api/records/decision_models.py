"""Models of GET /v1/decisions and /v1/pods/UID/decision: why the last scheduling calls gave their answers."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import Answer, Verdict
from extender.kubelet.verdict import Certainty
from extender.wire.validation import doc


class DecidedPod(Answer):
    """The pod that kube-scheduler sent."""

    uid: Annotated[str, doc("Empty if the scheduler sent none.")]
    namespace: Annotated[str, doc("Its namespace.")]
    name: Annotated[str, doc("Its name.")]


class ReasonCount(Answer):
    """The number of nodes refused for one reason."""

    reason: Annotated[str, doc("A fixed text, as `kubectl describe pod` shows it.")]
    never: Annotated[bool, doc("True if the pod can never fit on these nodes.")]
    nodes: Annotated[int, doc("How many.")]
    examples: Annotated[list[str], doc("Names of some of them, at most 10.")]


class Scored(Answer):
    """One node that prioritize ranked."""

    node: Annotated[str, doc("Its name.")]
    score: Annotated[int, Field(description="0 is worst, 10 is best.", ge=0, le=10)]


class DecisionCall(Answer):
    """One call of kube-scheduler."""

    verb: Annotated[Literal["filter", "prioritize"], doc("What was asked.")]
    seconds_ago: Annotated[float, doc("Seconds since the reply.")]
    candidates: Annotated[int, doc("Number of nodes that the scheduler sent.")]
    passed: Annotated[int, doc("Nodes that admit the pod. All are offered, unless `place` names one.")]
    refused: Annotated[int, doc("Nodes not offered, by `reasons`.")]
    place: Annotated[str, doc("The only node that was offered: the pod has its place in a group there. May be empty.")]
    aligned: Annotated[bool, doc("False if no node aligns anything that the pod requests; nothing was replayed.")]
    certainty: Annotated[dict[Certainty, int], doc("Candidates by certainty of the answer.")]
    reasons: Annotated[list[ReasonCount], doc("Most frequent first.")]
    best: Annotated[list[Scored], doc("The best nodes, at most 10. Empty for filter.")]


class DecisionSummary(Answer):
    """The last calls about one pod."""

    pod: Annotated[DecidedPod, doc("The pod.")]
    calls: Annotated[list[DecisionCall], doc("The newest first.")]


class DecisionIndex(Answer):
    """Pods of the last calls, newest first."""

    decisions: Annotated[list[DecisionSummary], doc("The newest first.")]
    forgotten: Annotated[int, doc("Number of calls that were dropped since the service started.")]


class DecidedNode(Answer):
    """The answer for one node, and the verdict behind it, replayed on the node's state at that time."""

    node: Annotated[str, doc("Its name.")]
    passed: Annotated[bool, doc("Whether the node was returned to the scheduler.")]
    reason: Annotated[str, doc("Empty if it passed.")]
    certainty: Annotated[Certainty, doc("Certainty of the answer.")]
    score: Annotated[int | None, doc("From prioritize, 0 to 10. Null if it was not called.")]
    verdict: Annotated[Verdict | None, doc("Null if there was no report of the node.")]


class PodDecision(DecisionSummary):
    """The last calls about one pod, with full details of one node if one was named."""

    node: Annotated[DecidedNode | None, doc("The node named in the request. Null if none was.")] = None
