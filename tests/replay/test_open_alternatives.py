"""When only the alternatives run out of steps, what was found counts; what was not tried is never a yes."""

from dataclasses import replace
from typing import Any, Final

import orjson
import pytest

from extender.cluster.node_class import ClassTable, NodeClass
from extender.kubelet.admission import MAX_OUTCOMES, Outcome, admit, is_given_up
from extender.kubelet.budget import Budget
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Admitted, Certainty
from extender.replay.possible_states import PossibleStates, admit_in_all
from extender.scheduling.judge import SHARES, BoundedJudge, judge_all
from extender.scheduling.judgement import Action, Judgement, Trouble, UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.reasons import RefusalReason
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.faults.hostile_nodes import NIC, bare

JSON = dict[str, Any]
NUMA_NODES: Final = 16
NICS: Final = 64


def large_node() -> JSON:
    """16 NUMA nodes of 32 CPUs, all managers static, and NICs on pairs of NUMA nodes; the node is honest."""
    report = bare("n", NUMA_NODES)
    cpus = NUMA_NODES * 32
    report["machine"]["cpus"] = [[cpu, cpu // 2, 0, cpu // 32, None] for cpu in range(cpus)]
    report["kubelet"] |= {
        "topologyManagerPolicy": "restricted",
        "topologyManagerScope": "container",
        "topologyManagerPolicyOptions": {"max-allowable-numa-nodes": "16"},
        "cpuManagerPolicy": "static",
        "reservation": {"cpu": "2"},
    }
    report["state"]["cpu_manager_state"] = {"policyName": "static", "defaultCpuSet": f"0-{cpus - 1}"}
    report["devices"] = {
        NIC: [{"id": f"nic-{i}", "numa": sorted({i % 16, (i * 5 + 3) % 16}), "healthy": True} for i in range(NICS)]
    }
    report["state"]["kubelet_internal_checkpoint"] = {"Data": {"PodDeviceEntries": None}}
    return report


def pod_with(nics: list[int]) -> JSON:
    """A pod of one container for each number of NICs."""
    containers = []
    for number, count in enumerate(nics):
        wants = {"cpu": "500m", "memory": "1Mi", NIC: str(count)}
        containers.append({"name": f"c{number}", "resources": {"requests": wants, "limits": wants}})
    return {"metadata": {"namespace": "d", "name": "p", "uid": "u"}, "spec": {"containers": containers}}


OBSERVATION: Final = read_report(orjson.dumps(large_node()))
TWO: Final = pod_from_json(pod_with([9, 3]))
"""The NICs that the first container gets at random decide what the second one finds."""
ONE: Final = pod_from_json(pod_with([9]))


def request_of(pod: Any) -> PodRequest:  # noqa: ANN401
    assert OBSERVATION.kubelet is not None
    return resolve(pod, OBSERVATION.kubelet.rules)


def admitted(pod: Any, budget: Budget) -> Outcome:  # noqa: ANN401
    assert OBSERVATION.kubelet is not None
    assert OBSERVATION.state is not None
    return admit(OBSERVATION.kubelet, OBSERVATION.state, request_of(pod), budget=budget)


def steps_of_the_first(pod: Any) -> int:  # noqa: ANN401
    assert OBSERVATION.kubelet is not None
    assert OBSERVATION.state is not None
    budget = Budget()
    admit(OBSERVATION.kubelet, OBSERVATION.state, request_of(pod), max_replays=1, budget=budget)
    return int(budget.used)


def node_class() -> NodeClass:
    assert OBSERVATION.kubelet is not None
    assert OBSERVATION.state is not None
    return ClassTable().hold(OBSERVATION.kubelet, PossibleStates((OBSERVATION.state,)), frozenset(), stale=False)


def test_alternatives_that_run_out_of_steps_leave_the_first_outcome() -> None:
    outcome = admitted(TWO, Budget(steps_of_the_first(TWO) + 100))

    assert not is_given_up(outcome.verdict)
    assert isinstance(outcome.verdict, Admitted)
    assert outcome.verdict.certainty is Certainty.POSSIBLE
    assert not outcome.complete
    assert outcome.undecided


def test_devices_of_the_last_container_decide_nothing() -> None:
    """Which NICs the only container gets is open, that it is admitted is not."""
    outcome = admitted(ONE, Budget(steps_of_the_first(ONE) + 100))
    assert isinstance(outcome.verdict, Admitted)
    assert not outcome.complete
    assert not outcome.undecided


@pytest.mark.parametrize(
    ("treatment", "refusal"),
    [(Action.REFUSE, RefusalReason.CHANCE), (Action.REPLAY, RefusalReason.CHANCE), (Action.PASS, None)],
)
def test_a_judgement_from_open_alternatives_is_no_yes(treatment: Action, refusal: RefusalReason | None) -> None:
    judge = BoundedJudge(least_numa, UncertaintyPolicy(possible=treatment))
    judgement = judge(PodShape(TWO), node_class(), Budget(steps_of_the_first(TWO) + 100))

    assert judgement.refusal is refusal
    assert judgement.certainty is Certainty.POSSIBLE
    assert judgement.trouble is Trouble.STEPS


def test_a_judgement_that_no_alternative_changes_is_a_yes() -> None:
    judge = BoundedJudge(least_numa, UncertaintyPolicy())
    judgement = judge(PodShape(ONE), node_class(), Budget(steps_of_the_first(ONE) + 100))
    assert judgement.refusal is None
    assert judgement.trouble is None


def test_too_many_alternatives_to_try_are_no_yes() -> None:
    """The number of replays is a budget as well."""
    judge = BoundedJudge(least_numa, UncertaintyPolicy())
    outcome = admitted(TWO, Budget())
    answers = {type(o.verdict) for o in (outcome, *outcome.alternatives)}
    judgement = judge(PodShape(TWO), node_class(), Budget(1e9))

    assert not outcome.complete
    assert len(outcome.alternatives) < MAX_OUTCOMES
    assert judgement.refusal is RefusalReason.CHANCE, answers


def test_a_later_state_that_runs_out_of_steps_leaves_the_earlier_ones() -> None:
    assert OBSERVATION.kubelet is not None
    assert OBSERVATION.state is not None
    states = (OBSERVATION.state, replace(OBSERVATION.state))
    first, *_ = admit_in_all(
        OBSERVATION.kubelet, states, request_of(ONE), max_replays=2, budget=Budget(steps_of_the_first(ONE) + 10)
    )
    assert isinstance(first.verdict, Admitted)
    assert first.undecided
    assert not first.complete


def test_such_a_class_is_judged_again_with_more_steps() -> None:
    """The first look gives each class few steps; the second one finds out."""
    steps: list[float] = []

    class Noted(BoundedJudge):
        def __call__(self, shape: PodShape, each: NodeClass, budget: Budget | None = None, /) -> Judgement:
            assert budget is not None
            steps.append(budget.steps)
            few = Budget(steps_of_the_first(TWO) + 100)
            return super().__call__(shape, each, few if len(steps) == 1 else budget)

    judge_all(Noted(least_numa, UncertaintyPolicy()), PodShape(TWO), [node_class()])
    assert steps == list(SHARES)
