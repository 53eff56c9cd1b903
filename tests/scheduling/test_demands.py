"""Demands for alignment in judgements: what replays, settings and unknown nodes do to the answers."""

from typing import Any

import pytest

from extender.cluster.node_class import UNKNOWN, ClassTable, NodeClass
from extender.kubelet.config import TopologyPolicy
from extender.kubelet.rules import Rules
from extender.kubelet.verdict import Certainty, Provider
from extender.questions.capacity import Capacity
from extender.questions.explain import explain
from extender.questions.node_context import Subject
from extender.questions.what_if import what_if
from extender.replay.counts import Counts
from extender.replay.possible_states import PossibleStates
from extender.samples.machines import Hardware
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import INDIFFERENT, Action, Judgement, UncertaintyPolicy
from extender.scheduling.pod_shape import JudgementCache, PodShape
from extender.scheduling.ranking.strategies import STRATEGIES, Weights, make_strategy
from extender.scheduling.reasons import RefusalReason
from extender.scheduling.scoring import score_nodes
from extender.wire.pods import pod_from_json
from extender.wire.workloads import workload_from_json
from tests.reports import pod_of, sample

ALIGNMENT, SCOPE, MEMORY = (f"numa-extender.io/{key}" for key in ("alignment", "alignment-scope", "memory"))
GPU = "vendor.example/gpu"
BEST_EFFORT = sample("split", topologyManagerPolicy="best-effort", workloads=[
    Workload(name="w", copies=2, resources={"cpu": 10, "memory": "1Gi"})
])  # fmt: skip
"""6 CPUs are free on each of two NUMA nodes, less the reserved ones."""
FREE = sample("free", topologyManagerPolicy="best-effort")
NOT_MANAGED = sample("plain", cpuManagerPolicy="none", memoryManagerPolicy="None", topologyManagerPolicy="none")
SINGLE = sample("single", hardware=Hardware(sockets=1, numa_per_socket=1, cores_per_numa=8, threads=2, memory_gib=32))
FULL = sample(workloads=[Workload(name="w", copies=2, resources={"cpu": 14, "memory": "1Gi"})])
TABLE = ClassTable()
PASSING = UncertaintyPolicy(unknown=Action.PASS, stale=Action.PASS, possible=Action.PASS, degraded=Action.PASS)


def _class(node: SampleNode, **known: Any) -> NodeClass:
    hidden = known.pop("hidden", frozenset())
    return TABLE.hold(node.kubelet, PossibleStates((node.state,)), hidden, **{"stale": False, **known})


def _pod(cpu: int | str = 8, *, devices: dict[str, int] | None = None, **annotations: str) -> dict[str, Any]:
    pod = pod_of(cpu, devices=devices)
    keys = {"alignment": ALIGNMENT, "scope": SCOPE, "memory": MEMORY}
    pod["metadata"]["annotations"] = {keys[name]: value for name, value in annotations.items()}
    return pod


def _judged(pod: dict[str, Any], node_class: NodeClass, policy: UncertaintyPolicy | None = None) -> Judgement:
    strategy = make_strategy("least-numa", Weights.parse(""))
    return BoundedJudge(strategy, policy or UncertaintyPolicy())(PodShape(pod_from_json(pod)), node_class)


@pytest.mark.parametrize(
    ("node", "wanted", "refusal"),
    [
        (BEST_EFFORT, _pod(), None),
        (BEST_EFFORT, _pod(alignment="none"), None),
        (BEST_EFFORT, _pod(alignment="preferred"), None),
        (BEST_EFFORT, _pod(alignment="single-numa-node"), RefusalReason.DEMAND_NUMA_NODE),
        (BEST_EFFORT, _pod(alignment="same-socket"), RefusalReason.DEMAND_SOCKET),
        (BEST_EFFORT, _pod(4, alignment="single-numa-node"), None),
        (FREE, _pod(alignment="single-numa-node", memory="no-remote-memory"), None),
        (NOT_MANAGED, _pod(alignment="single-numa-node"), RefusalReason.DEMAND_NOT_PLACED),
        (NOT_MANAGED, _pod(memory="no-remote-memory"), RefusalReason.DEMAND_NOT_PLACED),
        (SINGLE, _pod("500m", alignment="single-numa-node"), None),
        (FREE, _pod(alignment="single_numa_node"), RefusalReason.DEMAND_FAULT),
        (NOT_MANAGED, _pod("500m", memory="local"), RefusalReason.DEMAND_FAULT),
        (FREE, _pod(scope="both"), RefusalReason.DEMAND_FAULT),
    ],
)
def test_a_node_is_refused_where_the_predicted_placement_breaks_the_demand(
    node: SampleNode, wanted: dict[str, Any], refusal: RefusalReason | None
) -> None:
    judgement = _judged(wanted, _class(node))

    assert judgement.refusal is refusal
    assert judgement.certainty is Certainty.EXACT


