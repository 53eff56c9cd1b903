"""The devices of DRA drivers that the pods of a question get: one pod after another, each from what is left.

Rules of this file
- A pod without claims may need devices as well: where a class stands for an extended resource that it requests.
- Where it is not known what kube-scheduler allocates on a node, claims are left out there. Replies count these nodes.
- Nodes rank as for filter and prioritize: a demand refuses a node where the devices break it, and without a demand such
  nodes have lower scores.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple, Protocol, TypeAlias

import numpy as np

from extender.cluster.node_class import NodeClass
from extender.kubelet.admission import MAX_OUTCOMES, Outcome
from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.verdict import Certainty
from extender.questions.claim_alignment import (
    ClaimAlignment,
    Places,
    can_be_ranked,
    claim_alignment_of,
    claimed_of,
    is_certain,
    may_claim_cpus,
    places_of,
    ranked_by_claims,
)
from extender.questions.node_context import DynamicDevice, NodeContext, Subject
from extender.replay.pod import Pod
from extender.scheduling.judge import Judge
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import SHAPE_UID, PodShape
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.scoring import score_nodes

NO_DEVICES: Final = "kube-scheduler: claims"
"""Why a node is not chosen: no devices are left for the pod's claims."""


class TakenDevices(NamedTuple):
    """What one more pod gets on a node. `devices`: all of the node, the pod's under the names of its claims.

    `around`: the node afterwards; None: kube-scheduler allocates nothing there, and refuses the node.
    """

    devices: Sequence[DynamicDevice]
    around: NodeContext | None


class ClaimForecast(ABC):
    """Predicts which devices claims get. The nodes are arguments."""

    @abstractmethod
    def take(self, pod: Pod, name: str, around: NodeContext, /, *, is_new: bool = True) -> TakenDevices | None:
        """What a new copy of the pod gets on the node; None: not known. Not *is_new*: the pod with its own claims."""

    @abstractmethod
    def served(self, pod: Pod, around: NodeContext, /) -> Collection[str]:
        """The extended resources of the pod that claims serve on the node: kube-scheduler does not check its totals."""

    @abstractmethod
    def without(self, pods: Iterable[Pod], around: NodeContext, /) -> NodeContext:
        """The node without the claims that are deleted with these pods."""


def forecast_of(around: NodeContext) -> ClaimForecast | None:
    """What predicts the claims of pods on the node; None: claims are left out."""
    return around.forecast if isinstance(around.forecast, ClaimForecast) else None


def with_forecast(forecast: ClaimForecast | None, pods: Iterable[Pod], subjects: Sequence[Subject]) -> list[Subject]:
    """The nodes with the forecast, and with the extended resources of the pods that claims serve there."""
    if forecast is None:
        return list(subjects)
    found, wanting = [], [pod for pod in pods if pod.wants_devices]
    for each in subjects:
        served = frozenset(name for pod in wanting for name in forecast.served(pod, each.around))
        found.append(replace(each, around=replace(each.around, forecast=forecast, served=served)))
    return found


def with_devices(forecast: ClaimForecast | None, pod: Pod, subjects: Sequence[Subject]) -> list[Subject]:
    """The nodes with the devices that kube-scheduler would allocate to the pod, as far as that is known."""
    found = with_forecast(forecast, [pod], subjects)
    for i, each in enumerate(found if pod.has_claims or pod.wants_devices else []):
        if forecast is not None and (taken := forecast.take(pod, each.name, each.around, is_new=False)):
            found[i] = replace(each, around=replace(each.around, devices=taken.devices))
    return found


def taken_by(pod: Pod, subject: Subject) -> TakenDevices | None:
    """What one more pod gets on the node; None: not known. Without a forecast claims are left out."""
    around, forecast = subject.around, forecast_of(subject.around)
    if forecast is not None and pod.wants_devices:
        around = replace(around, served={*around.served, *forecast.served(pod, around)})
    if forecast is None or not (pod.has_claims or around.served):
        return TakenDevices((), around)
    return forecast.take(pod, subject.name, around)


