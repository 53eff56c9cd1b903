"""The closed set of reasons that kube-scheduler shows.

kube-scheduler counts nodes by equal reasons and writes the counts into an event and the pod's condition. So a reason
never names a node, a pod or an amount; the explanation endpoints have the details.
"""

from collections.abc import Mapping
from enum import Enum, StrEnum
from typing import Final

from extender.kubelet.verdict import Provider, Reason, Rejected, When
from extender.nri.admission import NriReason


class RefusalReason(Enum):
    """Why a node is refused. `text`: what `kubectl describe pod` shows. `never`: no waiting can change it."""

    ALIGNMENT_NOW = ("NUMA alignment is not possible on the node now", False)
    ALIGNMENT_NEVER = ("NUMA alignment can never be possible on the node", True)
    CORES_NOW = ("too few whole CPU cores are free on the node", False)
    CORES_NEVER = ("the CPU count can never be whole cores on the node", True)
    CPUS_NOW = ("too few exclusive CPUs are free on the node", False)
    CPUS_NEVER = ("the node can never have that many exclusive CPUs", True)
    MEMORY_NOW = ("too little memory is free on NUMA nodes of the node", False)
    MEMORY_NEVER = ("the NUMA nodes of the node can never have that much memory", True)
    DEVICES_NOW = ("too few healthy devices are free on the node", False)
    DEVICES_NEVER = ("the node can never have these devices", True)
    POOL_NOW = ("the pod would have no shared CPUs on the node", False)
    POOL_NEVER = ("the pod can never have shared CPUs on the node", True)
    CRASH = ("the kubelet of the node would fail on this pod", False)
    PAGE_SIZE = ("the node has no hugepages of a size that the pod requests", True)
    NRI_CPUS_NOW = ("a container would fail to start: no NRI pool of the node has enough free CPUs", False)
    NRI_CPUS_NEVER = ("a container can never start: no NRI pool of the node has that many CPUs", True)
    NRI_MEMORY_NOW = ("a container would fail to start: the NRI policy of the node has too little free memory", False)
    NRI_MEMORY_NEVER = ("a container can never start: the NRI policy of the node never has such memory", True)
    NRI_HINT = ("a container would fail to start: its strict topology hints cannot be met on the node", False)
    NRI_ISOLATED = ("a container would fail to start: too few isolated CPUs are free on the node", False)
    NRI_ANNOTATION = ("a container can never start: the NRI policy of the node refuses an annotation of the pod", True)
    NRI_ANNOTATION_FAULT = ("an annotation of the pod has a fault, and the node's NRI policy would ignore it", True)
    NRI_CRASH = ("an annotation of the pod would end the process of the node's NRI policy", True)
    CHANCE = ("NUMA alignment on the node depends on a random choice of devices", False)
    UNSETTLED = ("pods coming to or leaving the node decide whether NUMA alignment is possible", False)
    CHANGING = ("the node has just changed and what it can take is still being computed", False)
    CONTRADICTORY = ("the node's state files contradict themselves: its kubelet has not finished writing them", False)
    PROMISED = ("the free room on the node is reserved for a nominated pod of equal or higher priority", False)
    STALE = ("the node's NUMA state is stale", False)
    UNKNOWN = ("the node's NUMA state is not known", False)
    NEWER = ("the node's kubelet is newer than the extender knows", False)
    LATE = ("the node's kubelet takes too long to replay", False)
    NO_TURN = ("there was no time to judge the node yet; the next attempt continues", False)
    AWAITED = ("the node's NUMA state has not been reported yet", False)
    JUST_REFUSED = ("the node's kubelet has just refused a pod of this kind", False)
    STARTING = ("the node's kubelet is starting and has not released the resources of ended pods yet", False)
    SILENT = ("the node's kubelet does not answer and may not start again", False)
    HELD = ("the room on the node is held for the pods of a group", False)
    SHAPE = ("the node has the last room for a declared shape, and another node fits the pod", False)
    ROOM = ("room is being made on the node for another pod, and another node fits the pod", False)
    GROUP_UNFIT = ("the pods of the group do not fit together now", False)
    GROUP_WAITS = ("the pod's group gave back its unused places and waits before its next attempt", False)
    GROUP_REST = ("planning groups of the namespace took long, so its next plan waits for some seconds", False)
    GROUP_TURN = ("places are held for too many other groups now", False)
    GROUP_FULL = ("every place of the pod's group is taken by another pod that is not bound yet", False)
    DEMAND_NUMA_NODE = ("the pod demands one NUMA node and would be split on the node", False)
    DEMAND_SOCKET = ("the pod demands one socket and would be split on the node", False)
    DEMAND_MEMORY = ("the pod demands local memory and could get remote memory on the node", False)
    DEMAND_CLAIM = ("the pod demands alignment and devices of its claims are elsewhere on the node", False)
    DEMAND_FORECAST = (
        "the pod demands alignment and kube-scheduler would allocate devices elsewhere on the node",
        False,
    )
    DEMAND_CLAIM_NOT_KNOWN = ("the pod demands alignment and the driver of a device does not say where it is", False)
    DEMAND_NOT_PLACED = ("the pod demands alignment and the node's kubelet would not place it on NUMA nodes", True)
    DEMAND_NOT_KNOWN = ("the pod demands alignment and it is not known where the node would place it", False)
    DEMAND_FAULT = ("the pod's demand for alignment is not understood", True)

    def __init__(self, text: str, never: bool) -> None:  # noqa: FBT001 - the members above are read as a table
        self.text: Final = text
        self.never: Final = never

    __hash__ = object.__hash__  # members are equal only to themselves; Enum's own hash is a call into Python


