"""Capacity and plans against the plain way: ask, place, ask again."""

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.kubelet.admission import admit, start_pod
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted, Certainty
from extender.questions.capacity import Capacity
from extender.questions.node_context import NodeContext, Subject, Taint
from extender.questions.plan import PlacementPlan
from extender.replay.possible_states import NO_STATES, PossibleStates
from extender.samples.machines import GPU
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.pod_shape import PodShape
from extender.wire.pod_replies import NodeCapacity
from extender.wire.workloads import PodWorkload as Manifest
from extender.wire.workloads import workload_from_json
from tests.reports import pod_of, sample, with_init
from tests.subjects import judge, subject_of


def _rooms(pods: list[dict[str, Any]], *subjects: Subject, most: int = 1000) -> list[NodeCapacity]:
    return list(map(Capacity([workload_from_json(pod) for pod in pods], judge(), most).of, subjects))


def _one_by_one(node: SampleNode, mix: list[Manifest]) -> int:
    """Copies that fit: admit until one is refused."""
    state, copies = node.state, 0
    while True:
        request = resolve(mix[copies % len(mix)].copy(copies), node.kubelet.rules)
        outcome = admit(node.kubelet, state, request)
        if not isinstance(outcome.verdict, Admitted):
            return copies
        state = start_pod(outcome.state, request)
        copies += 1


HELD = st.lists(st.tuples(st.integers(1, 5), st.integers(1, 4)), max_size=4)


def _node(held: list[tuple[int, int]], name: str = "node-a", policy: str = "single-numa-node") -> SampleNode:
    workloads = [Workload(name=f"w{i}", resources={"cpu": n, "memory": f"{m}Gi"}) for i, (n, m) in enumerate(held)]
    return sample(name, workloads=workloads, devices={GPU: [0, 0, 1]}, topologyManagerPolicy=policy)


@settings(max_examples=30, deadline=None)
@given(
    held=st.lists(HELD, min_size=1, max_size=4),
    cpus=st.integers(1, 6),
    memory=st.integers(1, 12),
    gpus=st.integers(0, 1),
    small=st.booleans(),
    policy=st.sampled_from(["single-numa-node", "restricted", "best-effort"]),
)
def test_copies_are_those_that_fit_one_by_one(
    held: list[list[tuple[int, int]]], cpus: int, memory: int, gpus: int, *, small: bool, policy: str
) -> None:
    nodes = [_node(each, f"node-{i}", policy) for i, each in enumerate(held)]
    pods = [pod_of(cpus, f"{memory}Gi", devices={GPU: gpus} if gpus else None)]
    if small:
        pods.append(pod_of(1, "1Gi"))

    rooms = _rooms(pods, *(replace(subject_of(node), around=NodeContext()) for node in nodes))

    mix = [workload_from_json(pod) for pod in pods]
    assert [room.copies for room in rooms] == [_one_by_one(node, mix) for node in nodes]


@pytest.mark.parametrize("scope", ["pod", "container"])
def test_what_an_init_container_needs_is_free_again_for_the_next_copy(scope: str) -> None:
    node, pod = sample(workloads=[], topologyManagerScope=scope), with_init(pod_of(2, "1Gi"), "500m", "9Gi")

    (room,) = _rooms([pod], replace(subject_of(node), around=NodeContext()))

    assert room.copies == 15


def test_what_has_no_room_in_the_same_place_is_named() -> None:
    """CPUs are free on one NUMA node, and memory on the other one."""
    held = [(1, "20Gi"), (14, "1Gi")]
    workloads = [Workload(name=f"w{i}", resources={"cpu": n, "memory": size}) for i, (n, size) in enumerate(held)]

    (room,) = _rooms([pod_of(6, "16Gi")], replace(subject_of(sample(workloads=workloads)), around=NodeContext()))

    assert "could have 6 CPUs on NUMA 0 and 16Gi of memory on NUMA 1, but not all of it" in room.limited_by.detail


