"""Demands for alignment in judgements: the check of an admitted pod, and nodes that show nothing to check.

Rules of this file
- A pod with a required demand gets a node only where a replay shows that the demand is met. So nodes of which nothing,
  or only counts, are known are refused for it, whatever the settings pass for other pods.
- If several outcomes are possible, each must meet the demand; where `possible_nodes` is `pass`, one of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from extender.kubelet.admission import Outcome
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.pod import PodRequest
from extender.kubelet.verdict import Admitted
from extender.replay.branches import MAX_STATES
from extender.replay.demand import Demand
from extender.replay.demands import (
    Breach,
    broken_by_claims,
    broken_by_outcome,
    is_always_met,
)
from extender.scheduling.reasons import RefusalReason

REASONS: Final[Mapping[Breach, RefusalReason]] = {
    Breach.NUMA_NODES: RefusalReason.DEMAND_NUMA_NODE,
    Breach.SOCKETS: RefusalReason.DEMAND_SOCKET,
    Breach.REMOTE_MEMORY: RefusalReason.DEMAND_MEMORY,
    Breach.NOT_PLACED: RefusalReason.DEMAND_NOT_PLACED,
}


def refusal_by_demand(
    demand: Demand, kubelet: Kubelet, request: PodRequest, outcomes: Sequence[Outcome], *, each_must: bool
) -> RefusalReason | None:
    """Why the node is refused although its kubelet may admit the pod; None if it is not.

    *each_must*: whether every possible outcome must meet the demand, or one of them.
    """
    if not demand.is_required:
        return None
    if demand.fault:
        return RefusalReason.DEMAND_FAULT
    admitted = [outcome for outcome in outcomes if isinstance(outcome.verdict, Admitted)]
    broken = [found for each in admitted if (found := broken_by_outcome(demand, kubelet, request, each)) is not None]
    if broken and (each_must or len(broken) == len(admitted)):
        return REASONS[broken[0].breach]
    if each_must and not are_all_known(outcomes) and not is_always_met(demand, kubelet.machine):
        return RefusalReason.CHANCE
    return None


def do_ids_decide_socket(machine: Machine) -> bool:
    """Whether a pod on one NUMA node may be on several sockets."""
    return any(sockets & (sockets - 1) for sockets in machine.numa_sockets.values())


def _wanted(demand: Demand) -> Demand | None:
    """The demand to check: with one NUMA node where the pod only prefers that. None: there is nothing to check."""
    if demand.is_required:
        return demand
    preferred = demand.with_preferences()
    return preferred if preferred.is_required else None


def are_all_known(outcomes: Sequence[Outcome]) -> bool:
    """Whether there are no outcomes but these."""
    return outcomes[0].complete and len(outcomes) < MAX_STATES


def refusal_without_placement(
    demand: Demand, kubelet: Kubelet | None, unplaced: PodRequest | None = None
) -> RefusalReason | None:
    """Why a node is refused where no replay shows a placement of the pod; None if it is not.

    *unplaced*: the pod, if the kubelet is known to place nothing of it.
    """
    if not demand.is_required or (kubelet is not None and is_always_met(demand, kubelet.machine)):
        return None
    if unplaced is None or kubelet is None:
        return RefusalReason.DEMAND_NOT_KNOWN
    broken = broken_by_claims(demand, kubelet.machine, unplaced)
    return None if broken is None else REASONS[broken.breach]


def misses_preference(demand: Demand, kubelet: Kubelet, request: PodRequest, outcomes: Iterable[Outcome]) -> bool:
    """Whether the pod prefers one NUMA node, and an outcome does not give it one."""
    wanted = _wanted(demand)
    if wanted is None or wanted is demand:
        return False
    return any(broken_by_outcome(wanted, kubelet, request, each) is not None for each in outcomes)
