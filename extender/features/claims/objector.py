"""Devices of DRA drivers in demands: whether a claimed device is on the NUMA node of what the kubelet gives.

The kubelet does not align such devices: they are allocated by kube-scheduler, and no manager of the kubelet gives hints
for them. So they matter to a pod's own demand only.

Rules of this file
- A device counts as soon as its claim is allocated. Filter passes over an unallocated claim: kube-scheduler chooses the
  devices after filter, and writes them before it calls bind. Bind needs all of them.
- From bind on the pod has its devices with it (`Pod.claimed`). So every later check of its demand covers them: whatever
  the order in which the kubelet admits pods, if another pod ends, and in the audit.
- An extended resource that no device plugin of the node serves is served by a DRA driver: kube-scheduler makes a claim
  for it, after filter as well. Bind finds the claim by the pod that owns it.
- CPUs that the DRA driver for CPUs allocates count like exclusive CPUs. Kubelets on nodes of this driver place no CPUs,
  so filter adds these nodes again for pods with claims.
- If a device's driver does not say its NUMA node, or no driver lists the device any more, the node is refused.
- Filter checks at most `MAX_NODES` nodes for a pod. A claim with an allocated device limits kube-scheduler to the node
  of that device.
- Where `dra_scheduler` names a version of kube-scheduler that can be replayed, filter predicts what it will allocate
  (`forecast`). It refuses nodes where these devices break the demand. Where they may break it, filter avoids the node
  while another one is feasible. If they are likely to break it on every node that is left, the answer is an error for
  at most `AWAIT_SECONDS`. kube-scheduler then tries the pod again after its back-off, when pods in flight have their
  devices. Otherwise bind would refuse it, and its claim would keep the wrong device. After that time such nodes pass:
  no pod is refused for long where a node may take it. Bind compares what was allocated with what was predicted.
- While other pods are on their way to the last nodes that filter would offer, filter waits for their bind calls, up to
  `COMING_SECONDS`: then it is known which devices and which room they take.
- Where the end of another pod would move the CPUs of the pod away from its devices, bind would defer the pod, and its
  claim would keep the node meanwhile. So filter avoids such a node, if at most `MAX_CLOSER` nodes are left. If it is
  the last one, the answer is an error for as long as bind would defer the pod, and then bind does not defer it again.
- Where bind refuses the devices that kube-scheduler allocated, kube-scheduler would allocate the same ones again. So
  filter avoids the node for the pod for `AVOID_SECONDS`, as long as another node is feasible.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import Final

from extender.api.service import Service
from extender.bounded import BoundedMap
from extender.cluster.pods import KnownPod
from extender.features.claims.call_forecast import MAX_SEARCHED, CallForecast, NodeJudge, SearchLimits
from extender.features.claims.coming import ComingPods
from extender.features.claims.forecast import Forecasts
from extender.features.claims.objects import ClaimObjects
from extender.features.claims.refusal import (
    PredictedRefusal,
    at_risk,
    predicted_refusals,
    refusal_by_claims,
    sentence_about,
)
from extender.kubelet.verdict import Certainty
from extender.questions.claim_alignment import extended_by_claims, may_claim_cpus
from extender.replay.pod import Claimed, ClaimedDevice, Pod
from extender.scheduling.binder import RETRY, BindFailure, BindOutcome, NotBound
from extender.scheduling.judge import time_limit
from extender.scheduling.objections import BindCall, FilterCall, Filtered, Objector, avoid, only, with_feasible, without
from extender.scheduling.reasons import RefusalReason
from extender.wire.scheduler import SchedulerArgs

MAX_NODES: Final = 64
AVOID_SECONDS: Final = 60.0
MAX_CPU_NODES: Final = 2000
MAX_TRIED: Final = 10_000
"""For how many pods the avoided nodes are kept, the last `MAX_NODES` of each."""
MAX_CLOSER: Final = 16
COMING_SECONDS: Final = 0.5
"""kube-scheduler tries no other pod meanwhile. It writes a claim and calls bind in about a tenth of that."""
FORECAST_SECONDS: Final = 1.0
"""How long devices are predicted in a filter call. Nodes that are left pass."""
AWAIT_SECONDS: Final = 10.0
"""How long answers about a pod can be errors: about three tries by kube-scheduler's back-off. The next one passes."""
IN_FLIGHT: Final = (
    "pods that are being bound decide which devices the pod would get, and no other node can take it; try again in "
    "some seconds"
)
AT_RISK: Final = (
    "the end of another pod would move the pod's CPUs away from its devices, and no other node can take it; try again "
    "in some seconds"
)
NOT_ALLOCATED: Final = NotBound(
    f"the pod demands alignment and it is not known yet which devices its claims have; {RETRY}", BindFailure.CLAIMS
)


