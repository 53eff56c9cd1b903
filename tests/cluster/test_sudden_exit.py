"""What `sudden_exit` knows without a replay is what the replay says, and it knows it of most pods."""

from dataclasses import replace
from itertools import permutations
from random import Random
from typing import Final

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from extender.cluster import projection as projections
from extender.cluster import sudden_exit
from extender.cluster.ledger import EMPTY, Ledger, assume, terminate
from extender.cluster.projection import ProjectionInput, project
from extender.cluster.steps import Steps
from extender.cluster.sudden_exit import can_only_gain, have_room_together, is_known_to_survive, survives_sudden_exit
from extender.kubelet.admission import Outcome, admit, release_pods, start_pod
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Rejected
from extender.replay.pod import Pod
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, sample, with_init

QUAD: Final = Hardware(sockets=2, numa_per_socket=2, cores_per_numa=4, threads=2, memory_gib=8, distances=(10, 20))
"""4 NUMA nodes of 8 CPUs and 8 GiB: many pods need two of them."""
NODES: Final = tuple(
    sample(
        version=version,
        hardware=QUAD,
        memory_gib_reserved=1,
        topologyManagerPolicy=policy,
        topologyManagerScope=scope,
        memoryManagerPolicy=memory,
        cpuManagerPolicyOptions=options,
    )
    for version, scope in (("v1.27.0", "container"), ("v1.36.2", "pod"))
    for policy in ("none", "best-effort", "restricted", "single-numa-node")
    for memory in ("Static", "None")
    for options in ({}, {"full-pcpus-only": "true"})
)
NO_BOUND: Final = 1_000_000


def _pod(number: int, random: Random) -> Pod:
    document = pod_of(
        random.choice((1, 2, 2, 4, 6, 9)), f"{random.choice((1, 2, 3, 5, 6, 9, 12))}Gi", name=f"p{number}"
    )
    if random.random() < 0.2:
        with_init(document, 1, f"{random.choice((1, 6, 9))}Gi")
    return pod_from_json(document)


def _play(node: SampleNode, random: Random) -> tuple[ManagerState, int]:
    """A state that the kubelet can be in, and how many pods it has met."""
    state = node.state
    count = random.randint(3, 12)
    for number in range(count):
        request = resolve(_pod(number, random), node.kubelet.rules)
        outcome = admit(node.kubelet, state, request)
        state = start_pod(outcome.state, request) if isinstance(outcome.verdict, Admitted) else state
        if random.random() < 0.3 and state.pod_uids:
            state = release_pods(state, (random.choice(sorted(state.pod_uids)),))
    return state, count


def _is_sure(outcome: Outcome) -> bool:
    return isinstance(outcome.verdict, Admitted) and outcome.complete and not outcome.alternatives


