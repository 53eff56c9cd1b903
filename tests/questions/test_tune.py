"""Tune: the range of admitted pods holds for orders of arrival that were not replayed for it."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from extender.kubelet.admission import admit, start_pod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state
from extender.kubelet.verdict import Admitted
from extender.questions.tune import Tune
from extender.questions.tune_front import ORDERS
from extender.samples.nodes import Workload
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import over_after, subject_of
from tests.truth import tuning

EQUAL_NODES, ASKED = 32, 20
SIZES = (10, 6, 5, 4, 3, 2)
"""CPUs of the pods of each node, which has 14 and 16 CPUs on its NUMA nodes: some orders admit five of them."""


def _admitted(kubelet: Kubelet, pods: Sequence[PodWorkload], rng: Random) -> int:
    """The pods that one node admits in another random order."""
    state, admitted = initial_state(kubelet, {}), 0
    for number, workload in enumerate(rng.sample(pods, len(pods))):
        request = resolve(workload.copy(number), kubelet.rules)
        outcome = admit(kubelet, state, request)
        if isinstance(outcome.verdict, Admitted):
            state, admitted = start_pod(outcome.state, request), admitted + 1
    return admitted


def test_the_range_holds_for_other_orders_on_equal_nodes() -> None:
    """One order that counts for all of them would hide how far off the mean can be. There is time for a few orders."""
    node = sample()
    subjects = [replace(subject_of(node), name=f"node-{number}") for number in range(EQUAL_NODES)]
    workloads = [workload_from_json(pod_of(size, "1Gi", name=f"p{size}")) for size in SIZES]
    inside, widths = 0, []
    for seed in range(ASKED):
        search = Tune(
            subjects,
            [each for each in workloads for _ in subjects],
            seed,
            limit=2,
            spent=over_after(ORDERS),
        )
        (*_, tuned) = search.run()
        least, most = search.spread(tuned[0])
        rng = Random(seed)
        inside += least <= sum(_admitted(node.kubelet, workloads, rng) for _ in subjects) <= most
        widths.append(most - least)

    assert inside >= 0.9 * ASKED, (inside, widths)
    assert max(widths) < EQUAL_NODES


def test_the_free_cpus_of_a_node_that_admits_no_pod_are_stranded() -> None:
    """With full-pcpus-only it refuses odd numbers of CPUs. Otherwise this would look as good as a full node."""
    pods = [workload_from_json(pod_of(3, "1Gi"))] * 2
    (*_, found) = Tune([subject_of(sample())], pods, 1, limit=60).run()

    none_admitted = [trial for tuned in found for trial in tuned.trials if not trial.admitted]
    assert none_admitted
    assert {trial.stranded_cpus for trial in none_admitted} == {30}


def test_seeds_differ_within_the_noise_that_is_stated() -> None:
    """Before, the seed chose which configurations were tried and which nodes: four seeds had four different fronts."""
    compared, wrong = 0, list[str]()
    for seed in range(4):
        count_, faults = tuning.check(seed)
        compared, wrong = compared + count_, wrong + faults

    assert wrong == []
    assert compared > 50


def test_no_configuration_that_splits_pods_surpasses_one_that_refuses_them() -> None:
    """Best-effort admits every pod, three of them split. The answer keeps what aligns all, and says what ends."""
    subject = subject_of(sample(topologyManagerPolicy="single-numa-node"))
    pods = [workload_from_json(pod_of(size, "1Gi", name=f"p{size}")) for size in (10, 9, 9)]
    search = Tune([subject], pods, 1, limit=200)
    (*_, found) = search.run()

    now = found[0]
    lenient = next(each for each in found if each.change == (("topologyManagerPolicy", "best-effort"),))
    assert now.is_best
    assert not now.change
    assert lenient.rank[0] > now.rank[0]
    assert search.nodes_weaker(lenient, now) == 1
    assert search.nodes_weaker(now, now) == 0
    front = [each for each in found if each.is_best]
    assert {each.is_weaker(now) for each in front} == {False, True}


def test_what_was_replayed_is_the_answer_if_the_time_is_over_at_any_moment() -> None:
    """The clock is looked at before each group of equal nodes; so no stretch is longer than one of them."""
    nodes = [
        sample(f"n{n}", workloads=[Workload(name="w", resources={"cpu": n, "memory": "1Gi"})]) for n in range(1, 6)
    ]
    subjects = [subject_of(node) for node in nodes]
    for moment in range(40):
        search = Tune(subjects, None, 1, limit=4, spent=over_after(moment))
        (*_, found) = search.run()
        assert found[0].trials
        assert search.is_late
        assert search.pods == len(search.subjects) == 5 - search.nodes_left_out
        assert search.nodes_left_out == max(0, min(4, 5 - moment))
