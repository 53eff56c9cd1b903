"""The map of the whole cluster: one cell a node, what the cells say, and the way from the map to a node."""

import json
import re
from pathlib import Path
from typing import Any

import httpx
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from tests.reports import pod_of
from tests.web.conftest import LARGE, MEDIUM

POD = pod_of(16, "48Gi", name="solver")
MAX_BYTES = 635_000
"""Of the page and everything that it fetches to draw 5,000 nodes; about 220 kB are the files of the page."""
LATER = ("advice", "adviceanswers", "audit", "kueue", "scaleups", "shapes")
"""Files of sections, which are loaded when a section is opened."""
_DRAWN = """
() => new Promise((resolve) => {
  const look = () => {
    const reply = performance.getEntriesByType("resource").find((each) => each.name.endsWith("/v1/map"));
    if (document.querySelectorAll("#cluster-map .cell").length < 5000) requestAnimationFrame(look);
    else requestAnimationFrame(() => resolve(performance.now() - reply.responseEnd));
  };
  look();
})
"""
_LOOKS = """
() => [...document.querySelectorAll("#keys .cell")].map((cell) => {
  const { backgroundImage, backgroundColor, boxShadow } = getComputedStyle(cell);
  return `${backgroundImage} ${backgroundColor} ${boxShadow}`;
})
"""
_COLOUR = re.compile(r"(rgba?|oklab|color)\([^)]*\)")


def test_five_thousand_nodes_are_on_one_screen(page: Page, large: str) -> None:
    sizes: list[int] = []
    urls: list[str] = []
    page.on("response", lambda reply: sizes.append(int(reply.headers.get("content-length", 0))))
    page.on("response", lambda reply: urls.append(reply.url))
    page.goto(large, wait_until="commit")
    drawn = page.evaluate(_DRAWN)

    expect(page.locator("#count")).to_have_text("5,000 nodes")
    assert page.locator("#cluster-map .cell").count() == LARGE
    box = page.locator("#cluster-map").evaluate("e => [e.scrollHeight, e.clientHeight, e.scrollWidth, e.clientWidth]")
    pitch = page.locator(".board").evaluate("e => parseInt(e.style.getPropertyValue('--pitch'))")
    print(f"5,000 nodes: {sum(sizes)} bytes, drawn {drawn:.0f} ms after the reply, cells of {pitch} px")
    assert box[0] <= box[1]
    assert box[2] <= box[3]
    assert pitch >= 10
    assert sum(sizes) < MAX_BYTES
    assert not [name for name in LATER if f"{large}/web/js/{name}.js" in urls]


def test_the_legend_counts_what_the_service_answers(page: Page, large: str, screenshots: Path) -> None:
    page.goto(large)
    summary = _ask(page, large)

    legend = page.get_by_role("group", name="Legend")
    expect(legend).to_contain_text(f"aligned {summary['aligned']:,}")
    expect(legend).to_contain_text(f"split {summary['split']:,}")
    expect(legend).to_contain_text(f"not managed {summary['not_managed']:,}")
    assert page.locator("#cluster-map .cell.yes").count() == summary["aligned"]
    assert page.locator("#cluster-map .cell.split").count() == summary["split"]
    page.screenshot(path=screenshots / "cluster-asked-light.png", animations="disabled")

    legend.get_by_role("button", name="split").click()
    expect(page.locator("#count")).to_have_text(f"{summary['split']} of 5,000 nodes")
    assert page.locator("#cluster-map .cell:not(.off)").count() == summary["split"]
    legend.get_by_role("button", name="split").click()
    expect(page.locator("#cluster-map .cell.off")).to_have_count(0)


def test_cells_differ_without_their_colours(page: Page, medium: str) -> None:
    """A cell of each kind has another shape: the styles differ after every colour is taken out."""
    page.goto(medium)
    expect(page.locator("#cluster-map .cell")).to_have_count(MEDIUM)
    kinds = ["yes", "split", "unmanaged", "now", "never", "unsure", *(f"room-{step}" for step in range(5))]
    page.evaluate(
        """kinds => { const keys = document.getElementById("keys");
        keys.replaceChildren(...kinds.map((kind) => { const cell = document.createElement("i");
        cell.className = `cell ${kind}`; return cell; })); }""",
        kinds,
    )

    shapes = [_COLOUR.sub("colour", look) for look in page.evaluate(_LOOKS)]

    # "room-4" is a full cell as "yes" is; they are never on one map.
    assert len(set(shapes[:6])) == 6, shapes
    assert len(set(shapes[6:])) == 5, shapes


def test_nodes_are_grouped_as_chosen(page: Page, medium: str) -> None:
    page.goto(medium)
    groups = page.locator("#cluster-map .group")
    by = page.get_by_label("Group by")
    expect(by).to_have_value("pool")
    expect(groups.filter(has_text="gpu")).to_contain_text("nodes")
    expect(groups.filter(has_text="no pool label")).to_have_count(1)

    by.select_option(label="hardware and settings")
    expect(groups.filter(has_text="224 CPUs on 2 NUMA, 8 gpu")).to_have_count(1)
    by.select_option(label="instance type")
    expect(groups).to_have_count(1)
    expect(groups).to_contain_text("no instance type label")

    _ask(page, medium)
    by.select_option(label="answer and reason")
    expect(groups.filter(has_text="not now: NUMA alignment is not possible on the node now")).to_have_count(1)
    assert "by=answer" in page.url