@settings(max_examples=250, deadline=None)
@given(seed=st.integers(0, 2**32), node=st.sampled_from(NODES))
def test_a_pod_that_can_only_gain_is_admitted_whichever_others_have_ended(seed: int, node: SampleNode) -> None:
    random = Random(seed)
    state, count = _play(node, random)
    for number in range(count, count + 4):
        request = resolve(_pod(number, random), node.kubelet.rules)
        verdict = admit(node.kubelet, state, request).verdict
        if not can_only_gain(node.kubelet, state, request, (verdict,)):
            continue
        others = sorted(state.pod_uids)
        random.shuffle(others)
        for ended in (*((uid,) for uid in others), others[:2], others[:3], others):
            assert _is_sure(admit(node.kubelet, release_pods(state, ended), request)), ended


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), node=st.sampled_from(NODES))
def test_where_no_exit_matters_the_replay_says_so_too(seed: int, node: SampleNode) -> None:
    """With pods that are being deleted and may be gone already. The replay follows every order and combination."""
    given_, pods = _in_flight(node, Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        for bound in ("MAX_STATES", "MAX_ORDERS", "MAX_MAYBE_GONE", "SEARCH_STEPS"):
            patch.setattr(projections, bound, NO_BOUND)
        for pod in pods:
            steps = Steps()
            if is_known_to_survive(given_, pod.uid, project(given_, steps), steps):
                assert survives_sudden_exit(given_, pod.uid, NO_BOUND)


def _in_flight(node: SampleNode, random: Random) -> tuple[ProjectionInput, list[Pod]]:
    """Pods in flight to a node in a state that its kubelet can be in. Some of its pods are being deleted."""
    state, count = _play(node, random)
    ledger: Ledger = EMPTY
    for uid in random.sample(sorted(state.pod_uids), min(len(state.pod_uids), random.choice((0, 0, 1, 3)))):
        ledger = terminate(ledger, uid, 0.0)
    pods = []
    for number in range(count, count + random.choice((1, 2, 3))):
        pods.append(replace(_pod(number, random), created_at=number))
        ledger = assume(ledger, pods[-1], number)
    return ProjectionInput(kubelet=node.kubelet, reported=state, ledger=ledger, now=count + 9), pods


@settings(max_examples=200, deadline=None)
@example(seed=16, node=NODES[14])  # red with half of the room, and without the rule for init containers
@given(seed=st.integers(0, 2**32), node=st.sampled_from(NODES))
def test_pods_with_room_together_are_admitted_in_any_order_whichever_other_pods_exit_between(
    seed: int, node: SampleNode
) -> None:
    random = Random(seed)
    given_, pods = _in_flight(node, random)
    steps = Steps()
    if not have_room_together(given_, project(given_, steps), steps):
        return
    requests = [resolve(pod, node.kubelet.rules) for pod in pods]
    for order in permutations(requests):
        for _ in range(8):
            state = given_.reported
            for request in order:
                running = sorted(given_.reported.pod_uids & state.pod_uids)
                state = release_pods(state, random.sample(running, random.randint(0, min(2, len(running)))))
                outcome = admit(node.kubelet, state, request)
                assert _is_sure(outcome)
                state = start_pod(outcome.state, request) if random.random() < 0.5 else outcome.state


@settings(max_examples=150, deadline=None)
@example(seed=2182)  # red if one room may be missing
@given(seed=st.integers(0, 2**32))
def test_small_pods_with_a_room_for_each_of_them_are_admitted_in_any_order_whichever_other_pods_exit(seed: int) -> None:
    random, nodes = Random(seed), [node for node in NODES if node.kubelet.policy == "single-numa-node"]
    node = nodes[seed % len(nodes)]
    state, count = _play(node, random)
    ledger, requests, wanted, tries = EMPTY, list[PodRequest](), random.choice((2, 3, 4, 4, 5)), 0
    while len(requests) < wanted and (tries := tries + 1) <= 60:
        pod = replace(_pod(count + tries, random), created_at=count + tries)
        request = resolve(pod, node.kubelet.rules)
        if len(request.containers) == 1 and not request.total_devices:
            requests.append(request)
            ledger = assume(ledger, pod, count + tries)
    given_ = ProjectionInput(kubelet=node.kubelet, reported=state, ledger=ledger, now=count + 99)
    if not have_room_together(given_, project(given_, steps := Steps()), steps):
        return
    orders = list(permutations(requests))
    random.shuffle(orders)
    for order in orders[:24] * 4:
        state = given_.reported
        for request in order:
            running = sorted(given_.reported.pod_uids & state.pod_uids)
            state = release_pods(state, random.sample(running, random.randint(0, min(2, len(running)))))
            outcome = admit(node.kubelet, state, request)
            assert _is_sure(outcome)
            state = outcome.state


def test_pods_that_fill_all_numa_nodes_are_known_to_survive_and_one_more_is_not() -> None:
    node = next(n for n in NODES if n.kubelet.policy == "single-numa-node" and n.kubelet.cpu_static)
    sizes = [(cpus & ~node.kubelet.reserved_cpus).bit_count() for cpus in node.kubelet.machine.numa_cpus.values()]
    size = min(sizes) // 4 * 2
    for count, is_known in (
        (sum(each // size for each in sizes), True),
        (sum(each // size for each in sizes) + 1, False),
    ):
        ledger = EMPTY
        for number in range(count):
            ledger = assume(ledger, pod_from_json(pod_of(size, "1Mi", name=f"p{number}")), number)
        given_ = ProjectionInput(kubelet=node.kubelet, reported=node.state, ledger=ledger, now=9)
        steps = Steps()

        assert have_room_together(given_, project(given_, steps), steps) is is_known


@pytest.mark.parametrize("node", NODES)
def test_small_pods_have_room_together_on_an_empty_node_unless_memory_can_be_in_groups(node: SampleNode) -> None:
    ledger = EMPTY
    for number in range(3):
        ledger = assume(ledger, pod_from_json(pod_of(2, "1Gi", name=f"p{number}")), number)
    steps = Steps()
    given_ = ProjectionInput(kubelet=node.kubelet, reported=node.state, ledger=ledger, now=9)
    has_no_groups = not node.kubelet.memory_static or node.kubelet.policy == "single-numa-node"

    assert have_room_together(given_, project(given_, steps), steps) is has_no_groups


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 2**32), node=st.sampled_from([n for n in NODES if n.kubelet.policy == "single-numa-node"]))
def test_exits_of_pods_that_hold_the_same_amounts_have_the_same_effect(seed: int, node: SampleNode) -> None:
    given_, pods = _in_flight(node, Random(seed))
    survives = survives_sudden_exit(given_, pods[-1].uid, NO_BOUND)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sudden_exit, "_one_of_each_kind", lambda _given, _start, uids, _steps: sorted(uids))
        assert survives_sudden_exit(given_, pods[-1].uid, NO_BOUND) is survives


def test_most_pods_of_one_container_need_no_replay() -> None:
    known = admitted = 0
    for seed in range(60):
        random = Random(seed)
        node = NODES[seed % len(NODES)]
        request = resolve(pod_from_json(pod_of(2, "1Gi", name="next")), node.kubelet.rules)
        state, _ = _play(node, random)
        verdict = admit(node.kubelet, state, request).verdict
        admitted += isinstance(verdict, Admitted)
        known += can_only_gain(node.kubelet, state, request, (verdict,))

    assert admitted > 20
    assert known > admitted / 2


def test_more_room_can_refuse_a_pod_where_numa_nodes_are_in_groups() -> None:
    """Nobody may take admission for monotone: the pod spans two NUMA nodes, and would find other ones."""
    node = NODES[4]
    state, _ = _play(node, Random(1001380))
    request = resolve(pod_from_json(pod_of(9, "12Gi", name="next")), node.kubelet.rules)
    verdict = admit(node.kubelet, state, request).verdict

    assert isinstance(verdict, Admitted)
    assert isinstance(admit(node.kubelet, release_pods(state, ("uid-p3",)), request).verdict, Rejected)
    assert not can_only_gain(node.kubelet, state, request, (verdict,))
