"""Single steps of the replay, each computed once and shared by all projections of one node.

Rules of this file
- A step is a pure function of a state and an event. Its result is cached by the ids of its arguments, which are kept
  alive, so that no other object can get their ids.
- A repeated step returns the same objects. A projection that begins like an earlier one therefore uses its results, and
  one more event costs one more step.
- Limited to `MAX_STEPS` results and `MAX_WEIGHT`. Then the cache is cleared before the next projection.
- Every limit of the searches in this room is here, with its reason. A projection is computed once for each change of a
  node, so its limits are smaller than those of a question (64 states, 512 replays). `SEARCH_STEPS` limits a projection
  as a whole. The others are reached before, where more states or orders would say no more than that the node is
  uncertain.
- For one thread at a time. Only `request` may be called beside a projection.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import Any, Final, TypeVar

from extender.kubelet import budget
from extender.kubelet.admission import Outcome, admit, create_only, start_pod
from extender.kubelet.budget import Budget
from extender.kubelet.errors import BudgetError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.restart import release_in_any_order
from extender.kubelet.rules import Rules
from extender.kubelet.state import ManagerState
from extender.replay.creation import grant_count, grants_of, init_phases
from extender.replay.free_amounts import FreeAmounts
from extender.replay.pod import Pod

SEARCH_STEPS: Final = 250_000
"""Steps (about a microsecond each) in which a projection must find all states. Then it follows only one order."""
LAST_STEPS: Final = 100_000
"""Steps after which a projection that follows one order stops, with the states found so far."""
LOOP_STEPS: Final = 4_000
"""New steps of one projection that the event loop waits for; another thread does what takes longer."""
LOOP_STEPS_OF_ALL: Final = 20_000
"""New steps that the event loop takes in one read, for all nodes that have changed. Threads compute the other nodes."""
MAX_STATES: Final = 32
"""How many states of one node are followed. A verdict on the node costs a replay for each."""
MAX_ORDERS: Final = 16
"""How many sets of pods of one size are tried as those that the kubelet admitted first."""
MAX_IN_FLIGHT: Final = 256
"""For how many pods in flight the possible orders are compared. A kubelet admits 110 pods by default."""
MAX_MAYBE_GONE: Final = 4
"""For how many pods that may be gone, or started, every combination is followed."""

MAX_STEPS: Final = 4096
"""How many results are kept for one node; then all are dropped. A projection of a few pods has a few dozen."""
STEPS_A_REPLAY: Final = budget.MAX_STEPS // budget.REPLAYS
"""Steps of the replay's budget for each replay of one admission. All states of a node share its replays and steps."""
MAX_STEPS_OF_ONE: Final = 200_000
"""Steps of the replay's budget for one admission. The longest from one state in the recordings takes 90,000."""
MAX_WEIGHT: Final = 1_000_000
"""The results of one node are dropped when they have cost this many steps, which stand for memory too."""
STEP: Final = 20
"""What the smallest step costs."""
STEPS_OF_AN_ADMISSION: Final = 200
"""What an admission costs beside the steps that its replay counts."""
STEPS_OF_NRI: Final = 2
"""What a step of the replay costs under the NRI policy: about two microseconds."""


T = TypeVar("T")


class ElsewhereError(Exception):
    """The steps of a projection cost more than is allowed in one go. Those that were done are kept."""


@dataclass(slots=True)
class _KeptWork:
    """A result. `of`: the objects of the key's ids. `cost` in steps; `turn`: the last projection that counted it."""

    of: object
    result: Any
    cost: int
    turn: int