def test_equal_nodes_and_equal_states_are_replayed_once() -> None:
    four, eight = (Workload(name="w", copies=n, resources={"cpu": 2, "memory": "1Gi"}) for n in (2, 4))
    nodes = [
        sample(f"n{i}", workloads=[each], topologyManagerPolicy="none") for i, each in enumerate((four, four, eight))
    ]
    subjects = [subject_of(node) for node in nodes]
    capacity = Capacity([workload_from_json(pod_of(2))], judge(), 1000)

    rooms = list(map(capacity.of, subjects))

    assert [room.copies for room in rooms] == [13, 13, 11]
    assert capacity.replays == 14  # the third node's states are among the first one's


def test_what_ends_it_is_told() -> None:
    node = subject_of(sample(workloads=[]))
    (cpu,) = _rooms([pod_of(10)], node)
    (memory,) = _rooms([pod_of(1, "20Gi")], node)
    (enough,) = _rooms([pod_of(1)], node, most=5)

    assert (cpu.copies, cpu.limited_by.by, cpu.limited_by.resource) == (2, "topology", "cpu")
    assert "6 CPUs" in cpu.limited_by.detail
    assert (memory.copies, memory.limited_by.resource) == (2, "memory")
    assert (enough.copies, enough.limited_by.by) == (5, "max_copies")


def test_totals_selectors_and_taints_limit_as_well() -> None:
    node = subject_of(sample(workloads=[]), requested_milli={"cpu": 20_000})
    tainted = replace(node, around=replace(node.around, taints=[Taint(key="a", value="", effect="NoSchedule")]))
    selecting = pod_of(2)
    selecting["spec"]["nodeSelector"] = {"a": "b"}

    assert [(r.copies, r.limited_by.by) for r in _rooms([pod_of(2)], node, tainted)] == [
        (5, "scheduler"),
        (0, "scheduler"),
    ]
    assert _rooms([selecting], replace(node, around=NodeContext(labels={})))[0].limited_by.why.endswith("node-selector")
    assert _rooms([pod_of(2, devices={"vendor.example/none": 1})], node)[0].copies == 0


