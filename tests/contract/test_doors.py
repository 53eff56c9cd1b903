"""The same verdict through every door: what the replay says, what filter does, what-if and a decision tell."""

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.node import Observation
from extender.config.settings import Settings
from extender.kubelet.admission import admit, release_pods, start_pod
from extender.kubelet.errors import KubeletConfigError
from extender.kubelet.kubelet import Kubelet
from extender.kubelet.pod import PodRequest
from extender.kubelet.resolve import resolve
from extender.kubelet.startup import initial_state, start
from extender.kubelet.state import ManagerState
from extender.kubelet.verdict import Admitted, Certainty
from extender.wire.pods import pod_from_json
from extender.wire.scenarios import scenario_from_json
from extender.wire.verdicts import verdict_to_json
from tests.replay.vectors import VERSIONS, scenarios
from tests.reports import args_of

SAMPLE = 10
"""Scenarios of each version, evenly spread over the file."""
Json = dict[str, Any]
_SEQUENCES = itertools.count(1)


@pytest.fixture(scope="module")
def doors() -> Iterator[tuple[Service, TestClient]]:
    """One service for all versions: its worker processes take long to start."""
    service = make_service(Settings(question_workers=0))
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield service, client


@pytest.mark.parametrize("version", VERSIONS)
def test_every_door_gives_the_verdict_of_the_replay(doors: tuple[Service, TestClient], version: str) -> None:
    service, client = doors
    compared = 0
    for kubelet, state, pod in _moments(version):
        compared += 1
        sequence = next(_SEQUENCES)
        service.known.nodes.observe(_observation(kubelet, state, sequence), service.clock())
        document = {**pod, "metadata": {**pod["metadata"], "uid": f"asked-{sequence}"}}
        request = resolve(pod_from_json(document), kubelet.rules)
        outcome = admit(kubelet, state, request)
        passes = all(isinstance(o.verdict, Admitted) for o in (outcome, *outcome.alternatives))

        filtered = client.post("/scheduler/filter", json=args_of(document, "n")).json()
        reply = client.post("/v1/what-if", json={"pod": document, "explain": True}).json()
        decision = client.get(f"/v1/pods/asked-{sequence}/decision?node=n").json()["node"]

        (answer,) = reply["nodes"]
        expected = verdict_to_json(outcome.verdict)
        assert _without_additions(answer["verdict"], expected) == expected
        assert (filtered["NodeNames"] == ["n"]) is answer["passes"] is passes, filtered
        assert (answer["explanation"]["first_fault"] is None) is expected["admit"]
        assert decision["passed"] is passes
        if decision["verdict"] is not None:
            assert decision["verdict"]["admit"] is expected["admit"]
        if outcome.verdict.certainty is Certainty.EXACT and not expected["admit"]:
            assert answer["why"] == filtered["FailedAndUnresolvableNodes"]["n"] == decision["reason"]

    assert compared > SAMPLE


def _without_additions(verdict: Json, expected: Json) -> Json:
    """The verdict for people without what it has beyond the kubelet's own: alignment, NUMA nodes, random picks."""
    found = {key: verdict[key] for key in expected}
    for name, placement in expected.get("containers", {}).items():
        found["containers"] = {**found["containers"], name: {k: verdict["containers"][name][k] for k in placement}}
    return found


def _moments(version: str) -> Iterator[tuple[Kubelet, ManagerState, Json]]:
    """Kubelet, state and pod of each admission of the sample; the history follows the first outcome."""
    every = list(scenarios(version))
    for document in every[:: max(1, len(every) // SAMPLE)]:
        scenario = scenario_from_json(document)
        try:
            kubelet = start(scenario.machine, scenario.config)
        except KubeletConfigError:
            continue
        state, admitted = initial_state(kubelet, scenario.devices), dict[str, PodRequest]()
        for step, raw in zip(scenario.steps, document["steps"], strict=True):
            if step.op == "remove":
                state = release_pods(state, (step.uid,))
            elif step.op == "start" and step.uid in admitted:
                state = start_pod(state, admitted[step.uid])
            elif step.pod is not None:
                yield kubelet, state, raw["pod"]
                admitted[step.uid] = resolve(step.pod, kubelet.rules)
                state = admit(kubelet, state, admitted[step.uid]).state


def _observation(kubelet: Kubelet, state: ManagerState, sequence: int) -> Observation:
    return Observation(
        node_name="n",
        boot_id="boot",
        sequence=sequence,
        digest=str(sequence),
        observed_at=0.0,
        kubelet=kubelet,
        state=state,
    )
