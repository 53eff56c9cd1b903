"""What the NRI topology-aware policy makes of a pod that the kubelet admits.

The kubelet does not know of the policy. A container that the policy refuses stays in `CreateContainerError`, and the
kubelet tries to create it for ever (`kuberuntime_manager.go` doBackOff knows only containers that existed).

This file joins the two: `NriRuntime` is the policy as the kubelet's replay asks it (`kubelet.RuntimePolicy`), and
`policy_of`, `grants_of` and `placed_by` find the policy's part in the values of the kubelet's replay.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from extender.kubelet.budget import Budget
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.sets import format_list
from extender.kubelet.state import Block, DeviceState, ManagerState, RuntimeGrants
from extender.kubelet.verdict import Admitted, Certainty, Placement, Provider, Rejected, Verdict, When
from extender.nri.admission import Granted, NriContainerKind, NriVerdict, PlacedContainer
from extender.nri.books import Grant
from extender.nri.events import start
from extender.nri.objects import NriHint
from extender.nri.state import NriPodRequest, NriPolicy, NriState
from extender.nri.verdict import NriRefusal
from extender.replay.nri_pod import nri_pod

DEVICES: Final = (
    "the files of its devices are assumed to be on the NUMA nodes that the device plugin reports; the NRI policy looks "
    "them up in sysfs"
)
OTHERS: Final = "an affinity selects containers by ids or names of pods, and nodes are compared without these"
INTERRUPTS: Final = "irq-affinity may name an interrupt of the node that controllableInterrupts leaves out"
SPEED_SELECT: Final = "a CPU class prefers CPUs by the state of Intel Speed Select, which is not reported"
_NEVER: Final = frozenset(
    {NriRefusal.SLICE, NriRefusal.FRACTION, NriRefusal.OFFER, NriRefusal.AFFINITY, NriRefusal.REQUEST}
)
"""Refusals that are final if even an empty node gives them: no pool has more than the root of an empty node."""


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class NriRuntime(NriPolicy):
    """The policy of a node, as the kubelet's replay asks it."""

    @property
    def identity(self) -> str:
        """The digest of the policy's setup: equal for policies that decide alike."""
        return self.digest

    def start(self) -> NriState:
        """The grants of a node where nothing runs yet."""
        return NriState(start(self.setup))

    def create(
        self, granted: RuntimeGrants, pod: PodRequest, admitted: Admitted, devices: DeviceState, budget: Budget
    ) -> tuple[Verdict, RuntimeGrants]:
        """The verdict on a pod that the kubelet has *admitted*, and the grants after it.

        The pod is refused only if it is refused without the hints of its devices as well.
        """
        assert isinstance(granted, NriState)
        asked = nri_pod(pod)
        hinted = with_devices(self, asked, admitted, devices)
        created, after = granted.admit(hinted, budget)
        if created.reason is not None and hinted is not asked:
            created, after = granted.admit(asked, budget)
        doubts = _doubts(self, pod, asked)
        certainty = Certainty.POSSIBLE if doubts else admitted.certainty
        caveats = (*admitted.caveats, *doubts)
        if created.reason is None:
            return replace(admitted, granted=created.placed, certainty=certainty, caveats=caveats), after
        rejected = Rejected(
            reason=created.reason,
            message=created.detail,
            provider=Provider.RUNTIME,
            container=created.container,
            when=When.NEVER if _is_final(self, asked, created, budget) else When.NOW,
            certainty=certainty,
            caveats=caveats,
        )
        return rejected, after


def policy_of(kubelet: Kubelet) -> NriPolicy | None:
    """The policy of the kubelet's node. None if it does not run."""
    return kubelet.runtime if isinstance(kubelet.runtime, NriPolicy) else None


def grants_of(state: ManagerState) -> NriState | None:
    """What the policy has granted on a node. None if it does not run, or its grants are not known."""
    return state.runtime if isinstance(state.runtime, NriState) else None


def grant_count(state: ManagerState) -> int:
    """How many containers hold a grant."""
    granted = grants_of(state)
    return 0 if granted is None else len(granted.node.books.grants)


def placed_by(verdict: Admitted) -> tuple[PlacedContainer, ...]:
    """Where the policy puts the containers, in the order of their creation. Empty if it does not run."""
    return tuple(each for each in verdict.granted if isinstance(each, PlacedContainer))


def lasting_grants(verdict: Admitted) -> Mapping[str, Granted]:
    """What the policy gives the containers that stay, by name: ordinary init containers are gone before the others."""
    return {placed.name: placed.granted for placed in placed_by(verdict) if placed.kind is not NriContainerKind.INIT}


def whole_placements(verdict: Admitted) -> Mapping[str, Placement]:
    """The placements by container, with what the policy grants where the kubelet's managers give nothing."""
    granted = {placed.name: placed.grant for placed in placed_by(verdict)}
    return {
        name: placement if (grant := granted.get(name)) is None else _with_grant(placement, grant)
        for name, placement in verdict.placements.items()
    }


def _with_grant(placement: Placement, grant: Grant) -> Placement:
    memory = (Block(grant.memory_nodes, "memory", grant.memory_bytes),) if grant.memory_bytes else ()
    return replace(placement, cpus=placement.cpus or grant.exclusive, memory=placement.memory or memory)


def _doubts(policy: NriPolicy, pod: PodRequest, asked: NriPodRequest) -> tuple[str, ...]:
    """Why the node's plugin may decide otherwise than the replay."""
    found = ((DEVICES,) if pod.total_devices else ()) + ((OTHERS,) if asked.names_others else ())
    if policy.setup.config.limits_interrupts and asked.names_interrupts:
        found += (INTERRUPTS,)
    if policy.setup.config.uses_speed_select and not asked.takes_no_whole_cpus:
        found += (SPEED_SELECT,)
    return found + policy.doubts


def with_devices(policy: NriPolicy, pod: NriPodRequest, admitted: Admitted, devices: DeviceState) -> NriPodRequest:
    """*pod* with topology hints of the devices that the kubelet has assigned to its containers.

    The plugin takes them from the sysfs entries of the device files that the runtime passes on (`pkg/topology`), which
    only the device plugin knows before. A device has the NUMA node that its device plugin reports, as sysfs has it. One
    that is on several NUMA nodes, or on one without CPUs, gives no hint.
    """
    machine, hints, nodes = policy.setup.topology.machine, dict[str, tuple[tuple[str, NriHint], ...]](), {}
    for name, placement in admitted.placements.items():
        found = []
        for resource, ids in sorted(placement.devices.items()):
            for id_ in ids:
                device = devices.devices.get(resource, {}).get(id_)
                cpus = machine.cpus_of_nodes(device.numa or 0) if device is not None else 0
                if device is not None and device.numa is not None and device.numa.bit_count() == 1 and cpus:
                    node = device.numa.bit_length() - 1
                    found.append(
                        (resource, node, (f"{resource}/{id_}", NriHint(cpus=format_list(cpus), numas=str(node))))
                    )
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
    granted = grants_of(state)
    return (
        () if granted is None else tuple(replace(state, runtime=p) for p in granted.init_phases(nri_pod(pod), budget))
    )


def _is_final(policy: NriPolicy, pod: NriPodRequest, created: NriVerdict, budget: Budget) -> bool:
    """Whether an empty node refuses the pod as well."""
    if created.refusal not in _NEVER:
        return False
    alone, _ = NriState(start(policy.setup)).admit(pod, budget)
    return alone.refusal in _NEVER