def test_a_mix_is_taken_in_turn_and_totals_count_it_in_turn() -> None:
    node = sample(cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none", workloads=[])
    mix = [workload_from_json(pod_of(8)), workload_from_json(pod_of(1))]
    capacity = Capacity(mix, judge(), 1000)

    room = capacity.of(subject_of(node, requested_milli={}))

    assert (room.copies, room.totals_known) == (6, True)  # 30 CPUs: 8 1 8 1 8 1, then 8 no more
    assert capacity.per_pod(room.copies) == [3, 3]
    assert capacity.per_pod(7) == [4, 3]


def test_nodes_that_are_not_known_take_none() -> None:
    known = subject_of(sample())
    unknown = Subject(name="x", node_class=replace(known.node_class, kubelet=None, possible=NO_STATES), states=())

    (room,) = _rooms([pod_of(1)], unknown)

    assert (room.copies, room.certainty, room.limited_by.by) == (0, Certainty.UNKNOWN, "unknown")


def _place_naively(nodes: list[SampleNode], pods: list[Manifest]) -> list[str | None]:
    """Judge every node anew for each pod, take the best."""
    subjects = {node.name: subject_of(node) for node in nodes}
    states = {node.name: node.state for node in nodes}
    placed: list[str | None] = []
    for number, workload in enumerate(pods):
        shape = PodShape(workload.copy(number))
        merits = {}
        for name, subject in subjects.items():
            node_class = replace(subject.node_class, possible=PossibleStates((states[name],)))
            judgement = judge()(shape, node_class)
            if judgement.refusal is None:
                merits[name] = judgement.merit or 0
        best = min(merits, key=lambda name: (-merits[name], list(subjects).index(name)), default=None)
        placed.append(best)
        if best is not None:
            kubelet = subjects[best].kubelet
            assert kubelet is not None
            request = shape.request(kubelet.rules)
            states[best] = start_pod(admit(kubelet, states[best], request).state, request)
    return placed


@settings(max_examples=20, deadline=None)
@given(held=st.lists(HELD, min_size=1, max_size=4), sizes=st.lists(st.integers(1, 9), min_size=1, max_size=12))
def test_a_plan_places_as_asking_one_by_one_does(held: list[list[tuple[int, int]]], sizes: list[int]) -> None:
    nodes = [_node(each, f"node-{i}") for i, each in enumerate(held)]
    pods = [workload_from_json(pod_of(size, "2Gi")) for size in sizes]

    planned = list(PlacementPlan([subject_of(node) for node in nodes], judge()).run([(pod, 1) for pod in pods]))

    assert [each.node for each in planned] == _place_naively(nodes, pods)


def test_a_pod_without_room_is_told_why_and_costs_nothing_again() -> None:
    judged = 0
    real = judge()

    def counting(*args: Any) -> Any:  # noqa: ANN401 - passed through
        nonlocal judged
        judged += 1
        return real(*args)

    small, large = (workload_from_json(pod_of(n)) for n in (2, 14))
    plan = PlacementPlan([subject_of(sample("node-a")), subject_of(sample("node-b"))], counting)

    placed = list(plan.run([(large, 100), (small, 1), (large, 1)]))

    assert [each.node for each in placed[:3]] == ["node-a", "node-a", "node-b"]
    assert [each.node for each in placed[4:100]] == [None] * 96
    assert placed[50].reasons == {"NUMA alignment is not possible on the node now": 2}
    assert placed[50].name == "p-50"
    assert judged < 20


@pytest.mark.parametrize("rule", [{"nodeSelector": {"a": "b"}}, {"nodeName": "node-b"}])
def test_a_plan_obeys_what_the_scheduler_looks_at(rule: dict[str, Any]) -> None:
    pod = pod_of(2)
    pod["spec"] |= rule
    subjects = [
        replace(subject_of(sample(name)), around=NodeContext(labels=labels))
        for name, labels in (("node-a", {}), ("node-b", {"a": "b"}))
    ]

    (placed,) = PlacementPlan(subjects, judge()).run([(workload_from_json(pod), 1)])
    (nowhere,) = PlacementPlan(subjects[:1], judge()).run([(workload_from_json(pod), 1)])

    assert placed.node == "node-b"
    assert nowhere.node is None
    assert sum(nowhere.reasons.values()) == 1
    assert next(iter(nowhere.reasons)).startswith("kube-scheduler: ")


def test_copies_are_counted_by_what_they_get() -> None:
    """Under best-effort the third copy of 10 CPUs finds room on no single NUMA node of 14 to 16."""
    free = sample("free", topologyManagerPolicy="best-effort")
    plain = sample("plain", cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none")
    subjects = [replace(subject_of(node), around=NodeContext()) for node in (free, free, plain)]

    whole = _rooms([pod_of(10)], *subjects, most=5)
    first = _rooms([pod_of(7)], *subjects[:1], most=1)

    assert [(each.aligned, each.split, each.not_managed) for each in (*whole[:3], first[0])] == [
        (2, 1, 0),
        (2, 1, 0),
        (0, 0, 5),
        (1, 0, 0),
    ]
    for room in (*whole, *first):
        assert room.aligned + room.split + room.not_managed == room.copies


@settings(max_examples=15, deadline=None)
@given(st.lists(HELD, min_size=1, max_size=3), st.integers(1, 7), st.integers(1, 5))
def test_whole_groups_are_those_that_a_plan_places_and_no_more(
    held: list[list[tuple[int, int]]], cpus: int, size: int
) -> None:
    subjects = [subject_of(_node(each, f"node-{i}")) for i, each in enumerate(held)]
    manifest = workload_from_json(pod_of(cpus))
    capacity = Capacity([manifest], judge(), 1000, size)
    groups = capacity.groups([sum(capacity.of(subject).copies for subject in subjects)])

    def all_placed(count: int) -> bool:
        return all(placed.node for placed in PlacementPlan(subjects, judge()).run([(manifest, count * size)]))

    assert all_placed(groups)
    assert not all_placed(groups + 1)


def test_groups_of_a_mix_need_their_share_of_each() -> None:
    mix = [workload_from_json(pod_of(2, name="a")), workload_from_json(pod_of(2, name="b"))]
    assert Capacity(mix, judge(), 1000, 4).groups([7, 5]) == 2
    assert Capacity(mix, judge(), 1000, 1).groups([7, 5]) == 7