@dataclass(slots=True, eq=False)
class Steps:
    """The steps of one kubelet. `admissions`: how many were replayed; results from the cache are not counted.

    `spent`: the cost of the current projection in steps of about a microsecond. In each projection a result from the
    cache is charged once with its first cost, so that a projection ends at the same step whatever is cached. `work`:
    the cost of its steps that were not known before. `is_all`: whether all that the steps of this projection could lead
    to was followed.
    """

    admissions: int = 0
    is_all: bool = True
    spent: int = 0
    work: int = 0
    _turn: int = 0
    _limit: float = inf
    _weight: int = 0
    _known: dict[tuple[int, Hashable], _KeptWork] = field(default_factory=dict)
    _requests: dict[str, tuple[Pod, Rules, PodRequest]] = field(default_factory=dict)
    _numbers: dict[object, int] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, limit: float = inf) -> None:
        """Begin a projection; its steps that are not known raise ElsewhereError once they have cost *limit*.

        The cache is cleared if it is too large.
        """
        self.spent, self.is_all, self.work, self._limit = 0, True, 0, limit
        self._turn += 1
        if len(self._known) > MAX_STEPS or self._weight > MAX_WEIGHT:
            self._weight = 0
            for known in (self._known, self._requests, self._numbers):
                known.clear()

    def spend(self, cost: int, *, is_new: bool = True) -> None:
        """Count work; raises ElsewhereError if it is too much for one go."""
        self.spent += cost
        if is_new:
            self.work += cost
            self._weight += cost
            if self.work > self._limit:
                raise ElsewhereError

    def request(self, pod: Pod, rules: Rules) -> PodRequest:
        """As `pod.resolve`. Returns the same object for the same pod."""
        known = self._requests.get(pod.uid)
        if known is None or known[0] is not pod or known[1] is not rules:
            known = self._requests[pod.uid] = pod, rules, resolve(pod, rules)
        return known[2]

    def admit(
        self, kubelet: Kubelet, state: ManagerState, pod: PodRequest, max_replays: int, *, is_admitted: bool = False
    ) -> Outcome:
        """The outcome of `admission.admit`; with *is_admitted* that of `admission.create_only`."""

        def replayed(budget: Budget) -> Outcome:
            if is_admitted:
                return create_only(kubelet, state, pod, budget)
            self.admissions += 1
            return admit(kubelet, state, pod, max_replays=max_replays, budget=budget)

        most = MAX_STEPS_OF_ONE if is_admitted else min(MAX_STEPS_OF_ONE, STEPS_A_REPLAY * max_replays)
        return self._bounded((state, pod), ("admit", max_replays, is_admitted), replayed, most)

    def release(self, state: ManagerState, uids: Collection[str]) -> tuple[ManagerState, ...]:
        """The possible states after these pods are gone. The same object if it has none of them."""
        if not uids:  # most nodes: their pods need not be kept
            return (state,)
        held = self.uids(state).intersection(uids)
        if not held:
            return (state,)
        copied = _kubelet_size(state)  # once for each pod: only the NRI policy's grants are released together
        cost = STEP + _size(state) + min(len(held), copied) * (STEP + copied // 16)
        states, is_all = self._once(state, ("release", held), lambda: release_in_any_order(state, sorted(held)), cost)
        self.is_all = self.is_all and is_all
        return states

    def without_admissions(
        self, state: ManagerState, gone: Collection[str], in_flight: Iterable[str]
    ) -> tuple[ManagerState, ...]:
        """The possible states after pods are *gone*, as before the kubelet's admission of those *in_flight*."""
        states = self.release(state, {*gone, *in_flight})
        if state.runtime is None or states == (state,):
            return states
        granted = state.runtime
        return self._once(
            state,
            ("before", id(states), frozenset(gone)),
            lambda: tuple(replace(known, runtime=granted.release(gone)) for known in states),
            STEP,
            per_entry=1,
        )

    def start(self, state: ManagerState, pod: PodRequest) -> ManagerState:
        """As `admission.start_pod`."""
        return self._once(
            state,
            ("start", pod.uid, tuple(c.name for c in pod.containers)),
            lambda: start_pod(state, pod),
            STEP,
            per_entry=1 / 4,
        )

    def uids(self, state: ManagerState) -> frozenset[str]:
        """The pods that have resources."""
        return self._once(state, "uids", lambda: state.pod_uids, 0, per_entry=1)

    def number(self, state: ManagerState) -> int:
        """A number for the state's key: equal for states that give the same verdict for every new pod."""
        return self._once(
            state, "number", lambda: self._numbers.setdefault(state.key, len(self._numbers)), STEP, per_entry=4
        )

    def amounts(self, kubelet: Kubelet, state: ManagerState) -> FreeAmounts:
        """As `FreeAmounts.of`."""
        return self._once(state, "amounts", lambda: FreeAmounts.of(kubelet, state), STEP)

    def shape(self, pod: Pod, rules: Rules) -> object:
        """Equal for pods that the node treats in the same way."""
        return self._once(self.request(pod, rules), "shape", lambda: (pod.shape, pod.nri_shape), STEP)

    def init_phases(self, kubelet: Kubelet, state: ManagerState, pod: PodRequest) -> tuple[ManagerState, ...]:
        """The states in which an init container of the pod runs under the NRI policy; see `creation.init_phases`."""
        if kubelet.runtime is None or not any(container.reusable for container in pod.containers):
            return ()

        def phases(budget: Budget) -> tuple[ManagerState, ...] | None:
            try:
                return init_phases(state, pod, budget)
            except BudgetError:
                return None

        found = self._bounded((state, pod), "phases", phases, MAX_STEPS_OF_ONE)
        self.is_all = self.is_all and found is not None
        return found or ()

    def holdings(self, state: ManagerState, uids: frozenset[str]) -> object:
        """The resources of each of these pods, in a form that can be compared."""
        holders = self.uids(state) & uids
        return tuple((uid, self._holding(state, uid)) for uid in sorted(holders)) if holders else ()

    def _holding(self, state: ManagerState, uid: str) -> object:
        return self._once(state, ("holding", uid), lambda: _sorted(held_by(state, uid)), 4)

    def _once(self, of: Any, what: Hashable, work: Callable[[], T], cost: int, per_entry: float = 0) -> T:  # noqa: ANN401
        """*work*'s result, from the cache if it was done before. *cost*: steps, and *per_entry* of the state *of*."""
        known = self._known.get((id(of), what))
        if known is None:
            cost += int(per_entry * _size(of)) if per_entry else 0
            self.spend(cost)
            known = self._known[id(of), what] = _KeptWork(of, work(), cost, self._turn)
        elif known.turn != self._turn:
            known.turn = self._turn
            self.spend(known.cost, is_new=False)
        result: T = known.result
        return result

    def _bounded(
        self, of: tuple[ManagerState, PodRequest], what: Hashable, work: Callable[[Budget], T], most: int
    ) -> T:
        """As `_once`, for a replay that counts its own steps. *most*: how many it may take."""
        state, pod = of
        key = id(state), (what, id(pod))
        known = self._known.get(key)
        if known is None:
            left = max(0, self._limit - self.work)
            allowed = min(most, left if state.runtime is None else left // STEPS_OF_NRI)
            budget = Budget(allowed)
            result = work(budget)
            if budget.is_used_up and allowed < most:
                raise ElsewhereError
            used = int(min(budget.used, most)) * (1 if state.runtime is None else STEPS_OF_NRI)
            cost = STEPS_OF_AN_ADMISSION + _size(state) + used
            known = self._known[key] = _KeptWork(of, result, cost, self._turn)
            self.spend(cost)
        elif known.turn != self._turn:
            known.turn = self._turn
            self.spend(known.cost, is_new=False)
        found: T = known.result
        return found


def _size(state: ManagerState) -> int:
    """How many entries a copy of the state takes."""
    return _kubelet_size(state) + grant_count(state)


def _kubelet_size(state: ManagerState) -> int:
    return len(state.cpu.entries) + len(state.memory.entries) + len(state.devices.entries)


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
    if (grants := grants_of(state)) is not None:
        held |= {f"nri/{name}": granted for name, granted in grants.held_by(uid).items()}
    return held
