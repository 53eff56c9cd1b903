"""Admission: whether a kubelet in a given state admits a pod, and where its containers are placed.

Rules of this file
- `admit` is a pure function of kubelet, state and pod. A refused pod leaves the state as after the kubelet's garbage
  collection: partial allocations are returned, never ignored.
- A verdict that depends on a random choice of the kubelet says so (`Certainty.POSSIBLE`). The number of outcomes tried
  is limited.
- Only this file turns a `Refusal`, or a used-up budget, into a verdict.
- Where the container runtime has a policy, a pod that the kubelet admits is refused if one of its containers would not
  be created. Such a pod keeps what the kubelet and the policy have given it: nothing takes it back.

Mirrors: kubelet `cm/topologymanager/topology_manager.go` (Admit) and `cm/admission/errors.go`.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from extender.kubelet import cpu_manager, device_manager, memory_manager
from extender.kubelet.budget import Budget, for_replays
from extender.kubelet.config import Scope, TopologyPolicy
from extender.kubelet.device_manager import Choices
from extender.kubelet.errors import BudgetError, KubeletPanicError, OutOfStepsError, OutOfTimeError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.never import can_never_fit
from extender.kubelet.pod import PodRequest
from extender.kubelet.state import ManagerState
from extender.kubelet.topology_manager import ANY_NODE, Walk, admit_by_scope
from extender.kubelet.verdict import (
    NO_TRACE,
    Admitted,
    Certainty,
    Placement,
    Provider,
    Reason,
    Refusal,
    Rejected,
    Trace,
    Verdict,
    When,
)

MAX_OUTCOMES: Final = 64
"""Limit on replays of one admission to find out whether random device choices change it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """One admission: the verdict, the state after it, and the state before.

    `alternatives` are further outcomes of the kubelet's random choices, distinct by verdict and by how the state
    affects later pods; empty if there are none. `complete` is False if not all could be tried. `undecided` is True if
    an outcome that was not tried may change this pod's verdict, and not only its devices.
    """

    verdict: Verdict
    state: ManagerState
    before: ManagerState
    alternatives: tuple["Outcome", ...] = ()
    complete: bool = True
    undecided: bool = False


def admit(
    kubelet: Kubelet,
    state: ManagerState,
    pod: PodRequest,
    trace: Trace = NO_TRACE,
    *,
    max_replays: int = MAX_OUTCOMES,
    verdict_only: bool = False,
    collects: bool = True,
    budget: Budget | None = None,
) -> Outcome:
    """Replay one admission.

    *state* must contain active pods only (`release_pods`). The trace is of the first outcome. *max_replays* limits the
    work for random device choices. With *verdict_only*, choices that cannot change this verdict are not tried: the
    state is then one of several possible ones and must not be used. Without *collects* a refused pod keeps its
    resources, as in the first admissions of a kubelet that starts.

    *budget* limits the whole admission with all alternatives; None: `budget.for_replays`. If its steps are used up
    before the first outcome, or its time is over, the verdict is `Rejected` with reason REPLAY_STEPS or
    REPLAY_TIME and certainty UNKNOWN, and the state is unchanged. If only alternatives run out of steps, the outcomes
    found so far count: certainty POSSIBLE, `complete` False.
    """
    budget = budget or for_replays(max_replays)
    choices = Choices()
    try:
        first = _follow(kubelet, state, pod, choices, budget, trace, collects=collects)
        if not choices.alternatives or (verdict_only and not _choice_can_decide(kubelet, pod, choices)):
            return first
        return _with_alternatives(kubelet, state, pod, first, choices, max_replays, budget)
    except BudgetError as ended:
        return given_up(state, ended)


def given_up(state: ManagerState, ended: BudgetError) -> Outcome:
    """The outcome of a replay that ended early: the verdict is unknown, and nothing was allocated."""
    verdict = Rejected(
        reason=Reason.REPLAY_TIME if isinstance(ended, OutOfTimeError) else Reason.REPLAY_STEPS,
        message=str(ended),
        provider=Provider.TOPOLOGY,
        certainty=Certainty.UNKNOWN,
    )
    return Outcome(verdict=verdict, state=state, before=state, complete=False)


GIVEN_UP: Final = frozenset({Reason.REPLAY_STEPS, Reason.REPLAY_TIME})
"""Reasons of verdicts that say nothing about the kubelet's answer."""


