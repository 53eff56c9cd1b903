"""Restart-check of the same configuration, against naive kubelets that admit the pods of recorded histories again.

A pod is kept if every container that goes on running has the CPUs and the memory that it had, and moved if one of them
has others. Ordinary init containers are over.
"""

from random import Random
from typing import Any

from extender.cluster.node_class import ClassTable
from extender.conformance.agreement import KubeletCrashError
from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.verdict import Admitted
from extender.questions.node_context import NodeContext, Subject
from extender.questions.restart_check import restart_check
from extender.replay.possible_states import PossibleStates
from extender.wire.scenarios import scenario_from_json
from tests.oracle import NaiveKubelet, NaiveKubeletError
from tests.replay.vectors import VERSIONS, scenarios
from tests.subjects import watched

Json = dict[str, Any]


def check(seed: int, *, parts: int = 20) -> tuple[int, list[str]]:
    """Pods that were admitted again, for every *parts*-th recorded history of all versions."""
    compared, wrong = 0, []
    for version in VERSIONS:
        for document in scenarios(version, seed % parts, parts):
            if "kubelet_error" in document or document["devices"]:
                continue
            try:
                count, faults = _compare(document, Random(seed))
            except (NaiveKubeletError, KubeletCrashError, RecursionError):
                continue
            compared += count
            wrong += [f"{document['id']}: {fault}" for fault in faults]
    return compared, wrong


def _compare(document: Json, rng: Random) -> tuple[int, list[str]]:
    naive, scenario = NaiveKubelet.of(document, rng), scenario_from_json(document)
    kubelet = start(scenario.machine, scenario.config)
    if kubelet.rules.pod_level_managers:
        return 0, []  # their state files have a history of their own
    state, pods, requests = initial_state(kubelet, {}), dict[str, Json](), dict[str, PodRequest]()
    for step, raw in zip(scenario.steps, document["steps"], strict=True):
        if step.op == "remove":
            naive.remove(step.uid)
            state = release_pods(state, [step.uid])
            pods.pop(step.uid, None)
        elif step.op == "start" and step.uid in requests:
            naive.start(step.uid)
            state = start_pod(state, requests[step.uid])
        elif step.pod is not None and step.uid not in pods:
            outcome, answer = admit(kubelet, state, resolve(step.pod, kubelet.rules)), naive.admit(raw["pod"])
            state = outcome.state
            if answer["admit"] != isinstance(outcome.verdict, Admitted):
                return 0, []
            if answer["admit"]:
                pods[step.uid], requests[step.uid] = raw["pod"], resolve(step.pod, kubelet.rules)
    for uid, request in requests.items():
        if uid in pods:
            naive.start(uid)
            state = start_pod(state, request)
    state = release_pods(state, sorted(state.pod_uids - pods.keys()))  # as `NaiveKubelet.admit` does
    before = {uid: _held(naive, pod) for uid, pod in pods.items()}
    node_class = ClassTable().hold(kubelet, PossibleStates((state,)), frozenset(), stale=False)
    around = NodeContext(pods=watched(pods.values()))
    found = restart_check(Subject(name="n", node_class=node_class, states=(state,), around=around), None)
    if found.info.refused_files:
        return 0, []
    wrong = []
    naive.cpus.reuse, naive.memory.reuse, active = {}, {}, dict(naive.active)
    for running, each in zip(found.pods, found.info.pods, strict=True):
        pod = pods[running.uid]
        naive.active.update(active)  # nothing is collected before the pod sources are ready
        said = naive.admit(pod)
        expected = "fails" if not said["admit"] else "kept" if _held(naive, pod) == before[running.uid] else "moved"
        if each.result != expected:
            wrong.append(f"{each.pod} is {expected}, and not {each.result}")
    return len(found.pods), wrong


def _held(naive: NaiveKubelet, pod: Json) -> object:
    """CPUs and memory of the containers that go on running."""
    uid, spec = pod["metadata"]["uid"], pod["spec"]
    init = [each for each in spec.get("initContainers") or () if each.get("restartPolicy") == "Always"]
    names = [each["name"] for each in [*spec["containers"], *init]]
    cpus, blocks = naive.cpus.entries.get(uid, {}), naive.memory.blocks.get(uid, {})
    return {
        name: (
            sorted(cpus.get(name, ())),
            sorted((sorted(block.mask), block.type, block.size) for block in blocks.get(name, ())),
        )
        for name in names
    }
