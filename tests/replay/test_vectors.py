"""The replay answers what the real kubelet answered: every version, every option, nothing left out.

From the whole history of a node, and from the kubelet's own state files before the last admission.
"""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from extender.conformance.agreement import COUNTED, Admission, Checker, Difference, check, run
from extender.kubelet.admission import Outcome, release_pods
from extender.kubelet.observed import contradictions
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.replay.possible_states import admit_in_all
from extender.wire.scenarios import Scenario, Step, scenario_from_json
from tests.checkpoints import cpu_state_from_json, memory_state_from_json
from tests.replay.vectors import VERSIONS, scenarios

EVIDENCE = Path(__file__).parents[2] / "docs/evidence.md"
PARTS = [(v, part, 5 if v == "1.36" else 1) for v in VERSIONS for part in range(5 if v == "1.36" else 1)]


@pytest.mark.parametrize(("version", "part", "parts"), PARTS)
def test_replay_equals_the_recorded_kubelet(version: str, part: int, parts: int) -> None:
    from_history, from_files = Counter[str](), Counter[str]()
    differences: list[Difference] = []
    for document in scenarios(version, part, parts):
        scenario = scenario_from_json(document)
        last = _last_with_state_files(scenario)
        if last is None:
            differences += check(scenario, from_history)
            continue
        states = _states_before(scenario, last, Checker(scenario, from_history, differences))
        outcomes = _from_state_files(scenario, last, states)
        Checker(scenario, from_files, differences).narrow(Admission(step=last, outcomes=outcomes))

    assert differences == []
    assert from_history["admissions"] > 1000
    assert from_history["placements"] > 500
    assert from_history["start errors"] > 15
    assert from_files["admissions"] > 100
    if parts == 1:
        figures = " | ".join(f"{from_history[column]:,}" for column in COUNTED)
        assert f"| {version} | {figures} |" in EVIDENCE.read_text(), "the table of docs/evidence.md is out of date"


def _last_with_state_files(scenario: Scenario) -> Step | None:
    """The last admission, if the kubelet started and its state files before that admission were recorded."""
    if scenario.kubelet_error is not None:
        return None
    last = [step for step in scenario.steps if step.op == "admit"][-1]
    return last if last.state_before is not None and last.pod is not None else None


def _states_before(scenario: Scenario, last: Step, checker: Checker) -> tuple[ManagerState, ...]:
    """What the history leads to, for its device allocations, which are in no recorded file. Checked as `check` does."""
    kubelet = start(scenario.machine, scenario.config)
    checker.counts["scenarios"] += 1
    before: tuple[ManagerState, ...] = (initial_state(kubelet, scenario.devices),)
    is_before = True

    def narrow(admission: Admission) -> tuple[Outcome, ...]:
        nonlocal before, is_before
        outcomes = checker.narrow(admission)
        is_before = is_before and admission.step is not last
        before = tuple(outcome.state for outcome in outcomes) if is_before else before
        return outcomes

    for index, _ in enumerate(run(scenario, narrow)):
        checker.step = index + 1
    return before


def _from_state_files(scenario: Scenario, last: Step, states: tuple[ManagerState, ...]) -> tuple[Outcome, ...]:
    """The last admission, replayed on what the state files say, with the devices of each of *states*."""
    assert last.pod is not None
    kubelet = start(scenario.machine, scenario.config)
    observed = _observed(dict(last.state_before or {}), initial_state(kubelet, scenario.devices))
    assert contradictions(kubelet, observed)[0] == {}
    active = _active_before(scenario, last)
    known = tuple(
        release_pods(replace(observed, devices=s.devices), (observed.pod_uids | s.pod_uids) - active) for s in states
    )
    return admit_in_all(kubelet, known, resolve(last.pod, kubelet.rules))


def _active_before(scenario: Scenario, last: Step) -> set[str]:
    active: set[str] = set()
    for step in scenario.steps:
        if step is last:
            break
        if step.op == "admit" and step.expect is not None and step.expect.get("admit", True):
            active.add(step.uid)
        elif step.op in {"admit", "remove"}:  # a running pod can be refused when its kubelet starts again
            active.discard(step.uid)
    return active


def _observed(document: dict[str, Any], empty: ManagerState) -> ManagerState:
    cpu = cpu_state_from_json(document["cpu_manager_state"])
    memory = memory_state_from_json(document["memory_manager_state"])
    return replace(empty, cpu=cpu or empty.cpu, memory=memory or empty.memory)


def test_a_changed_recording_is_noticed() -> None:
    document = next(s for s in scenarios("1.36") if "kubelet_error" not in s)
    step = next(s for s in document["steps"] if s.get("expect", {}).get("admit"))
    step["expect"] = {"admit": False, "reason": "TopologyAffinityError", "message": "no"}

    paths = {d.path for d in check(scenario_from_json(document), Counter())}

    assert {"admit", "reason", "message"} <= paths
