"""Whether claimed devices break the demand of their pod on a node: allocated ones, and predicted ones."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final, NamedTuple

from extender.cluster.node_class import NodeClass
from extender.cluster.sudden_exit import MAX_EXITS
from extender.features.claims.call_forecast import CallForecast, NodeJudge, SearchLimits
from extender.kubelet.admission import Outcome
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted
from extender.questions.claim_alignment import claimed_of, used_by
from extender.questions.node_context import DynamicDevice
from extender.questions.notes import device_note
from extender.replay.alignment import alignment_of_outcomes
from extender.replay.alignment_demand import Demand
from extender.replay.demands import broken_by_outcome, is_always_met
from extender.replay.pod import Pod
from extender.scheduling.reasons import RefusalReason

MAX_TOLD: Final = 4
"""How many devices a sentence names."""


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


def sentence_about(pod: Pod, node_class: NodeClass, devices: Sequence[DynamicDevice]) -> str:
    """Which devices the pod will get on a node, and where the kubelet will place the rest. "": not known."""
    kubelet = node_class.kubelet
    if kubelet is None:
        return ""
    placed = alignment_of_outcomes(kubelet, node_class.possible.admit(kubelet, resolve(pod, kubelet.rules)))
    notes = (
        device_note(container.name, device, placed)
        for container, claims in used_by(pod)
        for device in devices
        if device.is_predicted and device.claim in claims
    )
    return "; ".join(islice(notes, MAX_TOLD))


class PredictedRefusal(NamedTuple):
    """Why predicted devices break a demand. `is_certain`: every allocation that is possible on the node breaks it.

    `is_likely`: all do that are possible in the likeliest case of what pods in flight hold.
    """

    reason: RefusalReason
    is_certain: bool
    is_likely: bool

    @classmethod
    def of(cls, cases: Sequence[Sequence[RefusalReason | None]]) -> "PredictedRefusal | None":
        """From the reason against each possible allocation of each case, the likeliest first. None: there is none.

        Without any allocation it is not known what kube-scheduler has found on the node.
        """
        reasons = [*chain.from_iterable(cases)]
        if not reasons:
            return cls(RefusalReason.DEMAND_FORECAST, is_certain=False, is_likely=False)
        broken = [reason for reason in reasons if reason is not None]
        return cls(broken[0], len(broken) == len(reasons), bool(cases[0]) and None not in cases[0]) if broken else None


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
    for name in forecast.open_of(broken.keys()):
        each = broken[name]
        broken[name] = each._replace(is_certain=False, is_likely=each.is_likely and not forecast.is_crowded)
    return broken


def at_risk(
    pod: Pod, names: Sequence[str], classes: Sequence[NodeClass], forecast: CallForecast, limits: SearchLimits
) -> list[str]:
    """The nodes where the pod may be away from its devices, or refused, once a single other pod has ended."""

    def judge(i: int, devices: Sequence[DynamicDevice]) -> bool:
        claimed = claimed_of(pod, devices)
        return bool(claimed) and _is_at_risk(replace(pod, claimed=claimed), classes[i], limits)

    any_of = NodeJudge[bool, bool]("exits", judge, lambda cases: any(cases[0]))
    found = forecast.judged(names, [each.id for each in classes], any_of, limits)
    return [name for name, is_risky in zip(names, found, strict=True) if is_risky]


def _is_at_risk(pod: Pod, node_class: NodeClass, limits: SearchLimits) -> bool:
    """For one node. *pod*: with its devices. What was not replayed in time, or beyond `MAX_EXITS`, is harmless.

    False as well if the demand is broken without any end: that is a matter of `predicted_refusals`.
    """
    kubelet, possible = node_class.kubelet, node_class.possible
    if kubelet is None or is_always_met(pod.demand, kubelet.machine):
        return False
    request = resolve(pod, kubelet.rules)
    uids = sorted({uid for state in possible.states for uid in state.pod_uids})
    for uid in ("", *islice(uids, MAX_EXITS)):  # "": without any end
        if limits.out_of_time():
            return False
        outcomes = (possible.release((uid,)) if uid else possible).admit(kubelet, request)
        is_broken = any(_broken(pod.demand, kubelet, request, each) for each in outcomes)
        if is_broken and not uid:
            return False
        if is_broken or not all(isinstance(each.verdict, Admitted) for each in outcomes):
            return True
    return False


def _refusal_with(
    pod: Pod, node_class: NodeClass, known: dict[object, RefusalReason | None], devices: Sequence[DynamicDevice]
) -> RefusalReason | None:
    """None as well if the pod has nothing of a DRA driver there. *known*: of nodes that are alike."""
    claimed = claimed_of(pod, devices)
    if not claimed:
        return None
    key = node_class.id, tuple(claimed.items())
    if key not in known:
        reason = refusal_by_claims(replace(pod, claimed=claimed), node_class)
        known[key] = RefusalReason.DEMAND_FORECAST if reason is RefusalReason.DEMAND_CLAIM else reason
    return known[key]
