"""The states that a node can be in, if the kubelet chose at random or the order of events is unknown.

Admission follows all of them, at most `MAX_STATES`.

Rules of this file
- A verdict is certain only if all states give it. Otherwise every outcome is `possible`.
- Outcomes that no later pod can distinguish count once.
- All states share one budget. If it is used up in the first state, or the time is over, the only outcome says so. If
  the steps end in a later state, the outcomes of the states before it count, and the verdict is undecided.
- `PossibleStates` is a value: every method returns a new one. Equal states count once, and the first one is the most
  likely. `complete` False means that there are more states. No method makes it True again.
"""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Final, Self

from extender.kubelet.admission import Outcome, admit, answer, identity, is_given_up, is_out_of_steps, release_pods
from extender.kubelet.budget import Budget, for_replays
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import NO_TRACE, Certainty, Trace

MAX_STATES: Final = 64
"""How many states are kept from one admission to the next. The others are dropped, and verdicts are `possible`."""

MAX_REPLAYS: Final = 512
"""How many replays one admission may take, for all states together."""


def admit_in_all(
    kubelet: Kubelet,
    states: tuple[ManagerState, ...],
    request: PodRequest,
    *,
    trace: Trace = NO_TRACE,
    max_replays: int = MAX_REPLAYS,
    budget: Budget | None = None,
) -> tuple[Outcome, ...]:
    """The distinct outcomes of one admission from all states. At least one, at most MAX_STATES.

    *trace* is of the first outcome from the first state. *budget* limits the admissions from all states together; None:
    `budget.for_replays`. If it is used up before there is an outcome, the only outcome says so. `complete` and
    `undecided` of the first outcome apply to all.
    """
    budget = budget or for_replays(max_replays)
    each = max(1, max_replays // len(states))
    admissions: list[Outcome] = []
    for state in states:
        told = NO_TRACE if admissions else trace
        outcome = admit(kubelet, state, request, told, max_replays=each, budget=budget)
        if admissions and is_out_of_steps(outcome.verdict):
            admissions[0] = replace(admissions[0], complete=False, undecided=True)
            break
        admissions.append(outcome)
        if is_given_up(outcome.verdict):
            break
    return together(admissions)


def together(admissions: Sequence[Outcome]) -> tuple[Outcome, ...]:
    """The distinct outcomes of admissions of one pod from several states. At least one, at most MAX_STATES.

    An outcome that was abandoned is the only one. `complete` and `undecided` of the first outcome apply to all.
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


@dataclass(frozen=True, slots=True)
class PossibleStates:
    """`states`: empty if no verdict is possible. `complete`: whether these are all states.

    `contradictory`: the report that they rest on contradicts itself; `complete` is False then. `changing`: the states
    are being computed, and this is only the state of the last report; `complete` is False.

    `in_turn`: the NRI topology-aware policy has yet to place containers of other pods. It may create them after
    containers of the next pod, so a verdict on that pod is never more than possible.
    """

    states: tuple[ManagerState, ...] = ()
    complete: bool = True
    in_turn: bool = False
    contradictory: bool = False
    changing: bool = False

    @property
    def first(self) -> ManagerState | None:
        """The most likely state. None if no verdict is possible."""
        return self.states[0] if self.states else None

    @property
    def is_certain(self) -> bool:
        """Whether there is exactly one state."""
        return self.complete and len(self.states) == 1 and not self.in_turn

    def admit(
        self, kubelet: Kubelet, request: PodRequest, *, max_replays: int = MAX_REPLAYS, budget: Budget | None = None
    ) -> tuple[Outcome, ...]:
        """The distinct outcomes of one admission from all states; see `admit_in_all`."""
        return admit_in_all(kubelet, self.states, request, max_replays=max_replays, budget=budget)

    def release(self, uids: Collection[str]) -> Self:
        """The states after these pods are gone."""
        gone = sorted(uids)
        after = {s.key: s for s in (release_pods(state, gone) for state in self.states)}
        return replace(self, states=tuple(after.values()))


NO_STATES: Final = PossibleStates()
