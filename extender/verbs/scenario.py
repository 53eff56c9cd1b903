"""Replay a scenario: a history of pods on one node, step by step.

Where the kubelet chooses among devices at random, every state that can follow is carried along (at most MAX_STATES), so
that later verdicts are judged in all of them.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

from extender.replay.admission import Outcome, admit, answer, identity, release_pods, start_pod
from extender.replay.kubelet import Kubelet
from extender.replay.pod import PodRequest, resolve
from extender.replay.startup import initial_state, start
from extender.replay.state import ManagerState
from extender.replay.verdict import Certainty, Reason, Rejected
from extender.wire.scenarios import Scenario, Step

MAX_STATES: Final = 64
"""States carried from step to step; beyond it verdicts are `possible` and the rest is dropped."""

_MAX_REPLAYS_PER_STEP: Final = 512


class KubeletCrashError(Exception):
    """The real kubelet would panic in this history; the message is Go's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What one admit step can lead to: `outcomes[0]` is the one reported, further ones differ by random choice."""

    step: Step
    outcomes: tuple[Outcome, ...]


Narrow = Callable[[Admission], tuple[Outcome, ...]]
"""Which outcomes of a step the rest of the history follows; must not be empty."""


def run(scenario: Scenario, narrow: Narrow = lambda admission: admission.outcomes) -> Iterator[Admission | None]:
    """One value a step: the admission, or None for steps that are none.

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
            raise KubeletCrashError(first.message)
        admitted[request.uid] = request
        states = tuple(o.state for o in narrow(admission))
        yield admission


def _after_event(step: Step, state: ManagerState, admitted: dict[str, PodRequest]) -> ManagerState:
    if step.op == "remove":
        return release_pods(state, (step.uid,))
    return start_pod(state, admitted[step.uid]) if step.uid in admitted else state


def admit_in_all(kubelet: Kubelet, states: tuple[ManagerState, ...], request: PodRequest) -> tuple[Outcome, ...]:
    """Every distinct outcome of one admission from any of the states; never empty, at most MAX_STATES."""
    found: dict[object, Outcome] = {}
    complete = True
    for state in states:
        first = admit(kubelet, state, request, max_replays=max(1, _MAX_REPLAYS_PER_STEP // len(states)))
        complete = complete and first.complete
        for outcome in (first, *first.alternatives):
            found.setdefault(identity(outcome), outcome)
    outcomes = tuple(found.values())
    decided = complete and len(outcomes) <= MAX_STATES and len({answer(o.verdict) for o in outcomes}) == 1
    if not decided:
        outcomes = tuple(replace(o, verdict=replace(o.verdict, certainty=Certainty.POSSIBLE)) for o in outcomes)
    return outcomes[:MAX_STATES]
