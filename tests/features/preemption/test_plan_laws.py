"""Laws of preemption on random small nodes: what is answered holds for the naive kubelet, and nothing cheaper does."""

import copy
from itertools import chain, combinations
from random import Random
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from extender.cluster.node_class import ClassTable
from extender.features.preemption.plan import CandidateNode, Plan, Preemptor, ReplayBudget, Veto, plan_preemption
from extender.kubelet.admission import admit, start_pod
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.replay.possible_states import PossibleStates
from extender.scheduling import victims
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.victims import NodePods, RunningPod
from extender.wire.pods import pod_from_json
from extender.wire.preemption import Proposal
from extender.wire.scenarios import scenario_from_json
from tests.oracle import NaiveKubelet
from tests.replay.strategies import devices, kubelets, machines, pods

DRAWN = settings(
    max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much]
)
PRIORITY = 5
BUDGETS = ("web", "db")
VERSIONS = ("1.31", "1.34", "1.36")


class Node:
    """One node with a history, as the replay and as the naive kubelet know it."""

    def __init__(self, document: dict[str, Any]) -> None:
        scenario = scenario_from_json(document)
        self.kubelet: Kubelet = start(scenario.machine, scenario.config)
        self.state: ManagerState = initial_state(self.kubelet, scenario.devices)
        self.oracle = NaiveKubelet.of(document, Random(7))
        self.alive: list[str] = []
        for step in document["steps"]:
            request = resolve(pod_from_json(step["pod"]), self.kubelet.rules)
            outcome = admit(self.kubelet, self.state, request)
            assume(not outcome.alternatives)  # the two would pick different devices
            self.state = outcome.state
            self.oracle.admit(step["pod"])
            if isinstance(outcome.verdict, Admitted):
                self.state = start_pod(self.state, request)
                self.oracle.start(request.uid)
                self.alive.append(request.uid)

    def naive_admits(self, gone: set[str], pod: dict[str, Any]) -> bool:
        kubelet = copy.deepcopy(self.oracle)
        for uid in sorted(gone):
            kubelet.remove(uid)
        return bool(kubelet.admit(pod)["admit"])


class Case:
    """A node, the pods on it, and what the scheduler asks."""

    def __init__(self, draw: st.DrawFn) -> None:
        self.document = draw(_crowded())
        try:
            self.node = Node(self.document)
        except KubeletConfigError:
            assume(condition=False)
        self.pod = self._preemptor(draw)
        self.running = NodePods(
            pods={uid: draw(_running(uid)) for uid in self.node.alive},
            allowances={budget: draw(st.integers(0, 1)) for budget in BUDGETS},
        )
        chosen = [uid for uid in self.node.alive if draw(st.integers(0, 3)) == 0]
        self.proposal = Proposal(victims=tuple(chosen), violations=draw(st.integers(0, 2)))
        self.may_preempt = draw(st.integers(0, 9)) > 0

    def _preemptor(self, draw: st.DrawFn) -> dict[str, Any]:
        """Like a pod that fits when less is held, and does not now; now and then any other."""
        if draw(st.integers(0, 4)) == 0:
            other: dict[str, Any] = draw(pods(99, list(self.document["devices"])))
            return other
        pod: dict[str, Any] = copy.deepcopy(draw(st.sampled_from(self.document["steps"]))["pod"])
        pod["metadata"].update(name="p99", uid="uid-99")
        for _ in range(4):
            if not self.node.naive_admits(set(), pod):
                break
            self._grow(pod)
        assume(not self.node.naive_admits(set(), pod))
        return pod

    @staticmethod
    def _grow(pod: dict[str, Any]) -> None:
        for container in pod["spec"]["containers"]:
            amounts = container["resources"]["limits"]
            if amounts.get("cpu", "").isdecimal():
                amounts["cpu"] = str(int(amounts["cpu"]) + 1)
                container["resources"]["requests"] = amounts

    def answer(self, limit: int = 4000) -> Plan | Veto:
        shape = PodShape(pod_from_json(self.pod))
        judge = BoundedJudge(least_numa, UncertaintyPolicy())
        node_class = ClassTable().hold(self.node.kubelet, PossibleStates((self.node.state,)), frozenset(), stale=False)
        return plan_preemption(
            Preemptor(shape=shape, priority=PRIORITY, may_preempt=self.may_preempt),
            {"n": self.proposal},
            {"n": CandidateNode(node_class=node_class, states=(self.node.state,), pods=self.running)},
            ReplayBudget(judge, shape, limit=limit),
        )["n"]

    @property
    def terminating(self) -> set[str]:
        return {uid for uid, pod in self.running.pods.items() if pod.terminating}

    def violations(self, uids: set[str]) -> int:
        """Counted the plain way: one pod after the other, the most important one first."""
        left = dict(self.running.allowances)
        count = 0
        for pod in sorted((self.running.pods[u] for u in uids), key=lambda p: (-p.priority, p.started_at or 1e9)):
            if any(left[budget] < 1 for budget in pod.budgets):
                count += 1
            for budget in pod.budgets:
                left[budget] -= 1
        return count


