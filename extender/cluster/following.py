"""From a report and a ledger to the states that the next pod can meet.

Laws of this file
- Pure: the same report and ledger always lead to the same states, whatever the order in which they became known.
- A pod that the report shows in part is in the middle of its admission: what it holds is taken out and its admission
  replayed whole, which is what the kubelet is doing.
- A pod that the replay says the kubelet refuses is not charged.
- What came first is not always known: a pod may have left before or after another one was admitted, one that was asked
  to leave may be gone or not, so may one that only the report knows, an init container may have given its memory back
  or not. Every order is followed, up to `MAX_STATES` states; if that is not all, `complete` is False. Of more than
  `MAX_UNSURE` pods that may be gone (or started), only none, each one alone and all together are followed, and that is
  not all.

Mirrors: kubelet `cm/{cpumanager,memorymanager}` removeStaleState, `cm/devicemanager` UpdateAllocatedDevices.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations, islice
from typing import Final

from extender.cluster.ledger import Admit, Ledger, Release
from extender.cluster.node import Observation
from extender.replay.admission import is_indifferent, release_pods, start_pod
from extender.replay.branches import admit_in_all
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod, PodRequest, resolve
from extender.replay.state import ManagerState
from extender.replay.verdict import Provider, Verdict

MAX_STATES: Final = 32
"""States of one node that are followed."""
_MAX_TRIED: Final = 8 * MAX_STATES
MAX_UNSURE: Final = 4
"""Pods that may be gone, or started, of which every combination is followed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Following:
    """What follows: every state that the next pod can meet (never empty), told apart by what they answer.

    `complete` False: there were more. `verdicts`: what the replay says of each pod on its way, by UID, one for each way
    it can go.
    """

    states: tuple[ManagerState, ...]
    complete: bool = True
    verdicts: Mapping[str, tuple[Verdict, ...]] = field(default_factory=dict)


def follow(
    kubelet: Kubelet,
    reported: ManagerState,
    ledger: Ledger,
    now: float,
    *,
    ghosts: Collection[str] = (),
    doubtful: Collection[str] = (),
) -> Following:
    """The states that follow from *reported*. *ghosts*: pods in it that no longer exist; *doubtful*: that may not."""
    out = {*ledger.left, *ghosts, *(admit.uid for admit in ledger.admits)}
    states: tuple[ManagerState, ...] = (release_pods(reported, sorted(out & reported.pod_uids)),)
    leaving = ledger.may_be_gone(now) | frozenset(doubtful)
    starting = {uid: resolve(pod, kubelet.rules) for uid, pod in ledger.starting.items()}
    if not ledger.events and not leaving and not starting:
        return Following(states=states)
    unsure = _Unsure(leaving, starting, frozenset({e.uid for e in ledger.events} | leaving | starting.keys()))
    complete = True
    verdicts: dict[str, tuple[Verdict, ...]] = {}
    for position, event in enumerate(ledger.events):
        if isinstance(event, Release):
            if event.due <= now:
                states = tuple(release_pods(state, (event.uid,)) for state in states)
            continue
        request = resolve(event.pod, kubelet.rules)
        if is_indifferent(kubelet, request):
            continue
        states, all_tried = _by_now(states, unsure, _released_later(ledger.events[position + 1 :], now))
        complete = complete and all_tried and len(states) <= MAX_STATES
        outcomes = admit_in_all(kubelet, states[:MAX_STATES], request)
        verdicts[event.uid] = tuple(outcome.verdict for outcome in outcomes)
        states = _distinct((outcome.state for outcome in outcomes), unsure)
        complete = complete and len(states) <= MAX_STATES and all(outcome.complete for outcome in outcomes)
        states = states[:MAX_STATES]
        if kubelet.memory_static and any(c.reusable for c in request.containers):
            starting[event.uid] = request
    states, all_tried = _by_now(states, unsure)
    answers = {state.key: state for state in states}
    complete = complete and all_tried and len(answers) <= MAX_STATES
    return Following(states=tuple(answers.values())[:MAX_STATES], complete=complete, verdicts=verdicts)


