"""Tune: the range of admitted pods holds for orders of arrival that were not replayed for it."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from extender.questions.tune import Tune
from extender.replay.admission import admit, start_pod
from extender.replay.kubelet import Kubelet
from extender.replay.resolve import resolve
from extender.replay.startup import initial_state
from extender.replay.verdict import Admitted
from extender.wire.workloads import PodWorkload, workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import subject_of

EQUAL_NODES, ASKED = 32, 20
SIZES = (10, 6, 5, 4, 3, 2)
"""CPUs of the pods of each node, which has 14 and 16 CPUs on its NUMA nodes: some orders admit five of them."""


def _admitted(kubelet: Kubelet, pods: Sequence[PodWorkload], rng: Random) -> int:
    """The pods that one node admits in another random order."""
    state, count = initial_state(kubelet, {}), 0
    for number, workload in enumerate(rng.sample(pods, len(pods))):
        request = resolve(workload.copy(number), kubelet.rules)
        outcome = admit(kubelet, state, request)
        if isinstance(outcome.verdict, Admitted):
            state, count = start_pod(outcome.state, request), count + 1
    return count


def test_the_range_holds_for_other_orders_on_equal_nodes() -> None:
    """One order that counts for all of them would hide how far off the mean can be. There is time for a few orders."""
    node = sample()
    subjects = [replace(subject_of(node), name=f"node-{number}") for number in range(EQUAL_NODES)]
    workloads = [workload_from_json(pod_of(size, "1Gi", name=f"p{size}")) for size in SIZES]
    inside, widths = 0, []
    for seed in range(ASKED):
        search = Tune(subjects, [each for each in workloads for _ in subjects], seed, limit=2, spent=lambda: 1.0)
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
