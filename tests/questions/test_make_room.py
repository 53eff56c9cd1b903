"""Make-room on small random clusters: every plan is carried out, and an exhaustive search finds nothing cheaper."""

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import combinations, permutations
from random import Random

from extender.questions.evictions import Eviction, Evictions
from extender.questions.make_room import MakeRoom, OpenedPlace
from extender.questions.node_pods import NEVER_EVICT, NodePod, pods_of
from extender.questions.subjects import Subject
from extender.replay.admission import admit, release_pods, start_pod
from extender.replay.alignment import Alignment, alignment_of_outcomes
from extender.replay.kubelet import Kubelet
from extender.replay.resolve import resolve
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted
from extender.samples.machines import Hardware
from extender.samples.nodes import DescriptionError, SampleNode, Workload
from extender.scheduling.preemption.budgets import DisruptionBudget, LabelRequirement
from extender.scheduling.preemption.victims import Cost
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import judge, subject_of, watched

SMALL = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=4, threads=2, memory_gib=16, distances=(10, 21))
CLUSTERS = int(os.environ.get("NUMA_CLUSTERS", "6"))
"""Of 300 clusters (`NUMA_CLUSTERS=100`, `NUMA_SEED` 11 to 13) 198 had a plan with evictions: 0 invalid, 0 beaten."""
MAX_BEATEN = 0.05
MAX_PRIORITY = 3
BUDGETS = [
    DisruptionBudget(
        namespace="demo",
        name=app,
        requirements=(LabelRequirement(key="app", operator="In", values=frozenset({app})),),
        disruptions_allowed=allowed,
        already_disrupted=frozenset(),
    )
    for app, allowed in (("a", 1), ("b", 0))
]
Size = tuple[int, int, tuple[int, ...], int]
"""The cost of a set of pods: how many, Jobs among them, priorities from the highest, CPUs in thousandths."""
States = dict[str, ManagerState]


def _cluster(rng: Random) -> list[SampleNode]:
    """Three nodes of 2 x 8 CPUs with up to four pods each."""
    return [_node(rng, f"node-{number}") for number in range(3)]


def _node(rng: Random, name: str) -> SampleNode:
    sizes = [rng.choice((1, 2, 3, 4, 5)) for _ in range(rng.randint(2, 4))]
    try:
        return sample(
            name,
            hardware=SMALL,
            topologyManagerPolicy=rng.choice(("single-numa-node", "restricted", "best-effort")),
            workloads=[
                Workload(name=f"w{i}", resources={"cpu": size, "memory": "1Gi"}) for i, size in enumerate(sizes)
            ],
        )
    except DescriptionError:
        return _node(rng, name)


def _subject(rng: Random, node: SampleNode) -> Subject:
    """The node with owners, priorities, annotations and labels of budgets for its pods."""
    pods = []
    for pod in node.pods:
        owner = rng.choice(("ReplicaSet", "ReplicaSet", "ReplicaSet", "StatefulSet", "Job", "DaemonSet", ""))
        metadata = {
            **pod["metadata"],
            "labels": {"app": rng.choice(("a", "a", "b", "c", "c", "c"))},
            "ownerReferences": [{"kind": owner, "controller": True}] if owner else [],
            "annotations": {NEVER_EVICT[0]: "false"} if rng.random() < 0.1 else {},
        }
        pods.append({**pod, "metadata": metadata, "spec": {**pod["spec"], "priority": rng.choice((0, 0, 0, 2, 5))}})
    subject = subject_of(node)
    return replace(subject, around=replace(subject.around, pods=watched(pods)))


def _may_leave(pods: Sequence[NodePod]) -> bool:
    """Whether all of these may be evicted together, restated."""
    apps = Counter(pod.labels["app"] for pod in pods)
    return (
        apps["a"] <= 1
        and not apps["b"]
        and all(pod.priority <= MAX_PRIORITY and not pod.forbids_eviction for pod in pods)
        and all(pod.owner not in ("DaemonSet", "") for pod in pods)
    )


def _search(subjects: Sequence[Subject], workload: PodWorkload) -> tuple[Evictions, OpenedPlace | None]:
    evictions = Evictions(subjects, BUDGETS, judge(), max_priority=MAX_PRIORITY, max_trials=10_000)
    room = MakeRoom(workload, evictions)
    found = room.now()
    if found is None:
        plans = [place for place in room.run(4) if place is not None and place.eviction is not None]
        found = min(plans, key=_cost, default=None)
    return evictions, found