@st.composite
def _crowded(draw: st.DrawFn) -> dict[str, Any]:
    """A node, and more pods than it has room for."""
    machine = draw(machines())
    plugged = draw(devices(machine))
    return {
        "id": "drawn",
        "kubelet_version": draw(st.sampled_from(VERSIONS)),
        "machine": machine,
        "kubelet": draw(kubelets()),
        "devices": plugged,
        "steps": [{"op": "admit", "pod": draw(pods(i, list(plugged)))} for i in range(draw(st.integers(3, 7)))],
    }


@st.composite
def _running(draw: st.DrawFn, uid: str) -> RunningPod:
    return RunningPod(
        uid=uid,
        priority=draw(st.sampled_from([0, 0, 1, 1, 2, 3, PRIORITY, 9])),
        started_at=draw(st.sampled_from([None, 10.0, 20.0, 30.0])),
        terminating=draw(st.integers(0, 9)) == 0,
        budgets=frozenset(draw(st.sets(st.sampled_from(BUDGETS), max_size=2))),
    )


@st.composite
def cases(draw: st.DrawFn) -> Case:
    return Case(draw)


@DRAWN
@given(cases())
def test_the_naive_kubelet_admits_the_preemptor_once_the_victims_have_left(case: Case) -> None:
    answer = case.answer()

    if isinstance(answer, Veto):
        return
    assert case.node.naive_admits({*answer.victims, *case.terminating}, case.pod)
    pods = [case.running.pods[uid] for uid in answer.victims]
    assert set(case.proposal.victims) <= set(answer.victims)
    assert len(set(answer.victims)) == len(answer.victims) == len(case.proposal.victims) + answer.added
    assert all(pod.priority < PRIORITY for pod in pods)
    assert case.may_preempt or not pods
    assert [pod.priority for pod in pods] == sorted((pod.priority for pod in pods), reverse=True)
    assert not [u for u in answer.victims if u in case.terminating and u not in case.proposal.victims]


@settings(DRAWN, max_examples=80)
@given(cases())
def test_no_cheaper_set_of_pods_would_do(case: Case) -> None:
    """By brute force with the naive kubelet: fewest broken budgets, then fewest pods; vetoed: nothing helps."""
    answer = case.answer()
    proposed = set(case.proposal.victims)
    assume(answer is not Veto.PROTECTED_VICTIM)
    may_go = [
        uid
        for uid, pod in case.running.pods.items()
        if case.may_preempt and pod.priority < PRIORITY and not pod.terminating and uid not in proposed
    ]
    working = [
        (case.violations(proposed | set(more)) - case.violations(proposed), len(more))
        for more in chain.from_iterable(combinations(may_go, size) for size in range(len(may_go) + 1))
        if case.node.naive_admits(proposed | set(more) | case.terminating, case.pod)
    ]

    if isinstance(answer, Veto):
        assert working == [] or not _certain(case)
    else:
        unchanged = case.node.naive_admits(proposed | case.terminating, case.pod)
        best = (0, 0) if unchanged else min(working)
        assert (answer.violations - case.proposal.violations, answer.added) == best or not _certain(case)


def _certain(case: Case) -> bool:
    """Whether no random choice of devices can decide: where one can, the replay refuses and the naive kubelet is lucky.

    Only the pick of an earlier container changes the hints of a later one.
    """
    spec = case.pod["spec"]
    containers = [*spec.get("initContainers", []), *spec["containers"]]
    return sum(any("/" in name for name in c["resources"]["limits"]) for c in containers) < 2


@settings(DRAWN, max_examples=20)
@given(cases(), st.integers(0, 3))
def test_with_little_work_allowed_answers_are_still_sound(case: Case, limit: int) -> None:
    answer = case.answer(limit)

    if isinstance(answer, Plan):
        assert case.node.naive_admits({*answer.victims, *case.terminating}, case.pod)


@settings(DRAWN, max_examples=40)
@given(cases())
def test_the_search_among_many_candidates_is_sound_as_well(case: Case) -> None:
    """As if the few pods of these nodes were too many to try all sets of them."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(victims, "MAX_SETS", 2)
        answer = case.answer()

    if isinstance(answer, Plan):
        assert case.node.naive_admits({*answer.victims, *case.terminating}, case.pod)
        assert not [u for u in answer.victims if u in case.terminating and u not in case.proposal.victims]
