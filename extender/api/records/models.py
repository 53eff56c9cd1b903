"""Replies of GET /v1/decisions and /v1/pods/UID/decision. The command line reads them without the web framework."""

from typing import Annotated, Literal

from extender.kubelet.verdict import Certainty
from extender.wire.replies import ReplyBody, about
from extender.wire.verdicts import Verdict


class DecidedPod(ReplyBody):
    """The pod that kube-scheduler sent."""

    uid: Annotated[str, about("Empty if the scheduler sent none.")]
    namespace: Annotated[str, about("Its namespace.")]
    name: Annotated[str, about("Its name.")]


class ReasonCount(ReplyBody):
    """The number of nodes refused for one reason."""

    reason: Annotated[str, about("A fixed text, as `kubectl describe pod` shows it.")]
    never: Annotated[bool, about("True if the pod can never fit on these nodes.")]
    nodes: Annotated[int, about("How many.")]
    examples: Annotated[list[str], about("Names of some of them, at most 10.")]


class Scored(ReplyBody):
    """One node that prioritize ranked."""

    node: Annotated[str, about("Its name.")]
    score: Annotated[int, about("0 is worst, 10 is best.", ge=0, le=10)]


class DecisionCall(ReplyBody):
    """One call of kube-scheduler."""

    verb: Annotated[Literal["filter", "prioritize"], about("What was asked.")]
    seconds_ago: Annotated[float, about("Seconds since the reply.")]
    candidates: Annotated[int, about("Number of nodes that the scheduler sent.")]
    passed: Annotated[int, about("Nodes that admit the pod. All are offered, unless `place` names one.")]
    refused: Annotated[int, about("Nodes not offered, by `reasons`.")]
    place: Annotated[
        str, about("The only node that was offered: the pod has its place in a group there. May be empty.")
    ]
    aligned: Annotated[bool, about("False if no node aligns anything that the pod requests; nothing was replayed.")]
    certainty: Annotated[dict[Certainty, int], about("Candidates by certainty of the answer.")]
    reasons: Annotated[list[ReasonCount], about("Most frequent first.")]
    best: Annotated[list[Scored], about("The best nodes, at most 10. Empty for filter.")]


class DecisionSummary(ReplyBody):
    """The last calls about one pod."""

    pod: Annotated[DecidedPod, about("The pod.")]
    calls: Annotated[list[DecisionCall], about("The newest first.")]


class DecisionIndex(ReplyBody):
    """Pods of the last calls, newest first."""

    decisions: Annotated[list[DecisionSummary], about("The newest first.")]
    forgotten: Annotated[int, about("Number of calls that were dropped since the service started.")]


class DecidedNode(ReplyBody):
    """The answer for one node, and the verdict behind it, replayed on the node's state at that time."""

    node: Annotated[str, about("Its name.")]
    passed: Annotated[bool, about("Whether the node was returned to the scheduler.")]
    reason: Annotated[str, about("Empty if it passed.")]
    certainty: Annotated[Certainty, about("Certainty of the answer.")]
    score: Annotated[int | None, about("From prioritize, 0 to 10. Null if it was not called.")]
    verdict: Annotated[Verdict | None, about("Null if there was no report of the node.")]


class PodDecision(DecisionSummary):
    """The last calls about one pod, with full details of one node if one was named."""

    node: Annotated[DecidedNode | None, about("The node named in the request. Null if none was.")] = None
