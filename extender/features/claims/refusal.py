"""Whether claimed devices break the demand of their pod on a node: those that it has, and those that it will get."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from extender.cluster.node_class import NodeClass
from extender.features.claims.forecast import CallForecast, NodeJudge, SearchLimits
from extender.kubelet.admission import Outcome
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.questions.claim_alignment import claimed_of, extended_by_claims
from extender.questions.node_context import DynamicDevice
from extender.replay.alignment_demand import Demand
from extender.replay.demands import broken_by_outcome, is_always_met
from extender.replay.pod import Pod
from extender.scheduling.reasons import RefusalReason


def refusal_by_claims(pod: Pod, node_class: NodeClass) -> RefusalReason | None:
    """Why claimed devices break the pod's demand on a node of this class in a possible outcome; None: they do not."""
    kubelet = node_class.kubelet
    if kubelet is not None and is_always_met(pod.demand, kubelet.machine):
        return None
    if kubelet is None or not all(each.numa for of in pod.claimed.values() for each in of):
        return RefusalReason.DEMAND_CLAIM_NOT_KNOWN
    request = resolve(pod, kubelet.rules)
    outcomes = node_class.possible.admit(kubelet, request)
    return next(filter(None, (_broken(pod.demand, kubelet, request, each) for each in outcomes)), None)


def _broken(demand: Demand, kubelet: Kubelet, request: PodRequest, outcome: Outcome) -> RefusalReason | None:
    broken = broken_by_outcome(demand, kubelet, request, outcome)
    return None if broken is None else RefusalReason.DEMAND_CLAIM


class PredictedRefusal(NamedTuple):
    """Why predicted devices break a demand. `is_certain`: every allocation that is possible on the node breaks it."""

    reason: RefusalReason
    is_certain: bool

    @classmethod
    def of(cls, reasons: Sequence[RefusalReason | None]) -> "PredictedRefusal | None":
        """From the reason against each possible allocation. None: there is none."""
        broken = [reason for reason in reasons if reason is not None]
        return cls(broken[0], len(broken) == len(reasons)) if broken else None


def predicted_refusals(
    pod: Pod, names: Sequence[str], classes: Sequence[NodeClass], forecast: CallForecast, limits: SearchLimits
) -> dict[str, PredictedRefusal]:
    """The nodes where the devices that the pod will get break its demand, or may break it."""
    known: dict[object, RefusalReason | None] = {}

    def judge(i: int, devices: Sequence[DynamicDevice]) -> RefusalReason | None:
        return _refusal_with(pod, classes[i], known, devices)

    found = forecast.judged(
        names, [each.id for each in classes], NodeJudge("demand", judge, PredictedRefusal.of), limits
    )
    broken = {name: each for name, each in zip(names, found, strict=True) if each is not None}
    return {
        name: each._replace(is_certain=False) if each.is_certain and forecast.is_open(name) else each
        for name, each in broken.items()
    }


def _refusal_with(
    pod: Pod, node_class: NodeClass, known: dict[object, RefusalReason | None], devices: Sequence[DynamicDevice]
) -> RefusalReason | None:
    """None as well if a DRA driver serves extended resources of the pod. *known*: of nodes that are alike."""
    if extended_by_claims(pod, node_class):
        return None
    claimed = claimed_of(pod, devices)
    key = node_class.id, tuple(claimed.items())
    if key not in known:
        reason = refusal_by_claims(replace(pod, claimed=claimed), node_class)
        known[key] = RefusalReason.DEMAND_FORECAST if reason is RefusalReason.DEMAND_CLAIM else reason
    return known[key]
