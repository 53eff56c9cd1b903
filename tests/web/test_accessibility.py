"""axe finds nothing to object to, in both themes and at every width; nothing is cut off or moves about."""

import json
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from tests.reports import pod_of

VIEWS = ("#/", "#/nodes/gpu-a", "#/nodes/gpu-b", "#/nodes/plain-a", "#/pod", "#/advice")
WIDTHS = (360, 768, 1100, 1440, 2560)
_SHIFTS = """
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shifted = (window.shifted ?? 0) + entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""
_OPEN_ALL = """
async () => {
  for (const each of document.querySelectorAll("#side details")) each.open = true;
  for (let frame = 0; frame < 2; frame++) await new Promise(requestAnimationFrame);  // tables notice that they scroll
}
"""
_BACKGROUND = "getComputedStyle(document.documentElement).backgroundColor"


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_axe_has_nothing_to_object_to(
    page: Page, demo: str, scheme: Literal["light", "dark"], width: int, asked: str
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(demo)
    for view in VIEWS:
        page.goto(f"{demo}/{view}")
        expect(page.locator("#cluster")).to_contain_text("11 nodes")
        expect(page.locator("#headline")).to_contain_text(asked)
        page.wait_for_load_state("networkidle")
        page.evaluate(_OPEN_ALL)
        found = Axe().run(page)
        assert found.violations_count == 0, f"{view}\n{found.generate_report()}"


@pytest.fixture
def asked(page: Page) -> str:
    """Let the page have been asked about a pod; gives how its answer begins."""
    pod = json.dumps(pod_of(24, "64Gi", devices={"vendor.example/gpu": 4}))
    page.add_init_script(f"sessionStorage.setItem('numa-extender-pod', {json.dumps(pod)})")
    return "Aligned on"


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(page: Page, demo: str, width: int, asked: str) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for view in VIEWS:
        page.goto(f"{demo}/{view}")
        expect(page.locator("#cluster")).to_contain_text("11 nodes")
        expect(page.locator("#headline")).to_contain_text(asked)
        if "nodes" in view:
            expect(page.locator("#side .card").first).to_be_visible()
        assert page.evaluate("document.documentElement.scrollWidth") <= width, view


def test_loading_moves_nothing(page: Page, demo: str) -> None:
    page.add_init_script(_SHIFTS)
    page.goto(f"{demo}/#/nodes/gpu-a")
    expect(page.get_by_role("heading", name="Who holds what")).to_be_visible()
    page.wait_for_load_state("networkidle")

    assert page.evaluate("window.shifted ?? 0") < 0.02


def test_the_theme_follows_the_system_until_it_is_chosen(page: Page, demo: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(demo)
    dark = page.evaluate(_BACKGROUND)

    page.get_by_role("button", name="Use the light theme").click()
    light = page.evaluate(_BACKGROUND)
    page.reload()

    assert light != dark
    assert page.evaluate(_BACKGROUND) == light
    expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()
