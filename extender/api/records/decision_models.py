"""GET /v1/decisions and /v1/pods/UID/decision: why the last scheduling calls answered as they did."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.questions.models import Answer, Verdict
from extender.replay.verdict import Certainty


class DecidedPod(Answer):
    """The pod that kube-scheduler asked about."""

    uid: Annotated[str, Field(description="Empty: the scheduler sent none.")]
    namespace: Annotated[str, Field(description="Its namespace.")]
    name: Annotated[str, Field(description="Its name.")]


class ReasonCount(Answer):
    """Nodes refused for one reason."""

    reason: Annotated[str, Field(description="Of the closed set, as `kubectl describe pod` shows it.")]
    never: Annotated[bool, Field(description="Whether waiting cannot help.")]
    nodes: Annotated[int, Field(description="How many.")]
    examples: Annotated[list[str], Field(description="Names of some of them, at most 10.")]


class Scored(Answer):
    """One node that prioritize ranked."""

    node: Annotated[str, Field(description="Its name.")]
    score: Annotated[int, Field(description="0 is worst, 10 is best.", ge=0, le=10)]


class DecisionCall(Answer):
    """One call of kube-scheduler."""

    verb: Annotated[Literal["filter", "prioritize"], Field(description="What was asked.")]
    seconds_ago: Annotated[float, Field(description="Since it was answered.")]
    candidates: Annotated[int, Field(description="Nodes that the scheduler named.")]
    passed: Annotated[int, Field(description="Nodes offered to it.")]
    refused: Annotated[int, Field(description="Nodes not offered.")]
    aligned: Annotated[
        bool, Field(description="False: the pod asks for nothing that any node aligns, so nothing was replayed.")
    ]
    certainty: Annotated[dict[Certainty, int], Field(description="Candidates by how sure the answer was.")]
    reasons: Annotated[list[ReasonCount], Field(description="The most frequent first.")]
    best: Annotated[list[Scored], Field(description="The best ranked, at most 10; of filter: empty.")]


class DecisionSummary(Answer):
    """What the last calls about one pod answered."""

    pod: Annotated[DecidedPod, Field(description="Whom the calls were about.")]
    calls: Annotated[list[DecisionCall], Field(description="The newest first.")]


class DecisionIndex(Answer):
    """Pods of the last calls, the newest first."""

    decisions: Annotated[list[DecisionSummary], Field(description="The newest first.")]
    forgotten: Annotated[int, Field(description="Calls that were too many to remember, since the service started.")]


class DecidedNode(Answer):
    """What was answered for one node, and the verdict behind it, replayed on the state of that moment."""

    node: Annotated[str, Field(description="Its name.")]
    passed: Annotated[bool, Field(description="Whether it was offered to the scheduler.")]
    reason: Annotated[str, Field(description="Empty if it passed.")]
    certainty: Annotated[Certainty, Field(description="How sure the answer was.")]
    score: Annotated[int | None, Field(description="What prioritize gave, 0 to 10; null: it was not asked.")]
    verdict: Annotated[Verdict | None, Field(description="Null: nothing was known of the node.")]


class PodDecision(DecisionSummary):
    """What the last calls about one pod answered, with one node in full if one was asked for."""

    node: Annotated[DecidedNode | None, Field(description="The node asked for; null: none was.")] = None
