"""Single steps of the replay, each computed once and shared by all projections of one node.

Rules of this file
- A step is a pure function of a state and an event. Its result is cached by the ids of its arguments, which are kept
  alive, so that no other object can get their ids.
- A repeated step returns the same objects. A projection that begins like an earlier one therefore uses its results, and
  one more event costs one more step.
- Limited to `MAX_STEPS` results. Then the cache is cleared before the next projection. Not for several threads.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from extender.cluster.search_bounds import MAX_STEPS, MAX_STEPS_OF_ONE, STEPS_A_REPLAY
from extender.replay.admission import Outcome, admit, create_only, start_pod
from extender.replay.budget import Budget
from extender.replay.coarse.amounts import FreeAmounts
from extender.replay.coarse.layout import layout_of
from extender.replay.creation import init_phases
from extender.replay.kubelet import Kubelet
from extender.replay.pod import Pod, PodRequest
from extender.replay.release_orders import release_in_any_order
from extender.replay.resolve import resolve
from extender.replay.rules import Rules
from extender.replay.state import ManagerState

T = TypeVar("T")


class Steps:
    """The steps of one kubelet. `admissions`: how many were replayed; results from the cache are not counted.

    `left_out_orders`: whether pods were released that can be released in more orders than were followed.
    """

    __slots__ = ("_known", "_numbers", "_requests", "admissions", "left_out_orders")

    def __init__(self) -> None:
        self.admissions = 0
        self.left_out_orders = False
        self._known: Final[dict[tuple[int, Hashable], tuple[object, Any]]] = {}
        self._requests: Final[dict[str, tuple[Pod, Rules, PodRequest]]] = {}
        self._numbers: Final[dict[object, int]] = {}

    def __len__(self) -> int:
        return len(self._known)

    def make_room(self) -> None:
        """Clear the cache if it is too large. Called between projections."""
        if len(self._known) > MAX_STEPS:
            for known in (self._known, self._requests, self._numbers):
                known.clear()

    def request(self, pod: Pod, rules: Rules) -> PodRequest:
        """As `pod.resolve`. Returns the same object for the same pod."""
        known = self._requests.get(pod.uid)
        if known is None or known[0] is not pod or known[1] is not rules:
            known = self._requests[pod.uid] = pod, rules, resolve(pod, rules)
        return known[2]

    def admit(
        self, kubelet: Kubelet, state: ManagerState, pod: PodRequest, max_replays: int, *, is_admitted: bool = False
    ) -> Outcome:
        """As `admission.admit`. *is_admitted*: as `admission.create_only`."""
        key = id(state), ("admit", id(pod), max_replays, is_admitted)
        found = self._known.get(key)
        if found is None:
            if is_admitted:
                outcome = create_only(kubelet, state, pod, Budget(MAX_STEPS_OF_ONE))
            else:
                outcome = self._admit(kubelet, state, pod, max_replays)
            found = self._known[key] = (state, pod), outcome
        known: Outcome = found[1]
        return known

    def _admit(self, kubelet: Kubelet, state: ManagerState, pod: PodRequest, max_replays: int) -> Outcome:
        self.admissions += 1
        return admit(
            kubelet,
            state,
            pod,
            max_replays=max_replays,
            budget=Budget(min(MAX_STEPS_OF_ONE, STEPS_A_REPLAY * max_replays)),
        )

    def release(self, state: ManagerState, uids: Collection[str]) -> tuple[ManagerState, ...]:
        """The possible states after these pods are gone. The same object if it has none of them."""
        if not uids:  # most nodes: their pods need not be kept
            return (state,)
        held = self.uids(state).intersection(uids)
        return self._once(state, ("release", held), lambda: self._release(state, held)) if held else (state,)

    def _release(self, state: ManagerState, uids: Collection[str]) -> tuple[ManagerState, ...]:
        states, is_all = release_in_any_order(state, sorted(uids))
        self.left_out_orders = self.left_out_orders or not is_all
        return states

    def without_admissions(
        self, state: ManagerState, gone: Collection[str], in_flight: Iterable[str]
    ) -> tuple[ManagerState, ...]:
        """The possible states after pods are *gone*, as before the kubelet's admission of those *in_flight*."""
        states = self.release(state, {*gone, *in_flight})
        if state.nri is None or states == (state,):
            return states
        granted = state.nri
        return self._once(
            state,
            ("before", id(states), frozenset(gone)),
            lambda: tuple(replace(known, nri=granted.release(gone)) for known in states),
        )

    def start(self, state: ManagerState, pod: PodRequest) -> ManagerState:
        """As `admission.start_pod`."""
        return self._once(
            state, ("start", pod.uid, tuple(c.name for c in pod.containers)), lambda: start_pod(state, pod)
        )

    def uids(self, state: ManagerState) -> frozenset[str]:
        """The pods that have resources."""
        return self._once(state, "uids", lambda: state.pod_uids)

    def number(self, state: ManagerState) -> int:
        """A number for the state's key: equal for states that give the same verdict for every new pod."""
        return self._once(state, "number", lambda: self._numbers.setdefault(state.key, len(self._numbers)))

    def amounts(self, kubelet: Kubelet, state: ManagerState) -> FreeAmounts:
        """As `FreeAmounts.of`."""
        return self._once(state, "amounts", lambda: FreeAmounts.of(kubelet, layout_of(kubelet), state))

    def shape(self, pod: Pod, rules: Rules) -> object:
        """Equal for pods that the node treats in the same way."""
        return self._once(self.request(pod, rules), "shape", lambda: (pod.shape, pod.nri_shape))

    def init_phases(self, kubelet: Kubelet, state: ManagerState, pod: PodRequest) -> tuple[ManagerState, ...]:
        """The states in which an init container of the pod runs under the NRI policy; see `creation.init_phases`."""
        if kubelet.nri is None or pod.nri is None or not pod.nri.has_init_containers:
            return ()
        budget = Budget(MAX_STEPS_OF_ONE)
        return self._once(state, ("phases", id(pod)), lambda: init_phases(state, pod, budget))

    def holdings(self, state: ManagerState, uids: frozenset[str]) -> object:
        """The resources of each of these pods, in a form that can be compared."""
        holders = self.uids(state) & uids
        return tuple((uid, self._holding(state, uid)) for uid in sorted(holders)) if holders else ()

    def _holding(self, state: ManagerState, uid: str) -> object:
        return self._once(state, ("holding", uid), lambda: _sorted(held_by(state, uid)))

    def _once(self, of: object, what: Hashable, work: Callable[[], T]) -> T:
        key = id(of), what
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = of, work()
        result: T = found[1]
        return result


def _sorted(held: Mapping[str, object]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted((key, repr(value)) for key, value in held.items()))


def held_by(state: ManagerState, uid: str) -> Mapping[str, object]:
    """The resources of a pod by manager and container, devices by kind: equal if later pods see no difference.

    Keys are `cpu/NAME`, `memory/NAME`, `device/NAME/RESOURCE` and `nri/NAME`.
    """
    held: dict[str, object] = {f"cpu/{name}": cpus for name, cpus in state.cpu.entries.get(uid, {}).items() if cpus}
    held |= {f"memory/{name}": blocks for name, blocks in state.memory.entries.get(uid, {}).items()}
    for name, resources in state.devices.entries.get(uid, {}).items():
        for resource, ids in resources.items():
            known = state.devices.devices.get(resource, {})
            held[f"device/{name}/{resource}"] = sorted(str(known.get(i)) for i in ids)
    if state.nri is not None:
        held |= {f"nri/{name}": granted for name, granted in state.nri.held_by(uid).items()}
    return held
