"""The coarse replay answers what the full replay answers, or nothing."""

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.config import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Rejected
from extender.replay.coarse.admission import CoarseReplay, Key
from extender.replay.coarse.amounts import FreeAmounts
from extender.replay.coarse.verdict import CoarseAdmitted, CoarseRejected
from extender.replay.pod import Pod
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import scenario_from_json
from tests.replay.by_hand import M1, M2, Node, container, machine, pod
from tests.replay.coarse_law import amounts_of, compared, differences, is_new
from tests.replay.strategies import scenarios as drawn_scenarios
from tests.replay.vectors import VERSIONS, Json, scenarios

GPU = "gpu.example/gpu"
Admission = tuple[Kubelet, ManagerState, PodRequest]


def admissions(document: Json) -> Iterator[Admission]:
    """Every admission of a scenario for which the node holds nothing yet; nothing where no kubelet starts."""
    scenario = scenario_from_json(document)
    try:
        kubelet = start(scenario.machine, scenario.config)
    except KubeletConfigError:
        return
    state = initial_state(kubelet, scenario.devices)
    admitted: dict[str, PodRequest] = {}
    for step in scenario.steps:
        if step.op == "remove":
            state = release_pods(state, (step.uid,))
        elif step.op == "start" and step.uid in admitted:
            state = start_pod(state, admitted[step.uid])
        elif step.pod is not None:
            request = admitted[step.uid] = resolve(step.pod, kubelet.rules)
            if is_new(state, request):
                yield kubelet, state, request
            state = admit(kubelet, state, request, max_replays=1).state


class Replays:
    """One coarse replay for all pods of equal requests and rules, so that verdicts are shared by key."""

    def __init__(self, made: Callable[[PodRequest], CoarseReplay] = CoarseReplay) -> None:
        self._made = made
        self._replays: dict[str, CoarseReplay] = {}

    def of(self, kubelet: Kubelet, request: PodRequest) -> CoarseReplay:
        key = repr((kubelet.rules, replace(request, uid="", name="")))
        return self._replays.setdefault(key, self._made(request))


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn_scenarios())
def test_every_pod_in_every_state_of_a_random_node(document: dict[str, Any]) -> None:
    history, replays = list(admissions(document)), Replays()
    for kubelet, _, request in history:
        for _, state, _ in history:
            if is_new(state, request):
                _, _, found = compared(kubelet, state, request, replays.of(kubelet, request))

                assert found == {}


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(drawn_scenarios(), st.integers(0, 10), st.randoms(use_true_random=False))
def test_pods_of_other_nodes_in_states_that_lost_pods(document: dict[str, Any], index: int, random: Any) -> None:  # noqa: ANN401
    """States that no order of admissions alone leads to: any of the pods may have left."""
    history, replays = list(admissions(document)), Replays()
    for kubelet, state, request in history:
        held = sorted(state.pod_uids)
        left = release_pods(state, random.sample(held, index % (len(held) + 1)))

        assert compared(kubelet, left, request, replays.of(kubelet, request))[2] == {}


@pytest.mark.parametrize("version", VERSIONS)
def test_recorded_admissions(version: str) -> None:
    keys: set[Key | None] = set()

    class Noted(CoarseReplay):
        def key(self, amounts: FreeAmounts) -> Key | None:
            keys.add(key := super().key(amounts))
            return key

    replays = Replays(Noted)
    answers: Counter[str] = Counter()
    for document in scenarios(version, 0, 8 if version == "1.36" else 4):
        for kubelet, state, request in admissions(document):
            coarse, _, found = compared(kubelet, state, request, replays.of(kubelet, request))
            answers[type(coarse).__name__] += 1
            assert found == {}, document["id"]

    assert answers["CoarseAdmitted"] > 100
    assert answers["CoarseRejected"] > 50
    assert answers["NoneType"] < answers.total() / 2
    assert len(keys) > 100


# -- each part of a key and of the amounts decides some admission: without it the law is broken


@cache
def _sample() -> tuple[Admission, ...]:
    """Pods of some recorded scenarios on nodes of others, in the states of their histories."""
    nodes: list[tuple[Kubelet, ManagerState]] = []
    pods: list[Pod] = []
    for number, document in enumerate(scenarios("1.36", 3, 8)):
        found = list(admissions(document))
        nodes += [(kubelet, state) for kubelet, state, _ in found[number % 2 :: 2]]
        if number % 16 == 0:
            steps = scenario_from_json(document).steps
            pods += [replace(step.pod, uid="new", name="new") for step in steps if step.pod is not None]
    random = Random(1)
    rows = [(kubelet, state, random.sample(pods, 4)) for kubelet, state in nodes]
    return tuple((kubelet, state, resolve(pod, kubelet.rules)) for kubelet, state, some in rows for pod in some)


def _breaks(replays: Replays, changed: Callable[[FreeAmounts], FreeAmounts] = lambda amounts: amounts) -> bool:
    """Whether some answer is not that of the full replay; amounts that contradict each other fail an assertion."""
    for kubelet, state, request in _sample():
        try:
            coarse = replays.of(kubelet, request).admit(changed(amounts_of(kubelet, state)))
        except AssertionError:
            return True
        if coarse is not None and differences(coarse, kubelet, state, admit(kubelet, state, request)):
            return True
    return False