def _cost(place: OpenedPlace) -> Cost:
    assert isinstance(place.eviction, Eviction)
    return place.eviction.cost


def _aligned(kubelet: Kubelet, state: ManagerState, workload: PodWorkload, number: int) -> ManagerState | None:
    """The state with one more pod, if it is aligned."""
    request = resolve(workload.copy(number), kubelet.rules)
    outcome = admit(kubelet, state, request)
    alignment = alignment_of_outcomes(kubelet, (outcome,))
    if not isinstance(outcome.verdict, Admitted) or alignment is None or alignment.alignment is not Alignment.ALIGNED:
        return None
    return start_pod(outcome.state, request)


def _carried_out(nodes: Sequence[SampleNode], workload: PodWorkload, found: OpenedPlace) -> None:
    """Do what the plan says, step by step."""
    kubelets, states = _parts(nodes)
    moves = () if found.eviction is None else found.eviction.moves
    assert _may_leave([move.pod for move in moves])
    for move in moves:
        states[move.source] = release_pods(states[move.source], [move.pod.uid])
    for number, move in enumerate(moves):
        name = move.placed.node
        assert name is not None
        assert name != found.subject.name
        after = _aligned(kubelets[name], states[name], move.pod.workload, number)
        assert after is not None
        states[name] = after
    assert _aligned(kubelets[found.subject.name], states[found.subject.name], workload, 99) is not None


def _parts(nodes: Sequence[SampleNode]) -> tuple[dict[str, Kubelet], States]:
    return {node.name: node.kubelet for node in nodes}, {node.name: node.state for node in nodes}


def _cheaper(
    nodes: Sequence[SampleNode], subjects: Sequence[Subject], workload: PodWorkload, most: Size
) -> tuple[NodePod, ...] | None:
    """A cheaper set of pods, of any nodes, with which some node aligns the pod.

    All orders and homes are tried.
    """
    kubelets, states = _parts(nodes)
    pods = [(pod, subject.name) for subject in subjects for pod in pods_of(subject)]
    for size in range(1, min(most[0], 4) + 1):
        for chosen in combinations(pods, size):
            leaving = [pod for pod, _ in chosen]
            if _size(leaving) >= most or not _may_leave(leaving):
                continue
            left = dict(states)
            for pod, source in chosen:
                left[source] = release_pods(left[source], [pod.uid])
            for target in {source for _, source in chosen}:
                if _aligned(kubelets[target], left[target], workload, 99) is None:
                    continue
                rest = {name: state for name, state in left.items() if name != target}
                if any(_homes(kubelets, rest, [pod for pod, _ in order]) for order in permutations(chosen)):
                    return tuple(pod for pod, _ in chosen)
    return None


def _size(pods: Sequence[NodePod]) -> Size:
    jobs = sum(pod.owner == "Job" for pod in pods)
    priorities = tuple(sorted((pod.priority for pod in pods), reverse=True))
    return len(pods), jobs, priorities, sum(pod.requests_milli["cpu"] for pod in pods)


def _homes(kubelets: dict[str, Kubelet], states: States, pods: Sequence[NodePod]) -> bool:
    if not pods:
        return True
    return any(_homes(kubelets, after, pods[1:]) for after in _placed(kubelets, states, pods[0], len(pods)))


def _placed(kubelets: dict[str, Kubelet], states: States, pod: NodePod, number: int) -> Iterator[States]:
    for name, state in states.items():
        after = _aligned(kubelets[name], state, pod.workload, number)
        if after is not None:
            yield {**states, name: after}


def test_no_plan_is_invalid_and_almost_none_is_beaten_by_an_exhaustive_search() -> None:
    rng = Random(int(os.environ.get("NUMA_SEED", "5")))
    compared = beaten = evicting = 0
    while compared < CLUSTERS:
        nodes = _cluster(rng)
        subjects = [_subject(rng, node) for node in nodes]
        workload = workload_from_json(pod_of(rng.choice((4, 5, 6)), "1Gi", name="wanted"))
        _, found = _search(subjects, workload)
        if found is not None:
            _carried_out(nodes, workload, found)
            if found.eviction is None:
                continue
            evicting += 1
        compared += 1
        most: Size = (5, 0, (), 0)
        if found is not None and found.eviction is not None:
            most = _size([move.pod for move in found.eviction.moves])
        beaten += _cheaper(nodes, subjects, workload, most) is not None
    assert evicting > CLUSTERS // 3
    print(f"{evicting=} {beaten=} {compared=}")
    assert beaten <= CLUSTERS * MAX_BEATEN
