"""Replay a scenario: a history of pods on one node, step by step.

Where the kubelet chooses among devices at random, every state that can follow is carried along (at most MAX_STATES), so
that later verdicts are judged in all of them.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from extender.replay.admission import Outcome, admit, release_pods, start_pod
from extender.replay.config import KubeletConfigError
from extender.replay.kubelet import Kubelet
from extender.replay.pod import PodRequest, resolve
from extender.replay.startup import initial_state, start
from extender.replay.state import ManagerState
from extender.replay.verdict import Certainty, Reason, Rejected
from extender.wire.scenarios import Scenario, Step

MAX_STATES: Final = 64
"""States carried from step to step; beyond it verdicts are `possible` and the rest is dropped."""


class KubeletCrashError(Exception):
    """The real kubelet would panic in this history; the message is Go's."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """What one admit step can lead to: `outcomes[0]` is the one reported, further ones differ by random choice."""

    step: Step
    outcomes: tuple[Outcome, ...]


def run(scenario: Scenario) -> Iterator[Admission | None]:
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
        outcomes = _admit_in_all(kubelet, states, request)
        first = outcomes[0].verdict
        if isinstance(first, Rejected) and first.reason is Reason.KUBELET_PANIC:
            raise KubeletCrashError(first.message)
        admitted[request.uid] = request
        states = tuple(o.state for o in outcomes)
        yield Admission(step=step, outcomes=outcomes)


def _after_event(step: Step, state: ManagerState, admitted: dict[str, PodRequest]) -> ManagerState:
    if step.op == "remove":
        return release_pods(state, (step.uid,))
    return start_pod(state, admitted[step.uid]) if step.uid in admitted else state


def _admit_in_all(kubelet: Kubelet, states: tuple[ManagerState, ...], request: PodRequest) -> tuple[Outcome, ...]:
    found: dict[object, Outcome] = {}
    complete = True
    for state in states:
        first = admit(kubelet, state, request)
        complete = complete and first.complete
        for outcome in (first, *first.alternatives):
            found.setdefault((_answer(outcome), outcome.state.key, str(_placements(outcome))), outcome)
    outcomes = tuple(found.values())
    if len({_answer(o) for o in outcomes}) > 1 or not complete or len(outcomes) > MAX_STATES:
        outcomes = tuple(replace(o, verdict=replace(o.verdict, certainty=Certainty.POSSIBLE)) for o in outcomes)
    return outcomes[:MAX_STATES]


def _answer(outcome: Outcome) -> object:
    verdict = outcome.verdict
    return (verdict.reason, verdict.message) if isinstance(verdict, Rejected) else None


def _placements(outcome: Outcome) -> object:
    verdict = outcome.verdict
    if isinstance(verdict, Rejected):
        return None
    return [(p.affinity, p.preferred, p.cpus, p.memory) for p in verdict.placements.values()]


__all__ = ["Admission", "KubeletConfigError", "KubeletCrashError", "run"]
