"""What the NRI topology-aware policy makes of a pod that the kubelet admits.

The kubelet does not know of the policy. A container that the policy refuses stays in `CreateContainerError`, and the
kubelet tries to create it for ever (`kuberuntime_manager.go` doBackOff knows only containers that existed).
"""

from contextlib import suppress
from dataclasses import replace
from typing import Final

from extender.replay.budget import Budget, BudgetError
from extender.replay.nri.admission import NriVerdict
from extender.replay.nri.events import start
from extender.replay.nri.state import NriPod, NriPolicy, NriState
from extender.replay.nri.verdict import Refusal
from extender.replay.pod import PodRequest
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted, Certainty, Provider, Reason, Rejected, Verdict, When

NO_DEVICES: Final = "the place of devices in the machine is not known to the replay of the NRI policy"
OTHERS: Final = "an affinity selects containers by ids or names of pods, and nodes are compared without these"
_NEVER: Final = frozenset({Refusal.SLICE, Refusal.FRACTION, Refusal.OFFER, Refusal.AFFINITY, Refusal.REQUEST})
"""Refusals that are final if an empty node has them: no pool has more than the root of an empty node."""


def create_containers(
    policy: NriPolicy, state: NriState, pod: PodRequest, admitted: Admitted, budget: Budget
) -> tuple[Verdict, NriState]:
    """The verdict on a pod that the kubelet has *admitted*, and the grants after it.

    Raises:
        BudgetError: the replay takes more steps than *budget* has.
    """
    assert pod.nri is not None
    created, after = state.admit(pod.nri, budget)
    doubts = ((NO_DEVICES,) if pod.total_devices else ()) + ((OTHERS,) if pod.nri.names_others else ())
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


def init_phases(state: ManagerState, pod: PodRequest, budget: Budget) -> tuple[ManagerState, ...]:
    """The states in which an init container of *pod* runs; none where the replay takes more steps than *budget* has."""
    if state.nri is None or pod.nri is None:
        return ()
    with suppress(BudgetError):
        return tuple(replace(state, nri=phase) for phase in state.nri.init_phases(pod.nri, budget))
    return ()


def _is_final(policy: NriPolicy, pod: NriPod, created: NriVerdict, budget: Budget) -> bool:
    """Whether an empty node refuses the pod as well."""
    if created.refusal not in _NEVER:
        return False
    alone, _ = NriState(start(policy.setup)).admit(pod, budget)
    return alone.refusal in _NEVER
