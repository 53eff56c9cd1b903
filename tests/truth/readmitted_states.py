"""The state files of naive kubelets that admit their pods again while they run.

A kubelet admits a pod again after a restart of the kubelet, or once its pod sources list the pod anew. What it then
holds follows from the kubelet's text alone (`tests.oracle`). The extender must read every such state, and answer the
next pod as that kubelet does.
"""

import copy
from collections.abc import Iterator
from random import Random
from typing import Any

import orjson

from extender.kubelet.admission import admit, release_pods
from extender.kubelet.resolve import resolve
from extender.kubelet.verdict import Provider
from extender.wire.errors import WireError
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from extender.wire.verdicts import verdict_to_json
from tests.oracle import NaiveKubelet, NaiveKubeletError
from tests.replay.vectors import VERSIONS, scenarios
from tests.world.kubelet import report_of_kubelet

Json = dict[str, Any]


def check(seed: int, *, parts: int = 40) -> tuple[int, list[str]]:
    """States read, and what was wrong, for every *parts*-th recorded history of all versions."""
    states, wrong = 0, []
    for version in VERSIONS:
        for scenario in scenarios(version, seed % parts, parts):
            if "kubelet_error" in scenario:
                continue
            try:
                found = list(_play(scenario, Random(f"{seed} {scenario['id']}")))
            except (NaiveKubeletError, RecursionError):
                continue  # a history that ends in a panic
            states += len(found)
            wrong += [f"{scenario['id']}: {text}" for text in found if text]
    return states, wrong


def _play(scenario: Json, rng: Random) -> Iterator[str]:
    """What is wrong with each state, empty if nothing is."""
    kubelet = NaiveKubelet.of(scenario, rng)
    pods: dict[str, Json] = {}
    for step in scenario["steps"]:
        if step["op"] != "admit":
            getattr(kubelet, step["op"])(step["uid"])
            continue
        yield _difference(scenario, kubelet, step["pod"])
        uid = step["pod"]["metadata"]["uid"]
        if kubelet.admit(step["pod"])["admit"]:
            pods[uid] = step["pod"]
        for uid in sorted(kubelet.active.keys() & pods.keys()):
            if rng.random() < 0.3:
                kubelet.start(uid)
            if rng.random() < 0.4:
                kubelet.admit(pods[uid])


def _difference(scenario: Json, kubelet: NaiveKubelet, pod: Json) -> str:
    """How the extender's answer about *pod*, from the kubelet's own files, differs from the kubelet's own."""
    machine = {"num_sockets": len({cpu[2] for cpu in scenario["machine"]["cpus"]}), **scenario["machine"]}
    body = report_of_kubelet("node", {**scenario, "machine": machine}, kubelet, "boot", 1)
    try:
        read = read_report(orjson.dumps(body))
    except WireError as error:
        return f"refused: {error}"
    if read.kubelet is None or read.state is None:
        return "" if read.hidden else "no verdict"
    if read.contradictory or read.hidden - {Provider.DEVICE}:
        return f"in doubt: {[problem.reason for problem in read.problems]}"
    said = copy.deepcopy(kubelet).admit(pod)
    gone = sorted(read.state.pod_uids - kubelet.active.keys())
    uid = pod["metadata"]["uid"]
    if uid in kubelet.active or scenario["devices"]:
        return ""  # devices of alike pods are chosen at random
    request = resolve(pod_from_json(pod), read.kubelet.rules)
    answered = verdict_to_json(admit(read.kubelet, release_pods(read.state, gone), request).verdict)
    return "" if _core(answered) == _core(said) else f"{answered} instead of {said}"


def _core(answer: Json) -> object:
    """The verdict, its reason, and the CPUs of each container."""
    placed = {name: each["cpus"] for name, each in answer.get("containers", {}).items() if each.get("cpus")}
    return answer["admit"], answer.get("reason") or "", placed if answer["admit"] else {}
