"""One pod in a report: whether its admission is over, and whether its init containers still have memory."""

from collections.abc import Collection, Iterator
from dataclasses import replace

from extender.cluster.node import Observation
from extender.cluster.steps import held_by
from extender.kubelet.admission import is_indifferent
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider
from extender.nri.admission import NriContainerKind
from extender.replay.nri_pod import nri_pod


def shows_admission(kubelet: Kubelet, observation: Observation, request: PodRequest, *, whole: bool = True) -> bool:
    """Whether the report shows all that the kubelet allocates to the pod, or the kubelet allocates nothing to it.

    *whole*: and all that the NRI topology-aware policy grants.
    """
    if not whole:
        kubelet = replace(kubelet, runtime=None)
    if is_indifferent(kubelet, request):
        return True
    state = observation.state
    if state is None or request.uid not in state.pod_uids:
        return False
    held = held_by(state, request.uid)
    return all(key in held for key in _expected(kubelet, state, observation.hidden, request))


def _expected(
    kubelet: Kubelet, state: ManagerState, hidden: Collection[Provider], request: PodRequest
) -> Iterator[str]:
    """The resources that a pod has while it is active. Its ordinary init containers may have released theirs."""
    if kubelet.runtime is not None:
        yield from (f"nri/{c.name}" for c in nri_pod(request).containers if c.kind is not NriContainerKind.INIT)
    for c in request.containers:
        if c.reusable:
            continue
        if c.cpus and kubelet.cpu_static and Provider.CPU not in hidden:
            yield f"cpu/{c.name}"
        if c.memory_bytes and kubelet.memory_static and Provider.MEMORY not in hidden:
            yield f"memory/{c.name}"
        for resource, count in c.devices.items():
            known = resource in state.devices.devices and resource not in c.dra_resources
            if count and known and Provider.DEVICE not in hidden:
                yield f"device/{c.name}/{resource}"


def gives_back(state: ManagerState, request: PodRequest) -> bool:
    """Whether init containers of the pod have memory that is released when the next one starts."""
    held = state.memory.entries.get(request.uid)
    return held is not None and any(c.reusable and c.name in held for c in request.containers[:-1])
