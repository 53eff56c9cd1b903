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
from extender.replay.coarse.verdict import CoarseAdmitted, IdsDecideError
from extender.replay.demand import Demand
from extender.replay.demands import (
    Breach,
    BrokenDemand,
    Held,
    broken_by,
    broken_by_claims,
    broken_by_outcome,
    is_always_met,
    with_claimed,
)
from extender.replay.pod import claimed_of
from extender.scheduling.reasons import RefusalReason

MAX_KNOWN: Final = 4096
"""For how many outcomes of the coarse replay one `CoarseDemand` keeps the check; then all are dropped."""
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


class CoarseDemand:
    """The check of one pod's demand in outcomes of the coarse replay. Any thread may call it.

    One verdict of the coarse replay stands for many nodes, so what is found of it is kept.
    """

    __slots__ = ("_demand", "_known", "_wanted")

    def __init__(self, demand: Demand) -> None:
        self._demand, self._wanted = demand, _wanted(demand)
        self._known: dict[tuple[int, int], tuple[CoarseAdmitted, Kubelet, BrokenDemand | None]] = {}

    def check(
        self, kubelet: Kubelet, request: PodRequest, admissions: Iterable[CoarseAdmitted], *, each_must: bool
    ) -> tuple[RefusalReason | None, bool]:
        """As `refusal_by_demand`, and as `misses_preference`. *admissions*: in all states of the nodes.

        Raises:
            IdsDecideError: CPU ids decide on which socket the pod is, or the pod has pod-level resources.
        """
        if self._wanted is None:
            return None, False
        found = [self._broken(kubelet, request, each) for each in admissions]
        broken = [each for each in found if each is not None]
        if self._wanted is not self._demand:
            return None, bool(broken)
        is_refused = broken and (each_must or len(broken) == len(found))
        return (REASONS[broken[0].breach] if is_refused else None), False

    def _broken(self, kubelet: Kubelet, request: PodRequest, admitted: CoarseAdmitted) -> BrokenDemand | None:
        """How one admission breaks the demand; None if it does not. Each is checked once."""
        key = id(admitted), id(kubelet)  # both are kept, so that no other object gets their ids
        known = self._known.get(key)
        if known is not None:
            return known[2]
        machine = kubelet.machine
        if request.pod_level is not None or any(on & (on - 1) for on in machine.numa_sockets.values()):
            raise IdsDecideError
        assert self._wanted is not None  # `check` returns early without it
        broken = broken_by(self._wanted, machine, request, _coarse_held(machine, request, admitted))
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        self._known[key] = admitted, kubelet, broken
        return broken


def _coarse_held(machine: Machine, request: PodRequest, admitted: CoarseAdmitted) -> dict[str, Held]:
    return {
        name: with_claimed(
            machine,
            Held(
                placed.cpus,
                machine.socket_bits_in_numa(placed.cpus),
                (placed.memory,) if placed.memory else (),
                tuple([(resource, kind) for resource, kinds in placed.devices for kind, _ in kinds if kind > 0]),
            ),
            claimed_of(request).get(name, ()),
        )
        for name, placed in admitted.placements.items()
    }


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
