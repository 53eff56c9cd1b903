"""Replays a scenario: a history of pods on one node, step by step.

Where the kubelet chooses among devices at random, all possible states are kept (at most `possible_states.MAX_STATES`),
so that later verdicts are computed in all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from extender.kubelet.admission import Outcome, release_pods, start_pod
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Reason, Rejected
from extender.replay.possible_states import admit_in_all
from extender.wire.scenarios import Scenario, Step


class KubeletCrashError(Exception):
    """The real kubelet would panic in this history. The message is Go's.

    `alternatives` are other messages that it may print instead.
    """

    def __init__(self, message: str, alternatives: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.alternatives = alternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The possible outcomes of one admit step: `outcomes[0]` is reported, others differ by random choice."""

    step: Step
    outcomes: tuple[Outcome, ...]


Narrow = Callable[[Admission], tuple[Outcome, ...]]
"""Selects the outcomes of a step that the rest of the history continues with. Must not return none."""


def run(scenario: Scenario, narrow: Narrow = lambda admission: admission.outcomes) -> Iterator[Admission | None]:
    """One value per step: the admission, or None for other steps.

    Raises:
        KubeletConfigError: no kubelet starts with this configuration.
        KubeletCrashError: the kubelet starts, and panics on one of the pods.
    """
    kubelet = start(scenario.machine, scenario.config)
    states: tuple[ManagerState, ...] = (initial_state(kubelet, scenario.devices),)
    admitted: dict[str, PodRequest] = {}
    for step in scenario.steps:
        if step.pod is None:
            states = tuple(_after_event(step, s, admitted) for s in states)
            yield None
            continue
        request = resolve(step.pod, kubelet.rules)
        admission = Admission(step=step, outcomes=admit_in_all(kubelet, states, request))
        first = admission.outcomes[0].verdict
        if isinstance(first, Rejected) and first.reason is Reason.KUBELET_PANIC:
            raise KubeletCrashError(first.message, first.alternatives)
        admitted[request.uid] = request
        states = tuple(o.state for o in narrow(admission))
        yield admission


def _after_event(step: Step, state: ManagerState, admitted: dict[str, PodRequest]) -> ManagerState:
    if step.op == "remove":
        return release_pods(state, (step.uid,))
    return start_pod(state, admitted[step.uid]) if step.uid in admitted else state
