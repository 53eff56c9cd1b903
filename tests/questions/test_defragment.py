"""Defragment: the largest request that is aligned."""

from extender.cluster.node_class import NodeClass
from extender.questions.defragment import Defragment
from extender.questions.evictions import Evictions
from extender.samples.machines import Hardware
from extender.samples.nodes import Workload
from extender.scheduling.judgement import Judgement
from extender.scheduling.pod_shape import PodShape
from extender.wire.workloads import workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import judge, over_after, subject_of
from tests.truth import defragmenting

LARGE = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=32, threads=2, memory_gib=32, distances=(10, 21))


def test_the_largest_request_is_found_where_the_totals_of_the_node_leave_far_less_than_a_numa_node_has() -> None:
    """The other pods share CPUs. They leave 10 of 126 CPUs in all, and no NUMA node has fewer than 62 free."""
    subject = subject_of(sample(hardware=LARGE), requested_milli={"cpu": 116_000})
    evictions = Evictions([subject], None, judge(), max_priority=0, max_trials=10)
    search = Defragment(workload_from_json(pod_of(2, "1Gi")), evictions, judge(), 1)

    point = next(search.run())

    assert point is not None
    assert point.largest_cpus == 10


def test_a_move_that_gains_a_copy_is_found_and_no_other() -> None:
    """`python -m tests.truth defragmenting 300`: before, 16 of 107 such clusters got no move.

    With seed 3021 a pod was moved twice, although only its replacement was left then.
    """
    compared, wrong = 0, list[str]()
    for seed in (*range(30, 60), 3021):
        count, faults = defragmenting.check(seed)
        compared, wrong = compared + count, wrong + faults

    assert wrong == []
    assert compared >= 5


def test_what_was_counted_is_the_answer_if_the_time_is_over_at_any_moment() -> None:
    """The clock is looked at before each node."""
    work = [Workload(name="w", resources={"cpu": 5, "memory": "1Gi"}, copies=3)]
    subjects = [subject_of(sample(f"n{number}", workloads=work)) for number in range(4)]
    for moment in range(12):
        evictions = Evictions(subjects, None, judge(), max_priority=0, max_trials=100)
        workload = workload_from_json(pod_of(4, "1Gi"))
        search = Defragment(workload, evictions, judge(), 2, over_after(moment))
        points = [point for point in search.run() if point is not None]
        assert points[0].copies > 0
        assert search.nodes_left_out == max(0, 3 - moment)


def test_no_further_node_is_judged_for_a_move_when_the_time_is_over() -> None:
    """On 5,000 nodes one search of one node took 7 s of a processor, and looked at no clock meanwhile."""
    work = [[Workload(name="w", resources={"cpu": number, "memory": "1Gi"})] for number in range(1, 6)]
    subjects = [subject_of(sample(f"n{number}", workloads=each)) for number, each in enumerate(work)]
    judged: list[str] = []

    def counted(shape: PodShape, node_class: NodeClass) -> Judgement:
        judged.append(shape.pod.uid)
        return judge()(shape, node_class)

    evictions = Evictions(subjects, None, counted, max_priority=0, max_trials=100)
    evictions.is_late = lambda: len(judged) >= 2
    assert evictions.cheapest(subjects[0], evictions.candidates(subjects[0]), lambda _left: True, most=1) is None
    assert len(judged) == 2
