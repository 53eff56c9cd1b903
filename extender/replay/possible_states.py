"""The states that a node can be in, if the kubelet chose at random or the order of events is unknown.

Rules of this file
- A value: every method returns a new one.
- Equal states count once, and the first one is the most likely.
- `complete` False means that there are more states. No method makes it True again.
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Final, Self

from extender.kubelet.admission import Outcome, release_pods
from extender.kubelet.budget import Budget
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.replay.branches import MAX_REPLAYS, admit_in_all


@dataclass(frozen=True, slots=True)
class PossibleStates:
    """`states`: empty if no verdict is possible. `complete`: whether these are all states.

    `contradictory`: the report that they rest on contradicts itself; `complete` is False then.

    `in_turn`: the NRI topology-aware policy has yet to place containers of other pods. It may create them after
    containers of the next pod, so a verdict on that pod is never more than possible.
    """

    states: tuple[ManagerState, ...] = ()
    complete: bool = True
    in_turn: bool = False
    contradictory: bool = False

    @property
    def first(self) -> ManagerState | None:
        """The most likely state. None if no verdict is possible."""
        return self.states[0] if self.states else None

    @property
    def is_certain(self) -> bool:
        """Whether there is exactly one state."""
        return self.complete and len(self.states) == 1 and not self.in_turn

    @property
    def key(self) -> object:
        """Equal for possible states that give the same verdict for every new pod."""
        one = self.states[0].key if len(self.states) == 1 else frozenset(state.key for state in self.states)
        return one, self.complete, self.in_turn, self.contradictory

    def admit(
        self, kubelet: Kubelet, request: PodRequest, *, max_replays: int = MAX_REPLAYS, budget: Budget | None = None
    ) -> tuple[Outcome, ...]:
        """The distinct outcomes of one admission from all states; see `branches.admit_in_all`."""
        return admit_in_all(kubelet, self.states, request, max_replays=max_replays, budget=budget)

    def release(self, uids: Collection[str]) -> Self:
        """The states after these pods are gone."""
        gone = sorted(uids)
        after = {s.key: s for s in (release_pods(state, gone) for state in self.states)}
        return replace(self, states=tuple(after.values()))


NO_STATES: Final = PossibleStates()
