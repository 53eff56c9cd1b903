"""axe finds nothing to object to, in both themes and at every width; nothing is cut off or moves about."""

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

VIEWS = ("#/", "#/nodes/gpu-b", "#/nodes/epyc-nps4-b", "#/nodes/plain-a", "#/pod", "#/decisions")
WIDTHS = (360, 768, 1100, 1440, 2560)
_SHIFTS = """
new PerformanceObserver((list) => {
  for (const entry of list.getEntries()) window.shifted = (window.shifted ?? 0) + entry.value;
}).observe({ type: "layout-shift", buffered: true });
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 1440])
def test_axe_has_nothing_to_object_to(browser: Browser, demo: str, scheme: str, width: int) -> None:
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    page = context.new_page()
    for view in VIEWS:
        page.goto(f"{demo}/{view}")
        expect(page.locator("#cluster")).to_contain_text("11 nodes")
        page.wait_for_load_state("networkidle")
        found = Axe().run(page)
        assert found.violations_count == 0, f"{view}\n{found.generate_report()}"
    context.close()


@pytest.mark.parametrize("width", WIDTHS)
def test_nothing_is_wider_than_the_window(page: Page, demo: str, width: int) -> None:
    page.set_viewport_size({"width": width, "height": 800})
    for view in VIEWS:
        page.goto(f"{demo}/{view}")
        expect(page.locator("#cluster")).to_contain_text("11 nodes")
        page.wait_for_load_state("networkidle")
        too_wide = page.evaluate("document.documentElement.scrollWidth > innerWidth")
        assert not too_wide, view


def test_loading_moves_nothing(page: Page, demo: str) -> None:
    page.add_init_script(_SHIFTS)
    page.goto(f"{demo}/#/nodes/gpu-a")
    expect(page.get_by_role("heading", name="Who holds what")).to_be_visible()
    page.wait_for_load_state("networkidle")

    assert page.evaluate("window.shifted ?? 0") < 0.02


def test_the_theme_follows_the_system_until_it_is_chosen(page: Page, demo: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(demo)
    dark = page.evaluate(
        "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.documentElement).backgroundColor"
    )

    page.get_by_role("button", name="Use the light theme").click()
    light = page.evaluate(
        "getComputedStyle(document.body).backgroundColor + getComputedStyle(document.documentElement).backgroundColor"
    )
    page.reload()

    assert light != dark
    expect(page.get_by_role("button", name="Use the dark theme")).to_be_visible()
