"""What one change of a node costs, whatever its report has and however many pods wait there: in counted calls."""

import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations
from random import Random
from types import FrameType
from typing import Any, Final

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extender.cluster import projection as projections
from extender.cluster.events import PodSeen, Watching
from extender.cluster.ledger import EMPTY, assume, terminate
from extender.cluster.node_class import ClassTable
from extender.cluster.projection import ProjectionInput, project
from extender.cluster.steps import ElsewhereError, Steps
from extender.cluster.store import NodeStore
from extender.intake import observation_of
from extender.kubelet.admission import admit, release_pods
from extender.kubelet.budget import Budget
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.creation import grants_of, init_phases
from extender.replay.pod import Pod
from extender.samples.machines import Hardware
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.wire.nri_reports import MAX_GRANTS
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.nri_samples import EIGHT, nri_report, placed_pod
from tests.reports import DUAL, pod_of, report_of, sample, with_init

SMALL: Final = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=4, threads=2, memory_gib=16)
CALLS: Final = 1_000_000
"""Python calls and calls of built-in functions: about 0.2 s of work. B4 and B5 took from 3 to 100 times as many."""


def calls_of(work: Callable[[], object]) -> int:
    """How many functions *work* calls."""
    count = 0

    def note(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def grants(count: int) -> list[dict[str, Any]]:
    """As many grants of 1 mCPU, in all memory zones that the machine can have. No pod of them is in the watch."""
    pods = [placed_pod("x", "100m", "1Mi", limit=False)]
    (one,) = nri_report("node-a", pods, hardware=EIGHT)["nri"]["grants"]
    return [
        {**one, "container_id": f"id-{i}", "pod": f"pod-{i}", "pod_uid": f"uid-{i:05}", "millicpu": 1,
         "memory_bytes": 1000 + i, "memory_nodes": i % 255 + 1}
        for i in range(count)
    ]  # fmt: skip


def store_with(document: dict[str, Any]) -> NodeStore:
    store = NodeStore(stale_after_seconds=1e6, max_nodes=3)
    store.set_watching(Watching.LIVE, 0.0)
    body = orjson.dumps(document)
    observation = observation_of(read_report(body, lambda _name: "v1.36.2"), body)
    assert observation.is_replayable, observation.facts
    store.observe(observation, 1.0)
    return store


@pytest.mark.parametrize("count", [300, MAX_GRANTS])
def test_a_report_with_many_grants_costs_as_much_as_it_is_long(count: int) -> None:
    document = nri_report("node-a", hardware=EIGHT)
    document["nri"]["grants"] = grants(count)
    body = orjson.dumps(document | {"pods": []})

    def report() -> None:
        store = NodeStore(stale_after_seconds=1e6, max_nodes=3)
        store.set_watching(Watching.LIVE, 0.0)
        observation = observation_of(read_report(body, lambda _name: "v1.36.2"), body)
        assert observation.state is not None
        granted = grants_of(observation.state)
        assert granted is not None
        record = store.observe(observation, 1.0)
        assert not record.node_class.complete, "each of its pods may be gone"

    assert calls_of(report) < 100_000 + 200 * count


def waiting(number: int, *, containers: int = 1, has_init: bool = False) -> Pod:
    """A pod unlike all others, that waits for its image."""
    document = placed_pod(f"p{number}", f"{200 + 10 * number}m", "64Mi", containers=containers)
    if has_init:
        resources = document["spec"]["containers"][0]["resources"]
        document["spec"]["initContainers"] = [{"name": "init", "image": "i", "resources": resources}]
    return pod_from_json(document)


def costs_of(store: NodeStore, pods: Sequence[Pod], name: str = "node-a") -> list[int]:
    """The calls for each of *pods*, bound one after the other, with the read that follows."""

    def see(pod: Pod, at: int) -> None:
        store.apply(PodSeen(name, pod, started=False), now=2.0 + at)
        store.classes_of([name])

    return [calls_of(lambda pod=pod, at=at: see(pod, at)) for at, pod in enumerate(pods)]  # type: ignore[misc]


@pytest.mark.parametrize(
    ("hardware", "count", "containers", "has_init"),
    [(DUAL, 12, 3, False), (EIGHT, 20, 1, False), (DUAL, 16, 1, True), (EIGHT, 60, 2, True)],
)
def test_pods_that_wait_for_images_cost_no_more_the_more_there_are(
    hardware: Any,  # noqa: ANN401
    count: int,
    containers: int,
    has_init: bool,  # noqa: FBT001
) -> None:
    store = store_with(nri_report("node-a", hardware=hardware))
    pods = [waiting(number, containers=containers, has_init=has_init) for number in range(count)]

    assert max(costs_of(store, pods)) < CALLS
    (node_class,) = store.classes_of(["node-a"])
    assert not node_class.complete


@pytest.mark.parametrize("ordered", [True, False])
def test_many_pods_bound_past_the_scheduler_cost_no_more_than_they_are(ordered: bool) -> None:  # noqa: FBT001
    """Anyone who may create pods can name a node in them: the node need not even have room for them."""
    store = store_with(report_of(sample("node-a", version="v1.36.2")))
    pods = [replace(pod_from_json(pod_of(2, name=f"p{i}")), uid=f"u{i}", created_at=i % 7) for i in range(600)]
    for at, pod in enumerate(pods[:-1]):
        store.apply(PodSeen("node-a", pod, started=False, ordered=ordered), now=2.0 + at)

    assert max(costs_of(store, pods[-1:])) < CALLS


def every_end(kubelet: Kubelet, states: Sequence[ManagerState], pods: Sequence[PodRequest]) -> Iterator[ManagerState]:
    """The states after *pods* came in every order, from each of *states*. An init container of one may be running."""
    for order in permutations(pods):
        for start in states:
            state = start
            for number, pod in enumerate(order):
                if number == len(order) - 1:
                    yield from init_phases(state, pod, Budget())
                state = admit(kubelet, state, pod).state
            yield state


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    steps=st.sampled_from((0, 300, 1000, 3000, 10_000, 250_000)),
    orders=st.sampled_from((1, 2, 16)),
)
def test_a_bounded_search_never_admits_what_some_order_refuses(seed: int, steps: int, orders: int) -> None:
    """The truth is every order of the pods in flight, one by one. Seen red: with `complete` True at the limits."""
    given_, requests = in_flight(Random(seed))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(projections, "SEARCH_STEPS", steps)
        patch.setattr(projections, "MAX_ORDERS", orders)
        projection = project(given_)
    kubelet, table = given_.kubelet, ClassTable()
    node_class = table.hold(kubelet, projection.possible, frozenset(), stale=False)
    starts = [given_.reported, *(release_pods(given_.reported, (uid,)) for uid in given_.leaving)]
    ends = list(every_end(kubelet, starts, requests))
    if projection.complete:
        assert {state.key for state in ends} <= {state.key for state in projection.possible.states}
    judge = BoundedJudge(least_numa, UncertaintyPolicy())
    for cpu in ("4", "8", "12", "15"):
        pod = pod_from_json(placed_pod("next", cpu, "1Gi"))
        if judge(PodShape(pod), node_class).refusal is None:
            request = resolve(pod, kubelet.rules)
            assert all(isinstance(admit(kubelet, end, request).verdict, Admitted) for end in ends)


