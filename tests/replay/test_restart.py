"""Kubelets that start on nodes whose pods run, by hand. `tests/questions/test_restart_check.py` has random nodes."""

from typing import Any

from extender.kubelet.resolve import resolve
from extender.kubelet.restart import CPU_FILE, MEMORY_FILE, admit_again, restore
from extender.kubelet.verdict import Admitted, Rejected
from extender.samples.nodes import Workload
from extender.wire.pods import pod_from_json
from tests.reports import sample

Json = dict[str, Any]


def _restarted(
    before: Json, after: Json, workloads: list[Workload], version: str = "v1.36.2"
) -> tuple[list[str], list[str]]:
    """The refused files, and the reason of each pod's refusal, after a change of configuration."""
    node = sample(version=version, workloads=workloads, **before)
    new = sample(version=version, **{**before, **after}).kubelet
    restored = restore(node.kubelet, new, node.state)
    requests = [resolve(pod_from_json(pod), new.rules) for pod in node.pods]
    outcomes = admit_again(new, restored.state, requests)
    reasons = [o.verdict.reason.value if isinstance(o.verdict, Rejected) else "" for o in outcomes]
    return [file.name for file in restored.refused], reasons


BIG = [Workload(name="w", resources={"cpu": 14, "memory": "2Gi"}, copies=2)]
FULL_CORES = {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}


def test_a_restart_without_a_change_keeps_every_pod() -> None:
    assert _restarted({}, {}, BIG) == ([], ["", ""])


def test_whole_cores_are_counted_before_the_pod_itself_until_1_36() -> None:
    """Kubernetes issue 129078."""
    big = [Workload(name="w", resources={"cpu": 14, "memory": "2Gi"}, copies=1)]
    full = [*big, Workload(name="v", resources={"cpu": 12, "memory": "2Gi"})]
    assert _restarted(FULL_CORES, {}, full, "v1.36.2") == ([], ["SMTAlignmentError", "SMTAlignmentError"])
    assert _restarted(FULL_CORES, {}, full, "v1.37.0") == ([], ["", ""])


def test_a_file_of_another_policy_or_reservation_is_refused() -> None:
    none = {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}
    assert _restarted({}, none, BIG)[0] == [CPU_FILE, MEMORY_FILE]
    assert _restarted(none, {"cpuManagerPolicy": "static"}, BIG)[0] == [CPU_FILE]
    assert _restarted({"reservedSystemCPUs": "0-1"}, {"reservedSystemCPUs": "0,2"}, BIG)[0] == [CPU_FILE]
    assert _restarted({}, {"memory_gib_reserved": 2}, BIG)[0] == [MEMORY_FILE]


def test_why_a_file_of_another_policy_is_refused() -> None:
    plain, static = (sample(workloads=BIG, cpuManagerPolicy=policy) for policy in ("none", "static"))
    for old, new, names in ((plain, static, ("none", "static")), (static, plain, ("static", "none"))):
        (refused,) = restore(old.kubelet, new.kubelet, old.state).refused
        assert refused.reason == "it is of policy {}, and the kubelet is configured with {}".format(*names)


def test_a_stricter_policy_refuses_what_an_earlier_one_split() -> None:
    split = [Workload(name="w", resources={"cpu": 10, "memory": "2Gi"}, copies=3)]
    best_effort = {"topologyManagerPolicy": "best-effort"}
    refused = ["", "", "TopologyAffinityError"]
    assert _restarted(best_effort, {"topologyManagerPolicy": "restricted"}, split) == ([], refused)


def test_devices_of_running_containers_need_no_plugin_and_those_after_a_reboot_do() -> None:
    node = sample(
        devices={"vendor.example/gpu": [0, 1]},
        workloads=[Workload(name="w", resources={"cpu": 1, "memory": "1Gi", "vendor.example/gpu": 1})],
    )
    request = resolve(pod_from_json(node.pods[0]), node.kubelet.rules)
    state = restore(node.kubelet, node.kubelet, node.state).state
    (again,), (booted,) = (admit_again(node.kubelet, state, [request], running=running) for running in (True, False))
    assert isinstance(again.verdict, Admitted)
    assert isinstance(booted.verdict, Rejected)
    assert "no healthy devices present" in booted.verdict.message


GATE: Json = {"featureGates": {"PodLevelResourceManagers": True}}


def test_a_file_that_was_written_with_the_gate_is_not_read_without_it_whatever_its_policy() -> None:
    """A real kubelet 1.36.2 of policy none ended with "checkpoint is corrupted"."""
    none = {"cpuManagerPolicy": "none", "memoryManagerPolicy": "None"}
    for policies in ({}, none):
        assert _restarted({**policies, **GATE}, {"featureGates": {}}, BIG)[0] == [CPU_FILE, MEMORY_FILE]


def test_entries_of_pods_survive_between_kubelets_with_the_gate() -> None:
    """A file of 1.36 with the gate is not read without it; one of 1.37 is, without the pods' own entries."""
    kubelets = {
        (version, is_on): sample(version=version, **(GATE if is_on else {})).kubelet
        for version in ("v1.36.2", "v1.37.0")
        for is_on in (False, True)
    }
    state = sample(version="v1.36.2", **GATE).state
    refused = {
        (*old, *new)
        for old, before in kubelets.items()
        for new, after in kubelets.items()
        if restore(before, after, state).refused
    }
    assert refused == {("v1.36.2", True, "v1.36.2", False)}
