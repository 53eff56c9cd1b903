"""What is too large for any node: taken as far as it can be read, and told as a problem."""

import time
from typing import Any

import orjson
import pytest

from extender.cluster.node_class import ClassTable
from extender.kubelet.admission import admit, is_indifferent
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Reason, Rejected, Verdict
from extender.questions.explain import first_fault
from extender.replay.possible_states import PossibleStates
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.placement import least_numa
from extender.scheduling.reasons import RefusalReason, refusal_of
from extender.wire.errors import WireError
from extender.wire.nri_reports import MAX_GRANTS
from extender.wire.pods import pod_from_json
from extender.wire.reports import MAX_PROBLEMS, ReadReport, read_report
from tests.faults.attacks import grant
from tests.faults.hostile_nodes import bare
from tests.nri_samples import nri_report
from tests.reports import pod_of, report_of, sample

PROBLEM = {"source": "a", "path": "b", "reason": "c", "severity": "warning"}


def read(**changes: Any) -> ReadReport:
    return read_report(orjson.dumps({**report_of(sample()), **changes}))


def test_a_sane_report_is_as_it_was() -> None:
    small, large = read(), read(unknown="a" * 500_000)
    assert small == large
    assert small.kubelet is not None


@pytest.mark.parametrize(
    "unknown", [[[]] * 2_000_000, "a" * 15_000_000, [{"a": 1}] * 1_000_000], ids=["lists", "text", "objects"]
)
def test_16_mib_that_nobody_reads_make_no_objects(unknown: object) -> None:
    body = orjson.dumps({**report_of(sample()), "unknown": unknown})
    began = time.thread_time()
    report = read_report(body)
    read_seconds = time.thread_time() - began
    began = time.thread_time()
    orjson.loads(body)
    assert report.kubelet is not None
    assert len(body) > 6_000_000
    if not isinstance(unknown, str):
        assert read_seconds < (time.thread_time() - began), "much less than it takes to parse all of it"


def test_300_000_problems_are_left_out_and_their_size_is_told() -> None:
    report = read(problems=[PROBLEM] * 300_000)
    assert report.kubelet is not None
    (problem,) = report.problems
    assert problem.reason == "too large for a node: 18000001 bytes, more than 1048576"


def test_some_hundred_problems_in_a_small_report_too() -> None:
    report = read(problems=[PROBLEM] * 500)
    assert len(report.problems) == MAX_PROBLEMS + 1


DEVICES = {"vendor.example/nic": [{"id": str(i), "numa": [0], "healthy": True} for i in range(9_000)]}
KINDS = [{"id": str(i), "numa": [n for n in range(12) if i >> n & 1], "healthy": True} for i in range(4_000)]


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"devices": {**DEVICES, "vendor.example/gpu": DEVICES["vendor.example/nic"]}}, "16384 devices"),
        ({"devices": {"vendor.example/nic": KINDS}}, "4000 different sets of NUMA nodes"),
        ({"machine": bare("n", 65)["machine"]}, "65 NUMA nodes, more than 64"),
        (
            {"machine": {"cpus": [[0, 0, 0, 1_000_000_000, None]], "numa": [{"id": 1_000_000_000, "memory": 1}]}},
            "1000000000 is above 1023",
        ),
        ({"machine": {**bare("n", 2)["machine"], "cpus": [[i, i, 0, 0, None] for i in range(9_000)]}}, "9000 entries"),
        ({"state": {"cpu_manager_state": {"policyName": "static", "x": "a" * 2_000_000}}}, "more than 1048576"),
        (
            {"state": {"cpu_manager_state": {"policyName": "static", "defaultCpuSet": "0," * 40_000 + "1"}}},
            "80001 characters",
        ),
    ],
)
def test_beyond_a_cap_the_node_is_unknown_and_the_reason_is_told(changes: dict[str, Any], reason: str) -> None:
    machine = changes.get("machine", {})
    for node in machine.get("numa", []):
        node.setdefault("hugepages", {})
        node.setdefault("distances", None)
    machine.setdefault("num_sockets", 1) if machine else None
    report = read(**changes)

    assert (report.kubelet, report.state) == (None, None)
    assert report.facts.pods is not None, "what people see is kept"
    texts = [f"{problem.path}: {problem.reason}" for problem in report.problems if problem.severity == "error"]
    assert any(reason in text and "too large for a node" in text for text in texts), texts
    assert any("no verdict is possible" in text for text in texts)