def in_flight(random: Random) -> tuple[ProjectionInput, list[PodRequest]]:
    """Up to three pods in flight to a small node of the NRI policy, on which one pod may be gone."""
    placed = [placed_pod("old", random.choice(("2", "1500m")), "1Gi")] if random.random() < 0.5 else []
    document = nri_report("node-a", placed, hardware=SMALL)
    report = read_report(orjson.dumps(document), lambda _name: "v1.36.2")
    assert report.kubelet is not None
    assert report.state is not None
    ledger = terminate(EMPTY, "uid-old", 0.0) if placed and random.random() < 0.7 else EMPTY
    pods = []
    for number in range(random.choice((0, 1, 2, 2, 3))):
        pod = placed_pod(f"p{number}", random.choice(("1", "2", "3500m", "5")), "1Gi", containers=random.choice((1, 2)))
        if random.random() < 0.4:
            with_init(pod, 6, "1Gi")
        pods.append(pod_from_json(pod))
        ledger = assume(ledger, pods[-1], number)
    requests = [resolve(pod, report.kubelet.rules) for pod in pods]
    return ProjectionInput(kubelet=report.kubelet, reported=report.state, ledger=ledger, now=9), requests


@pytest.mark.parametrize("limit", [60, 300, 2_000])
def test_work_that_is_done_in_pieces_is_the_same_work(limit: int) -> None:
    """What a piece has found is kept, so that each piece goes on where the last one ended."""
    for seed in range(40):
        given_, _ = in_flight(Random(seed))
        whole = project(given_)
        steps, pieces = Steps(), 0
        projection = None
        while projection is None:
            pieces += 1
            try:
                projection = project(given_, steps, limit=limit * pieces)
            except ElsewhereError:
                assert pieces < 1000
        assert projection.complete == whole.complete
        assert [state.key for state in projection.possible.states] == [state.key for state in whole.possible.states]
        assert projection.verdicts == whole.verdicts


def test_a_projection_costs_the_same_steps_whatever_is_known_already() -> None:
    for seed in range(20):
        given_, _ = in_flight(Random(seed))
        steps, again = Steps(), Steps()
        project(given_, steps)
        first = steps.spent
        project(given_, steps)
        project(given_, again)

        assert steps.spent == first == again.spent
        assert steps.work <= len(given_.ledger.admits) ** 2, "only the order of the pods is found again"
