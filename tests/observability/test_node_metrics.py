"""GET /metrics/nodes: what is free on each NUMA node, for a limited number of nodes."""

from http import HTTPStatus

import pytest
from fastapi.testclient import TestClient
from prometheus_client.parser import text_string_to_metric_families

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.questions.free_room import unusable_share
from tests.reports import report_of, sample
from tests.world.exporters import report_all

Samples = dict[tuple[str, ...], float]


def scrape(limit: int, *names: str) -> dict[str, Samples]:
    """The samples by family and values of labels, in the order of the labels' names.

    Each node has 2 NUMA nodes of 16 CPUs.
    """
    with TestClient(make_app(make_service(Settings(node_metrics=limit))), client=("127.0.0.1", 50_000)) as client:
        report_all(client, *(report_of(sample(name)) for name in names))
        reply = client.get("/metrics/nodes")
        assert reply.status_code == HTTPStatus.OK, reply.text
    families = text_string_to_metric_families(reply.text)
    return {
        family.name.removeprefix("numa_extender_node_"): {tuple(s.labels.values()): s.value for s in family.samples}
        for family in families
    }


def test_free_resources_by_numa_node() -> None:
    found = scrape(10, "node-a")

    free = found["free_cpus"]
    assert set(free) == {("node-a", "0"), ("node-a", "1")}
    assert found["largest_aligned_cpus"] == {("node-a",): max(free.values())}
    assert all(value > 1 << 30 for (_, _, kind), value in found["free_memory_bytes"].items() if kind == "memory")
    expected = {(str(size), "node-a"): unusable_share([int(v) for v in free.values()], size) for size in (4, 8, 16)}
    assert found["unusable_cpus_ratio"] == pytest.approx(expected)
    assert found["left_out"] == {(): 0}


def test_nodes_over_the_limit_are_counted_and_not_shown() -> None:
    found = scrape(2, "node-c", "node-a", "node-b")

    assert {node for node, _ in found["free_cpus"]} == {"node-a", "node-b"}
    assert found["left_out"] == {(): 1}


def test_off_by_default() -> None:
    with TestClient(make_app(make_service(Settings())), client=("127.0.0.1", 50_000)) as client:
        reply = client.get("/metrics/nodes")

    assert reply.status_code == HTTPStatus.NOT_FOUND
    assert "NUMA_EXTENDER_NODE_METRICS" in reply.text


@pytest.mark.parametrize(
    ("cpus", "size", "share"),
    [((), 4, 0.0), ((0, 0), 4, 0.0), ((8, 4), 4, 0.0), ((7, 5), 4, 4 / 12), ((3, 3), 4, 1.0), ((15, 1), 16, 1.0)],
)
def test_the_share_that_no_aligned_container_can_use(cpus: tuple[int, ...], size: int, share: float) -> None:
    assert unusable_share(cpus, size) == pytest.approx(share)
