"""Proofs that a node can never admit a pod, whatever is free on it.

Rules of this file
- Only facts that do not depend on use count: hardware, configuration, the devices that exist. Admission is not monotone
  in free resources, so "refused on an empty node" proves nothing.
- In doubt the result is False: "not now" is always safe.

The argument: a CPU can only become available if it is allocatable, and a device only if it is healthy. A hint that is
preferred in some state is also preferred where all of these are free. Memory is left out: where memory is too little,
its manager has "no preference".
"""

from collections.abc import Iterator

from extender.kubelet import cpu_manager, device_manager
from extender.kubelet.budget import UNLIMITED, Budget
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.errors import KubeletPanicError
from extender.kubelet.hints import Hints, preferred_by_all
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import ContainerRequest, PodRequest
from extender.kubelet.state import DeviceState
from extender.kubelet.verdict import Refusal


def can_never_fit(kubelet: Kubelet, devices: DeviceState, pod: PodRequest, budget: Budget = UNLIMITED) -> bool:
    """Whether this kubelet refuses the pod in every state with these devices. False: not proven."""
    all_free = DeviceState(devices=devices.devices)
    if any(_container_never_fits(kubelet, all_free, c, budget) for c in pod.containers):
        return True
    if kubelet.policy not in (TopologyPolicy.RESTRICTED, TopologyPolicy.SINGLE_NUMA_NODE):
        return False
    single = kubelet.policy is TopologyPolicy.SINGLE_NUMA_NODE
    try:
        offers = _best_offers(kubelet, all_free, pod, budget)
        return any(_nothing_in_common(offer, budget, single=single) for offer in offers)
    except (Refusal, KubeletPanicError):
        return True


def _container_never_fits(kubelet: Kubelet, devices: DeviceState, container: ContainerRequest, budget: Budget) -> bool:
    """The request exceeds the node, or full-pcpus-only refuses it by its number alone."""
    if kubelet.cpu_static and container.cpus:
        if kubelet.cpu_options.full_pcpus_only and container.cpus % kubelet.machine.cpus_per_core:
            return True
        if container.cpus > kubelet.allocatable_cpus.bit_count():
            return True
    budget.spend(1 + sum(len(devices.devices.get(resource, ())) for resource in container.devices))
    return any(
        resource in devices.devices and count > sum(d.healthy for d in devices.devices[resource].values())
        for resource, count in container.devices.items()
        if resource not in container.dra_resources
    )


def _best_offers(kubelet: Kubelet, devices: DeviceState, pod: PodRequest, budget: Budget) -> Iterator[list[Hints]]:
    """For each merge of the admission, the hints of CPU and device manager with everything free."""
    if pod.pod_level is not None:
        return
    if kubelet.scope is Scope.POD:
        merges = [(pod.total_cpus, device_manager.pod_hints(kubelet, devices, pod, budget))]
    else:
        merges = [(c.cpus, device_manager.container_hints(kubelet, devices, pod, c, budget)) for c in pod.containers]
    for cpus, device_offers in merges:
        offers = [hints for hints in device_offers.values() if hints is not None]
        if kubelet.cpu_static and cpus:
            offers.append(cpu_manager.generate_hints(kubelet, kubelet.allocatable_cpus, 0, cpus, budget))
        yield offers


def _nothing_in_common(offers: list[Hints], budget: Budget, *, single: bool) -> bool:
    if not offers:
        return False
    space, common = preferred_by_all(offers, budget)
    return not (common & space.by_width[1] if single and common else common)
