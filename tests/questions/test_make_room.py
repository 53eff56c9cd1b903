"""Make-room on small random clusters: every plan is carried out, and an exhaustive search finds nothing cheaper."""

from collections.abc import Iterator, Sequence
from itertools import combinations, permutations
from random import Random

from extender.questions.evictions import Eviction, Evictions
from extender.questions.make_room import MakeRoom, OpenedPlace
from extender.questions.node_pods import NodePod, pods_of
from extender.questions.subjects import Subject
from extender.replay.admission import admit, release_pods, start_pod
from extender.replay.alignment import Alignment, alignment_of_outcomes
from extender.replay.kubelet import Kubelet
from extender.replay.pod import resolve
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted
from extender.samples.machines import Hardware
from extender.samples.nodes import DescriptionError, SampleNode, Workload
from extender.scheduling.preemption.victims import Cost
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import judge, subject_of

SMALL = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=4, threads=2, memory_gib=16, distances=(10, 21))
CLUSTERS = 6
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


def _search(subjects: Sequence[Subject], workload: PodWorkload) -> tuple[Evictions, OpenedPlace | None]:
    evictions = Evictions(subjects, None, judge(), max_priority=0, max_trials=10_000)
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
    nodes: Sequence[SampleNode], subjects: Sequence[Subject], workload: PodWorkload, most: tuple[int, int]
) -> tuple[NodePod, ...] | None:
    """A set of fewer pods, or as many with fewer CPUs, of any nodes, with which some node aligns the pod.

    All orders and homes are tried.
    """
    kubelets, states = _parts(nodes)
    pods = [(pod, subject.name) for subject in subjects for pod in pods_of(subject)]
    for size in range(1, min(most[0], 4) + 1):
        for chosen in combinations(pods, size):
            if _size([pod for pod, _ in chosen]) >= most:
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


def _size(pods: Sequence[NodePod]) -> tuple[int, int]:
    return len(pods), sum(pod.requests_milli["cpu"] for pod in pods)


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
    rng = Random(5)
    compared = beaten = evicting = 0
    while compared < CLUSTERS:
        nodes = _cluster(rng)
        subjects = [subject_of(node) for node in nodes]
        workload = workload_from_json(pod_of(rng.choice((4, 5, 6)), "1Gi", name="wanted"))
        _, found = _search(subjects, workload)
        if found is not None:
            _carried_out(nodes, workload, found)
            if found.eviction is None:
                continue
            evicting += 1
        compared += 1
        most = (5, 0)
        if found is not None and found.eviction is not None:
            most = _size([move.pod for move in found.eviction.moves])
        beaten += _cheaper(nodes, subjects, workload, most) is not None
    assert evicting > CLUSTERS // 3
    assert beaten <= CLUSTERS * 0.05
