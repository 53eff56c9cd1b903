"""The values of judging: judgements, what happens to uncertain nodes, and demands for alignment.

Rules of this file
- A pod with a required demand gets a node only where a replay shows that the demand is met. So nodes of which nothing,
  or only counts, are known are refused for it, whatever the settings pass for other pods.
- If several outcomes are possible, each must meet the demand; where `possible_nodes` is `pass`, one of them.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from extender.kubelet.admission import Outcome
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.machine import Machine
from extender.kubelet.pod import PodRequest
from extender.kubelet.verdict import Admitted, Certainty
from extender.replay.alignment_demand import Demand
from extender.replay.demands import Breach, broken_by_claims, broken_by_outcome, is_always_met
from extender.replay.possible_states import MAX_STATES
from extender.scheduling.reasons import RefusalReason


class Action(StrEnum):
    """What to do with a node whose verdict is not certain."""

    PASS = "pass"  # noqa: S105 - not a password
    """Offered to the scheduler, whatever the replay says."""
    REFUSE = "refuse"
    """Not offered, unless the pod requests nothing that a manager aligns."""
    REPLAY = "replay"
    """Judged by its last known state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncertaintyPolicy:
    """The action for each kind of uncertain node.

    `unknown`: no report, or not enough in it (PASS or REFUSE). `stale`: no message for too long. `possible`: the
    kubelet's random choice of devices decides, or the order of events on the node; REPLAY and REFUSE both refuse the
    node if any possible outcome is a refusal. `degraded`: only counts per NUMA node are known; REPLAY refuses the node
    where they prove that its kubelet must refuse the pod. `newer`: the kubelet is newer than the newest known one;
    REPLAY judges the node by the rules of the newest known one, PASS scores it by them and never refuses it.
    `annotations`: the pod has a faulty annotation of the NRI topology-aware policy, which is then ignored, and the
    policy runs on the node (PASS or REFUSE).
    """

    unknown: Action = Action.PASS
    stale: Action = Action.REPLAY
    possible: Action = Action.REFUSE
    degraded: Action = Action.REPLAY
    newer: Action = Action.REPLAY
    annotations: Action = Action.PASS

    @property
    def requires_certainty(self) -> bool:
        """Whether a node is refused unless it is certain to admit the pod."""
        return self.possible is not Action.PASS


class LateNodes(StrEnum):
    """What happens to nodes that were not judged in time."""

    ERROR = "error"
    """The call fails."""
    REFUSE = "refuse"
    """Late nodes are refused, and the call fails only if no other node is feasible."""
    PASS = "pass"  # noqa: S105 - not a password
    """Late nodes are feasible."""


class Trouble(StrEnum):
    """Why a class of nodes could not be judged."""

    STEPS = "steps"
    """The replay needs more steps than that of any real node. It would end at the same step each time."""
    TIME = "time"
    """The time of the call was over. This says nothing about the nodes, and is not cached."""
    DEFECT = "defect"
    """The replay raised an exception."""


class Judgement(NamedTuple):
    """`refusal` None: the nodes are feasible. `merit`: more is better; None if there is nothing to compare nodes by.

    `certainty` UNKNOWN: no verdict could be computed. POSSIBLE: not everything that matters was tried. `trouble`: why a
    replay gave no verdict; `detail` is the traceback of a defect. `misses`: the pod prefers one NUMA node and would be
    split.
    """

    refusal: RefusalReason | None
    certainty: Certainty
    merit: int | None = None
    trouble: Trouble | None = None
    detail: str = ""
    misses: bool = False


INDIFFERENT = Judgement(None, Certainty.EXACT)
"""The pod requests nothing that a manager of the node aligns."""


REASONS: Final[Mapping[Breach, RefusalReason]] = {
    Breach.NUMA_NODES: RefusalReason.DEMAND_NUMA_NODE,
    Breach.SOCKETS: RefusalReason.DEMAND_SOCKET,
    Breach.REMOTE_MEMORY: RefusalReason.DEMAND_MEMORY,
    Breach.NOT_PLACED: RefusalReason.DEMAND_NOT_PLACED,
}


def refusal_by_demand(
    demand: Demand, kubelet: Kubelet, request: PodRequest, outcomes: Sequence[Outcome], *, each_must: bool
) -> RefusalReason | None:
    """Why the node is refused although its kubelet may admit the pod; None if it is not refused.

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
    preferred = demand.with_preferences()
    if demand.is_required or not preferred.is_required:
        return False
    return any(broken_by_outcome(preferred, kubelet, request, each) is not None for each in outcomes)
