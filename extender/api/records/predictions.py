"""Route that compares predictions with what the kubelets did."""

from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter, Response

from extender.api.http.problems import replies_with
from extender.api.http.replies import json_reply
from extender.api.service import Service
from extender.replay.demands import Breach
from extender.scheduling.records.demand_results import DemandResult
from extender.scheduling.records.predictions import Result
from extender.wire.replies import ReplyBody, about

MAX_SHOWN: Final = 1000


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
    """A kubelet that behaves as if it had a rule that its minor lacks, or lacked a rule that its minor has."""

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


class AuditView(ReplyBody):
    """All predictions whose result became known since this process started."""

    counts: list[CountView]
    nodes: Annotated[list[AuditedNodeView], about("Worst first.")]
    recent: Annotated[list[DisagreementView], about("The last disagreements, newest first.")]
    behaviours: Annotated[
        list[BehaviourView], about("Kubelets that carry a fix, or lack one, by node.", max_length=MAX_SHOWN)
    ]
    demands: Annotated[DemandsView, about("Where pods that demand alignment were placed.")]
    left_out: Annotated[list[LeftOutView], about("Nodes left out after a refusal, newest first.", max_length=MAX_SHOWN)]
    pods_in_flight: Annotated[int, about("Pods that are bound and not yet in a report of their node.")]


def _audit_view(service: Service) -> AuditView:
    audit, now = service.audit, service.clock()
    refusals = islice(reversed(service.records.refusals.all(now)), MAX_SHOWN)
    return AuditView(
        counts=[CountView.filled(kind, count=count) for kind, count in sorted(audit.counts.items())],
        nodes=[
            AuditedNodeView(name=name, disagreements=wrong, results=results, distrusted=audit.is_score_only(name))
            for name, wrong, results in audit.disagreeing_nodes()
        ],
        recent=[
            DisagreementView.filled(
                each,
                seconds_ago=round(now - each.at, 3),
                kind=KindView.filled(each.kind),
                agrees_with=None if each.agrees_with is None else list(map(str, each.agrees_with)),
            )
            for each in reversed(audit.recent)
        ],
        behaviours=[
            BehaviourView.filled(each, **each.setting._asdict()) for each in islice(service.behaviours(), MAX_SHOWN)
        ],
        demands=DemandsView(
            **{result.value: audit.demands.counts[result] for result in DemandResult},
            recent=[
                BrokenDemandView.filled(each, seconds_ago=round(now - each.at, 3), broken=each.broken.breach)
                for each in reversed(audit.demands.recent)
            ],
        ),
        left_out=[LeftOutView.filled(each, seconds_left=round(each.until - now, 3)) for each in refusals],
        pods_in_flight=service.known.nodes.pods_in_flight,
    )


def audit_router(service: Service) -> APIRouter:
    """GET /v1/audit."""
    router = APIRouter(prefix="/v1", tags=["service"])

    @router.get("/audit", summary="Compare predictions with what the kubelets did", **replies_with(AuditView))
    async def get_audit() -> Response:
        """Counters of predictions, nodes with wrong predictions, and the last wrong predictions."""
        return json_reply(_audit_view(service))

    return router