def test_a_cpu_list_names_only_cpus_that_the_machine_can_have() -> None:
    state = {"cpu_manager_state": {"policyName": "static", "defaultCpuSet": "0-65535"}}
    with pytest.raises(WireError, match=r"not an ascending range within 0\.\.8191"):
        read(state=state)


# -- NUMA ids above 63, and hugepages that a node lacks


def far_away(**kubelet: Any) -> ReadReport:
    """A machine with NUMA nodes 0 and 64."""
    report = bare("n", 2)
    report["machine"]["numa"][1]["id"] = 64
    report["machine"]["cpus"][1][3] = 64
    report["kubelet"] |= kubelet
    report["state"]["kubelet_internal_checkpoint"] = {"Data": {}}
    return read_report(orjson.dumps(report))


def verdict_of(report: ReadReport, pod: dict[str, Any]) -> Verdict:
    assert report.kubelet is not None, report.problems
    assert report.state is not None
    return admit(report.kubelet, report.state, resolve(pod_from_json(pod), report.kubelet.rules)).verdict


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
@pytest.mark.parametrize("scope", ["container", "pod"])
def test_a_numa_id_above_63_crashes_the_kubelet_in_the_merge(policy: str, scope: str) -> None:
    report = far_away(topologyManagerPolicy=policy, topologyManagerScope=scope)
    verdict = verdict_of(report, pod_of("500m"))

    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.KUBELET_PANIC
    assert verdict.message == "panic: interface conversion: bitmask.BitMask is nil, not *bitmask.bitMask"
    assert refusal_of(verdict) is RefusalReason.CRASH


@pytest.mark.parametrize("policy", ["best-effort", "restricted", "single-numa-node"])
def test_a_pod_that_needs_no_alignment_reaches_the_merge_as_well(policy: str) -> None:
    report = far_away(topologyManagerPolicy=policy)
    assert report.kubelet is not None
    assert report.state is not None
    pod = pod_from_json({"metadata": {"name": "p", "uid": "u"}, "spec": {"containers": [{"name": "c"}]}})
    assert not is_indifferent(report.kubelet, resolve(pod, report.kubelet.rules))
    node_class = ClassTable().hold(report.kubelet, PossibleStates((report.state,)), frozenset(), stale=False)
    judgement = BoundedJudge(least_numa, UncertaintyPolicy())(PodShape(pod), node_class)
    assert judgement.refusal is RefusalReason.CRASH


def test_without_a_topology_policy_a_numa_id_above_63_harms_nobody() -> None:
    report = far_away()
    assert not isinstance(verdict_of(report, pod_of("500m")), Rejected)


def test_hugepages_of_a_size_that_the_node_lacks_crash_the_memory_manager() -> None:
    node = sample()
    pod = pod_of(2)
    resources = pod["spec"]["containers"][0]["resources"]
    resources["limits"]["hugepages-1Gi"] = resources["requests"]["hugepages-1Gi"] = "1Gi"
    resources["limits"]["hugepages-16Mi"] = resources["requests"]["hugepages-16Mi"] = "16Mi"
    request = resolve(pod_from_json(pod), node.kubelet.rules)
    verdict = admit(node.kubelet, node.state, request).verdict

    assert isinstance(verdict, Rejected)
    assert verdict.reason is Reason.KUBELET_PANIC
    assert refusal_of(verdict) is RefusalReason.PAGE_SIZE
    said = first_fault(node.kubelet, node.state, request, verdict, [])
    assert "has no hugepages-1" in said
    assert said.endswith("its kubelet would crash on a pod that requests them.")


@pytest.mark.parametrize(("count", "is_read"), [(MAX_GRANTS, True), (MAX_GRANTS + 1, False)])
def test_so_many_containers_of_the_nri_policy_are_read_and_no_more(count: int, is_read: bool) -> None:  # noqa: FBT001
    """Seen red: 10,000 were allowed, more than the size of a report has room for."""
    body = orjson.dumps(nri_report("n", grants=[grant(number) for number in range(count)]))

    report = read_report(body, lambda _name: "v1.36.2")

    assert (report.state is not None and report.state.runtime is not None) is is_read
    told = [problem.reason for problem in report.problems if "grants" in problem.path]
    too_many = f"too large for a node: {count} grants, more than {MAX_GRANTS}: the NRI policy is not known"
    assert told == ([] if is_read else [too_many])
