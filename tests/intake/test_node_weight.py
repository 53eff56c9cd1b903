"""What one node keeps of others' memory is bounded, however often it changes what it reports. Bytes are counted."""

import gc
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any

import orjson
import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.scheduling.records import decisions
from tests.nri_states import report_with
from tests.reports import args_of, pod_of, report_of, sample
from tests.wire.test_nri_reports import section
from tests.world.clock import Clock

REPORTS = 25


@pytest.fixture
def client() -> Iterator[TestClient]:
    service = make_service(Settings(max_body_bytes=8 << 20, question_workers=0, report_rate=10_000), Clock())
    with TestClient(make_app(service), client=("127.0.0.1", 50_000)) as client:
        yield client


def other_policy(number: int) -> dict[str, Any]:
    """Another configuration of the NRI policy, nearly as large as it may be."""
    nri = section() | {"grants": []}
    nri["config"]["cpuClasses"] = [{"name": f"{number}-{i}-{'x' * 200}"} for i in range(280)]
    return report_with(nri, "hostile", number)


def other_machine(number: int) -> dict[str, Any]:
    """Another kubelet, on another machine of 2,048 CPUs."""
    report = report_of(sample(), sequence=number) | {"node_name": "hostile"}
    machine = report["machine"]
    cpus = [[i, i, 0, i % 2, i // 2] for i in range(2048)]
    numa = [each | {"hugepages": {"2Mi": number}} for each in machine["numa"]]
    return report | {"machine": {"cpus": cpus, "numa": numa, "num_sockets": 1}}


def other_devices(number: int) -> dict[str, Any]:
    """Other devices, of 500 kinds."""
    report = report_of(sample(), sequence=number) | {"node_name": "hostile"}
    listed = [
        {"id": f"{number}-{i}", "healthy": True, "numa": [n for n in range(10) if i >> n & 1]}
        for i in range(1, 500 + number)
    ]
    return report | {"devices": {"vendor.example/gpu": listed}}


def put(client: TestClient, report: dict[str, Any]) -> None:
    name = report["node_name"]
    answer = client.put(f"/v1/nodes/{name}/report", content=orjson.dumps(report))
    assert answer.status_code == 200, answer.text
    assert answer.json()["certainty"] in ("exact", "possible"), answer.text
    pod = pod_of(2, name=f"p{report['sequence']}", devices={"vendor.example/gpu": report["sequence"]})
    assert client.post("/scheduler/filter", json=args_of(pod, name)).status_code == 200


@pytest.mark.parametrize("other", [other_policy, other_machine, other_devices])
def test_a_node_that_reports_something_else_each_time_takes_no_more_memory(
    client: TestClient, monkeypatch: pytest.MonkeyPatch, other: Callable[[int], dict[str, Any]]
) -> None:
    """A filter call comes between the reports, so that every class of the node is judged and in a recorded decision.

    Seen red: 12 MiB a report with configurations of 1 MB, which caches by count kept; 130 of them took 1.6 GiB. Less
    than 0.2 MiB a report would not be seen.
    """
    monkeypatch.setattr(decisions, "MAX_RETIRED_BYTES", 1 << 20, raising=False)
    bodies = [other(i) for i in range(1, REPORTS + 6)]
    for body in bodies[:5]:
        put(client, body)
    gc.collect()
    tracemalloc.start()
    try:
        for body in bodies[5:]:
            put(client, body)
        gc.collect()
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept < 5 << 20, "what recorded decisions and the caches of small results may keep"
