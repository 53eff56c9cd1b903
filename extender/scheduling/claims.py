"""Devices of DRA drivers in demands: whether a claimed device is on the NUMA node of what the kubelet gives.

The kubelet does not align such devices: they are allocated by kube-scheduler, and no manager of the kubelet gives hints
for them. So they matter to a pod's own demand only.

Rules of this file
- A device counts as soon as its claim is allocated. In filter an unallocated claim is passed over: kube-scheduler
  chooses the devices after it, and writes them before it calls bind. Bind needs all of them.
- A device whose driver does not say its NUMA node, or that no driver lists any more, cannot be shown to meet a demand.
  So the node is refused.
- Filter checks at most `MAX_NODES` nodes for a pod. An allocated device of a node leaves kube-scheduler that node only.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

from extender.cluster.dynamic_devices import DynamicDevices
from extender.cluster.node_class import NodeClass
from extender.cluster.store import NodeStore
from extender.replay.admission import Outcome
from extender.replay.demand import Demand
from extender.replay.demands import broken_in_state, is_always_met
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod, PodRequest, resolve
from extender.replay.verdict import Admitted
from extender.scheduling.binder import RETRY, BindFailure, NotBound
from extender.scheduling.cached_judge import Offload
from extender.scheduling.reasons import RefusalReason

MAX_NODES: Final = 64
NOT_ALLOCATED: Final = NotBound(
    f"the pod demands alignment and it is not known yet which devices its claims have; {RETRY}", BindFailure.CLAIMS
)
Claimed = Mapping[str, tuple[int, ...]]
"""The NUMA node of each claimed device as raw bits, by container."""


class ClaimCheck:
    """Checks the claims of pods that demand alignment."""

    def __init__(self, cluster: NodeStore, devices: DynamicDevices, offload: Offload) -> None:
        self._cluster, self._devices, self._offload = cluster, devices, offload

    def concerns(self, pod: Pod) -> bool:
        """Whether there is anything to check for the pod."""
        return pod.demand.is_required and not pod.demand.fault and pod.has_claims

    async def refusals(self, pod: Pod, names: Iterable[str]) -> Mapping[str, RefusalReason]:
        """The nodes of *names* where devices that are allocated already break the pod's demand, with the reason."""
        found = {name: await self._refusal(pod, name) for name in islice(names, MAX_NODES)}
        return {name: refusal for name, refusal in found.items() if refusal is not None}

    async def obstacle(self, pod: Pod, node_name: str) -> NotBound | None:
        """Why the pod must not be bound to the node; None if it may be."""
        if any(self._devices.of_claim(claim, node_name) is None for c in pod.containers for claim in c.claims):
            return NOT_ALLOCATED
        refusal = await self._refusal(pod, node_name)
        return None if refusal is None else NotBound(f"{refusal.text}; {RETRY}", BindFailure.REFUSED)

    async def _refusal(self, pod: Pod, node_name: str) -> RefusalReason | None:
        claimed = claimed_by(pod, self._devices, node_name)
        if not claimed:
            return None
        (node_class,) = self._cluster.classes_of((node_name,))
        return await self._offload(refusal_by_claims, pod, node_class, claimed)


def claimed_by(pod: Pod, devices: DynamicDevices, node_name: str) -> Claimed:
    """The claimed devices of the pod's containers; 0 stands for an unknown NUMA node. Empty if they have none."""
    found = {
        container.name: tuple(
            0 if device.numa is None else 1 << device.numa
            for claim in container.claims
            for device in devices.of_claim(claim, node_name) or ()
        )
        for container in pod.containers
    }
    return {name: numa for name, numa in found.items() if numa}


def refusal_by_claims(pod: Pod, node_class: NodeClass, claimed: Claimed) -> RefusalReason | None:
    """Why claimed devices break the pod's demand on a node of this class in a possible outcome; None: they do not."""
    kubelet = node_class.kubelet
    if kubelet is not None and is_always_met(pod.demand, kubelet.machine):
        return None
    if kubelet is None or any(0 in numa for numa in claimed.values()):
        return RefusalReason.DEMAND_CLAIM_NOT_KNOWN
    request = resolve(pod, kubelet.rules)
    outcomes = node_class.possible.admit(kubelet, request)
    return next(filter(None, (_broken(pod.demand, kubelet, request, each, claimed) for each in outcomes)), None)


def _broken(
    demand: Demand, kubelet: Kubelet, request: PodRequest, outcome: Outcome, claimed: Claimed
) -> RefusalReason | None:
    if not isinstance(outcome.verdict, Admitted):
        return None
    broken = broken_in_state(demand, kubelet.machine, request, outcome.state, claimed)
    return None if broken is None else RefusalReason.DEMAND_CLAIM