def _released_later(events: Iterable[Admit | Release], now: float) -> Iterator[str]:
    return (event.uid for event in events if isinstance(event, Release) and event.due <= now)


@dataclass(frozen=True, slots=True)
class _Unsure:
    """Pods that may be gone, those whose containers may have started, and all that have to be told apart."""

    leaving: frozenset[str]
    starting: Mapping[str, PodRequest]
    told_apart: frozenset[str]


def _by_now(
    states: tuple[ManagerState, ...], unsure: _Unsure, released: Iterable[str] = ()
) -> tuple[tuple[ManagerState, ...], bool]:
    """The states, and those that they may have become by now; False: not all of them."""
    starting = unsure.starting

    def start(state: ManagerState, uids: Sequence[str]) -> ManagerState:
        for uid in uids:
            state = start_pod(state, starting[uid])
        return state

    leaving = unsure.leaving.union(released)
    all_tried = True
    if starting:
        candidates = [[uid for uid, pod in starting.items() if gives_back(state, pod)] for state in states]
        states, all_tried = _maybe(states, candidates, start, unsure)
    candidates = [sorted(state.pod_uids & leaving) for state in states]
    states, all_released = _maybe(states, candidates, release_pods, unsure)
    return states, all_tried and all_released


def _maybe(
    states: tuple[ManagerState, ...],
    candidates: Sequence[Sequence[str]],
    change: Callable[[ManagerState, Sequence[str]], ManagerState],
    unsure: _Unsure,
) -> tuple[tuple[ManagerState, ...], bool]:
    """The states, and those that follow if *change* has met some of the *candidates* of each; False: not all."""
    if not any(candidates):
        return states, True
    changed = list(islice(_changed(zip(states, candidates, strict=True), change), _MAX_TRIED + 1))
    all_tried = max(map(len, candidates)) <= MAX_UNSURE and len(changed) <= _MAX_TRIED
    return _distinct((*states, *changed[:_MAX_TRIED]), unsure), all_tried


def _changed(
    states: Iterable[tuple[ManagerState, Sequence[str]]], change: Callable[[ManagerState, Sequence[str]], ManagerState]
) -> Iterator[ManagerState]:
    for state, candidates in states:
        for uids in _combinations(candidates):
            yield change(state, uids)


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


def _distinct(states: Iterable[ManagerState], unsure: _Unsure) -> tuple[ManagerState, ...]:
    """Without those that neither a later pod nor what is not sure yet can tell apart."""
    return tuple({(state.key, _holdings(state, unsure.told_apart)): state for state in states}.values())


def _holdings(state: ManagerState, uids: Collection[str]) -> object:
    return tuple((uid, _sorted(held_by(state, uid))) for uid in sorted(state.pod_uids.intersection(uids)))


def _sorted(held: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, repr(value)) for key, value in held.items()))


def held_by(state: ManagerState, uid: str) -> Mapping[str, object]:
    """What a pod holds, by manager and container, devices by kind: equal where no later pod can tell a difference.

    Keys are `cpu/NAME`, `memory/NAME` and `device/NAME/RESOURCE`.
    """
    held: dict[str, object] = {f"cpu/{name}": cpus for name, cpus in state.cpu.entries.get(uid, {}).items() if cpus}
    held |= {f"memory/{name}": blocks for name, blocks in state.memory.entries.get(uid, {}).items()}
    for name, resources in state.devices.entries.get(uid, {}).items():
        for resource, ids in resources.items():
            known = state.devices.devices.get(resource, {})
            held[f"device/{name}/{resource}"] = sorted(str(known.get(i)) for i in ids)
    return held


def is_over(kubelet: Kubelet, observation: Observation, pod: Pod) -> bool:
    """Whether there is nothing to wait for: the report shows all that the kubelet gives the pod, or it gives none."""
    request = resolve(pod, kubelet.rules)
    if is_indifferent(kubelet, request):
        return True
    state = observation.state
    if state is None or pod.uid not in state.pod_uids:
        return False
    held = held_by(state, pod.uid)
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