class ShapeWithDevices(NamedTuple):
    """One more pod with the devices that it gets on a node. `devices`: all of the node; `around`: the node then."""

    shape: PodShape
    devices: Sequence[DynamicDevice]
    around: NodeContext

    def are_apart(self, kubelet: Kubelet, outcomes: Sequence[Outcome]) -> bool:
        """Whether the pod's devices are not on the NUMA nodes where the outcomes place the rest."""
        pod, places = self.shape.pod, places_of(kubelet, outcomes)
        return bool(pod.claimed) and claim_alignment_of(pod, kubelet, self.devices, places) is ClaimAlignment.APART


def shape_with(shape: PodShape, devices: Sequence[DynamicDevice]) -> PodShape:
    """The shape with what the pod's claims have among the devices of a node."""
    claimed = claimed_of(shape.pod, devices)
    return PodShape(replace(shape.pod, claimed=claimed)) if claimed else shape


def devices_for(shape: PodShape, subject: Subject) -> ShapeWithDevices | None:
    """One more pod of the shape on the node; None: there are no devices for it, or it is not known which it gets."""
    taken = taken_by(shape.pod, subject)
    if taken is None or taken.around is None:
        return None
    return ShapeWithDevices(shape_with(shape, taken.devices), taken.devices, taken.around)


def without_claims_of(pods: Iterable[Pod], around: NodeContext) -> NodeContext:
    """The node without the claims that are deleted with these pods."""
    forecast = forecast_of(around)
    return around if forecast is None else forecast.without(pods, around)


def devices_of_copy(around: NodeContext, *, is_empty: bool, has_other_pods: bool) -> NodeContext:
    """What is around a copy of the node: an empty one has all devices free.

    With other pods than the node's own it is not known what their claims have.
    """
    free = [each._replace(claim="") for each in around.devices or ()]
    devices = free if is_empty and around.devices is not None else around.devices
    return replace(around, devices=devices, claims=None if has_other_pods else around.claims)


def why_no_devices(pod: Pod, subject: Subject) -> str:
    """Why `devices_for` has nothing; "": it has."""
    taken = taken_by(pod, subject)
    if taken is None:
        return "it is not known which devices its claims would get there"
    return "" if taken.around is not None else f"{NO_DEVICES}, even if the node were empty"


def less_certain(certainty: Certainty) -> Certainty:
    """The certainty of an answer in which claims are left out."""
    return Certainty.POSSIBLE if certainty is Certainty.EXACT else certainty


def copies_with_devices(shapes: Iterable[PodShape], subject: Subject) -> Iterator[PodShape | None]:
    """One copy of each shape after another, with the devices that it gets, until no devices are left.

    None, as the last one: it is not known what the copy gets.
    """
    for shape in shapes:
        taken = taken_by(shape.pod, subject)
        if taken is None:
            yield None
        if taken is None or taken.around is None:
            return
        subject = replace(subject, around=taken.around)
        yield shape_with(shape, taken.devices)


def judged_with_devices(
    pod: Pod,
    node_class: NodeClass,
    judgement: Judgement,
    devices: Sequence[DynamicDevice],
    judge: Judge,
    known: dict[object, Judgement],
) -> Judgement:
    """The judgement of a node with what the pod's claims have among its devices. *known*: as for the same pod.

    A DRA driver may give the pod the CPUs that it demands, instead of the node's kubelet.
    """
    if judgement.refusal is RefusalReason.DEMAND_NOT_PLACED and may_claim_cpus(pod, devices):
        judgement = Judgement(None, Certainty.POSSIBLE)
    claimed = claimed_of(pod, devices) if judgement.refusal is None and pod.demand.is_required else {}
    key = node_class, tuple(claimed.items())
    if claimed and key not in known:
        known[key] = judge(PodShape(replace(pod, uid=SHAPE_UID, claimed=claimed)), node_class)
    if not claimed or known[key].refusal is None:
        return judgement
    is_predicted = any(each.is_predicted for each in devices)
    return Judgement(RefusalReason.DEMAND_FORECAST if is_predicted else RefusalReason.DEMAND_CLAIM, judgement.certainty)


