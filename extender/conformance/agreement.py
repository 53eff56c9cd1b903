"""Replays a scenario, a history of pods on one node, and compares it with the recorded answers of a real kubelet.

Rules of this file
- Where the kubelet chooses among devices at random, all possible states are kept (at most
  `possible_states.MAX_STATES`), so that later verdicts are computed in all of them.
- Everything in the recording counts, except what varied between its repetitions (`varies`).
- Among devices of one kind the kubelet picks at random. Where the replay says so, another device of the same kind
  counts as equal; the history then continues with the recorded device.
- If several outcomes were possible, the history continues with those that agree.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final, NamedTuple

from extender.kubelet.admission import Outcome, release_pods, start_pod
from extender.kubelet.device_manager import rename_devices
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import format_list, iter_bits
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Reason, Rejected
from extender.replay.possible_states import admit_in_all
from extender.wire.scenarios import Scenario, Step
from extender.wire.verdicts import verdict_to_json


class KubeletCrashError(Exception):
    """The real kubelet would panic in this history. The message is Go's.

    `alternatives` are other messages that it may print instead.
    """

    def __init__(self, message: str, alternatives: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.alternatives = alternatives


@dataclass(frozen=True, slots=True, kw_only=True)
class Admission:
    """The possible outcomes of one admit step: `outcomes[0]` is reported, others differ by random choice."""

    step: Step
    outcomes: tuple[Outcome, ...]


Narrow = Callable[[Admission], tuple[Outcome, ...]]
"""Selects the outcomes of a step that the rest of the history continues with. Must not return none."""


def run(scenario: Scenario, narrow: Narrow = lambda admission: admission.outcomes) -> Iterator[Admission | None]:
    """One value per step: the admission, or None for other steps.

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
        admission = Admission(step=step, outcomes=admit_in_all(kubelet, states, request))
        first = admission.outcomes[0].verdict
        if isinstance(first, Rejected) and first.reason is Reason.KUBELET_PANIC:
            raise KubeletCrashError(first.message, first.alternatives)
        admitted[request.uid] = request
        states = tuple(o.state for o in narrow(admission))
        yield admission


def _after_event(step: Step, state: ManagerState, admitted: dict[str, PodRequest]) -> ManagerState:
    if step.op == "remove":
        return release_pods(state, (step.uid,))
    return start_pod(state, admitted[step.uid]) if step.uid in admitted else state


Json = Mapping[str, object]
COUNTED: Final = ("scenarios", "admissions", "placements", "start errors", "differ")
"""What is counted; `differ`: comparisons of an admission, its reason, its message, or a placement that differ."""
_ASPECTS: Final = ("admit", "reason", "message")


class Difference(NamedTuple):
    """One difference: where it is, the kubelet's answer, and the replay's."""

    scenario: str
    step: int | None
    path: str
    recorded: object
    replayed: object


def check(scenario: Scenario, counts: Counter[str]) -> list[Difference]:
    """Replay a vector against its recording. Adds to *counts* and returns every difference."""
    counts["scenarios"] += 1
    differences: list[Difference] = []
    error: str | None = None
    alternatives: tuple[str, ...] = ()
    checker = Checker(scenario, counts, differences)
    try:
        for index, _ in enumerate(run(scenario, checker.narrow)):
            checker.step = index + 1
    except KubeletConfigError as fault:
        error, alternatives = fault.reason, fault.alternatives
    except KubeletCrashError as crash:
        error, alternatives = str(crash), crash.alternatives
    recorded = scenario.kubelet_error
    counts["start errors"] += error is not None or recorded is not None
    if recorded not in (error, *alternatives):
        counts["differ"] += 1
        differences.append(Difference(scenario.id, None, "kubelet_error", recorded, error))
    return differences