def test_from_the_map_to_the_tiles_to_the_node(page: Page, medium: str) -> None:
    page.goto(medium)
    page.get_by_role("button", name="gpu: show as tiles").click()
    count = page.locator("#count")
    expect(count).to_contain_text("of 300 nodes")
    expect(page.locator(".tile").first).to_contain_text("gpu")
    expect(page.locator(".tile").first).to_contain_text("gpu free")
    expect(page.locator(".tile").first).to_contain_text("TiB free")

    page.locator(".tile").first.click()
    expect(page.get_by_role("heading", name="Who holds what")).to_be_visible()
    page.get_by_role("button", name="show all groups").click()
    expect(count).to_have_text("300 nodes")
    page.get_by_role("button", name="Map", exact=True).click()
    expect(page.locator("#cluster-map .cell")).to_have_count(MEDIUM)
    assert page.evaluate("location.hash").startswith("#/?")


def test_the_map_needs_no_mouse(page: Page, medium: str) -> None:
    page.goto(medium)
    cells = page.get_by_role("listbox", name="gpu: nodes")
    expect(cells.get_by_role("option").first).to_have_attribute("tabindex", "0")
    page.get_by_role("button", name="gpu: show as tiles").focus()
    page.keyboard.press("Tab")
    focused = page.locator(":focus")
    expect(focused).to_have_attribute("aria-label", re.compile(r"gpu-a, \d+ CPUs free on one NUMA node"))
    expect(page.locator(".peek .tile")).to_contain_text("gpu-a")

    page.keyboard.press("ArrowRight")
    expect(page.locator(".peek .tile")).to_contain_text("gpu-b")
    page.keyboard.press("End")
    last = page.locator(":focus").get_attribute("data-name")
    assert last == cells.get_by_role("option").last.get_attribute("data-name")
    page.keyboard.press("ArrowUp")
    assert page.locator(":focus").get_attribute("data-name") != last
    page.keyboard.press("Home")
    page.keyboard.press("Enter")
    expect(page.get_by_role("region", name="Node gpu-a")).to_be_focused()
    page.keyboard.press("Escape")
    expect(page.locator(":focus")).to_have_attribute("data-name", "gpu-a")
    expect(cells.locator("[tabindex='0']")).to_have_count(1)


def test_words_are_explained_where_they_are_met(page: Page, medium: str) -> None:
    page.goto(medium)
    page.get_by_text("NUMA node, policy, scope: what they mean").click()

    words = page.locator(".words dl")
    expect(words).to_contain_text("A part of a machine: some CPUs with the memory and the devices that are closest")
    expect(words).to_contain_text("restricted and single-numa-node reject it")
    expect(words).to_contain_text("With container it places each container by itself")


def test_the_map_fits_a_phone(page: Page, large: str) -> None:
    page.set_viewport_size({"width": 390, "height": 844})
    page.goto(large)
    expect(page.locator("#cluster-map .cell")).to_have_count(LARGE)

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    assert page.locator("#cluster-map").evaluate("e => e.scrollWidth <= e.clientWidth")
    page.locator("#cluster-map .cell").last.scroll_into_view_if_needed()
    expect(page.locator("#cluster-map .cell").last).to_be_in_viewport()


def test_axe_has_nothing_to_object_to_on_the_map(page: Page, medium: str) -> None:
    for width, scheme in ((1440, "light"), (1440, "dark"), (390, "light")):
        page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(medium)
        expect(page.locator("#cluster-map .cell")).to_have_count(MEDIUM)
        if width == 1440:
            _ask(page, medium)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{width} {scheme}\n{found.generate_report()}"


def _ask(page: Page, url: str) -> dict[str, Any]:
    """Ask about the pod on the page; gives what the service itself answers."""
    page.get_by_label("Pod or workload").fill(json.dumps(POD))
    page.get_by_role("button", name="Where would it run?").click()
    expect(page.locator("#headline")).to_contain_text("Aligned on")
    reply = httpx.post(f"{url}/v1/what-if", json={"pod": POD}, trust_env=False, timeout=30)
    summary: dict[str, Any] = reply.raise_for_status().json()["summary"]
    return summary


def test_nodes_are_chosen_by_labels_in_the_address(page: Page, large: str) -> None:
    page.goto(f"{large}/#/?labels=karpenter.sh%2Fnodepool%3Dxeon")
    cells = page.locator(".cell[data-name]")
    expect(page.locator("#cluster")).to_contain_text("nodes with karpenter.sh/nodepool=xeon")
    names = [name for name in cells.evaluate_all("all => all.map((each) => each.dataset.name)") if name]
    assert names
    assert all("xeon" in name for name in names)
    field = page.get_by_label("Only nodes with these labels")
    expect(field).to_have_value("karpenter.sh/nodepool=xeon")

    field.fill("a in b")
    field.press("Enter")
    expect(page.locator("#cluster")).to_have_text("Labels: 'a in b' is not a label selector")
    expect(field).to_have_attribute("aria-invalid", "true")

    page.get_by_role("button", name="Reset").click()
    expect(page.locator("#cluster")).to_contain_text("5,000 nodes")
    assert "labels" not in page.url

    field.fill("karpenter.sh/nodepool=xeon")
    field.press("Enter")
    expect(page.locator("#cluster")).to_contain_text("nodes with karpenter.sh/nodepool=xeon")
    box = field.bounding_box()
    assert box
    field.click(position={"x": box["width"] - 14, "y": box["height"] / 2})  # the cross
    expect(field).to_have_value("")
    expect(page.locator("#cluster")).to_contain_text("5,000 nodes")