class ClaimCheck(Objector):
    """Checks the claims of pods that demand alignment."""

    def __init__(self, service: Service, devices: ClaimObjects, forecasts: Forecasts | None = None) -> None:
        self._cluster, self._devices, self._forecasts = service.known.nodes, devices, forecasts
        self._surroundings = service.surroundings
        self._offload, self._clock = service.offload, service.clock
        self._tried: BoundedMap[str, BoundedMap[str, float]] = BoundedMap(MAX_TRIED)
        """When bind refused the devices of a pod, by its UID and the node."""
        self._waiting: BoundedMap[str, float] = BoundedMap(MAX_TRIED)
        """Since when answers about a pod are errors, by its UID."""
        self._pods, self._hold_back_seconds = service.known.pods, service.settings.hold_back_seconds
        self._defers = service.settings.uncertainty.requires_certainty
        self._coming: Final = ComingPods(service.clock)

    async def filter(self, call: FilterCall, filtered: Filtered) -> Filtered:
        """The result without nodes where devices that are allocated already break the pod's demand."""
        pod = call.args.pod
        forecast = None if self._forecasts is None else self._forecasts.call(pod, offered=call.args.names)
        after = filtered
        if _concerns(pod):
            after = self._with_cpu_nodes(pod, filtered)
        predicted = await self._predicted_refusals(pod, after.feasible, forecast)
        if self._forecasts is not None and forecast is not None and _concerns(pod):
            left = [name for name in after.feasible if name not in predicted or not predicted[name].is_certain]
            if await self._coming.wait(pod.uid, left, predicted, COMING_SECONDS):
                forecast = self._forecasts.call(pod, offered=call.args.names)
                predicted = await self._predicted_refusals(pod, after.feasible, forecast)
        if _concerns(pod):
            after = await self._checked(pod, after, predicted)
            after = await self._without_risk(call.args, after, forecast)
        after = only(after, next((n for n in self._devices.chosen_for(pod.claims) if n in after.feasible), ""))
        if self._forecasts is not None and forecast is not None:
            self._forecasts.passed(pod, forecast, after.feasible)
        self._coming.passed(pod.uid, after.feasible)
        return after

    async def _checked(self, pod: Pod, filtered: Filtered, predicted: Mapping[str, PredictedRefusal]) -> Filtered:
        """The result without nodes where devices break the pod's demand."""
        is_sure = self._forecasts is not None and not self._forecasts.is_doubted
        refusals = {name: each.reason for name, each in predicted.items() if each.is_certain and is_sure}
        likely = {name for name, each in predicted.items() if each.is_likely and is_sure}
        allocated = (self._devices.claim(name) for name in pod.claims)
        if pod.wants_devices or any(each is not None and each.allocated for each in allocated):
            refusals |= await self._refusals(pod, filtered.feasible)
        after = filtered
        for reason in dict.fromkeys(refusals.values()):
            names = {name for name, each in refusals.items() if each is reason}
            after = without(after, names, reason)
        after = avoid(after, self._tried_for(pod), RefusalReason.DEMAND_CLAIM, Certainty.POSSIBLE)
        for names in (predicted.keys() - refusals.keys(), likely - refusals.keys()):
            after = avoid(after, names, RefusalReason.DEMAND_FORECAST, Certainty.POSSIBLE)
        if not after.feasible or not likely.issuperset(after.feasible):
            return after
        since = self._waiting.setdefault(pod.uid, self._clock())
        if self._clock() - since >= AWAIT_SECONDS:
            del self._waiting[pod.uid]
            return after
        return replace(without(after, likely, RefusalReason.DEMAND_FORECAST, Certainty.POSSIBLE), error=IN_FLIGHT)

    async def _predicted_refusals(
        self, pod: Pod, names: Sequence[str], forecast: CallForecast | None
    ) -> Mapping[str, PredictedRefusal]:
        """Where the devices that kube-scheduler will allocate break the pod's demand, or may break it."""
        if forecast is None or not (_concerns(pod) or len(names) == 1):  # prioritize is not called about one node
            return {}
        some, index = names[:MAX_SEARCHED], self._cluster.index
        classes = index.classes[index.names.slots_of(some)].tolist()
        return await self._offload(predicted_refusals, pod, some, classes, forecast, self._limits())

    async def _without_risk(self, args: SchedulerArgs, filtered: Filtered, forecast: CallForecast | None) -> Filtered:
        """The result without the nodes where the end of another pod would move the pod's CPUs away from its devices.

        If no other node is feasible, an error, as long as bind would defer the pod there. An error would clear a
        nomination, so a pod with a nominated node gets none.
        """
        names, pod, forecasts = filtered.feasible, args.pod, self._forecasts
        if forecast is None or forecasts is None or forecasts.is_doubted or not self._defers:
            return filtered
        if not 0 < len(names) <= MAX_CLOSER:
            return filtered
        classes = self._cluster.classes_of(names)
        risky = await self._offload(at_risk, pod, names, classes, forecast, self._limits())
        after = avoid(filtered, risky, RefusalReason.UNSETTLED, Certainty.POSSIBLE)
        if args.nominated_node or not set(risky).issuperset(after.feasible):
            return after
        if self._pods.defer_for_exits(pod.uid, "", self._clock()) >= self._hold_back_seconds:
            return after
        return replace(without(after, risky, RefusalReason.UNSETTLED, Certainty.POSSIBLE), error=AT_RISK)

    def _with_cpu_nodes(self, pod: Pod, filtered: Filtered) -> Filtered:
        """The result with the nodes whose CPUs a DRA driver allocates, and whose kubelets therefore place nothing."""
        if not pod.has_claims or not filtered.refused:
            return filtered
        text = RefusalReason.DEMAND_NOT_PLACED.text
        refused = islice((name for name, why in filtered.refused.items() if why == text), MAX_CPU_NODES)
        names = [name for name in refused if may_claim_cpus(pod, self._devices.devices_on(name))]
        return with_feasible(filtered, *names) if names else filtered

    async def _refusals(self, pod: Pod, names: Iterable[str]) -> Mapping[str, RefusalReason]:
        found = {name: await self._refusal(pod, name) for name in islice(names, MAX_NODES)}
        return {name: refusal for name, refusal in found.items() if refusal is not None}

    async def permit(self, call: BindCall) -> NotBound | None:
        """All devices of the claims must be known, and must not break the pod's demand."""
        pod, node_name = call.pod, call.node_name
        if self._forecasts is not None:
            self._forecasts.bind(pod, node_name)
        if not _concerns(pod):
            return None
        if any(not self._devices.is_allocated_for(claim, node_name) for claim in _used_by(pod)):
            return NOT_ALLOCATED
        (node_class,) = self._cluster.classes_of((node_name,))
        if extended_by_claims(pod, node_class) and self._devices.devices_for_extended(pod.uid, node_name) is None:
            return NOT_ALLOCATED
        refusal = await self._refusal(pod, node_name)
        if refusal is None:
            return None
        tried = self._tried.get(pod.uid)
        if tried is None:
            tried = self._tried[pod.uid] = BoundedMap(MAX_NODES)
        tried[node_name] = self._clock()
        return NotBound(f"{refusal.text}; {RETRY}", BindFailure.REFUSED)

    async def passes_soon(self, _known: KnownPod, _node_name: str, refused: NotBound) -> bool:
        """kube-scheduler is about to write the devices."""
        return refused.failure is BindFailure.CLAIMS

    def post_bind(self, call: BindCall, outcome: BindOutcome) -> None:
        """The pod has its devices and its room, or does not get them now."""
        if outcome is not NOT_ALLOCATED:
            self._coming.arrived(call.pod.uid)

    def pre_bind(self, pod: Pod, node_name: str) -> Pod:
        """The pod with the devices that its claims have on the node now."""
        return replace(pod, claimed=claimed_by(pod, self._devices, node_name)) if _concerns(pod) else pod

    def kept_nodes(self, _known: KnownPod, pod: Pod) -> Collection[str] | None:
        """All: devices that kube-scheduler allocates later decide, and not what the pod requests."""
        return None if _concerns(pod) else ()

    def released(self) -> Collection[str]:
        """The nodes where the devices of another pod are decided since the last call."""
        return () if self._forecasts is None else self._forecasts.left()

    async def details(self, pod: Pod, refused: Mapping[str, RefusalReason | None]) -> str:
        """The devices that kube-scheduler would take on one node, and where the kubelet would place the rest."""
        name = next((name for name, why in refused.items() if why is RefusalReason.DEMAND_FORECAST), "")
        forecast = self._forecasts.call(pod) if name and self._forecasts is not None else None
        if forecast is None:
            return ""
        (node_class,) = self._cluster.classes_of((name,))
        judge = NodeJudge[str, str](
            "details",
            lambda _, devices: sentence_about(pod, node_class, devices),
            lambda said: next(chain.from_iterable(said), None),
        )
        (said,) = await self._offload(forecast.judged, [name], [node_class.id], judge, self._limits())
        return f"on {name}, {said}" if said else ""

    def _limits(self) -> SearchLimits:
        return SearchLimits(self._surroundings, time_limit(self._clock, self._clock() + FORECAST_SECONDS))

    def _tried_for(self, pod: Pod) -> set[str]:
        """The nodes where bind has just refused the devices of the pod's claims."""
        now, tried = self._clock(), self._tried.get(pod.uid)
        return set() if tried is None else {name for name, at in tried.items() if now - at < AVOID_SECONDS}

    async def _refusal(self, pod: Pod, node_name: str) -> RefusalReason | None:
        pod = self.pre_bind(pod, node_name)
        if not pod.claimed:
            return None
        (node_class,) = self._cluster.classes_of((node_name,))
        return await self._offload(refusal_by_claims, pod, node_class)


def _concerns(pod: Pod) -> bool:
    """Whether there is anything to check for the pod."""
    return pod.demand.is_required and not pod.demand.fault and (pod.has_claims or pod.wants_devices)


def _used_by(pod: Pod) -> Collection[str]:
    """The claims that the pod's containers use, each once: a pod can have 1,000, and use each in every container."""
    return {claim for each in pod.containers for claim in each.claims}


def claimed_by(pod: Pod, devices: ClaimObjects, node_name: str) -> Claimed:
    """The claimed devices of the pod's containers. Empty if they have none."""
    known = {
        claim: [ClaimedDevice(each.numa, each.is_cpus) for each in devices.devices_of(claim, node_name) or ()]
        for claim in _used_by(pod)
    }
    found = {each.name: tuple(chain.from_iterable(known[claim] for claim in each.claims)) for each in pod.containers}
    for position, device in devices.devices_for_extended(pod.uid, node_name) or ():
        is_known = 0 <= position < len(pod.containers)
        name = pod.containers[position if is_known else 0].name
        found[name] = (*found[name], ClaimedDevice(device.numa if is_known else 0))
    return {name: claimed for name, claimed in found.items() if claimed}
