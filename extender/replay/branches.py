"""Admission from several states at once.

Where the kubelet chose among devices at random, or where it is not known what came first, a node can be in one of
several states. Every one is carried along, at most `MAX_STATES`.

Laws:
- An answer is certain only if all states give it; otherwise every outcome says `possible`.
- Outcomes that no later pod can tell apart count once.
- One budget for all states. When it is used up in the first state, or its time is over, that is the only outcome.
  When the steps end in a later state, the outcomes from the states before it count, and the answer is not decided.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from extender.replay.admission import Outcome, admit, answer, identity
from extender.replay.budget import Budget, for_replays
from extender.replay.kubelet import Kubelet
from extender.replay.pod import PodRequest
from extender.replay.state import ManagerState
from extender.replay.verdict import Certainty, is_given_up, is_out_of_steps

MAX_STATES: Final = 64
"""States carried from one admission to the next; beyond it verdicts are `possible` and the rest is dropped."""

MAX_REPLAYS: Final = 512
"""Replays spent on one admission, shared between the states it is tried in."""


def admit_in_all(
    kubelet: Kubelet,
    states: tuple[ManagerState, ...],
    request: PodRequest,
    *,
    max_replays: int = MAX_REPLAYS,
    budget: Budget | None = None,
) -> tuple[Outcome, ...]:
    """Every distinct outcome of one admission from any of the states; never empty, at most MAX_STATES.

    *budget* bounds the admissions from all states together; None: `budget.for_replays`. When it is used up before there
    is an outcome, the only outcome is one that says so. `complete` and `undecided` of the first outcome hold for all.
    """
    budget = budget or for_replays(max_replays)
    each = max(1, max_replays // len(states))
    admissions: list[Outcome] = []
    for state in states:
        outcome = admit(kubelet, state, request, max_replays=each, budget=budget)
        if admissions and is_out_of_steps(outcome.verdict):
            admissions[0] = replace(admissions[0], complete=False, undecided=True)
            break
        admissions.append(outcome)
        if is_given_up(outcome.verdict):
            break
    return together(admissions)


def together(admissions: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """The distinct outcomes of admissions of one pod from several states; at least one, at most MAX_STATES.

    One that was given up is the only outcome. `complete` and `undecided` of the first outcome hold for all of them.
    """
    if len(admissions) == 1 and not admissions[0].alternatives and admissions[0].complete:
        return (admissions[0],)
    found: dict[object, Outcome] = {}
    complete, undecided = True, False
    for first in admissions:
        if is_given_up(first.verdict):
            return (first,)
        complete, undecided = complete and first.complete, undecided or first.undecided
        for outcome in (first, *first.alternatives):
            found.setdefault(identity(outcome), outcome)
    outcomes = tuple(found.values())
    decided = complete and len(outcomes) <= MAX_STATES and len({answer(o.verdict) for o in outcomes}) == 1
    if not decided:
        outcomes = tuple(replace(o, verdict=replace(o.verdict, certainty=Certainty.POSSIBLE)) for o in outcomes)
    outcomes = (replace(outcomes[0], complete=complete, undecided=undecided), *outcomes[1:])
    return outcomes[:MAX_STATES]
