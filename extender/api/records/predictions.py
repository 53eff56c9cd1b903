"""Route that compares predictions with what the kubelets did."""

from itertools import islice
from typing import Annotated, Final

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from extender.api.service import Service
from extender.replay.demands import Breach
from extender.scheduling.records.demand_results import DemandResult, DemandResults
from extender.scheduling.records.kubelet_rules import Behaviour
from extender.scheduling.records.predictions import Disagreement, Result
from extender.scheduling.records.refusals import RecentRefusal
from extender.wire.validation import doc

MAX_SHOWN: Final = 1000


class _View(BaseModel):
    model_config = ConfigDict(frozen=True, from_attributes=True)


class KindView(_View):
    """The labels by which predictions are counted."""

    policy: Annotated[str, doc("Topology manager policy of the node.")]
    scope: Annotated[str, doc("Topology manager scope of the node.")]
    version: Annotated[str, doc("Minor version of the kubelet whose rules were replayed.")]
    certainty: Annotated[str, doc("Certainty of the prediction.")]
    result: Annotated[
        Result,
        doc(
            "`agreed`; `placement`: admitted, elsewhere on the node; `false_admit`: refused, against the prediction; "
            "`false_refusal`: the reverse; `other`: refused for a reason other than NUMA; `unsettled`."
        ),
    ]


class CountView(KindView):
    """How many predictions of one kind had this result."""

    count: int


class DisagreementView(_View):
    """One wrong prediction."""

    seconds_ago: float
    node_name: str
    namespace: str
    pod_name: str
    uid: str
    kind: KindView
    predicted: Annotated[str, doc("Where the replay placed the pod: CPUs, memory and devices.")]
    reported: Annotated[str, doc("Where the kubelet placed it by its report, or why it refused.")]
    agrees_with: Annotated[
        list[str] | None,
        doc("Rules that explain the wrong prediction, such as `distribute_inside_hint`; null: not examined."),
    ] = None


class BehaviourView(_View):
    """A kubelet that behaves as with a rule that its minor does not have, or without one that it has."""

    node_name: str
    rule: Annotated[str, doc("The rule, as in `NUMA_EXTENDER_KUBELET_SWITCHES`.")]
    value: Annotated[bool, doc("False: the kubelet behaves as without the rule.")]
    agreeing: Annotated[int, doc("Failed predictions that agree if the rule has this value.")]
    examined: Annotated[int, doc("Failed predictions of this kubelet that were examined.")]


class AuditedNodeView(_View):
    """A node whose kubelet did something other than predicted."""

    name: str
    disagreements: Annotated[int, doc("Wrong predictions among the last results.")]
    results: Annotated[int, doc("Number of these last results.")]
    distrusted: Annotated[bool, doc("True if verdicts only score this node: see `distrust_after`.")]


class BrokenDemandView(_View):
    """A pod whose placement breaks the alignment that it demands. The extender does not delete it."""

    seconds_ago: float
    node_name: str
    namespace: str
    pod_name: str
    uid: str
    demand: Annotated[str, doc("In the words of the annotations, such as `single-numa-node`.")]
    broken: Annotated[
        Breach,
        doc(
            "`numa-nodes`, `sockets`: split over several; `remote-memory`: not beside its CPUs, or not pinned; "
            "`not-placed`: on no particular NUMA nodes."
        ),
    ]
    reported: Annotated[str, doc("What the pod holds by its kubelet's report.")]


class LeftOutView(_View):
    """A node that filter leaves out for the shape of a pod that its kubelet has just refused."""

    node_name: str
    namespace: str
    pod_name: Annotated[str, doc("The last pod of the shape that was refused.")]
    reason: Annotated[str, doc("The reason in the pod's status, such as `TopologyAffinityError`.")]
    seconds_left: Annotated[float, doc("Seconds until the node is offered again.")]