def test_a_burstable_pod_that_demands_alignment_is_placed_nowhere_but_on_one_numa_node() -> None:
    pod = _pod(alignment="single-numa-node")
    pod["status"]["qosClass"] = "Burstable"
    pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "2"}}

    assert _judged(pod, _class(FREE)).refusal is RefusalReason.DEMAND_NOT_PLACED
    assert _judged(pod, _class(SINGLE)) == INDIFFERENT


def test_what_is_not_known_meets_no_demand_whatever_the_settings_pass() -> None:
    counts = Counts(
        rules=Rules.of("v1.36.0", {}, {}),
        policy=TopologyPolicy.BEST_EFFORT,
        scope="container",
        cpu_static=True,
        devices_current=False,
        zones=(),
    )
    classes = [
        UNKNOWN,
        _class(FREE, hidden=frozenset({Provider.CPU})),
        _class(FREE, stale=True),
        NodeClass(id=-7, counts=counts),
        _class(FULL, score_only=True),
    ]
    for node_class in classes:
        assert _judged(_pod(), node_class, PASSING).refusal is None
        demanding = _judged(_pod(alignment="single-numa-node"), node_class, PASSING)
        assert demanding.refusal is RefusalReason.DEMAND_NOT_KNOWN


def test_every_possible_outcome_must_meet_the_demand() -> None:
    """Without a policy the kubelet picks any device: the pod's GPU may be beside its CPUs, or not."""
    node = sample(topologyManagerPolicy="none", memoryManagerPolicy="None", devices={GPU: [0, 1]})
    pod = _pod(4, devices={GPU: 1}, alignment="single-numa-node")

    assert _judged(_pod(4, devices={GPU: 1}), _class(node)).refusal is None
    assert _judged(pod, _class(node)).refusal is RefusalReason.DEMAND_NUMA_NODE
    assert _judged(pod, _class(node), UncertaintyPolicy(possible=Action.PASS)).refusal is None


@pytest.mark.parametrize("strategy", sorted(STRATEGIES))
def test_preferred_ranks_nodes_that_align_first_under_every_strategy(strategy: str) -> None:
    judge = BoundedJudge(make_strategy(strategy, Weights.parse("")), UncertaintyPolicy())
    classes = [_class(BEST_EFFORT), _class(FREE), _class(NOT_MANAGED)]
    shape = PodShape(pod_from_json(_pod(alignment="preferred")))
    split, *others = (judge(shape, each) for each in classes)

    assert score_nodes([split, *others]) == [0, 10, 0], "split, free, plain"
    assert score_nodes([split]) == [10], "nothing better is there"


def test_judgements_of_pods_with_and_without_a_demand_are_kept_apart() -> None:
    cache = JudgementCache(1000)
    pods = [_pod(), _pod(alignment="same-socket"), _pod(alignment="none"), _pod(alignment="same-socket")]

    assert len({id(cache.entry(pod_from_json(pod))) for pod in pods}) == 3


def test_what_if_capacity_and_suggestions_know_the_demand() -> None:
    workload = workload_from_json(_pod(alignment="single-numa-node"), "")
    judge = BoundedJudge(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())
    subjects = [Subject(name=n.name, node_class=_class(n), states=(n.state,)) for n in (BEST_EFFORT, FREE)]

    split, free = what_if(workload, subjects, judge)
    rooms = list(map(Capacity([workload], judge, 10).of, subjects))
    story = explain(BEST_EFFORT.kubelet, BEST_EFFORT.state, workload.pod)

    assert (split.outcome, free.outcome) == ("topology", "fits")
    assert split.reason == "The pod demands one NUMA node, and container app would be split on NUMA 0-1."
    assert [room.copies for room in rooms] == [0, 3]
    assert rooms[0].limited_by.why == RefusalReason.DEMAND_NUMA_NODE.text
    assert story.first_fault == split.reason
    assert story.nearest[0].change == "6 CPUs instead of 8 in container app"
