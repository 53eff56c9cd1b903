"""What the NRI topology-aware policy makes of a pod that the kubelet admits.

The kubelet does not know of the policy. A container that the policy refuses stays in `CreateContainerError`, and the
kubelet tries to create it for ever (`kuberuntime_manager.go` doBackOff knows only containers that existed).
"""

from dataclasses import replace
from typing import Final

from extender.kubelet.budget import Budget
from extender.kubelet.pod import PodRequest
from extender.kubelet.sets import format_list
from extender.kubelet.state import DeviceState, ManagerState
from extender.kubelet.verdict import Admitted, Certainty, Provider, Reason, Rejected, Verdict, When
from extender.nri.admission import NriVerdict
from extender.nri.events import start
from extender.nri.objects import Hint
from extender.nri.state import NriPod, NriPolicy, NriState
from extender.nri.verdict import Refusal

DEVICES: Final = (
    "the files of its devices are assumed to be on the NUMA nodes that the device plugin reports; the NRI policy looks "
    "them up in sysfs"
)
OTHERS: Final = "an affinity selects containers by ids or names of pods, and nodes are compared without these"
INTERRUPTS: Final = "irq-affinity may name an interrupt of the node that controllableInterrupts leaves out"
SPEED_SELECT: Final = "a CPU class prefers CPUs by the state of Intel Speed Select, which is not reported"
_NEVER: Final = frozenset({Refusal.SLICE, Refusal.FRACTION, Refusal.OFFER, Refusal.AFFINITY, Refusal.REQUEST})
"""Refusals that are final if an empty node has them: no pool has more than the root of an empty node."""


def create_containers(
    policy: NriPolicy, state: NriState, pod: PodRequest, admitted: Admitted, devices: DeviceState, budget: Budget
) -> tuple[Verdict, NriState]:
    """The verdict on a pod that the kubelet has *admitted*, and the grants after it.

    *devices*: with those that it has assigned to the pod. The pod is refused only if it is without their hints as well.

    Raises:
        BudgetError: the replay takes more steps than *budget* has.
    """
    assert pod.nri is not None
    hinted = with_devices(policy, pod.nri, admitted, devices)
    created, after = state.admit(hinted, budget)
    if created.reason is not None and hinted is not pod.nri:
        created, after = state.admit(pod.nri, budget)
    doubts = ((DEVICES,) if pod.total_devices else ()) + ((OTHERS,) if pod.nri.names_others else ())
    if policy.setup.config.limits_interrupts and pod.nri.names_interrupts:
        doubts += (INTERRUPTS,)
    if policy.setup.config.uses_speed_select and not pod.nri.takes_no_whole_cpus:
        doubts += (SPEED_SELECT,)
    doubts += policy.doubts
    certainty = Certainty.POSSIBLE if doubts else admitted.certainty
    caveats = (*admitted.caveats, *doubts)
    if created.reason is None:
        return replace(admitted, nri=created.placed, certainty=certainty, caveats=caveats), after
    rejected = Rejected(
        reason=Reason(created.reason.value),
        message=created.detail,
        provider=Provider.NRI,
        container=created.container,
        when=When.NEVER if _is_final(policy, pod.nri, created, budget) else When.NOW,
        certainty=certainty,
        caveats=caveats,
    )
    return rejected, after


def with_devices(policy: NriPolicy, pod: NriPod, admitted: Admitted, devices: DeviceState) -> NriPod:
    """*pod* with topology hints of the devices that the kubelet has assigned to its containers.

    The plugin takes them from the sysfs entries of the device files that the runtime passes on (`pkg/topology`), which
    only the device plugin knows before. A device has the NUMA node that its device plugin reports, as sysfs has it. One
    that is on several NUMA nodes, or on one without CPUs, gives no hint.
    """
    machine, hints, nodes = policy.setup.topology.machine, dict[str, tuple[tuple[str, Hint], ...]](), {}
    for name, placement in admitted.placements.items():
        found = []
        for resource, ids in sorted(placement.devices.items()):
            for id_ in ids:
                device = devices.devices.get(resource, {}).get(id_)
                cpus = machine.cpus_of_nodes(device.numa or 0) if device is not None else 0
                if device is not None and device.numa is not None and device.numa.bit_count() == 1 and cpus:
                    node = device.numa.bit_length() - 1
                    found.append((resource, node, (f"{resource}/{id_}", Hint(cpus=format_list(cpus), numas=str(node)))))
        if found:
            hints[name] = tuple(hint for _, _, hint in found)
            nodes[name] = tuple((resource, (node,)) for resource, node, _ in found)
    if not hints:
        return pod
    listed = nodes if policy.setup.config.pod_resource_api else {}
    return replace(pod, pod=replace(pod.pod, device_hints=hints, device_nodes=listed))


def init_phases(state: ManagerState, pod: PodRequest, budget: Budget) -> tuple[ManagerState, ...]:
    """The states in which an init container of *pod* runs.

    Raises:
        BudgetError: the replay takes more steps than *budget* has.
    """
    if state.nri is None or pod.nri is None:
        return ()
    return tuple(replace(state, nri=phase) for phase in state.nri.init_phases(pod.nri, budget))


def _is_final(policy: NriPolicy, pod: NriPod, created: NriVerdict, budget: Budget) -> bool:
    """Whether an empty node refuses the pod as well."""
    if created.refusal not in _NEVER:
        return False
    alone, _ = NriState(start(policy.setup)).admit(pod, budget)
    return alone.refusal in _NEVER
