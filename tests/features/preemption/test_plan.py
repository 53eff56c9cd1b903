"""Preemption on one node at a time: who is kept, who is added, which nodes are dropped."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from extender.cluster.node_class import UNKNOWN, ClassTable
from extender.features.preemption.plan import (
    MAX_REPLAYS,
    CandidateNode,
    Plan,
    Preemptor,
    ReplayBudget,
    Veto,
    plan_preemption,
)
from extender.kubelet.admission import admit, release_pods
from extender.kubelet.resolve import resolve
from extender.replay.possible_states import PossibleStates
from extender.samples.nodes import SampleNode, Workload
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Action, UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.victims import NodePods, RunningPod, count_violations, numa_nodes_of
from extender.wire.pods import pod_from_json
from extender.wire.preemption import Proposal, VictimMetadata, VictimPod, VictimSpec
from tests.reports import pod_of, sample

TABLE = ClassTable()
PASS, REFUSE = Action.PASS, Action.REFUSE


def _full(copies: int = 4, cpu: int = 7) -> SampleNode:
    """Two NUMA nodes with 14 and 16 CPUs to give away: half of the pods on each."""
    return sample(workloads=[Workload(name="w", copies=copies, resources={"cpu": cpu, "memory": "1Gi"})])


FULL = _full()
UIDS = [pod["metadata"]["uid"] for pod in FULL.pods]
PLACES = [numa_nodes_of(FULL.kubelet, FULL.state, uid) for uid in UIDS]
FIRST = [uid for uid, place in zip(UIDS, PLACES, strict=True) if place == 1]
SECOND = [uid for uid, place in zip(UIDS, PLACES, strict=True) if place == 2]


def _pods(changes: Mapping[str, dict[str, Any]] | None = None, node: SampleNode = FULL) -> NodePods:
    """All pods of the node, the first one oldest, priority 0 but for *changes* by UID; budget `b` allows nothing."""
    uids = [pod["metadata"]["uid"] for pod in node.pods]
    pods = {uid: RunningPod(uid=uid, priority=0, started_at=float(i)) for i, uid in enumerate(uids)}
    pods |= {uid: replace(pods[uid], **change) for uid, change in (changes or {}).items()}
    return NodePods(pods=pods, allowances={"b": 0})


def _site(node: SampleNode = FULL, pods: NodePods | None = None, **how: bool) -> CandidateNode:
    stale = how.get("stale", False)
    return CandidateNode(
        node_class=TABLE.hold(node.kubelet, PossibleStates((node.state,)), frozenset(), stale=stale),
        states=(node.state,),
        pods=pods,
    )


def _answer(
    node: CandidateNode,
    *victims: str,
    cpu: int = 8,
    priority: int = 10,
    may_preempt: bool = True,
    limit: int = MAX_REPLAYS,
    described: dict[str, VictimPod] | None = None,
    **doubts: Action,
) -> Plan | Veto:
    shape = PodShape(pod_from_json(pod_of(cpu=cpu)))
    judge = BoundedJudge(least_numa, UncertaintyPolicy(**doubts))
    return plan_preemption(
        Preemptor(shape=shape, priority=priority, may_preempt=may_preempt),
        {"n": Proposal(victims=victims, described=described or {}, violations=3)},
        {"n": node},
        ReplayBudget(judge, shape, limit=limit),
    )["n"]


def test_the_sample_is_as_described() -> None:
    assert len(FIRST) == len(SECOND) == 2


def test_victims_that_make_room_are_kept_as_asked() -> None:
    assert _answer(_site(pods=_pods()), *SECOND) == Plan(victims=tuple(SECOND), violations=3)


def test_without_a_watch_the_victims_stay_or_the_node_goes() -> None:
    assert _answer(_site(), *SECOND) == Plan(victims=tuple(SECOND), violations=3)
    assert _answer(_site(), FIRST[0], cpu=9) is Veto.REFUSED
    assert _answer(_site(), "nobody-knows-it") is Veto.REFUSED


def test_victims_on_two_numa_nodes_get_company_on_one_of_them() -> None:
    """By totals 2 x 7 CPUs suffice for 12; on one NUMA node they do not."""
    answer = _answer(_site(pods=_pods()), FIRST[0], SECOND[0], cpu=12)

    assert isinstance(answer, Plan)
    assert answer.added == 1
    assert {*answer.victims} in ({*FIRST, SECOND[0]}, {*SECOND, FIRST[0]})


def test_an_empty_list_of_victims_is_filled_as_far_as_needed() -> None:
    answer = _answer(_site(pods=_pods()), cpu=12)

    assert isinstance(answer, Plan)
    assert {*answer.victims} in ({*FIRST}, {*SECOND})
    assert _answer(_site(pods=_pods()), cpu=2) == Plan(victims=(), violations=3)


@pytest.mark.parametrize("priority", [10, 11])
def test_pods_of_equal_or_higher_priority_stay(priority: int) -> None:
    protected = {uid: {"priority": priority} for uid in (FIRST[0], SECOND[0])}
    pods = _pods(protected)

    assert _answer(_site(pods=pods), cpu=12) is Veto.REFUSED
    assert _answer(_site(pods=pods), FIRST[0], FIRST[1], cpu=12) is Veto.PROTECTED_VICTIM
    assert _answer(_site(pods=pods), cpu=9) == Plan(victims=(SECOND[1],), violations=3, added=1)


def test_a_pod_that_may_not_preempt_evicts_nobody() -> None:
    assert _answer(_site(pods=_pods()), *SECOND, may_preempt=False) is Veto.PROTECTED_VICTIM
    assert _answer(_site(), *SECOND, may_preempt=False) is Veto.PROTECTED_VICTIM
    assert _answer(_site(pods=_pods()), cpu=12, may_preempt=False) is Veto.REFUSED
    assert _answer(_site(pods=_pods()), cpu=2, may_preempt=False) == Plan(victims=(), violations=3)


def test_no_budget_is_broken_where_another_pod_can_go() -> None:
    """The lower priority does not outweigh a broken budget."""
    budgets = frozenset({"b"})
    pods = _pods({**{uid: {"budgets": budgets} for uid in FIRST}, **{uid: {"priority": 5} for uid in SECOND}})

    answer = _answer(_site(pods=pods), cpu=12)

    assert answer == Plan(victims=tuple(SECOND), violations=3, added=2)


def test_broken_budgets_are_counted_on_top_of_the_schedulers_count() -> None:
    pods = _pods({uid: {"budgets": frozenset({"b"})} for uid in UIDS})

    answer = _answer(_site(pods=replace(pods, allowances={"b": 1})), SECOND[0], cpu=12)

    assert answer == Plan(victims=tuple(SECOND), violations=4, added=1)


def test_low_priorities_and_young_pods_go_first() -> None:
    pods = _pods({SECOND[0]: {"priority": 1}, FIRST[0]: {"priority": 1}, FIRST[1]: {"priority": 1}})
    assert _answer(_site(pods=pods), cpu=9) == Plan(victims=(SECOND[1],), violations=3, added=1)

    youngest = max(SECOND, key=UIDS.index)
    assert _answer(_site(pods=_pods()), cpu=9) == Plan(victims=(youngest,), violations=3, added=1)


def test_pods_that_are_leaving_are_no_new_victims_and_count_as_gone() -> None:
    leaving = {uid: {"terminating": True} for uid in SECOND}

    assert _answer(_site(pods=_pods(leaving)), cpu=12) == Plan(victims=(), violations=3)
    assert _answer(_site(pods=_pods(leaving)), FIRST[0], cpu=12) == Plan(victims=(FIRST[0],), violations=3)
    answer = _answer(_site(pods=_pods({SECOND[0]: {"terminating": True}})), cpu=12)
    assert answer == Plan(victims=(SECOND[1],), violations=3, added=1)


def test_a_static_pod_frees_nothing() -> None:
    """Its API object has another UID than the kubelet knows."""
    pods = _pods()
    mirrors = {f"mirror-{uid}": replace(pod, uid=f"mirror-{uid}") for uid, pod in pods.pods.items() if uid in SECOND}
    others = {uid: replace(pod, priority=99) for uid, pod in pods.pods.items() if uid in FIRST}
    node = _site(pods=NodePods(pods={**mirrors, **others}))

    assert _answer(node, *mirrors, cpu=12) is Veto.REFUSED
    assert _answer(node, cpu=12) is Veto.REFUSED


def test_what_can_never_fit_is_dropped_without_a_search() -> None:
    assert _answer(_site(pods=_pods()), *UIDS, cpu=17, limit=1) is Veto.REFUSED


def test_a_victim_that_is_not_there_drops_the_node() -> None:
    assert _answer(_site(pods=_pods()), SECOND[0], "somebody-else", cpu=8) is Veto.UNKNOWN_VICTIM


def test_a_victim_that_the_request_describes_is_known() -> None:
    """The scheduler sees its own bindings before any watch does."""
    described = VictimPod(VictimMetadata("new"), VictimSpec(0))

    answer = _answer(_site(pods=_pods()), "new", *SECOND, described={"new": described})

    assert answer == Plan(victims=(*SECOND, "new"), violations=3)
    above = VictimPod(VictimMetadata("new"), VictimSpec(10))
    assert _answer(_site(), "new", *SECOND, described={"new": above}) is Veto.PROTECTED_VICTIM


@pytest.mark.parametrize("pods", [None, _pods()])
def test_nodes_that_are_not_known_are_treated_as_set(pods: NodePods | None) -> None:
    node = CandidateNode(pods=pods)
    assert node.node_class is UNKNOWN

    assert _answer(node, *SECOND, unknown=PASS) == Plan(victims=tuple(SECOND), violations=3)
    assert _answer(node, *SECOND, unknown=REFUSE) is Veto.REFUSED


def test_stale_nodes_are_treated_as_set() -> None:
    node = _site(pods=_pods(), stale=True)

    assert _answer(node, cpu=12, stale=PASS) == Plan(victims=(), violations=3)
    assert _answer(node, *UIDS, cpu=12, stale=REFUSE) is Veto.REFUSED
    answer = _answer(node, cpu=12)
    assert isinstance(answer, Plan)
    assert answer.added == 2


def test_what_no_time_is_left_for_is_dropped() -> None:
    assert _answer(_site(pods=_pods()), *SECOND, limit=0) is Veto.UNDECIDED
    assert _answer(_site(pods=_pods()), cpu=12, limit=1) is Veto.UNDECIDED


def test_many_candidates_are_searched_numa_node_by_numa_node() -> None:
    """15 pods of 2 CPUs: no two make room for 12 CPUs; six of one NUMA node do."""
    node = _full(copies=15, cpu=2)
    pods = _pods(node=node)

    answer = _answer(_site(node, pods), cpu=12)

    assert isinstance(answer, Plan)
    assert answer.added == 6
    assert len({numa_nodes_of(node.kubelet, node.state, uid) for uid in answer.victims}) == 1


def test_among_many_candidates_budgets_come_before_numbers() -> None:
    """One large pod would do, but for its budget; of the small ones none has one."""
    small = Workload(name="small", copies=7, resources={"cpu": 2, "memory": "1Gi"})
    large = Workload(name="large", copies=1, resources={"cpu": 16, "memory": "1Gi"})
    node = sample(workloads=[small, large, Workload(name="tiny", copies=0, resources={"cpu": 1, "memory": "1Gi"})])
    uid = next(p["metadata"]["uid"] for p in node.pods if p["metadata"]["name"] == "large-0")
    pods = _pods({uid: {"budgets": frozenset({"b"})}}, node)

    answer = _answer(_site(node, pods), cpu=14)

    assert isinstance(answer, Plan)
    assert answer.added == 7
    assert answer.violations == 3


def test_the_work_of_a_request_is_bounded_and_shared() -> None:
    """Different nodes on which nothing helps that may go: each has its share of tries, and then is left alone."""
    names = [f"n{i}" for i in range(5)]
    candidates = {}
    for i, name in enumerate(names):
        node = sample(
            name, workloads=[Workload(name=f"w{i}", copies=14, resources={"cpu": 1, "memory": f"{4096 + i}Mi"})]
        )
        keepers = {p["metadata"]["uid"]: {"priority": 10} for p in node.pods[::2]}
        candidates[name] = _site(node, _pods(keepers, node))
    shape = PodShape(pod_from_json(pod_of(cpu=2, memory="20Gi")))
    budget = ReplayBudget(BoundedJudge(least_numa, UncertaintyPolicy()), shape, limit=105)

    answers = plan_preemption(
        Preemptor(shape=shape, priority=10), dict.fromkeys(names, Proposal(victims=())), candidates, budget
    )

    assert set(answers.values()) == {Veto.UNDECIDED}
    assert budget.left == 0


def test_where_a_node_can_be_in_several_states_the_victims_must_help_in_all() -> None:
    """The same pods came in another order: who is on which NUMA node is not known, but for the first and the last."""
    first, *middle, last = FULL.pods
    state = FULL.state
    other = release_pods(state, [pod["metadata"]["uid"] for pod in middle])
    for pod in reversed(middle):
        other = admit(FULL.kubelet, other, resolve(pod_from_json(pod), FULL.kubelet.rules)).state
    assert other.key == state.key
    pods = _pods({first["metadata"]["uid"]: {"priority": 10}, last["metadata"]["uid"]: {"priority": 10}})
    node_class = TABLE.hold(FULL.kubelet, PossibleStates((state,)), frozenset(), stale=False)
    uids = [pod["metadata"]["uid"] for pod in middle]
    one, both = (
        CandidateNode(node_class=node_class, states=states, pods=pods) for states in ((state,), (state, other))
    )

    alone = _answer(one, cpu=9)
    assert isinstance(alone, Plan)
    assert alone.added == 1
    together = _answer(both, cpu=9)
    assert isinstance(together, Plan)
    assert {*together.victims} == {*uids}
    assert _answer(both, *uids, cpu=9) == Plan(victims=tuple(uids), violations=3)


def test_what_too_few_cpus_rule_out_is_not_replayed() -> None:
    """Of 15 sets of four pods, only the two that free a NUMA node and those that hold one of them are."""
    shape = PodShape(pod_from_json(pod_of(cpu=12)))
    budget = ReplayBudget(BoundedJudge(least_numa, UncertaintyPolicy()), shape, limit=100)

    answers = plan_preemption(
        Preemptor(shape=shape, priority=10), {"n": Proposal(victims=())}, {"n": _site(pods=_pods())}, budget
    )

    assert isinstance(answers["n"], Plan)
    assert budget.left == 100 - 2


def test_equal_nodes_are_replayed_once() -> None:
    shape = PodShape(pod_from_json(pod_of(cpu=12)))
    budget = ReplayBudget(BoundedJudge(least_numa, UncertaintyPolicy()), shape, limit=100)
    names = [f"n{i}" for i in range(10)]

    answers = plan_preemption(
        Preemptor(shape=shape, priority=10),
        dict.fromkeys(names, Proposal(victims=())),
        dict.fromkeys(names, _site(pods=_pods())),
        budget,
    )

    assert len({a.victims for a in answers.values() if isinstance(a, Plan)}) == 1
    assert 100 - budget.left <= 1 + 2**4


def test_violations_are_counted_from_the_most_important_pod_on() -> None:
    def pod(uid: str, priority: int, *budgets: str) -> RunningPod:
        return RunningPod(uid=uid, priority=priority, budgets=frozenset(budgets))

    pods = [pod("a", 1, "x"), pod("b", 2, "x"), pod("c", 3, "x", "y"), pod("d", 4), pod("e", 0, "unheard-of")]

    assert count_violations([], {}) == 0
    assert count_violations(pods, {"x": 3, "y": 1}) == 1
    assert count_violations(pods, {"x": 2, "y": 1}) == 2
    assert count_violations(pods, {"x": 0, "y": 0}) == 4
    assert count_violations(pods[:2], {"x": 1}) == 1
