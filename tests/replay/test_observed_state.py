"""What a state file may and may not contain; `test_vectors` goes from recorded state files to verdicts."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from extender.kubelet.observed import contradictions
from extender.kubelet.state import ManagerState
from tests.reports import sample
from tests.truth import readmitted_states


def test_bytes_that_a_running_kubelet_loses_are_no_contradiction_and_stop_the_next_start() -> None:
    """Seen in the drill: three pods on overlapping groups left, and a gibibyte stayed reserved for nobody."""
    for version, starts in (("v1.31.0", True), ("v1.32.0", False)):
        node = sample(version=version)
        first, *rest = node.state.memory.nodes
        name, amounts = first.amounts[0]
        lost = amounts._replace(reserved=amounts.reserved + 1024, free=amounts.free - 1024)
        nodes = (first._replace(amounts=((name, lost), *first.amounts[1:])), *rest)
        state = replace(node.state, memory=replace(node.state.memory, nodes=nodes))

        running, at_start = contradictions(node.kubelet, state)
        assert running == {}
        reasons = [error.reason for error in at_start.values()]
        assert [reason[:33] for reason in reasons] == ([] if starts else ["1024 bytes of memory are reserved"])


GPU = "vendor.example/gpu"
A, B, SHARED, RESERVED = 0b110, 0b11000, ((1 << 32) - 1) & ~0b11110, 1 | 1 << 16
STRICT = {"cpuManagerPolicyOptions": {"strict-cpu-reservation": "true"}}
GATE = {"featureGates": {"PodLevelResources": True, "PodLevelResourceManagers": True}}


def _cpus(b: int = B, c: int = 0, default: int = SHARED) -> Callable[[ManagerState], ManagerState]:
    """Three pods with these CPUs."""
    entries = {"a": {"app": A}, "b": {"app": b}, "c": {"app": c}}
    return lambda state: replace(state, cpu=replace(state.cpu, entries=entries, default=default))


def _node_0(**changed: int) -> Callable[[ManagerState], ManagerState]:
    """Other amounts of memory on NUMA node 0."""

    def change(state: ManagerState) -> ManagerState:
        first, *rest = state.memory.nodes
        nodes = (first._replace(amounts=(("memory", first.amounts[0][1]._replace(**changed)),)), *rest)
        return replace(state, memory=replace(state.memory, nodes=nodes))

    return change


def _hugepages(state: ManagerState) -> ManagerState:
    nodes = tuple(n._replace(amounts=(*n.amounts, ("hugepages-1Gi", n.amounts[0][1]))) for n in state.memory.nodes)
    return replace(state, memory=replace(state.memory, nodes=nodes))


def _devices(state: ManagerState) -> ManagerState:
    entries = {uid: {"app": {GPU: frozenset({"gpu-0"})}} for uid in "ab"}
    return replace(state, devices=replace(state.devices, entries=entries))


def _one_node(state: ManagerState) -> ManagerState:
    return replace(state, memory=replace(state.memory, nodes=state.memory.nodes[:1]))


def _grouped(state: ManagerState) -> ManagerState:
    first, *rest = state.memory.nodes
    return replace(state, memory=replace(state.memory, nodes=(first._replace(cells=0b101), *rest)))


@pytest.mark.parametrize(
    ("kubelet", "change", "running", "at_start"),
    [
        ({}, _cpus(), "", ""),
        ({}, _cpus(default=SHARED | 0b100), *["CPUs 2 belong to pod a and to the shared pool"] * 2),
        ({}, _cpus(b=B | 0b100), "CPUs 2 belong to pod a as well", ""),
        (
            {},
            _cpus(b=B | 0b100, c=1 << 5),
            "CPUs 2 belong to pod a as well",
            "CPUs 5 belong to pod c and to the shared",
        ),
        ({}, _cpus(b=0b1000), *["CPUs 4 are neither in it nor in any entry"] * 2),
        (GATE, _cpus(b=0b1000), "", "CPUs 4 are neither in it nor in any entry"),
        ({}, _cpus(default=SHARED & ~RESERVED), *["reserved CPUs 0,16 are not in it"] * 2),
        (STRICT, _cpus(), *["reserved CPUs 0,16 are in it"] * 2),
        (STRICT, _cpus(default=SHARED & ~RESERVED), "", ""),
        ({}, _node_0(free=5, reserved=0, allocatable=5), "", "the reserved or total memory of NUMA node 0 differs"),
        ({}, _node_0(total=5), "", "the reserved or total memory of NUMA node 0 differs"),
        ({}, _node_0(free=5), *["free 5 + reserved 0 is not"] * 2),
        ({}, _hugepages, "", "the reserved or total hugepages-1Gi of NUMA node 0 differs"),
        ({}, _one_node, *["NUMA nodes [0], but the machine has [0, 1]"] * 2),
        ({}, _grouped, *["a NUMA node is grouped with one that does not exist"] * 2),
        ({}, _devices, "vendor.example/gpu device gpu-0 belongs to pod a and to pod b", ""),
    ],
)
def test_what_a_kubelet_that_runs_cannot_hold_and_with_what_none_starts(
    kubelet: dict[str, Any], change: Callable[[ManagerState], ManagerState], running: str, at_start: str
) -> None:
    node = sample(devices={GPU: [0, 1]}, **kubelet)

    found = contradictions(node.kubelet, change(node.state))

    for errors, expected in zip(found, (running, at_start), strict=True):
        assert [error.reason[: len(expected)] for error in errors.values()] == ([expected] if expected else [])


def test_every_state_after_pods_were_admitted_again_is_read_and_answered_as_its_kubelet_does() -> None:
    """Before: 36 of 3,894 such states were refused (`python -m tests.truth readmitted_states`)."""
    states, wrong = readmitted_states.check(2)

    assert wrong == []
    assert states > 500
