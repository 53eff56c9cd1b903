"""Explanations: the first fault in a sentence, the story, and suggestions that hold."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kubelet.admission import admit
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted
from extender.questions.explain import MAX_HINTS, explain
from extender.questions.free_room import numa_room
from extender.questions.suggestions import MAX_REPLAYS
from extender.questions.what_if import what_if
from extender.samples.machines import GPU, Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.ranking.strategies import Weights, make_strategy
from extender.wire.pod_replies import AllocationStep, HintsStep, MergeStep
from extender.wire.pods import pod_from_json
from extender.wire.verdicts import container_placements
from extender.wire.workloads import workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import subject_of

BUSY = sample(
    workloads=[
        Workload(name="a", resources={"cpu": 12, "memory": "20Gi"}),
        Workload(name="b", resources={"cpu": 4}),
    ],
    devices={GPU: [0, 0, 1]},
)
QUARTERS = Hardware(sockets=2, numa_per_socket=4, cores_per_numa=4, threads=2, memory_gib=16)
ANYWHERE, APART = "1Gi of memory on NUMA 0 or 1", "but not all of it in the same place."
FAULTS: list[tuple[SampleNode, dict[str, Any], str]] = [
    (
        BUSY,
        pod_of(16),
        "Container app wants 16 CPUs from one NUMA node, and the most that is free on one is 12 CPUs, on NUMA 1.",
    ),
    (BUSY, pod_of(17), "Container app wants 17 CPUs, more than any one NUMA node of this machine has."),
    (
        BUSY,
        pod_of(10, devices={GPU: 2}),
        f"Container app could have 2 {GPU} on NUMA 0, 10 CPUs on NUMA 1 and {ANYWHERE}, {APART}",
    ),
    (
        BUSY,
        pod_of(2, devices={GPU: 3}),
        f"Container app wants 3 {GPU}, more than any one NUMA node of this machine has.",
    ),
    (
        BUSY,
        pod_of(2, "40Gi"),
        "Container app wants 40Gi of memory, and the most that is free on one NUMA node is 31Gi of memory, on NUMA 1.",
    ),
    (
        sample(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
        pod_of(3),
        "Container app wants 3 CPUs: SMT Alignment Error: requested 3 cpus not multiple cpus per core = 2.",
    ),
]


@pytest.mark.parametrize(("node", "pod", "sentence"), FAULTS)
def test_the_first_fault_is_one_plain_sentence(node: SampleNode, pod: dict[str, Any], sentence: str) -> None:
    story = explain(node.kubelet, node.state, pod_from_json(pod), search=False)

    assert story.first_fault == sentence


@pytest.mark.parametrize(("node", "pod", "sentence"), FAULTS)
def test_what_if_says_the_same_of_a_single_replay(node: SampleNode, pod: dict[str, Any], sentence: str) -> None:
    judge = BoundedJudge(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())

    (answer,) = what_if(workload_from_json(pod), [subject_of(node)], judge)

    assert answer.reason == sentence


def test_a_story_has_offers_merge_and_what_was_taken_in_order() -> None:
    story = explain(BUSY.kubelet, BUSY.state, pod_from_json(pod_of(4, devices={GPU: 1})))

    kinds = [type(step) for step in story.steps]
    assert story.first_fault is None
    assert kinds == [HintsStep, HintsStep, HintsStep, MergeStep, AllocationStep, AllocationStep, AllocationStep]
    assert story.nearest == []
    steps = msgspec.to_builtins(story.steps)
    assert steps[0] == {
        "step": "hints",
        "container": "app",
        "provider": "device",
        "resource": GPU,
        "wanted": 1,
        "opinion": "hints",
        "minimum_width": 1,
        "hints": [
            {"numa": [0], "preferred": True},
            {"numa": [1], "preferred": True},
            {"numa": [0, 1], "preferred": False},
        ],
        "hints_left_out": 0,
        "preferred_count": 2,
    }
    assert steps[3]["affinity"] == [1]
    assert steps[5] == {"step": "allocation", "container": "app", "provider": "cpu", "taken": "CPUs 10-11,26-27"}


def test_long_stories_are_cut_and_say_so() -> None:
    node = sample(hardware=QUARTERS)

    step = explain(node.kubelet, node.state, pod_from_json(pod_of(2))).steps[0]

    assert isinstance(step, HintsStep)
    assert (len(step.hints), step.hints_left_out) == (MAX_HINTS, 255 - MAX_HINTS)


SUGGESTED: list[tuple[SampleNode, dict[str, Any], set[tuple[str, str]]]] = [
    (BUSY, pod_of(16), {("fewer-cpus", "12")}),
    (BUSY, pod_of(14), {("fewer-cpus", "12"), ("topology-policy", "best-effort")}),
    (BUSY, pod_of(2, "40Gi"), {("less-memory", "31Gi")}),
    (BUSY, pod_of(2, devices={GPU: 3}), {("fewer-devices", "2"), ("topology-policy", "best-effort")}),
    (
        sample(cpuManagerPolicyOptions={"full-pcpus-only": "true"}),
        pod_of(3),
        {("whole-cores", "4"), ("fewer-cpus", "2")},
    ),
    (BUSY, pod_of(24, "40Gi"), {("smaller", "12 CPUs and 31Gi of memory")}),
]


@pytest.mark.parametrize(("node", "pod", "expected"), SUGGESTED)
def test_the_nearest_requests_that_fit_are_found(
    node: SampleNode, pod: dict[str, Any], expected: set[tuple[str, str]]
) -> None:
    story = explain(node.kubelet, node.state, pod_from_json(pod))

    assert expected <= {(each.kind, each.instead) for each in story.nearest}
    assert story.replays <= MAX_REPLAYS


@settings(max_examples=40, deadline=None)
@given(
    cpus=st.integers(1, 40),
    memory=st.integers(1, 80),
    gpus=st.integers(0, 5),
    policy=st.sampled_from(["restricted", "single-numa-node", "best-effort"]),
    scope=st.sampled_from(["container", "pod"]),
    held=st.lists(st.integers(1, 8), max_size=3),
)
def test_every_suggestion_is_admitted_and_smaller(
    cpus: int, memory: int, gpus: int, policy: str, scope: str, held: list[int]
) -> None:
    node = sample(
        workloads=[Workload(name=f"w{i}", resources={"cpu": n, "memory": "1Gi"}) for i, n in enumerate(held)],
        devices={GPU: [0, 0, 1, 1]},
        topologyManagerPolicy="best-effort",
        topologyManagerScope=scope,
    )
    node = node if policy == "best-effort" else _under(node, policy, scope)
    pod = pod_from_json(pod_of(cpus, f"{memory}Gi", devices={GPU: gpus} if gpus else None))

    story = explain(node.kubelet, node.state, pod)

    verdict = admit(node.kubelet, node.state, resolve(pod, node.kubelet.rules)).verdict
    assert isinstance(verdict, Admitted) == (story.first_fault is None)
    for each in story.nearest:
        assert each.verdict.admit
        if each.kind == "fewer-cpus":
            assert int(each.instead) < cpus
            smaller = pod_from_json(pod_of(each.instead, f"{memory}Gi", devices={GPU: gpus} if gpus else None))
            again = admit(node.kubelet, node.state, resolve(smaller, node.kubelet.rules)).verdict
            assert isinstance(again, Admitted)
            placements = container_placements(again.placements, None)
            assert {name: each.cpus for name, each in placements.items()} == {
                name: placed.cpus for name, placed in each.verdict.containers.items()
            }


def _under(node: SampleNode, policy: str, scope: str) -> SampleNode:
    """The same state under another policy."""
    other = sample(devices={GPU: [0, 0, 1, 1]}, topologyManagerPolicy=policy, topologyManagerScope=scope)
    return SampleNode(
        description=node.description,
        configuration=other.configuration,
        kubelet=other.kubelet,
        state=node.state,
        pods=node.pods,
    )


@settings(max_examples=40, deadline=None)
@given(
    held=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 12)), max_size=4),
    options=st.sampled_from([{}, {"full-pcpus-only": "true"}]),
)
def test_free_room_is_the_largest_request_that_one_numa_node_serves(
    held: list[tuple[int, int]], options: dict[str, str]
) -> None:
    step = 2 if options else 1
    node = sample(
        workloads=[
            Workload(name=f"w{i}", resources={"cpu": n * step, "memory": f"{m}Gi"})
            for i, (n, m) in enumerate(held)
            if sum(c for c, _ in held[: i + 1]) * step <= 12 and sum(g for _, g in held[: i + 1]) <= 30
        ],
        cpuManagerPolicyOptions=options,
    )
    rooms = numa_room(node.kubelet, node.state)
    most_cpus = max(room.cpus for room in rooms.values())
    most_memory = max(room.memory["memory"] for room in rooms.values())

    def fits(pod: dict[str, Any]) -> bool:
        request = resolve(pod_from_json(pod), node.kubelet.rules)
        return isinstance(admit(node.kubelet, node.state, request).verdict, Admitted)

    assert fits(pod_of(most_cpus, "1Mi"))
    assert not fits(pod_of(most_cpus + step, "1Mi"))
    assert fits(pod_of("500m", str(most_memory)))
    assert not fits(pod_of("500m", str(most_memory + 1)))
