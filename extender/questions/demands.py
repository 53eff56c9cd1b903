"""Sentences about demands for alignment that a node would not meet."""

from collections.abc import Iterable

from extender.kubelet.admission import Outcome
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.sets import format_list
from extender.replay.demands import Breach, BrokenDemand, broken_by_outcome, is_always_met
from extender.replay.pod import AlignmentDemand, ContainerDemand, Demand, MemoryDemand


def demand_fault(demand: Demand, kubelet: Kubelet, request: PodRequest, outcomes: Iterable[Outcome]) -> str:
    """How an outcome breaks the pod's demand, in a sentence. Empty: each meets it, or refuses the pod."""
    if demand.fault:
        return f"The pod's demand is not understood: {demand.fault}."
    if not demand.is_required or is_always_met(demand, kubelet.machine):
        return ""
    broken = (broken_by_outcome(demand, kubelet, request, outcome) for outcome in outcomes)
    return next((sentence_of(demand, found) for found in broken if found is not None), "")


def sentence_of(demand: Demand, broken: BrokenDemand) -> str:
    """One broken demand in a sentence."""
    wanted = _wanted(demand.of(broken.container or ""))
    who = f"container {broken.container}" if broken.container is not None else "the pod as a whole"
    where = f"on NUMA {format_list(broken.numa)}"
    match broken.breach:
        case Breach.NUMA_NODES:
            return f"The pod demands one NUMA node, and {who} would be split {where}."
        case Breach.SOCKETS:
            return f"The pod demands one socket, and {who} would be split {where}."
        case Breach.REMOTE_MEMORY:
            return f"The pod demands {wanted}, and CPUs and memory of {who} could be on different NUMA nodes."
        case Breach.NOT_PLACED:
            return f"The pod demands {wanted}, and the kubelet would not place {who} on NUMA nodes."


def _wanted(demand: ContainerDemand) -> str:
    if demand.memory is MemoryDemand.NO_REMOTE_MEMORY:
        return "local memory"
    if demand.alignment is AlignmentDemand.SINGLE_NUMA_NODE:
        return "one NUMA node"
    return "one socket"