def is_given_up(verdict: Verdict) -> bool:
    """Whether the replay ended without a result."""
    return isinstance(verdict, Rejected) and verdict.reason in GIVEN_UP


def is_out_of_steps(verdict: Verdict) -> bool:
    """Whether the replay used up its steps without a result."""
    return isinstance(verdict, Rejected) and verdict.reason is Reason.REPLAY_STEPS


def _choice_can_decide(kubelet: Kubelet, pod: PodRequest, choices: Choices) -> bool:
    """Whether a random choice of devices can change this pod's verdict.

    They can only through the hints of a later container that requests the same resource. So they cannot in pod scope
    (one merge, before any allocation), under policy none (no merge), or for the last container that requests it.
    """
    if kubelet.policy is TopologyPolicy.NONE or kubelet.scope is Scope.POD:
        return False
    names = [c.name for c in pod.containers]
    return any(
        resource in later.devices
        for name, resource in choices.random_picks
        for later in pod.containers[names.index(name) + 1 :]
    )


def _with_alternatives(
    kubelet: Kubelet,
    state: ManagerState,
    pod: PodRequest,
    first: Outcome,
    choices: Choices,
    max_replays: int,
    budget: Budget,
) -> Outcome:
    """Try the other scripts of choices, breadth first, at most *max_replays* in all and as long as there are steps.

    Raises:
        OutOfTimeError: the deadline has passed, which says nothing about the node.
    """
    steps_of_a_key = sum(map(len, state.devices.devices.values())) + len(pod.containers)
    found = {identity(first): first}
    queue = _next_scripts((), choices)
    tried = 1
    while queue and tried < max_replays:
        script = queue[0]
        branch = Choices(script)
        try:
            outcome = _follow(kubelet, state, pod, branch, budget)
            budget.spend(len(script) + steps_of_a_key)
        except OutOfStepsError:
            break
        tried += 1
        found.setdefault(identity(outcome), outcome)
        del queue[0]
        queue += _next_scripts(script, branch)
    complete = not queue
    undecided = not complete and _choice_can_decide(kubelet, pod, choices)
    outcomes = list(found.values())
    decided = complete and len({answer(o.verdict) for o in outcomes}) == 1
    if not decided:
        outcomes = [replace(o, verdict=replace(o.verdict, certainty=Certainty.POSSIBLE)) for o in outcomes]
    return replace(outcomes[0], alternatives=tuple(outcomes[1:]), complete=complete, undecided=undecided)


def _next_scripts(script: tuple[int, ...], choices: Choices) -> list[tuple[int, ...]]:
    """Scripts that differ from this one at a choice after its end. At most MAX_OUTCOMES of them."""
    scripts: list[tuple[int, ...]] = []
    for position in range(len(script), len(choices.alternatives)):
        prefix = script + (0,) * (position - len(script))
        count = min(choices.alternatives[position], MAX_OUTCOMES + 1)
        scripts += [(*prefix, number) for number in range(1, count)]
    return scripts[: MAX_OUTCOMES + 1]


def answer(verdict: Verdict) -> object:
    """What must be equal for a verdict to be certain: the result and its reason."""
    return (verdict.reason, verdict.message) if isinstance(verdict, Rejected) else None


def identity(outcome: Outcome) -> object:
    """The key that distinguishes outcomes: the verdict, the placement, and how the state affects later pods.

    Devices count by kind: another pick among equal devices is not another outcome.
    """
    verdict = outcome.verdict
    placements: list[object] = []
    if isinstance(verdict, Admitted):
        for p in verdict.placements.values():
            kinds = tuple((resource, _kinds(outcome.state, resource, ids)) for resource, ids in p.devices.items())
            placements.append((p.affinity, p.preferred, p.cpus, p.memory, kinds))
    return answer(verdict), outcome.state.key, tuple(placements)


def _kinds(state: ManagerState, resource: str, ids: tuple[str, ...]) -> tuple[str, ...]:
    known = state.devices.devices.get(resource, {})
    return tuple(sorted(str(known.get(i)) for i in ids))


