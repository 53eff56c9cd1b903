"""From a report and a ledger to the states that the next pod can meet.

Laws of this file
- Pure: the same report and ledger always lead to the same states, whatever the order in which they became known.
- A pod that the report shows in part is in the middle of its admission: what it holds is taken out and its admission
  replayed whole, which is what the kubelet is doing.
- A pod that the replay says the kubelet refuses is not charged.
- What came first is not always known (`order`): a pod may have left before or after another one was admitted, one that
  was asked to leave may be gone or not, so may one that only the report knows, an init container may have given its
  memory back or not, a binding whose reply was lost may never have been. Every order is followed, up to `MAX_STATES`
  states, `MAX_ORDERS` orders and `MAX_ADMISSIONS`; if that is not all, `complete` is False. Of more than `MAX_UNSURE`
  pods that may be gone (or started), only none, each one alone and all together are followed, and that is not all.

Mirrors: kubelet `cm/{cpumanager,memorymanager}` removeStaleState, `cm/devicemanager` UpdateAllocatedDevices.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations, islice
from typing import Final

from extender.cluster.admission_order import predecessors
from extender.cluster.ends import can_only_gain
from extender.cluster.ledger import Admit, Ledger, Release, left_before
from extender.cluster.node import Observation
from extender.cluster.steps import Steps, held_by
from extender.replay.admission import Outcome, answer, is_indifferent
from extender.replay.branches import MAX_REPLAYS, together
from extender.replay.kubelet import Kubelet
from extender.replay.pod import PodRequest
from extender.replay.state import ManagerState
from extender.replay.verdict import Certainty, Provider, Rejected, Verdict, is_given_up

MAX_STATES: Final = 32
"""States of one node that are followed."""
_MAX_TRIED: Final = 8 * MAX_STATES
MAX_ORDERS: Final = 16
"""Ways to have admitted the same number of pods."""
MAX_ADMISSIONS: Final = 192
"""Admissions replayed to follow one node once; a fifth of a millisecond to half of one each."""
MAX_UNSURE: Final = 4
"""Pods that may be gone, or started, of which every combination is followed."""
MAX_ENDS: Final = 64
"""Pods of which `survives_sudden_exit` asks what if they had ended."""
MAX_END_ADMISSIONS: Final = 512
"""Admissions replayed for that, by all that ask at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What follows: every state that the next pod can meet (never empty), told apart by what they answer.

    `complete` False: there were more. `verdicts`: what the replay says of each pod on its way, by UID, one for each way
    it can go. `one_order`: the kubelet meets the pods on their way as they were bound.
    """

    states: tuple[ManagerState, ...]
    complete: bool = True
    verdicts: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)
    one_order: bool = True

    @property
    def refused(self) -> frozenset[str]:
        """Pods on their way that the kubelet may refuse."""
        verdicts = self.verdicts.items()
        return frozenset(uid for uid, ways in verdicts if any(isinstance(way, Rejected) for way in ways))


def follow(
    kubelet: Kubelet,
    reported: ManagerState,
    ledger: Ledger,
    now: float,
    *,
    ghosts: Collection[str] = (),
    doubtful: Collection[str] = (),
    steps: Steps | None = None,
) -> Following:
    """The states that follow from *reported*. *ghosts*: pods in it that no longer exist; *doubtful*: that may not.

    *steps*: those of earlier calls about the same report; they save work and change nothing.
    """
    steps = Steps() if steps is None else steps
    steps.make_room()
    state = _without_what_left(reported, ledger, ghosts, steps)
    leaving = ledger.may_be_gone(now) | frozenset(doubtful)
    if not ledger.events and not leaving and not ledger.starting:
        return Following(states=(state,))
    return _Walk(kubelet, ledger, leaving, now, steps).from_state(state)


def _without_what_left(reported: ManagerState, ledger: Ledger, ghosts: Collection[str], steps: Steps) -> ManagerState:
    """Where the walk begins; pods on their way that the report shows in part are taken out, too."""
    return steps.release(reported, {*ledger.left, *ghosts, *(admit.uid for admit in ledger.admits)})


def survives_sudden_exit(
    kubelet: Kubelet,
    reported: ManagerState,
    ledger: Ledger,
    uid: str,
    now: float,
    *,
    ghosts: Collection[str] = (),
    doubtful: Collection[str] = (),
    max_admissions: int = MAX_END_ADMISSIONS,
) -> bool:
    """Whether a pod on its way is also surely admitted if any one other has ended, at any moment, that nobody told of.

    And those that it may overtake as surely as before. Looks at `MAX_ENDS` others at most, as long as that takes no
    more than about *max_admissions* replays. Arguments as of `follow`.
    """
    steps = Steps()
    start, leaving = _without_what_left(reported, ledger, ghosts, steps), ledger.may_be_gone(now) | frozenset(doubtful)

    def walk(state: ManagerState, *ended: str) -> Following:
        return _Walk(kubelet, ledger, leaving.union(ended), now, steps).from_state(state)

    others = (start.pod_uids | {admit.uid for admit in ledger.admits}) - leaving - ledger.left.keys() - {uid}
    is_alone = all(admit.uid == uid for admit in ledger.admits)  # then an end counts before it only
    refused = frozenset() if is_alone else walk(start).refused
    for other in islice(sorted(others), MAX_ENDS):
        following = walk(steps.release(start, (other,))) if is_alone else walk(start, other)
        endangered = frozenset({uid}) if following.one_order else following.refused - refused | {uid}
        if not following.complete or following.refused & endangered:
            return False
        if steps.admissions >= max_admissions:
            break
    return True


def is_safe_from_ends(
    kubelet: Kubelet, reported: ManagerState, ledger: Ledger, uid: str, now: float, following: Following, steps: Steps
) -> bool:
    """Whether `survives_sudden_exit` is surely True, found out without a replay. False: not known.

    *following*: what `follow` returned for the same ledger and *now*.
    """
    admits = ledger.admits
    if len(admits) != 1 or admits[0].uid != uid or not following.complete:
        return False
    request = steps.request(admits[0].pod, kubelet.rules)
    unsure = len(ledger.may_be_gone(now)) + len(ledger.starting)  # so few that with one pod less all are followed, too
    return unsure <= MAX_UNSURE and can_only_gain(kubelet, reported, request, following.verdicts.get(uid, ()))


class _Walk:
    """From one state through all that may have happened since."""

    def __init__(self, kubelet: Kubelet, ledger: Ledger, leaving: frozenset[str], now: float, steps: Steps) -> None:
        rules = kubelet.rules
        requests = {admit.uid: steps.request(admit.pod, rules) for admit in ledger.admits}
        self.kubelet: Final = kubelet
        self.events: Final = ledger.events
        self.requests: Final = {uid: pod for uid, pod in requests.items() if not is_indifferent(kubelet, pod)}
        self.admits: Final = [admit for admit in ledger.admits if admit.uid in self.requests]
        self.released: Final = frozenset(e.uid for e in ledger.events if isinstance(e, Release) and e.due <= now)
        self.leaving: Final = leaving
        self.steps: Final = steps
        self.starting: Final = {uid: steps.request(pod, rules) for uid, pod in ledger.starting.items()}
        if kubelet.memory_static:
            self.starting.update(
                {uid: pod for uid, pod in self.requests.items() if any(c.reusable for c in pod.containers)}
            )
        releases = {event.uid for event in ledger.events if isinstance(event, Release)}
        self.told_apart: Final = frozenset(leaving | releases | self.starting.keys())
        self.complete = True
        self.given_up = False
        self.one_order = True
        self.admissions_left = MAX_ADMISSIONS
        self.verdicts: Final[dict[str, tuple[Verdict, ...]]] = {}

    def from_state(self, state: ManagerState) -> Following:
        """Every state that is possible by now."""
        ways: dict[int, tuple[ManagerState, ...]] = {0: (state,)}
        shape_of = partial(self.steps.shape, rules=self.kubelet.rules)
        before = predecessors(self.admits, self.events, self.told_apart, shape_of)
        for _ in self.admits:
            ways = self._one_more(ways, before)
        (states,) = ways.values()
        states = tuple(self.steps.release(state, self.released) for state in self._by_now(states, self.leaving))
        answers = tuple({self.steps.number(state): state for state in states}.values())
        self._check(len(answers) <= MAX_STATES)
        return Following(
            states=answers[:MAX_STATES],
            complete=self.complete,
            verdicts=self._told(),
            one_order=self.one_order,
        )

    def _one_more(
        self, ways: Mapping[int, tuple[ManagerState, ...]], before: Sequence[int]
    ) -> dict[int, tuple[ManagerState, ...]]:
        """From the states after some admissions (the bits of those) to the states after one admission more."""
        longer: dict[int, list[ManagerState]] = {}
        for done, states in ways.items():
            for number, admit in enumerate(self.admits):
                if not done >> number & 1 and not before[number] & ~done:
                    longer.setdefault(done | 1 << number, []).extend(self._admit(admit, states))
        self.one_order = self.one_order and len(longer) == 1
        self._check(len(longer) <= MAX_ORDERS)
        found = islice(longer.items(), MAX_ORDERS)
        return {done: self._some(self._distinct(states)) for done, states in found}

    def _admit(self, admit: Admit, states: tuple[ManagerState, ...]) -> Iterator[ManagerState]:
        """The states after the pod's admission, and those without it if it may never have been bound.

        After a replay that was given up no other one is tried: the event loop has not the time, and the node is in
        doubt anyway.
        """
        if self.given_up:
            yield from states
            return
        surely = left_before(self.events, admit)
        states = tuple(self.steps.release(state, surely) for state in states)
        states = self._some(self._by_now(states, self.leaving | self.released - surely))
        self._check(len(states) <= self.admissions_left)
        states = states[: max(1, self.admissions_left)]
        self.admissions_left -= len(states)
        outcomes = self._admit_in_all(states, self.requests[admit.uid])
        self._check(all(outcome.complete for outcome in outcomes))
        if any(is_given_up(outcome.verdict) for outcome in outcomes):
            self.given_up = True
        else:
            self.verdicts[admit.uid] = (*self.verdicts.get(admit.uid, ()), *(outcome.verdict for outcome in outcomes))
        yield from (outcome.state for outcome in outcomes)
        if admit.unsure:
            yield from states

    def _admit_in_all(self, states: tuple[ManagerState, ...], request: PodRequest) -> tuple[Outcome, ...]:
        """The outcomes from all the states; those where other pods hold the same are not taken for one."""
        alike: dict[object, list[ManagerState]] = {}
        for state in states:
            alike.setdefault(self.steps.holdings(state, self.told_apart), []).append(state)
        outcomes: list[Outcome] = []
        for group in alike.values():
            each = max(len(group), MAX_REPLAYS * len(group) // len(states)) // len(group)
            outcomes += together([self.steps.admit(self.kubelet, state, request, each) for state in group])
        return tuple(outcomes)

    def _by_now(self, states: tuple[ManagerState, ...], leaving: frozenset[str]) -> tuple[ManagerState, ...]:
        """The states, and those that they may have become: some pods have started, some are gone."""
        starting = self.starting

        def start(state: ManagerState, uids: Sequence[str]) -> ManagerState:
            for uid in uids:
                state = self.steps.start(state, starting[uid])
            return state

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
        change: Callable[[ManagerState, Sequence[str]], ManagerState],
    ) -> tuple[ManagerState, ...]:
        """The states, and those that follow if *change* has met some of the *candidates* of each."""
        if not any(candidates):
            return states
        pairs = zip(states, candidates, strict=True)
        changed = (change(state, uids) for state, unsure in pairs for uids in _combinations(unsure))
        tried = list(islice(changed, _MAX_TRIED + 1))
        self._check(max(map(len, candidates)) <= MAX_UNSURE and len(tried) <= _MAX_TRIED)
        return self._distinct((*states, *tried[:_MAX_TRIED]))

    def _distinct(self, states: Iterable[ManagerState]) -> tuple[ManagerState, ...]:
        """Without those that neither a later pod nor what is not sure yet can tell apart."""
        number, holdings = self.steps.number, self.steps.holdings
        return tuple({(number(state), holdings(state, self.told_apart)): state for state in states}.values())

    def _some(self, states: tuple[ManagerState, ...]) -> tuple[ManagerState, ...]:
        """As many as are followed."""
        self._check(len(states) <= MAX_STATES)
        return states[:MAX_STATES]

    def _check(self, is_all: bool) -> None:  # noqa: FBT001
        self.complete = self.complete and is_all

    def _told(self) -> dict[str, tuple[Verdict, ...]]:
        """What was foretold of each pod: certain only if the same in every order."""
        told = {}
        for uid, verdicts in self.verdicts.items():
            is_one = len({answer(verdict) for verdict in verdicts}) == 1
            told[uid] = verdicts if is_one else tuple(replace(v, certainty=Certainty.POSSIBLE) for v in verdicts)
        return told


def _combinations(uids: Sequence[str]) -> Iterator[Sequence[str]]:
    """Those that can have changed together, nobody left out; see `MAX_UNSURE`."""
    if len(uids) > MAX_UNSURE:
        yield from ((uid,) for uid in uids)
        yield uids
        return
    for count in range(1, len(uids) + 1):
        yield from combinations(uids, count)


def gives_back(state: ManagerState, request: PodRequest) -> bool:
    """Whether init containers of the pod hold memory that its next start gives back."""
    held = state.memory.entries.get(request.uid)
    return held is not None and any(c.reusable and c.name in held for c in request.containers[:-1])


def is_over(kubelet: Kubelet, observation: Observation, request: PodRequest) -> bool:
    """Whether there is nothing to wait for: the report shows all that the kubelet gives the pod, or it gives none."""
    if is_indifferent(kubelet, request):
        return True
    state = observation.state
    if state is None or request.uid not in state.pod_uids:
        return False
    held = held_by(state, request.uid)
    return all(key in held for key in _expected(kubelet, state, observation.hidden, request))


def _expected(
    kubelet: Kubelet, state: ManagerState, hidden: Collection[Provider], request: PodRequest
) -> Iterator[str]:
    """What a pod has as long as it is active; what its ordinary init containers had may be given back by now."""
    for c in request.containers:
        if c.reusable:
            continue
        if c.cpus and kubelet.cpu_static and Provider.CPU not in hidden:
            yield f"cpu/{c.name}"
        if c.memory_bytes and kubelet.memory_static and Provider.MEMORY not in hidden:
            yield f"memory/{c.name}"
        for resource, count in c.devices.items():
            known = resource in state.devices.devices and resource not in c.dra_resources
            if count and known and Provider.DEVICE not in hidden:
                yield f"device/{c.name}/{resource}"
