"""Devices of nodes with the NRI policy: their NUMA nodes are hints for the pool."""

from collections.abc import Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.kubelet.verdict import Certainty
from tests.nri_samples import CONFIG, nri_report, placed_pod
from tests.world.clock import Clock

GPU = "vendor.example/gpu"
BUSY = [placed_pod("a", "2", "1Gi"), placed_pod("b", "4", "1Gi")]
"""Socket #0 has less left: without a hint the next container goes to socket #1."""


@pytest.fixture
def client() -> Iterator[TestClient]:
    service = make_service(Settings(question_workers=0, max_body_bytes=8 << 20), Clock())
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield client


def put(client: TestClient, **changes: Any) -> None:
    report = nri_report("node-a", BUSY, devices={GPU: [0, 0]}, **changes)
    client.put("/v1/nodes/node-a/report", json=report).raise_for_status()


def with_gpu(cpu: str = "3", **annotations: str) -> dict[str, Any]:
    pod = placed_pod(
        "new", cpu, "1Gi", annotations={f"{key}.resource-policy.nri.io": v for key, v in annotations.items()}
    )
    pod["spec"]["containers"][0]["resources"]["limits"][GPU] = "1"
    return pod


def asked(client: TestClient, pod: dict[str, Any]) -> dict[str, Any]:
    reply = client.post("/v1/what-if", json={"pod": pod, "explain": True})
    assert reply.status_code == 200, reply.text
    (answer,) = reply.json()["nodes"]
    return dict(answer)


def pool(answer: dict[str, Any]) -> str:
    (placed,) = answer["verdict"]["nri"]
    return str(placed["pool"])


@pytest.mark.parametrize("agent", [{}, {"agent": {"podResourceAPI": True}}])
def test_the_pool_is_the_one_of_the_device(client: TestClient, agent: dict[str, Any]) -> None:
    """Seen red: the pool without a hint."""
    put(client, config={**CONFIG, **agent})
    plain = placed_pod("new", "3", "1Gi")

    hinted = asked(client, with_gpu())

    assert pool(asked(client, plain)) == "socket #1"
    assert pool(hinted) == "socket #0"
    assert hinted["certainty"] == Certainty.POSSIBLE
    assert any("its devices are assumed to be on the NUMA nodes" in text for text in hinted["verdict"]["caveats"])
    (step,) = [step for step in hinted["explanation"]["steps"] if step["step"] == "pools"]
    assert [(row["pool"], row["hint_score"], row["lost_by"]) for row in step["pools"]] == [
        ("socket #0", 1.0, ""), ("root", 1.0, "depth"), ("socket #1", 0.0, "hints"),
    ]  # fmt: skip


def test_a_pod_that_wants_no_hints_of_devices_gets_none(client: TestClient) -> None:
    put(client)

    assert pool(asked(client, with_gpu(topologyhints="false"))) == "socket #1"
    assert pool(asked(client, with_gpu(topologyhints="pod-resources"))) == "socket #1"
    assert pool(asked(client, with_gpu(topologyhints="devices"))) == "socket #0"


def test_a_pod_is_refused_only_if_it_is_refused_without_the_hint_as_well(client: TestClient) -> None:
    """Strict hints allow only the CPUs of the device's socket, and 13 of them are not left there."""
    put(client)
    strict = {"strict.topologyhints": "true"}

    answer = asked(client, with_gpu("13", **strict))

    assert answer["passes"]
    assert answer["certainty"] == Certainty.POSSIBLE
    assert not asked(client, with_gpu("31"))["passes"]