@dataclass(slots=True)
class Checker:
    """Compares admission by admission while the history is replayed; adds to *counts* and *differences*."""

    scenario: Scenario
    counts: Counter[str]
    differences: list[Difference]
    step: int = 0

    def narrow(self, admission: Admission) -> tuple[Outcome, ...]:
        """Compare one admission with its recording and keep the outcomes that agree best."""
        expect = admission.step.expect
        if expect is None:
            return admission.outcomes
        compared = [(outcome, self._compare(admission, outcome, expect)) for outcome in admission.outcomes]
        fewest = min(len(differences) for _, differences in compared)
        best = next(differences for _, differences in compared if len(differences) == fewest)
        self.counts["admissions"] += "admit" in expect
        self.counts["placements"] += bool(expect.get("admit"))
        self.counts["differ"] += len({each.path if each.path in _ASPECTS else "" for each in best})
        self.differences += best
        return tuple(_follow_recording(o, admission.step.uid, expect) for o, d in compared if len(d) == fewest)

    def _compare(self, admission: Admission, outcome: Outcome, expect: Json) -> list[Difference]:
        replayed = _result(outcome)
        varies = frozenset(admission.step.varies)
        return [
            Difference(self.scenario.id, self.step, path, recorded, ours)
            for path, recorded, ours in _differences(expect, replayed, varies, "")
            if not self._is_equal_pick(outcome, path, recorded, ours)
        ]

    def _is_equal_pick(self, outcome: Outcome, path: str, recorded: object, ours: object) -> bool:
        """Whether the difference is a random pick among devices of one kind, or of the resource that fails first."""
        if isinstance(outcome.verdict, Rejected):
            return path == "message" and recorded in outcome.verdict.alternatives
        if not isinstance(recorded, list) or not isinstance(ours, list):
            return False
        for name, placement in outcome.verdict.placements.items():
            for resource in _picked_at_random(outcome.verdict) & placement.devices.keys():
                if path == f"containers.{name}.devices.{resource}":
                    kinds = self.scenario.devices[resource]
                    return sorted(str(kinds.get(i)) for i in recorded) == sorted(str(kinds.get(i)) for i in ours)
        return False


def _picked_at_random(verdict: Admitted) -> frozenset[str]:
    """Resources of which any container's devices are a random pick. The devices of the others then depend on it."""
    return frozenset(r for placement in verdict.placements.values() for r in placement.devices_random)


def _result(outcome: Outcome) -> dict[str, object]:
    """The verdict in the form of the recordings: as printed, with the NUMA nodes of devices and the pod's bubble."""
    verdict = outcome.verdict
    result = verdict_to_json(verdict)
    if isinstance(verdict, Admitted):
        containers: dict[str, dict[str, object]] = result["containers"]  # type: ignore[assignment]
        for name, placement in verdict.placements.items():
            containers[name]["device_numa"] = {
                resource: sorted((_numa_ids(outcome, resource, i) for i in ids), key=str)
                for resource, ids in placement.devices.items()
            }
        if verdict.pod_cpus:
            result["pod_cpus"] = format_list(verdict.pod_cpus)
    return result


def _numa_ids(outcome: Outcome, resource: str, device_id: str) -> list[int] | None:
    numa = outcome.state.devices.devices[resource][device_id].numa
    return None if numa is None else list(iter_bits(numa))


def _differences(
    recorded: object, replayed: object, varies: frozenset[str], path: str
) -> Iterator[tuple[str, object, object]]:
    if path in varies:
        return
    if isinstance(recorded, dict | None) and isinstance(replayed, dict | None):
        left, right = recorded or {}, replayed or {}
        for key in sorted({*left, *right}):
            yield from _differences(left.get(key), right.get(key), varies, f"{path}.{key}" if path else key)
    elif _ordered(recorded) != _ordered(replayed):
        yield path, recorded, replayed


def _ordered(value: object) -> object:
    """Lists in a fixed order (the kubelet's follows Go maps). None, "" and [] become equal, as recordings omit them."""
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return sorted(value, key=str)
    return value if value or isinstance(value, bool) else None


def _follow_recording(outcome: Outcome, uid: str, expect: Json) -> Outcome:
    """The outcome with recorded device ids in place of those that the replay picked among equal ones."""
    if not isinstance(outcome.verdict, Admitted):
        return outcome
    devices = outcome.state.devices
    recorded_containers = expect.get("containers")
    for name, placement in outcome.verdict.placements.items():
        for resource in _picked_at_random(outcome.verdict) & placement.devices.keys():
            recorded = _dig(recorded_containers, name, "devices", resource)
            if isinstance(recorded, list):
                ours = placement.devices[resource]
                devices = rename_devices(devices, uid, resource, name, frozenset(ours), frozenset(map(str, recorded)))
    return replace(outcome, state=replace(outcome.state, devices=devices))


def _dig(value: object, *keys: str) -> object:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value
