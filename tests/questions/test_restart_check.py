"""Restart-check on random nodes of all kubelet versions: the naive kubelet is restarted as well, and has to agree."""

import copy
import json
import lzma
from dataclasses import replace
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from extender.cluster.node_class import ClassTable
from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.sets import format_list
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted
from extender.questions.node_context import NodeContext, Subject
from extender.questions.restart_check import RestartedNode, restart_check
from extender.replay.possible_states import PossibleStates
from extender.samples.nodes import Workload
from extender.wire.scenarios import kubelet_config_from_json, scenario_from_json
from tests.oracle import NaiveKubelet, NaiveKubeletError
from tests.oracle.restart import RestartedNaiveKubelet
from tests.reports import sample
from tests.subjects import subject_of, watched
from tests.truth import restarts

Json = dict[str, Any]
VECTORS = sorted((Path(__file__).parents[1] / "vectors").glob("kubelet-1.*.jsonl.xz"))
NODES_A_VERSION = 56
CHANGES: tuple[tuple[str | None, Json], ...] = (
    (None, {}),
    ("v1.37.0", {}),
    ("v1.30.0", {}),
    ("v1.34.0", {"topologyManagerPolicy": "restricted"}),
    (None, {"topologyManagerPolicy": "single-numa-node"}),
    (None, {"topologyManagerPolicy": "restricted", "topologyManagerScope": "pod"}),
    (None, {"cpuManagerPolicyOptions": {"full-pcpus-only": "true"}}),
    (None, {"cpuManagerPolicy": "none", "cpuManagerPolicyOptions": {}}),
    (None, {"reservedSystemCPUs": "1"}),
    (None, {"memoryManagerPolicy": "None", "reservedMemory": []}),
    ("v1.36.0", {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}),
    (None, {"topologyManagerPolicy": "none", "topologyManagerScope": "container"}),
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
    naive = NaiveKubelet.of(document, Random(1))
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


def _subject(kubelet: Kubelet, state: ManagerState, pods: list[Json]) -> Subject:
    """The node with its pods as the API server has them."""
    node_class = ClassTable().hold(kubelet, PossibleStates((state,)), frozenset(), stale=False)
    return Subject(name="n", node_class=node_class, states=(state,), around=NodeContext(pods=watched(pods)))


@pytest.mark.parametrize("path", VECTORS, ids=lambda path: path.name.removesuffix(".jsonl.xz"))
def test_the_pods_fail_and_land_as_those_of_the_naive_kubelet(path: Path) -> None:
    """Over all versions: 592 nodes, of whose pods 256 fail, among them upgrades and changed settings."""
    compared = refused = 0
    for number, document in enumerate(_scenarios(path)):
        version, fields = CHANGES[number % len(CHANGES)]
        history = _after_history(document)
        if history is None:
            continue
        naive, kubelet, state, pods = history
        after, rules = {**document["kubelet"], **fields}, document.get("rules") or {}
        version = version or document["kubelet_version"]
        found = restart_check(_subject(kubelet, state, pods), kubelet_config_from_json(version, after, rules=rules))
        try:
            again = RestartedNaiveKubelet(document["machine"], after, {}, version, rules)
        except (NaiveKubeletError, KeyError):  # a reserved CPU that the machine does not have
            assert found.info.error, (document["id"], version, fields)
            continue
        if found.info.error.startswith("featureGates"):  # the naive kubelet knows no gates of other versions
            assert version != document["kubelet_version"]
            continue
        again.restart(naive, copy.deepcopy(pods))
        if not _same_holders(naive, state):
            continue
        refused += _compare(found, again, pods, (document["id"], version, fields))
        compared += 1
    assert compared >= NODES_A_VERSION * 0.8
    assert refused


def _compare(found: RestartedNode, again: RestartedNaiveKubelet, pods: list[Json], what: object) -> int:
    """Each pod of both kubelets; returns how many fail."""
    reasons = again.admit_all(pods)
    results = list(zip(found.pods, found.info.pods, strict=True))
    assert {pod.uid: each.reason for pod, each in results} == reasons, what
    for pod, each in results:
        is_refused = each.result in ("fails", "may-fail")  # a device plugin that registers early may prevent it
        assert is_refused is bool(reasons[pod.uid]), what
        assert each.result != "may-fail" or each.reason == "UnexpectedAdmissionError", what
        if not is_refused:
            held = set().union(*again.cpus.entries.get(pod.uid, {}).values())
            assert each.cpus_after == format_list(sum(1 << cpu for cpu in held)), what
    return sum(map(bool, reasons.values()))


def test_pods_with_init_containers_are_kept_if_what_runs_on_keeps_what_it_holds() -> None:
    """Before: 44 of 625 pods were called "moved" (`python -m tests.truth restarts 3`)."""
    compared, wrong = restarts.check(1)

    assert wrong == []
    assert compared > 100


@pytest.mark.parametrize(
    ("now", "gates", "version", "error"),
    [
        ("v1.34.0", {"SidecarContainers": True}, "v1.37.0", "unrecognized feature gate: SidecarContainers"),
        ("v1.36.0", {"PodLevelResourceManagers": True}, "v1.35.0", "unrecognized feature gate"),
        ("v1.31.0", {"MemoryManager": False}, "v1.32.0", "cannot set feature gate MemoryManager to false"),
        ("v1.34.0", {"CPUManagerPolicyAlphaOptions": True}, "v1.36.0", ""),
        ("v1.35.0", {"NodeSwap": False}, "v1.36.0", "cannot set feature gate NodeSwap to false"),
        ("v1.35.0", {"PodLevelResources": False}, "v1.36.0", "depends on features that are disabled"),
        ("v1.35.0", {"PodLevelResources": False, "AllBeta": False}, "v1.36.0", ""),
        ("v1.37.0", {"SidecarContainers": True}, "v1.37.1", ""),
    ],
)
def test_a_kubelet_does_not_start_with_a_gate_that_its_new_version_lacks_or_has_locked(
    now: str, gates: Json, version: str, error: str
) -> None:
    """The last one runs with a gate of which we believe that it does not."""
    subject = subject_of(sample(version=now, featureGates=gates))
    assert subject.kubelet is not None

    found = restart_check(subject, replace(subject.kubelet.config, kubelet_version=version))

    assert error in found.info.error
    assert bool(error) is bool(found.info.error)


def test_terminating_pods_have_no_result_and_may_be_gone_or_not() -> None:
    """Both have to be drained with full-pcpus-only until 1.36, or none if one of them is gone by then."""
    node = sample(workloads=[Workload(name="w", resources={"cpu": 12, "memory": "1Gi"}, copies=2)])
    subject = subject_of(node)
    assert subject.kubelet is not None
    config = replace(subject.kubelet.config, cpu_manager_policy_options={"full-pcpus-only": "true"})
    first, second = watched(node.pods)
    both = replace(subject, around=replace(subject.around, pods=[first, second]))
    ending = replace(subject, around=replace(subject.around, pods=[first._replace(terminating=True), second]))

    assert [each.result for each in restart_check(both, config).info.pods] == ["fails", "fails"]
    only = restart_check(ending, config)
    assert [pod.uid for pod in only.pods] == [second.uid]
    assert [each.result for each in only.info.pods] == ["fails"]


def test_a_node_that_may_be_in_another_state_is_replayed_in_that_one_as_well() -> None:
    """In the second state the pod has a CPU that the new configuration reserves."""
    subject = subject_of(sample(workloads=[Workload(name="w", resources={"cpu": 2, "memory": "1Gi"})]))
    assert subject.kubelet is not None
    (state,), kubelet = subject.states, subject.kubelet
    ((uid, held),) = state.cpu.entries.items()
    ((container, cpus),) = held.items()
    others = state.cpu.default & ~kubelet.reserved_cpus
    moved = 1 << others.bit_length() - 1
    other = replace(
        state,
        cpu=replace(
            state.cpu,
            entries={uid: {container: (cpus & cpus - 1) | moved}},
            default=(state.cpu.default | cpus) & ~((cpus & cpus - 1) | moved),
        ),
    )
    config = replace(kubelet.config, reserved_system_cpus=kubelet.reserved_cpus | moved)

    assert not restart_check(subject, config).info.refused_files
    (file,) = restart_check(replace(subject, states=(state, other)), config).info.refused_files
    assert file.file == "cpu_manager_state"