class DemandsView(_View):
    """The pods that demand alignment and were bound since this process started."""

    met: int
    broken: int
    not_known: Annotated[int, doc("Gone before a report showed what they held.")]
    recent: Annotated[list[BrokenDemandView], doc("The last broken ones, newest first.")]


class AuditView(_View):
    """All predictions whose result became known since this process started."""

    counts: list[CountView]
    nodes: Annotated[list[AuditedNodeView], doc("Worst first.")]
    recent: Annotated[list[DisagreementView], doc("The last disagreements, newest first.")]
    behaviours: Annotated[
        list[BehaviourView], Field(description="Kubelets that carry a fix, or lack one, by node.", max_length=MAX_SHOWN)
    ]
    demands: Annotated[DemandsView, doc("Where pods that demand alignment were placed.")]
    left_out: Annotated[
        list[LeftOutView], Field(description="Nodes left out after a refusal, newest first.", max_length=MAX_SHOWN)
    ]
    pods_in_flight: Annotated[int, doc("Pods that are bound and not yet in a report of their node.")]


def behaviour_view(behaviour: Behaviour) -> BehaviourView:
    """One line of the audit about a kubelet."""
    return BehaviourView(
        node_name=behaviour.node_name,
        rule=behaviour.setting.rule,
        value=behaviour.setting.value,
        agreeing=behaviour.agreeing,
        examined=behaviour.examined,
    )


def _demands_view(demands: DemandResults, now: float) -> DemandsView:
    return DemandsView(
        **{result.value: demands.counts[result] for result in DemandResult},
        recent=[
            BrokenDemandView(
                seconds_ago=round(now - each.at, 3),
                node_name=each.node_name,
                namespace=each.namespace,
                pod_name=each.pod_name,
                uid=each.uid,
                demand=each.demand,
                broken=each.broken.breach,
                reported=each.reported,
            )
            for each in reversed(demands.recent)
        ],
    )


def _disagreement_view(disagreement: Disagreement, now: float) -> DisagreementView:
    rules = disagreement.agrees_with
    return DisagreementView(
        seconds_ago=round(now - disagreement.at, 3),
        node_name=disagreement.node_name,
        namespace=disagreement.namespace,
        pod_name=disagreement.pod_name,
        uid=disagreement.uid,
        kind=KindView(**disagreement.kind._asdict()),
        predicted=disagreement.predicted,
        reported=disagreement.reported,
        agrees_with=None if rules is None else [str(rule) for rule in rules],
    )


def _left_out_view(refusal: RecentRefusal, now: float) -> LeftOutView:
    return LeftOutView(
        node_name=refusal.node_name,
        namespace=refusal.namespace,
        pod_name=refusal.pod_name,
        reason=refusal.reason,
        seconds_left=round(refusal.until - now, 3),
    )


def audit_router(service: Service) -> APIRouter:
    """GET /v1/audit."""
    router = APIRouter(prefix="/v1", tags=["service"])

    @router.get("/audit", summary="Compare predictions with what the kubelets did")
    async def get_audit() -> AuditView:
        """Counters of predictions, nodes with wrong predictions, and the last wrong predictions."""
        audit, now = service.audit, service.clock()
        return AuditView(
            counts=[CountView(**kind._asdict(), count=count) for kind, count in sorted(audit.counts.items())],
            nodes=[
                AuditedNodeView(
                    name=name, disagreements=wrong, results=results, distrusted=service.audit.is_score_only(name)
                )
                for name, wrong, results in audit.disagreeing_nodes()
            ],
            recent=[_disagreement_view(disagreement, now) for disagreement in reversed(audit.recent)],
            behaviours=[behaviour_view(behaviour) for behaviour in islice(service.behaviours(), MAX_SHOWN)],
            demands=_demands_view(audit.demands, now),
            left_out=[
                _left_out_view(refusal, now)
                for refusal in islice(reversed(service.records.refusals.all(now)), MAX_SHOWN)
            ],
            pods_in_flight=service.known.nodes.pods_in_flight,
        )

    return router
