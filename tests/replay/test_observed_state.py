"""From a node's state files to the same verdict as from the whole history."""

from dataclasses import replace
from typing import Any

import pytest

from extender.conformance.agreement import Agreement, Checker, Difference
from extender.conformance.scenario import Admission, run
from extender.replay.admission import Outcome, release_pods
from extender.replay.branches import admit_in_all
from extender.replay.observed import ObservedStateError, check_observed
from extender.replay.pod import resolve
from extender.replay.startup import initial_state, start
from extender.replay.state import ManagerState
from extender.wire.checkpoints import cpu_state_from_json, memory_state_from_json
from extender.wire.scenarios import Scenario, Step, scenario_from_json
from tests.replay.vectors import VERSIONS, scenarios
from tests.reports import sample


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


def _states_before(scenario: Scenario, last: Step, agreement: Agreement) -> tuple[ManagerState, ...]:
    """What the history leads to, for its device allocations: the recordings hold no device checkpoint."""
    checker = Checker(scenario, agreement, [])
    kubelet = start(scenario.machine, scenario.config)
    states: list[tuple[ManagerState, ...]] = [(initial_state(kubelet, scenario.devices),)]

    def narrow(admission: Admission) -> tuple[Outcome, ...]:
        outcomes = checker.narrow(admission)
        if admission.step is not last:
            states.append(tuple(o.state for o in outcomes))
        return outcomes

    for _ in run(scenario, narrow):
        pass
    return states[-1]


def _observed(document: dict[str, Any], empty: ManagerState) -> ManagerState:
    cpu = cpu_state_from_json(document["cpu_manager_state"])
    memory = memory_state_from_json(document["memory_manager_state"])
    return replace(empty, cpu=cpu or empty.cpu, memory=memory or empty.memory)


@pytest.mark.parametrize("version", VERSIONS)
def test_state_files_lead_to_the_recorded_verdict(version: str) -> None:
    agreement, differences, compared = Agreement(), list[Difference](), 0
    for document in scenarios(version, 0, 3 if version == "1.36" else 1):
        scenario = scenario_from_json(document)
        if scenario.kubelet_error is not None:
            continue
        last = [s for s in scenario.steps if s.op == "admit"][-1]
        if last.state_before is None or last.pod is None:
            continue
        kubelet = start(scenario.machine, scenario.config)
        observed = _observed(dict(last.state_before), initial_state(kubelet, scenario.devices))
        check_observed(kubelet, observed)
        active = _active_before(scenario, last)
        states = tuple(
            release_pods(replace(observed, devices=s.devices), (observed.pod_uids | s.pod_uids) - active)
            for s in _states_before(scenario, last, Agreement())
        )
        outcomes = admit_in_all(kubelet, states, resolve(last.pod, kubelet.rules))
        Checker(scenario, agreement, differences).narrow(Admission(step=last, outcomes=outcomes))
        compared += 1

    assert differences == []
    assert compared > 100


def test_bytes_that_kubelets_until_1_31_lose_in_overlapping_groups_are_no_contradiction() -> None:
    """Seen in the drill: three pods on overlapping groups left, and a gibibyte stayed reserved for nobody."""
    for version, believed in (("v1.31.0", True), ("v1.32.0", False)):
        node = sample(version=version)
        first, *rest = node.state.memory.nodes
        name, amounts = first.amounts[0]
        lost = amounts._replace(reserved=amounts.reserved + 1024, free=amounts.free - 1024)
        nodes = (first._replace(amounts=((name, lost), *first.amounts[1:])), *rest)
        state = replace(node.state, memory=replace(node.state.memory, nodes=nodes))

        if believed:
            check_observed(node.kubelet, state)
        else:
            with pytest.raises(ObservedStateError, match="1024 bytes of memory are reserved"):
                check_observed(node.kubelet, state)
