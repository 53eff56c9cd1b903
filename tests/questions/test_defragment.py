"""Defragment: the largest request that is aligned."""

from extender.questions.defragment import Defragment
from extender.questions.evictions import Evictions
from extender.samples.machines import Hardware
from extender.wire.workloads import workload_from_json
from tests.reports import pod_of, sample
from tests.subjects import judge, subject_of

LARGE = Hardware(sockets=2, numa_per_socket=1, cores_per_numa=32, threads=2, memory_gib=32, distances=(10, 21))


def test_the_largest_request_is_found_where_the_totals_of_the_node_leave_far_less_than_a_numa_node_has() -> None:
    """The other pods share CPUs. They leave 10 of 126 CPUs in all, and no NUMA node has fewer than 62 free."""
    subject = subject_of(sample(hardware=LARGE), requested_milli={"cpu": 116_000})
    evictions = Evictions([subject], None, judge(), max_priority=0, max_trials=10)
    search = Defragment(workload_from_json(pod_of(2, "1Gi")), evictions, judge(), 1)

    point = next(search.run())

    assert point is not None
    assert point.largest_cpus == 10
