"""Replies about decisions and the audit. The command line reads them without the web framework."""

from typing import Annotated, Final, Literal

from extender.kubelet.verdict import Certainty
from extender.replay.demands import Breach
from extender.scheduling.records.predictions import Result
from extender.wire.replies import ReplyBody, about
from extender.wire.verdicts import Verdict

MAX_SHOWN: Final = 1000


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


class _PodView(ReplyBody):
    seconds_ago: float
    node_name: str
    namespace: str
    pod_name: str
    uid: str


class KindView(ReplyBody):
    """The labels by which predictions are counted."""

    policy: Annotated[str, about("Topology manager policy of the node.")]
    scope: Annotated[str, about("Topology manager scope of the node.")]
    version: Annotated[str, about("Minor version of the kubelet whose rules were replayed.")]
    certainty: Annotated[str, about("Certainty of the prediction.")]
    result: Annotated[
        Result,
        about(
            "`agreed`; `placement`: admitted, elsewhere on the node; `false_admit`: refused, against the prediction; "
            "`false_refusal`: the reverse; `other`: refused for a reason other than NUMA; `unsettled`."
        ),
    ]


class CountView(KindView):
    """How many predictions of one kind had this result."""

    count: int


class DisagreementView(_PodView):
    """One wrong prediction."""

    kind: KindView
    predicted: Annotated[str, about("Where the replay placed the pod: CPUs, memory and devices.")]
    reported: Annotated[str, about("Where the kubelet placed it by its report, or why it refused.")]
    agrees_with: Annotated[
        list[str] | None,
        about("Rules that explain the wrong prediction, such as `distribute_inside_hint`; null: not examined."),
    ] = None


class BehaviourView(ReplyBody):
    """A kubelet that behaves as if one rule were not that of its minor version."""

    node_name: str
    rule: Annotated[str, about("The rule, as in `NUMA_EXTENDER_KUBELET_SWITCHES`.")]
    value: Annotated[bool, about("False: the kubelet behaves as without the rule.")]
    agreeing: Annotated[int, about("Failed predictions that agree if the rule has this value.")]
    examined: Annotated[int, about("Failed predictions of this kubelet that were examined.")]


class AuditedNodeView(ReplyBody):
    """A node whose kubelet did something other than predicted."""

    name: str
    disagreements: Annotated[int, about("Wrong predictions among the last results.")]
    results: Annotated[int, about("Number of these last results.")]
    distrusted: Annotated[bool, about("True if verdicts only score this node: see `distrust_after`.")]


class BrokenDemandView(_PodView):
    """A pod whose placement breaks the alignment that it demands. The extender does not delete it."""

    demand: Annotated[str, about("In the words of the annotations, such as `single-numa-node`.")]
    broken: Annotated[
        Breach,
        about(
            "`numa-nodes`, `sockets`: split over several; `remote-memory`: not beside its CPUs, or not pinned; "
            "`not-placed`: on no particular NUMA nodes."
        ),
    ]
    reported: Annotated[str, about("What the pod holds by its kubelet's report.")]


class LeftOutView(ReplyBody):
    """A node that filter leaves out for the shape of a pod that its kubelet has just refused."""

    node_name: str
    namespace: str
    pod_name: Annotated[str, about("The last pod of the shape that was refused.")]
    reason: Annotated[str, about("The reason in the pod's status, such as `TopologyAffinityError`.")]
    seconds_left: Annotated[float, about("Seconds until the node is offered again.")]


class DemandsView(ReplyBody):
    """The pods that demand alignment and were bound since this process started."""

    met: int
    broken: int
    not_known: Annotated[int, about("Gone before a report showed what they held.")]
    recent: Annotated[list[BrokenDemandView], about("The last broken ones, newest first.")]


class AllocationsView(ReplyBody):
    """The pods whose claims kube-scheduler allocated since this process started, by what was predicted for the node."""

    agrees: Annotated[int, about("It took the predicted devices, or one of the possible sets.")]
    differs: Annotated[int, about("It took others.")]
    not_known: Annotated[int, about("Nothing was predicted, or not all that was in flight was counted.")]


class AuditView(ReplyBody):
    """All predictions whose result became known since this process started."""

    counts: list[CountView]
    nodes: Annotated[list[AuditedNodeView], about("Worst first.")]
    recent: Annotated[list[DisagreementView], about("The last disagreements, newest first.")]
    behaviours: Annotated[
        list[BehaviourView], about("Kubelets that carry a fix, or lack one, by node.", max_length=MAX_SHOWN)
    ]
    demands: Annotated[DemandsView, about("Where pods that demand alignment were placed.")]
    allocations: Annotated[AllocationsView, about("Predicted devices of claims against those that were allocated.")]
    left_out: Annotated[list[LeftOutView], about("Nodes left out after a refusal, newest first.", max_length=MAX_SHOWN)]
    pods_in_flight: Annotated[int, about("Pods that are bound and not yet in a report of their node.")]