NEVER_TEXTS: Final = frozenset(r.text for r in RefusalReason if r.never)
"""The texts of the reasons that no waiting can change."""

_BY_PROVIDER: Final = {
    Provider.TOPOLOGY: (RefusalReason.ALIGNMENT_NOW, RefusalReason.ALIGNMENT_NEVER),
    Provider.CPU: (RefusalReason.CPUS_NOW, RefusalReason.CPUS_NEVER),
    Provider.MEMORY: (RefusalReason.MEMORY_NOW, RefusalReason.MEMORY_NEVER),
    Provider.DEVICE: (RefusalReason.DEVICES_NOW, RefusalReason.DEVICES_NEVER),
}
_BY_REASON: Final[Mapping[StrEnum, tuple[RefusalReason, RefusalReason]]] = {
    Reason.TOPOLOGY_AFFINITY: _BY_PROVIDER[Provider.TOPOLOGY],
    Reason.SMT_ALIGNMENT: (RefusalReason.CORES_NOW, RefusalReason.CORES_NEVER),
    Reason.EMPTY_POD_SHARED_POOL: (RefusalReason.POOL_NOW, RefusalReason.POOL_NEVER),
    NriReason.NO_CPU: (RefusalReason.NRI_CPUS_NOW, RefusalReason.NRI_CPUS_NEVER),
    NriReason.NO_MEMORY: (RefusalReason.NRI_MEMORY_NOW, RefusalReason.NRI_MEMORY_NEVER),
    NriReason.STRICT_HINT: (RefusalReason.NRI_HINT, RefusalReason.NRI_HINT),
    NriReason.STRICT_ISOLATION: (RefusalReason.NRI_ISOLATED, RefusalReason.NRI_ISOLATED),
    NriReason.ANNOTATION: (RefusalReason.NRI_ANNOTATION, RefusalReason.NRI_ANNOTATION),
    NriReason.CRASH: (RefusalReason.NRI_CRASH, RefusalReason.NRI_CRASH),
    Reason.KUBELET_PANIC: (RefusalReason.CRASH, RefusalReason.CRASH),
    Reason.KUBELET_HANG: (RefusalReason.CRASH, RefusalReason.CRASH),
}


def refusal_by_reason(reason: Reason | NriReason) -> RefusalReason:
    """The scheduler's reason for a kubelet's reason, if waiting may change the verdict."""
    return _BY_REASON[reason][0]


def refusal_of(verdict: Rejected) -> RefusalReason:
    """The reason for a verdict."""
    if verdict.reason is Reason.KUBELET_PANIC and verdict.resource is not None:
        return RefusalReason.PAGE_SIZE
    now, never = _BY_REASON.get(verdict.reason) or _BY_PROVIDER[verdict.provider]
    return never if verdict.when is When.NEVER else now
