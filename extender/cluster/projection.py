"""Computes the possible states of a node for the next pod, from its report and its ledger.

Rules of this file
- Pure: the same input always leads to the same projection, whatever the order in which its parts became known.
- A pod that the report shows in part is in the middle of its admission. What it holds is taken out, and its admission
  is replayed whole, as the kubelet completes it. Grants of the NRI topology-aware policy stay, and are not made again.
- A pod that the kubelet refuses according to the replay uses nothing.
- The order of events is not always known (`admission_order`). A pod may have left before or after another one was
  admitted. A terminating pod, or one that only the report shows, may be gone or not. An init container may have
  released its memory or not. A binding in doubt may not exist. Every combination is followed.
- All limits are in `steps`. At the first one that is reached `complete` becomes False, and no verdict on the
  node is certain any more. Then only one order is followed, from one state to the next.
- Under the NRI topology-aware policy pods in flight get their containers in any order, one whole pod after the other,
  and an init container may be running.

Mirrors: kubelet `cm/{cpumanager,memorymanager}` removeStaleState, `cm/devicemanager` UpdateAllocatedDevices.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice
from math import inf
from typing import Final

from extender.cluster.admission_order import predecessors
from extender.cluster.ledger import NO_PODS, Admit, BindingState, Event, Ledger, Release, left_before
from extender.cluster.steps import (
    LAST_STEPS,
    MAX_IN_FLIGHT,
    MAX_MAYBE_GONE,
    MAX_ORDERS,
    MAX_STATES,
    SEARCH_STEPS,
    Steps,
)
from extender.kubelet.admission import Outcome, answer, is_given_up, is_indifferent
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Certainty, Rejected, Verdict
from extender.replay.creation import grants_of
from extender.replay.demands import broken_by_outcome
from extender.replay.possible_states import MAX_REPLAYS, PossibleStates, together


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectionInput:
    """The input of a projection, as a value, so that the projection can be computed when it is needed.

    `reported`: the state that the last report shows. `now`: seconds of the service's clock. `vanished`: pods of the
    report that no longer exist; `maybe_gone`: those that may no longer exist. `admitted`: pods in flight for which the
    report shows all that the kubelet gives, but not all that the NRI policy grants. `contradictory`: the report
    contradicts itself.
    """

    kubelet: Kubelet
    reported: ManagerState
    ledger: Ledger
    now: float
    vanished: frozenset[str] = NO_PODS
    maybe_gone: frozenset[str] = NO_PODS
    admitted: frozenset[str] = NO_PODS
    contradictory: bool = False

    @property
    def leaving(self) -> frozenset[str]:
        """Pods that the kubelet may no longer count."""
        return self.ledger.ending(self.now) | self.maybe_gone

    @property
    def released(self) -> frozenset[str]:
        """Pods that the kubelet no longer counts, and that may have been counted when others were admitted."""
        return frozenset(e.uid for e in self.ledger.events if isinstance(e, Release) and e.due <= self.now)

    def is_alike(self, other: "ProjectionInput") -> bool:
        """Whether both have the same projection: time matters only for what is due."""
        mine, others = self.ledger, other.ledger
        return (
            self.kubelet is other.kubelet
            and self.reported is other.reported
            and self.contradictory == other.contradictory
            and (self.vanished, self.maybe_gone, self.admitted) == (other.vanished, other.maybe_gone, other.admitted)
            and list(map(_read, mine.events)) == list(map(_read, others.events))
            and (mine.left, mine.leaving, mine.starting) == (others.left, others.leaving, others.starting)
            and (self.leaving, self.released) == (other.leaving, other.released)
        )

    def initial_states(self, steps: Steps) -> tuple[ManagerState, ...]:
        """The reported state without pods that are gone, and without pods in flight that it shows in part.

        More than one if it depends on the order in which the kubelet releases what they had.
        """
        in_flight = [admit.uid for admit in self.ledger.admits if admit.uid not in self.admitted]
        gone = {*self.ledger.left, *self.vanished}
        return steps.without_admissions(self.reported, gone, in_flight)


def _read(e: Event) -> object:
    """What a projection reads of an event. It does not read whether the watch has shown a binding."""
    if isinstance(e, Release):
        return e.uid, e.due
    return e.uid, e.pod, e.since, e.started_at, e.ordered, e.binding is BindingState.IN_DOUBT


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """The possible states for the next pod.

    `verdicts`: the predictions for each pod in flight, by UID, one verdict for each possible outcome.
    `against_demand`: pods in flight that may be placed against the alignment that they demand. `one_order`: the kubelet
    meets the pods in flight in the order of their bindings.
    """

    possible: PossibleStates
    verdicts: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)
    against_demand: frozenset[str] = NO_PODS
    one_order: bool = True

    @property
    def complete(self) -> bool:
        """Whether all possible states were followed."""
        return self.possible.complete

    @property
    def at_risk(self) -> frozenset[str]:
        """Pods in flight that the kubelet may refuse, or place against their demand."""
        verdicts = self.verdicts.items()
        refused = (uid for uid, ways in verdicts if any(isinstance(way, Rejected) for way in ways))
        return self.against_demand.union(refused)


def project(given: ProjectionInput, steps: Steps | None = None, *, limit: float = inf) -> Projection:
    """The possible states from the report and the ledger.

    *steps*: the steps of earlier calls for the same report. They save work and do not change the result.

    Raises:
        ElsewhereError: it takes more than *limit* new steps. What they led to is kept in *steps*.
    """
    steps = Steps() if steps is None else steps
    if given.contradictory:
        found = project(replace(given, contradictory=False), steps, limit=limit)
        return replace(found, possible=replace(found.possible, complete=False, contradictory=True))
    steps.begin(limit)
    states = given.initial_states(steps)
    if len(states) == 1 and not given.ledger.events and not given.leaving and not given.ledger.starting:
        return Projection(possible=PossibleStates(states))
    return _Projector(given, given.leaving, steps).from_states(states)


def project_from(
    states: tuple[ManagerState, ...], given: ProjectionInput, leaving: frozenset[str], steps: Steps
) -> Projection:
    """The projection from *states*. *leaving*: pods that may be gone."""
    steps.begin()
    return _Projector(given, leaving, steps).from_states(states)


class _Projector:
    """Follows one state through all possible events since the report."""

    def __init__(self, given: ProjectionInput, leaving: frozenset[str], steps: Steps) -> None:
        kubelet, ledger, rules = given.kubelet, given.ledger, given.kubelet.rules
        self.admitted: Final = given.admitted
        self.reported: Final = given.reported
        requests = {admit.uid: steps.request(admit.pod, rules) for admit in ledger.admits}
        self.kubelet: Final = kubelet
        self.events: Final = ledger.events
        self.requests: Final = {uid: pod for uid, pod in requests.items() if not is_indifferent(kubelet, pod)}
        self.admits: Final = [admit for admit in ledger.admits if admit.uid in self.requests]
        self.released: Final = given.released
        self.leaving: Final = leaving
        self.steps: Final = steps
        self.starting: Final = {uid: steps.request(pod, rules) for uid, pod in ledger.starting.items()}
        if kubelet.memory_static:
            self.starting.update(
                {uid: pod for uid, pod in self.requests.items() if any(c.reusable for c in pod.containers)}
            )
        releases = {event.uid for event in ledger.events if isinstance(event, Release)}
        self.distinguished: Final = frozenset(leaving | releases | self.starting.keys())
        ended = leaving | releases | ledger.left.keys() | given.vanished  # up to 1.31 perhaps released all at once
        in_order = rules.memory_group_check or not (self.admits or leaving)
        self.complete = in_order or len(steps.release(given.reported, ended)) == 1
        self.given_up, self.one_order = False, True
        self.verdicts: Final[dict[str, tuple[Verdict, ...]]] = {}
        self.against_demand: Final[set[str]] = set()

    def from_states(self, states: tuple[ManagerState, ...]) -> Projection:
        """All current possible states."""
        ways: dict[int, tuple[ManagerState, ...]] = {0: self._some(self._distinct(states))}
        before = self._predecessors()
        for _ in self.admits:
            ways = self._one_more(ways, before)
        (states,) = ways.values()
        states = self._release(self._by_now(states, self.leaving), self.released)
        answers = tuple({self.steps.number(state): state for state in states}.values())
        self._check(len(answers) <= MAX_STATES)
        return Projection(
            possible=PossibleStates(answers[:MAX_STATES], complete=self.complete, in_turn=self._in_turn(answers)),
            verdicts=self._predicted(),
            against_demand=frozenset(self.against_demand),
            one_order=self.one_order,
        )

    def _predecessors(self) -> Sequence[int]:
        """For each pod in flight, the bits of those before it in every order that is followed."""
        self._check(len(self.admits) <= MAX_IN_FLIGHT)
        if not self.complete:
            self.one_order = False
            return [0] * len(self.admits)
        self.steps.spend(len(self.admits) ** 2)
        shape_of = partial(self.steps.shape, rules=self.kubelet.rules)
        in_any_order = self.kubelet.runtime is not None
        return predecessors(self.admits, self.events, self.distinguished, shape_of, in_any_order=in_any_order)

    def _in_turn(self, states: Iterable[ManagerState]) -> bool:
        """Whether the NRI policy has yet to place containers of pods in flight. Their order is not known."""
        reported = grants_of(self.reported)
        placed = {} if reported is None else {admit.uid: len(reported.held_by(admit.uid)) for admit in self.admits}
        return any(
            (granted := grants_of(state)) is not None and len(granted.held_by(uid)) > count
            for state in states
            for uid, count in placed.items()
        )

    def _one_more(
        self, ways: Mapping[int, tuple[ManagerState, ...]], before: Sequence[int]
    ) -> dict[int, tuple[ManagerState, ...]]:
        """The states after one more admission. Keys: the bits of the admissions that the states have."""
        found: dict[int, list[tuple[int, Admit]]] = {}
        for done in ways:
            ready = [i for i in range(len(self.admits)) if not done >> i & 1 and not before[i] & ~done]
            self.one_order = self.one_order and len(ready) == 1
            for number in ready if self.complete else ready[:1]:
                found.setdefault(done | 1 << number, []).append((done, self.admits[number]))
        self.steps.spend(len(ways) * len(self.admits) // 4, is_new=False)
        self._check(len(found) <= MAX_ORDERS)
        longer = {}
        for done, last in found.items():
            states = [state for earlier, admit in last for state in self._admit(admit, ways[earlier])]
            longer[done] = self._some(self._distinct(states))
            if not self.complete:  # the first one is the order of the ledger
                return dict(islice(longer.items(), 1))
        return longer

    def _admit(self, admit: Admit, states: tuple[ManagerState, ...]) -> Iterator[ManagerState]:
        """The states after the pod's admission, and those without it if it may never have been bound.

        After a replay without a verdict, and after `LAST_STEPS`, no other one is tried: the node is uncertain anyway.
        """
        self._check(self.steps.spent <= SEARCH_STEPS)
        if self.given_up or self.steps.spent > SEARCH_STEPS + LAST_STEPS:
            yield from states
            return
        surely = left_before(self.events, admit)
        states = self._release(states, surely)
        if self.complete:
            states = self._by_now(states, self.leaving | self.released - surely)
        states = self._some(states)
        outcomes = self._admit_in_all(states, self.requests[admit.uid])
        self._check(all(outcome.complete for outcome in outcomes))
        if any(is_given_up(outcome.verdict) for outcome in outcomes):
            self.given_up = True
        else:
            self.verdicts[admit.uid] = (*self.verdicts.get(admit.uid, ()), *(outcome.verdict for outcome in outcomes))
            if self._is_against_demand(admit, outcomes):
                self.against_demand.add(admit.uid)
        yield from (outcome.state for outcome in outcomes)
        for state in states if self.complete else ():
            yield from self.steps.init_phases(self.kubelet, state, self.requests[admit.uid])
        if admit.binding is BindingState.IN_DOUBT:
            yield from states

    def _is_against_demand(self, admit: Admit, outcomes: Iterable[Outcome]) -> bool:
        demand, request = admit.pod.demand, self.requests[admit.uid]
        return demand.is_required and any(broken_by_outcome(demand, self.kubelet, request, each) for each in outcomes)

    def _admit_in_all(self, states: tuple[ManagerState, ...], request: PodRequest) -> tuple[Outcome, ...]:
        """The outcomes from all states. Outcomes in which other pods have the same resources stay separate."""
        alike: dict[object, list[ManagerState]] = {}
        for state in states:
            alike.setdefault(self.steps.holdings(state, self.distinguished), []).append(state)
        outcomes: list[Outcome] = []
        for group in alike.values():
            each = max(len(group), MAX_REPLAYS * len(group) // len(states)) // len(group)
            is_admitted = request.uid in self.admitted
            outcomes += together(
                [self.steps.admit(self.kubelet, state, request, each, is_admitted=is_admitted) for state in group]
            )
        return tuple(outcomes)

    def _by_now(self, states: tuple[ManagerState, ...], leaving: frozenset[str]) -> tuple[ManagerState, ...]:
        """The states, and those that follow if some of the pods have started or are gone."""
        starting = self.starting

        def start(state: ManagerState, uids: Sequence[str]) -> tuple[ManagerState, ...]:
            for uid in uids:
                state = self.steps.start(state, starting[uid])
            return (state,)

        if starting:
            candidates = [[uid for uid, pod in starting.items() if gives_back(state, pod)] for state in states]
            states = self._maybe(states, candidates, start)
        if not leaving:
            return states
        return self._maybe(states, [sorted(self.steps.uids(state) & leaving) for state in states], self.steps.release)

    def _maybe(
        self,
        states: tuple[ManagerState, ...],
        candidates: Sequence[Sequence[str]],
        change: Callable[[ManagerState, Sequence[str]], tuple[ManagerState, ...]],
    ) -> tuple[ManagerState, ...]:
        """The states, and those after *change* for some of the *candidates* of each."""
        if not any(candidates):
            return states
        self._check(max(map(len, candidates)) <= MAX_MAYBE_GONE)
        found = list(states)
        for state, unsure in zip(states, candidates, strict=True):
            for uids in _combinations(unsure) if self.complete else ([unsure] if unsure else ()):
                found += change(state, uids)
            self._check(self.steps.spent <= SEARCH_STEPS)
        return self._distinct(found)

    def _release(self, states: Iterable[ManagerState], uids: frozenset[str]) -> tuple[ManagerState, ...]:
        """The states after these pods are gone."""
        return tuple(after for state in states for after in self.steps.release(state, uids))

    def _distinct(self, states: Iterable[ManagerState]) -> tuple[ManagerState, ...]:
        """The states without duplicates: one of those that give the same result for every later pod and event."""
        states = tuple(states)
        if len(states) == 1:
            return states
        number, holdings = self.steps.number, self.steps.holdings
        return tuple({(number(state), holdings(state, self.distinguished)): state for state in states}.values())

    def _some(self, states: tuple[ManagerState, ...]) -> tuple[ManagerState, ...]:
        """The states. Only the first one if there are too many, or if not all orders are followed any more."""
        self._check(len(states) <= MAX_STATES)
        return states if self.complete else states[:1]

    def _check(self, is_all: bool) -> None:  # noqa: FBT001
        self.complete = self.complete and is_all and self.steps.is_all

    def _predicted(self) -> dict[str, tuple[Verdict, ...]]:
        """The verdicts for each pod. They are certain only if all are equal."""
        predicted = {}
        for uid, verdicts in self.verdicts.items():
            is_one = len({answer(verdict) for verdict in verdicts}) == 1
            predicted[uid] = verdicts if is_one else tuple(replace(v, certainty=Certainty.POSSIBLE) for v in verdicts)
        return predicted


def _combinations(uids: Sequence[str]) -> Iterator[Sequence[str]]:
    """The sets of candidates that can have changed together, without the empty set."""
    for count in range(1, len(uids) + 1):
        yield from combinations(uids, count)


def gives_back(state: ManagerState, request: PodRequest) -> bool:
    """Whether init containers of the pod have memory that is released when the next one starts."""
    held = state.memory.entries.get(request.uid)
    return held is not None and any(c.reusable and c.name in held for c in request.containers[:-1])
