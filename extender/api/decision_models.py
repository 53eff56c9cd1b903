"""GET /v1/decisions and /v1/pods/UID/decision: why the last scheduling calls answered as they did."""

from typing import Annotated, Literal

from pydantic import Field

from extender.api.models import Answer, Verdict
from extender.replay.verdict import Certainty


class DecidedPod(Answer):
    """The pod that kube-scheduler asked about."""

    uid: str
    namespace: str
    name: str


class ReasonCount(Answer):
    """Nodes refused for one reason."""

    reason: Annotated[str, Field(description="Of the closed set, as `kubectl describe pod` shows it.")]
    never: Annotated[bool, Field(description="Whether waiting cannot help.")]
    nodes: int
    examples: Annotated[list[str], Field(description="Names of some of them, at most 10.")]


class Scored(Answer):
    """One node that prioritize ranked."""

    node: str
    score: Annotated[int, Field(ge=0, le=10)]


class DecisionCall(Answer):
    """One call of kube-scheduler."""

    verb: Literal["filter", "prioritize"]
    seconds_ago: float
    candidates: int
    passed: int
    refused: int
    aligned: Annotated[
        bool, Field(description="False: the pod asks for nothing that any node aligns, so nothing was replayed.")
    ]
    certainty: Annotated[dict[Certainty, int], Field(description="Candidates by how sure the answer was.")]
    reasons: Annotated[list[ReasonCount], Field(description="The most frequent first.")]
    best: Annotated[list[Scored], Field(description="The best ranked, at most 10; of filter: empty.")]


class Decision(Answer):
    """What the last calls about one pod answered."""

    pod: DecidedPod
    calls: Annotated[list[DecisionCall], Field(description="The newest first.")]


class DecisionIndex(Answer):
    """Pods of the last calls, the newest first."""

    decisions: list[Decision]
    forgotten: Annotated[int, Field(description="Calls that were too many to remember, since the service started.")]


class DecidedNode(Answer):
    """What was answered for one node, and the verdict behind it, replayed on the state of that moment."""

    node: str
    passed: bool
    reason: Annotated[str, Field(description="Empty if it passed.")]
    certainty: Certainty
    score: int | None
    verdict: Annotated[Verdict | None, Field(description="Null: nothing was known of the node.")]


class PodDecision(Decision):
    """What the last calls about one pod answered, with one node in full if one was asked for."""

    node: DecidedNode | None = None