class _Shortened(CoarseReplay):
    """Knows nodes by less than their key."""

    shortened: Callable[[Key], Key]

    def key(self, amounts: FreeAmounts) -> Key | None:
        key = super().key(amounts)
        return None if key is None else self.shortened(key)


def _without(position: int) -> Callable[[PodRequest], CoarseReplay]:
    shortened = lambda _, key: tuple(part for i, part in enumerate(key) if i != position % len(key))  # noqa: E731
    return type("Shortened", (_Shortened,), {"shortened": shortened})


def test_the_sample_keeps_the_law() -> None:
    assert not _breaks(Replays())


@pytest.mark.parametrize("position", [0, 1, 2, -1])
def test_no_part_of_a_key_can_be_left_out(position: int) -> None:
    assert _breaks(Replays(_without(position)))


def _more(row: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(each + 1 for each in row)


CHANGES: dict[str, Callable[[FreeAmounts], FreeAmounts]] = {
    "free CPUs": lambda a: replace(a, cpus=a.cpus._replace(free=_more(a.cpus.free))),
    "whole cores": lambda a: replace(a, cpus=a.cpus._replace(whole_cores=(0,) * len(a.cpus.whole_cores))),
    "physical CPUs": lambda a: replace(a, cpus=a.cpus._replace(physical=a.layout.sizes)),
    "free bytes": lambda a: replace(a, bytes=a.bytes._replace(free=a.bytes.allocatable)),
    "allocatable bytes": lambda a: replace(
        a, bytes=a.bytes._replace(allocatable={n: tuple(1 << 62 for _ in row) for n, row in a.bytes.free.items()})
    ),
    "grouped NUMA nodes": lambda a: replace(a, bytes=a.bytes._replace(grouped=0)),
    "NUMA nodes in use": lambda a: replace(a, bytes=a.bytes._replace(in_use=0)),
    "free devices": lambda a: replace(
        a, devices={r: d._replace(free=d.all, free_count=sum(n for _, n in d.all)) for r, d in a.devices.items()}
    ),
    "devices by NUMA node": lambda a: replace(
        a, devices={r: d._replace(free_at=_more(d.free_at)) for r, d in a.devices.items()}
    ),
    "what one NUMA node serves": lambda a: replace(
        a, single={r: rows and tuple((bit, n + 1) for bit, n in rows) for r, rows in a.single.items()}
    ),
    "memory state": lambda a: replace(a, memory=replace(a.memory, nodes=tuple(_empty(n) for n in a.memory.nodes))),
}


def _empty(node: Any) -> Any:  # noqa: ANN401
    amounts = tuple((name, each._replace(free=each.allocatable)) for name, each in node.amounts)
    return node._replace(assignments=0, cells=1 << node.id, amounts=amounts)


@pytest.mark.parametrize("part", CHANGES)
def test_no_part_of_the_amounts_can_be_wrong(part: str) -> None:
    assert _breaks(Replays(), CHANGES[part])


def test_walks_and_keys_agree() -> None:
    """The shortcut by key is left out: every node is walked."""

    class Walked(CoarseReplay):
        def key(self, _amounts: FreeAmounts) -> None:
            return None

    assert not _breaks(Replays(Walked))
    answers = {type(Walked(request).admit(amounts_of(k, state))) for k, state, request in _sample()}
    assert answers == {CoarseAdmitted, CoarseRejected, type(None)}


def _node_by_hand(healthy: list[bool], numa: list[int] | None, *pods: list[Json]) -> Json:
    """One NUMA node with some GPUs, and pods with these amounts for each container."""
    steps = []
    for number, containers in enumerate(pods):
        spec = [
            {"name": f"c{i}", "image": "img", "resources": {"requests": amounts, "limits": amounts}}
            for i, amounts in enumerate(containers)
        ]
        metadata = {"name": f"p{number}", "uid": f"uid-{number}"}
        steps.append({"op": "admit", "pod": {"metadata": metadata, "spec": {"containers": spec}}})
    gpus = [{"id": f"gpu-{i}", "numa": numa, "healthy": is_healthy} for i, is_healthy in enumerate(healthy)]
    return {
        "id": "by hand",
        "kubelet_version": "1.36",
        "machine": {"cpus": [[i, i, 0, 0, 0] for i in range(4)], "numa": [{"id": 0, "memory": 1 << 30}]},
        "kubelet": {
            "topologyManagerPolicy": "restricted",
            "cpuManagerPolicy": "static",
            "reservation": {"cpu": "1"},
        },
        "devices": {GPU: gpus},
        "steps": steps,
    }


@pytest.mark.parametrize("is_healthy", [True, False])
def test_a_request_for_no_devices_is_refused_without_a_healthy_one(is_healthy: bool) -> None:  # noqa: FBT001
    ((kubelet, state, request),) = admissions(_node_by_hand([is_healthy], [0], [{"cpu": "1", GPU: "0"}]))

    coarse, _, found = compared(kubelet, state, request)

    assert found == {}
    assert isinstance(coarse, CoarseAdmitted if is_healthy else CoarseRejected)


@pytest.mark.parametrize("numa", [None, [0]])
def test_each_container_takes_from_what_the_one_before_left(numa: list[int] | None) -> None:
    two = {"cpu": "1", "memory": "1Mi", GPU: "2"}
    rows = list(admissions(_node_by_hand([True] * 4, numa, [two, two], [{GPU: "1"}], [two, two])))
    (kubelet, four_free, _), (_, none_free, _), (_, _, request) = rows
    three_free = admit(kubelet, release_pods(none_free, ["uid-0"]), rows[1][2]).state
    replay = CoarseReplay(request)

    assert [compared(kubelet, state, request, replay)[2] for state in (four_free, three_free, none_free)] == [{}] * 3
    assert isinstance(replay.admit(amounts_of(kubelet, four_free)), CoarseAdmitted)
    assert isinstance(replay.admit(amounts_of(kubelet, three_free)), CoarseRejected)


def _request(node: Node, document: Json) -> PodRequest:
    return resolve(pod_from_json(document), node.kubelet.rules)


def test_a_device_of_two_numa_nodes_is_taken_from_both() -> None:
    """What one NUMA node has alone says nothing of the other: the second container finds one device or none."""
    one_gpu = {GPU: "1"}
    gpus = {GPU: [{"id": f"gpu-{i}", "numa": [0, 1], "healthy": True} for i in range(2)]}
    node = Node(M1, devices=gpus, topologyManagerPolicy="single-numa-node")
    request = _request(node, pod("new", container(4, more=one_gpu), container(4, more=one_gpu)))
    replay, empty = CoarseReplay(request), node.state
    node.admit(pod("holder", container(0.5, more=one_gpu)))

    coarse, _, found = compared(node.kubelet, empty, request, replay)
    assert (type(coarse), found) == (CoarseAdmitted, {})
    coarse, _, found = compared(node.kubelet, node.state, request, replay)
    assert (type(coarse), found) == (CoarseRejected, {})


def test_a_machine_with_unlike_cores_has_no_coarse_verdict_on_cpus() -> None:
    """Two cores of two threads and four of one: the kubelet counts one CPU a core, and gives out CPUs in use."""
    cores = [[0, 1], [2, 3], [4], [5], [6], [7]]
    for numa, policy in itertools.product(([0] * 6, [0, 0, 0, 1, 1, 1]), ("none", "restricted")):
        node = Node(machine(cores, numa, [0] * 6), reserve="1", topologyManagerPolicy=policy)
        amounts = amounts_of(node.kubelet, node.state)

        for cpus in (2, 6):
            assert CoarseReplay(_request(node, pod("new", container(cpus)))).admit(amounts) is None
        coarse, _, found = compared(node.kubelet, node.state, _request(node, pod("shared", container(0.5))))
        assert (type(coarse), found) == (CoarseAdmitted, {})


def test_align_by_socket_takes_cpus_of_the_whole_socket() -> None:
    """Which NUMA nodes of the socket the CPUs are on depends on what is free on each of them."""
    node = Node(M2, topologyManagerPolicy="restricted", cpuManagerPolicyOptions={"align-by-socket": "true"})
    request = _request(node, pod("new", container(2)))
    replay, places = CoarseReplay(request), set()
    for number in range(8):
        coarse, _, found = compared(node.kubelet, node.state, request, replay)
        assert found == {}
        places.add(coarse.placements["c0"].cpus if isinstance(coarse, CoarseAdmitted) else coarse)
        node.admit(pod(f"p{number}", container(1 + number % 2)))
    assert len(places) > 2


FULL_CORES = {"full-pcpus-only": "true"}


def test_after_two_init_containers_with_cpus_whole_cores_are_known_only_from_below() -> None:
    """The second one may take the CPUs of the first: how many free cores the kubelet counts then depends on ids."""
    node = Node(M1, topologyManagerPolicy="best-effort", cpuManagerPolicyOptions=FULL_CORES)
    request = _request(node, pod("new", container(8), init=(container(8), container(4))))

    coarse, full, found = compared(node.kubelet, node.state, request)

    assert isinstance(full.verdict, Rejected)
    assert found == {}
    assert coarse is None


@pytest.mark.parametrize("reserve", ["1", "2"])
def test_a_container_that_breaks_cores_does_not_stop_the_next_one(reserve: str) -> None:
    """Single CPUs of cores that others use in part count as free, so a container can get them."""
    before = Node(M1, reserve=reserve, topologyManagerPolicy="restricted")
    before.cpus(*[1] * 8)
    state = release_pods(before.state, [f"p{number}" for number in range(0, 8, 2)])
    node = Node(M1, reserve=reserve, topologyManagerPolicy="restricted", cpuManagerPolicyOptions=FULL_CORES)

    answers = set()
    for first, second in itertools.product((2, 4, 6, 8), repeat=2):
        request = _request(node, pod("new", container(first), container(second)))
        coarse, _, found = compared(node.kubelet, state, request)
        assert found == {}
        answers.add(type(coarse))
    assert CoarseAdmitted in answers