def _follow(
    kubelet: Kubelet,
    state: ManagerState,
    pod: PodRequest,
    choices: Choices,
    budget: Budget,
    trace: Trace = NO_TRACE,
    *,
    collects: bool = True,
) -> Outcome:
    walk = Walk(kubelet=kubelet, pod=pod, state=state, affinities={}, choices=choices, trace=trace, budget=budget)
    try:
        admit_by_scope(walk)
    except Refusal as refusal:
        after = release_pods(walk.state, (pod.uid,)) if collects else walk.state
        return Outcome(verdict=_rejected(walk, refusal), state=after, before=state)
    except KubeletPanicError as panic:
        manager = Provider.TOPOLOGY if panic.missing is None else Provider.MEMORY
        others = tuple(f"panic: {message}" for message in panic.alternatives)
        crash = Refusal(
            Reason.KUBELET_PANIC, f"panic: {panic}", provider=manager, resource=panic.missing, alternatives=others
        )
        return Outcome(verdict=_rejected(walk, crash), state=state, before=state)
    return _created(walk, state)


def _rejected(walk: Walk, refusal: Refusal) -> Rejected:
    lacks_page_size = refusal.reason is Reason.KUBELET_PANIC and refusal.resource is not None
    never = lacks_page_size or can_never_fit(walk.kubelet, walk.state.devices, walk.pod, walk.budget)
    return Rejected(
        container=walk.container,
        when=When.NEVER if never else When.NOW,
        certainty=walk.kubelet.certainty,
        caveats=walk.kubelet.caveats,
        **vars(refusal),
    )


def _admitted(walk: Walk) -> Admitted:
    uid, state = walk.pod.uid, walk.state
    cpus = state.cpu.entries.get(uid, {})
    memory = state.memory.entries.get(uid, {})
    devices = state.devices.entries.get(uid, {})
    placements = {}
    for c in walk.pod.containers:
        hint = walk.affinities.get(c.name, ANY_NODE)
        placements[c.name] = Placement(
            affinity=hint.affinity,
            preferred=hint.preferred,
            cpus=cpus.get(c.name, 0),
            memory=memory.get(c.name, ()),
            devices={r: tuple(sorted(ids)) for r, ids in sorted(devices.get(c.name, {}).items())},
            devices_random=frozenset(r for name, r in walk.choices.random_picks if name == c.name),
        )
    return Admitted(
        placements=placements,
        pod_cpus=state.cpu.pod_entries.get(uid, 0),
        certainty=walk.kubelet.certainty,
        caveats=walk.kubelet.caveats,
    )


def create_only(kubelet: Kubelet, state: ManagerState, pod: PodRequest, budget: Budget) -> Outcome:
    """As `admit`, for a pod that the kubelet has admitted and given everything: only its containers are created."""
    walk = Walk(kubelet=kubelet, pod=pod, state=state, affinities={}, choices=Choices(), trace=NO_TRACE, budget=budget)
    try:
        return _created(walk, state)
    except BudgetError as ended:
        return given_up(state, ended)


def _created(walk: Walk, before: ManagerState) -> Outcome:
    """The outcome for a pod that the kubelet admits. If the container runtime has a policy, that decides next."""
    verdict, policy, granted = _admitted(walk), walk.kubelet.runtime, before.runtime
    if policy is None or granted is None:
        return Outcome(verdict=verdict, state=walk.state, before=before)
    created, after = policy.create(granted, walk.pod, verdict, walk.state.devices, walk.budget)
    return Outcome(verdict=created, state=replace(walk.state, runtime=after), before=before)


def start_pod(state: ManagerState, pod: PodRequest) -> ManagerState:
    """The state once an admitted pod's containers run: finished init containers have released their memory."""
    return replace(state, memory=memory_manager.start_containers(state.memory, pod))


def release_pods(state: ManagerState, uids: Iterable[str]) -> ManagerState:
    """The state after these pods are gone. Unknown pods are ignored."""
    uids = tuple(uids)
    for uid in uids:
        state = ManagerState(
            cpu=cpu_manager.release(state.cpu, uid),
            memory=memory_manager.release(state.memory, uid),
            devices=device_manager.release(state.devices, uid),
            runtime=state.runtime,
        )
    return state if state.runtime is None else replace(state, runtime=state.runtime.release(uids))


def is_indifferent(kubelet: Kubelet, pod: PodRequest) -> bool:
    """Whether this kubelet certainly admits the pod: it requests nothing that a manager aligns, and no merge panics.

    Never if the container runtime has a policy, which decides on every container.
    """
    if kubelet.runtime is not None or pod.pod_level is not None:
        return False
    if (kubelet.cpu_static and pod.total_cpus) or (kubelet.memory_static and pod.guaranteed):
        return False
    if any((kubelet.cpu_static and c.cpus) or c.devices for c in pod.containers):
        return False
    return not kubelet.crashes_on_any_pod
