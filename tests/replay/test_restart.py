"""Kubelets that start on nodes whose pods run: compared with the naive restatement, and by hand."""

import copy
import json
import lzma
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.replay.admission import admit, release_pods, start_pod
from extender.replay.config import KubeletConfigError
from extender.replay.kubelet import Kubelet
from extender.replay.pod import PodRequest, resolve
from extender.replay.restart import CPU_FILE, MEMORY_FILE, admit_again, restore
from extender.replay.startup import initial_state, start
from extender.replay.state import ManagerState
from extender.replay.verdict import Admitted, Rejected
from extender.samples.nodes import Workload
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import kubelet_config_from_json, scenario_from_json
from tests.oracle import NaiveKubelet, NaiveKubeletError
from tests.oracle.restart import RestartedNaiveKubelet
from tests.reports import sample

Json = dict[str, Any]
VECTORS = sorted((Path(__file__).parents[1] / "vectors").glob("kubelet-1.*.jsonl.xz"))
NODES_A_VERSION = 49
CHANGES: tuple[tuple[str | None, Json], ...] = (
    (None, {}),
    ("v1.37.0", {}),
    ("v1.30.0", {}),
    (None, {"topologyManagerPolicy": "single-numa-node"}),
    (None, {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}),
    (None, {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}),
    (None, {"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {}}),
    (None, {"reservedSystemCPUs": "1"}),
)
"""Version (None: the same) and fields of the configuration after the restart."""


def _scenarios(path: Path) -> list[Json]:
    """Some nodes of a version without pod-level managers, whose files have a history of their own."""
    with lzma.open(path, "rt") as lines:
        found = (json.loads(line) for line in lines)
        usable = (
            each
            for each in found
            if "kubelet_error" not in each
            and not (each["kubelet"].get("featureGates") or {}).get("PodLevelResourceManagers")
        )
        return list(islice(usable, 3, 3 + NODES_A_VERSION))


def _after_history(document: Json) -> tuple[NaiveKubelet, Kubelet, ManagerState, list[Json]] | None:
    """Both kubelets after the recorded steps, and the pods that run; None where random picks of devices differ."""
    naive = NaiveKubelet(
        document["machine"],
        document["kubelet"],
        document["devices"],
        document["kubelet_version"],
        document.get("rules") or {},
        Random(1),
    )
    scenario = scenario_from_json(document)
    kubelet = start(scenario.machine, scenario.config)
    state, pods = initial_state(kubelet, scenario.devices), dict[str, Json]()
    requests: dict[str, PodRequest] = {}
    for step, raw in zip(scenario.steps, document["steps"], strict=True):
        if step.pod is not None:
            outcome = admit(kubelet, state, resolve(step.pod, kubelet.rules))
            state, answer = outcome.state, naive.admit(raw["pod"])
            if answer["admit"] != isinstance(outcome.verdict, Admitted):
                return None
            if answer["admit"]:
                pods[step.uid], requests[step.uid] = raw["pod"], resolve(step.pod, kubelet.rules)
        elif step.op == "start" and step.uid in requests:
            state = start_pod(state, requests[step.uid])
            naive.start(step.uid)
        elif step.op == "remove":
            state = release_pods(state, [step.uid])
            naive.remove(step.uid)
            pods.pop(step.uid, None)
    return naive, kubelet, state, list(pods.values())


def _same_holders(naive: NaiveKubelet, state: ManagerState) -> bool:
    held = {uid: {n: sum(1 << c for c in cpus) for n, cpus in each.items()} for uid, each in naive.cpus.entries.items()}
    free = {n: node.free for n, node in naive.memory.nodes.items()}
    return held == state.cpu.entries and free == {n.id: {k: a.free for k, a in n.amounts} for n in state.memory.nodes}


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_the_pods_that_fail_are_those_of_the_naive_kubelet(path: Path) -> None:
    """Over all versions: 500 nodes."""
    compared = refused = 0
    for number, document in enumerate(_scenarios(path)):
        version, fields = CHANGES[number % len(CHANGES)]
        history = _after_history(document)
        if history is None:
            continue
        naive, kubelet, state, pods = history
        after = {**document["kubelet"], **fields}
        version = version or document["kubelet_version"]
        rules = document.get("rules") or {}
        try:
            again = RestartedNaiveKubelet(document["machine"], after, {}, version, rules)
        except NaiveKubeletError:
            with pytest.raises(KubeletConfigError):
                start(kubelet.machine, kubelet_config_from_json(version, after, rules=rules))
            continue
        again.restart(naive, copy.deepcopy(pods))
        if not _same_holders(naive, state):
            continue
        new = start(kubelet.machine, kubelet_config_from_json(version, after, rules=rules))
        requests = [resolve(pod_from_json(pod), new.rules) for pod in pods]

        outcomes = admit_again(new, restore(kubelet, new, state).state, requests)

        found = {
            request.uid: o.verdict.reason.value if isinstance(o.verdict, Rejected) else ""
            for request, o in zip(requests, outcomes, strict=True)
        }
        assert found == again.admit_all(pods), (document["id"], version, fields)
        compared += 1
        refused += sum(1 for reason in found.values() if reason)
    assert compared >= NODES_A_VERSION // 2
    assert refused


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


def test_entries_of_pods_survive_between_kubelets_with_the_gate() -> None:
    """A file of 1.36 with the gate is not read without it; one of 1.37 is, without the pods' own entries."""
    gate: Json = {"featureGates": {"PodLevelResourceManagers": True}}
    kubelets = {
        (version, is_on): sample(version=version, **(gate if is_on else {})).kubelet
        for version in ("v1.36.2", "v1.37.0")
        for is_on in (False, True)
    }
    state = sample(version="v1.36.2", **gate).state
    refused = {
        (*old, *new)
        for old, before in kubelets.items()
        for new, after in kubelets.items()
        if restore(before, after, state).refused
    }
    assert refused == {("v1.36.2", True, "v1.36.2", False)}