def places_on(shape: PodShape, node_class: NodeClass, budget: Budget = UNLIMITED) -> Places:
    """Where the kubelet would place the pod; see `Places`."""
    kubelet = node_class.kubelet
    if kubelet is None or not is_certain(node_class):
        return ()
    request = shape.request(kubelet.rules)
    return places_of(kubelet, node_class.possible.admit(kubelet, request, max_replays=MAX_OUTCOMES, budget=budget))


Option: TypeAlias = tuple[int, int, Certainty]
"""A node that passes: its position, its score, and how certain that is."""


class NodeInPlan(Protocol):
    """A node with the pods placed so far."""

    subject: Subject
    node_class: NodeClass


@dataclass(slots=True)
class PlannedClaims:
    """What pods with claims get on the nodes of a plan. `left_out`: the nodes where that is not known, by position."""

    judge: Judge
    left_out: set[int] = field(default_factory=set)
    _taken: dict[int, dict[object, TakenDevices | None]] = field(default_factory=dict)
    """By position and shape, until the node has another pod."""
    _known: dict[object, tuple[dict[object, Judgement], dict[int, Places]]] = field(default_factory=dict)
    """Of each shape: judgements with devices, and placements by class."""

    def take(self, position: int, pod: Pod, subject: Subject) -> TakenDevices | None:
        """What the pod gets on the node at a position; None: not known."""
        known, key = self._taken.setdefault(position, {}), (pod.whole_shape, pod.claims)
        if key not in known:
            known[key] = taken_by(pod, subject)
            if known[key] is None:
                self.left_out.add(position)
        return known[key]

    def after(self, position: int, pod: Pod, subject: Subject) -> NodeContext:
        """What is around the node once the pod has its devices."""
        taken = self.take(position, pod, subject) if pod.has_claims or subject.around.served else None
        self._taken.pop(position, None)
        return subject.around if taken is None or taken.around is None else taken.around

    def options(
        self, shape: PodShape, nodes: Sequence[NodeInPlan], judgements: Mapping[int, Judgement]
    ) -> tuple[Sequence[Option], dict[str, int], Counter[str]]:
        """The nodes that pass, the best first; how many refuse by which reason; and for how many devices are missing.

        *judgements*: of the pod without devices, by class.
        """
        known, places = self._known.setdefault(shape.pod.shape, ({}, {}))
        judged, alignments, missing = list[Judgement](), list[ClaimAlignment](), set[int]()
        for i, node in enumerate(nodes):
            each, judgement, alignment = node.node_class, judgements[node.node_class.id], ClaimAlignment.UNKNOWN
            if (taken := self.take(i, shape.pod, node.subject)) is None:
                judgement = judgement._replace(certainty=less_certain(judgement.certainty))
            else:
                judgement = judged_with_devices(shape.pod, each, judgement, taken.devices, self.judge, known)
                if each.id not in places:
                    places[each.id] = places_on(shape, each)
                alignment = claim_alignment_of(shape.pod, each.kubelet, taken.devices, places[each.id])
                if taken.around is None and judgement.refusal is None:
                    missing.add(i)
            judged.append(judgement)
            alignments.append(alignment)
        ranked = np.array([can_be_ranked(each) for each in judged], np.bool_)
        scores = ranked_by_claims(np.array(score_nodes(judged), np.uint8), alignments, ranked).tolist()
        passing = (i for i, each in enumerate(judged) if each.refusal is None and i not in missing)
        best = sorted(passing, key=lambda i: (-scores[i], -(judged[i].merit or 0), i))
        reasons = Counter(each.refusal.text for each in judged if each.refusal is not None)
        return [(i, scores[i], judged[i].certainty) for i in best], dict(reasons), +Counter({NO_DEVICES: len(missing)})
