"""Nodes with equal keys have equal judgements by full replay: refusal, certainty and merit."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from extender.cluster.node_class import ClassTable, NodeClass
from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.budget import Budget
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Provider
from extender.replay.alignment_demand import NO_DEMAND, AlignmentDemand, Demand, DemandScope, MemoryDemand
from extender.replay.pod import Pod
from extender.replay.possible_states import PossibleStates
from extender.scheduling import cached_judge
from extender.scheduling.cached_judge import alike
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Action, UncertaintyPolicy
from extender.scheduling.pod_shape import SHAPE_UID, PodShape
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.wire.scenarios import scenario_from_json
from tests.replay.strategies import scenarios as drawn_scenarios
from tests.replay.vectors import VERSIONS, scenarios

Json = dict[str, Any]
ALIKE = Weights({})
DEMANDS = (
    NO_DEMAND,
    NO_DEMAND,
    Demand(AlignmentDemand.SINGLE_NUMA_NODE),
    Demand(AlignmentDemand.SINGLE_NUMA_NODE, DemandScope.POD),
    Demand(AlignmentDemand.SAME_SOCKET),
    Demand(AlignmentDemand.PREFERRED),
    Demand(memory=MemoryDemand.NO_REMOTE_MEMORY),
)


@pytest.fixture(autouse=True, scope="module")
def _small_groups() -> Iterator[None]:
    """Pairs of nodes are compared too."""
    with patch.object(cached_judge, "WORTH", 2):
        yield


@dataclass(frozen=True)
class History:
    """A kubelet, the states that it has been in, and the pods that it was given."""

    kubelet: Kubelet
    states: list[ManagerState]
    pods: list[Pod]


def history_of(document: Json) -> History | None:
    """What a scenario leads to; None where no kubelet starts."""
    scenario = scenario_from_json(document)
    try:
        kubelet = start(scenario.machine, scenario.config)
    except KubeletConfigError:
        return None
    states = [initial_state(kubelet, scenario.devices)]
    pods: list[Pod] = []
    requests: dict[str, PodRequest] = {}
    for step in scenario.steps:
        state = states[-1]
        if step.pod is not None:
            pods.append(step.pod)
            requests[step.uid] = request = resolve(step.pod, kubelet.rules)
            states.append(admit(kubelet, state, request, max_replays=1).state)
        elif step.op == "remove":
            states.append(release_pods(state, (step.uid,)))
        elif step.uid in requests:
            states.append(start_pod(state, requests[step.uid]))
    return History(kubelet, states, pods)


def check(judge: BoundedJudge, shape: PodShape, table: ClassTable, classes: list[NodeClass]) -> Counter[object]:
    """Compare the judgements of all classes with equal keys. Returns how many follow from that of another class."""
    followed: Counter[object] = Counter()
    for each in alike(table.free, shape, np.array([node_class.place for node_class in classes])):
        first, *others = (classes[i] for i in each.members.tolist())
        judgement = judge(shape, first)
        expected = [judge(shape, other) for other in others]
        if judge.follows_from_key(shape, first, judgement):
            assert expected == [judgement] * len(others)
        elif judgement.merit is not None:
            merits = judge.merits_of(shape, first, judgement, each.group, each.rows, Budget(1e9))
            if merits is None:
                continue
            assert [judgement, *expected] == [judgement._replace(merit=merit) for merit in merits]
        else:
            continue
        followed[judgement.refusal is None] += len(others)
    return followed


def with_pod_level(document: Json, number: int) -> Json:
    """The scenario with pod-level resources in one of its pods, under kubelets that allocate them."""
    gates = {**document["kubelet"]["featureGates"], "PodLevelResourceManagers": True}
    pods = [step["pod"] for step in document["steps"] if "pod" in step]
    spec = pods[number % len(pods)]["spec"]
    cpus, memory = ("4", "300Mi") if number % 2 else ("2", "150Mi")
    spec["resources"] = {"requests": {"cpu": cpus, "memory": memory}, "limits": {"cpu": cpus, "memory": memory}}
    return {**document, "kubelet": {**document["kubelet"], "featureGates": gates}}


POLICIES = st.builds(
    UncertaintyPolicy,
    stale=st.sampled_from([Action.REPLAY, Action.PASS]),
    possible=st.sampled_from([Action.REFUSE, Action.REPLAY, Action.PASS]),
    newer=st.sampled_from([Action.REPLAY, Action.PASS]),
)


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    document=drawn_scenarios((*VERSIONS, "1.99")),
    policy=POLICIES,
    weights=st.dictionaries(st.sampled_from(["cpu", "memory", "gpu.example/gpu"]), st.integers(0, 100)),
    pod_level=st.one_of(st.none(), st.integers(0, 9)),
    random=st.randoms(use_true_random=False),
)
def test_on_random_nodes_whatever_is_known_of_them(
    document: Json, policy: UncertaintyPolicy, weights: Mapping[str, int], pod_level: int | None, random: Random
) -> None:
    history = history_of(document if pod_level is None else with_pod_level(document, pod_level))
    if history is None:
        return
    table = ClassTable()
    hidden = frozenset(random.sample(list(Provider), random.choice((0, 0, 0, 1, 2))))
    complete, stale, score_only = random.random() < 0.8, random.random() < 0.2, random.random() < 0.2
    classes = []
    for _ in range(3 * len(history.states)):
        states = random.sample(history.states, min(len(history.states), random.choice((1, 1, 1, 2, 3))))
        possible = PossibleStates(tuple({s.key: s for s in states}.values()), complete=complete)
        classes.append(table.hold(history.kubelet, possible, hidden, stale=stale, score_only=score_only))
    classes = list(dict.fromkeys(classes))
    for pod in random.sample(history.pods, min(2, len(history.pods))):
        shape = PodShape(replace(pod, uid=SHAPE_UID, demand=random.choice(DEMANDS)))
        for name in random.sample(STRATEGIES, 2):
            check(BoundedJudge(make_strategy(name, Weights(weights)), policy), shape, table, classes)


def recorded(version: str) -> Iterator[tuple[str, History]]:
    for document in scenarios(version, 1, 30 if version == "1.36" else 8):
        history = history_of(document)
        if history is not None:
            yield document["id"], history


@pytest.mark.parametrize("version", VERSIONS)
def test_in_the_states_of_recorded_kubelets(version: str) -> None:
    random, followed = Random(version), Counter[object]()
    for _, history in recorded(version):
        table = ClassTable()
        states = {each.key: each for each in history.states}.values()
        classes = [table.hold(history.kubelet, PossibleStates((each,)), frozenset(), stale=False) for each in states]
        for pod in random.sample(history.pods, min(3, len(history.pods))):
            shape = PodShape(replace(pod, uid=SHAPE_UID, demand=random.choice(DEMANDS)))
            strategy = make_strategy(random.choice((STRATEGIES[0], *STRATEGIES)), ALIKE)
            followed += check(BoundedJudge(strategy, UncertaintyPolicy()), shape, table, classes)

    assert followed[True] > 20
    assert followed[False] > 20
