"""Nodes with the NRI policy on the page: pools as nested boxes, and the comparison of pools for a pod."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.identity import EVERYTHING
from extender.replay.creation import grants_of
from extender.wire.nrt import counted, published_from_json
from tests.nri_samples import EIGHT, nri_report, placed_pod
from tests.replay.nri.zones import topology_object
from tests.waiting import A_DAY
from tests.web.cluster import report

TWO = [placed_pod("web-0", "4", "6Gi"), placed_pod("web-1", "3", "6Gi"), placed_pod("db", "6500m", "10Gi"),
       placed_pod("batch", "500m", "1Gi", limit=False), placed_pod("logs", "300m", "1Gi", containers=2)]  # fmt: skip
MANY = [
    *(placed_pod(f"web-{i}", "4", "8Gi") for i in range(7)),
    placed_pod("solver", "20", "60Gi"),
    *(placed_pod(f"api-{i}", "700m", "2Gi", limit=False) for i in range(6)),
]
LOOKS = [("light", 1440), ("dark", 390)]


@pytest.fixture(scope="module")
def pools() -> Iterator[str]:
    """Two NUMA nodes, eight, eight with L3 caches and a memory tier, one of published amounts, one of nothing."""
    service = make_service(Settings(port=0, loopback_scopes=EVERYTHING, question_workers=0, stale_after_seconds=A_DAY))
    with serving(service) as url:
        report(
            url,
            nri_report("pools-a", TWO),
            nri_report("pools-b", MANY, hardware=EIGHT),
            nri_report("pools-c", MANY, hardware=EIGHT, caches_per_numa=2, cxl_gib=128, devices={"a/gpu": [0, 0, 5]}),
            nri_report("pools-d", TWO, grants=None),
        )
        record = service.known.nodes.get("pools-b")
        assert record is not None
        assert record.state is not None
        granted = grants_of(record.state)
        assert granted is not None
        value = topology_object(granted.node.books) | {"metadata": {"name": "pools-counted"}}
        counts = counted(published_from_json(value), lambda _: "v1.36.2")
        service.known.nodes.observe_counts(counts, service.clock())
        yield url


def _ask(page: Page, cpu: str) -> None:
    document = {"apiVersion": "v1", "kind": "Pod", **placed_pod("new", cpu, "2Gi")}
    page.get_by_label("Pod or workload").fill(json.dumps(document))
    page.get_by_role("button", name="Where would it run?").click()


def test_pools_are_boxes_in_boxes_with_what_is_used(page: Page, pools: str, screenshots: Path) -> None:
    page.goto(f"{pools}/#/nodes/pools-a")
    root = page.get_by_role("region", name="root", exact=True)
    socket = root.get_by_role("region", name="socket #1")

    expect(root.locator("> header")).to_contain_text("15.4 of 30 CPUs left")
    expect(socket.locator("> header")).to_contain_text("of 16 CPUs left")
    expect(root.locator(".inside > .pool")).to_have_count(2)
    expect(socket.locator(".cpu")).to_have_count(16)
    expect(socket.locator(".cpu.held")).to_have_count(4)
    expect(root).to_contain_text("db 6.5 CPUs shared")
    expect(page.get_by_role("group", name="Who holds what")).to_contain_text("team/web-0 / app")

    _ask(page, "3")
    expect(page.locator(".pool.placed")).to_have_count(1)
    expect(page.locator(".cpu.placed-here")).to_have_count(3)
    page.get_by_text("How the node decides").click()
    table = page.get_by_role("group", name="Pools of the NRI policy for container app")
    expect(table.locator("tbody tr").first).to_contain_text("used")
    expect(table).to_contain_text("memory of more NUMA nodes")
    page.set_viewport_size({"width": 1440, "height": 1080})
    page.screenshot(path=screenshots / "pools-light.png", animations="disabled")


def test_a_refused_container_stays_in_create_container_error(page: Page, pools: str) -> None:
    page.goto(f"{pools}/#/nodes/pools-a")
    _ask(page, "20")

    expect(page.locator(".card.now")).to_contain_text("CreateContainerError")
    page.get_by_text("How the node decides").click()
    table = page.get_by_role("group", name="Pools of the NRI policy for container app")
    expect(table.locator("tbody tr").first).to_contain_text("first, and refused")
    expect(table).to_contain_text("CPUs short")


@pytest.mark.parametrize(("theme", "width"), LOOKS)
def test_no_picture_of_pools_is_wider_than_the_screen(page: Page, pools: str, theme: str, width: int) -> None:
    page.emulate_media(color_scheme=theme)  # type: ignore[arg-type]
    page.set_viewport_size({"width": width, "height": 900})
    for name, boxes in (("pools-a", 3), ("pools-b", 11), ("pools-c", 27), ("pools-counted", 11)):
        page.goto(f"{pools}/#/nodes/{name}")
        expect(page.get_by_role("heading", name=name)).to_be_visible()
        expect(page.locator(".pool")).to_have_count(boxes)
        wide = page.locator(".pools .pool").evaluate_all(
            "all => all.filter((e) => e.scrollWidth > e.clientWidth).length"
        )
        assert wide == 0, name
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth"), name
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_devices_are_drawn_once_at_the_pool_that_has_their_numa_node(page: Page, pools: str) -> None:
    page.goto(f"{pools}/#/nodes/pools-c")

    expect(page.locator(".pools .device")).to_have_count(3)
    expect(page.get_by_role("region", name="NUMA node #5", exact=True).locator("> .boxes .device")).to_have_count(1)


def test_what_is_not_known_is_said(page: Page, pools: str) -> None:
    page.goto(f"{pools}/#/nodes/pools-counted")
    expect(page.locator(".pool").first).to_contain_text("CPUs left")
    expect(page.locator(".side-pane")).to_contain_text("Only the amounts that its plugin publishes are known")
    expect(page.locator(".side-pane")).to_contain_text("Which containers hold what is not known")
    expect(page.locator(".side-pane .facts")).to_contain_text("degraded")

    page.goto(f"{pools}/#/nodes/pools-d")
    expect(page.locator(".side-pane")).to_contain_text("Its pools are not known")
    _ask(page, "3")
    expect(page.locator(".card.unsure")).to_contain_text("Whether the NRI policy of the node")


def test_tiles_show_the_pools_and_what_the_root_has_left(page: Page, pools: str) -> None:
    page.goto(f"{pools}/#/?show=tiles")
    tile = page.locator(".tile", has_text="pools-a")

    expect(tile).to_contain_text("NRI topology-aware")
    expect(tile).to_contain_text("15.4 of 30 CPUs left")
    expect(tile.locator("canvas[data-drawn=exact]")).to_be_visible()
    expect(page.locator(".tile", has_text="pools-counted")).to_contain_text("of 126 CPUs left")
    expect(page.locator(".tile", has_text="pools-d")).to_contain_text("grants unknown")
