"""The whole page without a mouse."""

from playwright.sync_api import Locator, Page, expect


def test_nodes_are_reached_moved_over_opened_and_left(page: Page, demo: str) -> None:
    page.goto(demo)
    expect(page.locator("#count")).to_have_text("11 nodes")

    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the nodes")).to_be_focused()
    page.keyboard.press("Enter")
    expect(_focused(page)).to_contain_text("arm-a")

    page.keyboard.press("ArrowDown")
    expect(_focused(page)).to_contain_text("cache-a")
    page.keyboard.press("End")
    expect(_focused(page)).to_contain_text("xeon-c")
    page.keyboard.press("ArrowUp")
    page.keyboard.press("Enter")

    expect(page.get_by_role("heading", name="xeon-b")).to_be_visible()
    expect(page.get_by_role("region", name="Node xeon-b")).to_be_focused()
    page.keyboard.press("Escape")
    expect(_focused(page)).to_contain_text("xeon-b")
    assert page.url.endswith("#/")


def test_filtering_and_going_back_need_no_mouse(page: Page, demo: str) -> None:
    page.goto(demo)
    page.get_by_label("Search nodes by name").focus()

    page.keyboard.type("gpu")
    expect(page.locator("#count")).to_have_text("2 of 11 nodes")
    assert page.url.endswith("?q=gpu")
    page.reload()
    expect(page.locator("#count")).to_have_text("2 of 11 nodes")
    page.get_by_label("Search nodes by name").fill("no such node")
    expect(page.locator("#count")).to_have_text("0 of 11 nodes")
    page.get_by_role("button", name="Reset").press("Enter")

    expect(page.locator("#count")).to_have_text("11 nodes")
    expect(page.get_by_label("Search nodes by name")).to_be_focused()


def test_focus_is_always_seen(page: Page, demo: str) -> None:
    page.goto(f"{demo}/#/nodes/gpu-b")
    expect(page.get_by_role("heading", name="Who holds what")).to_be_visible()
    page.locator("body").press("Tab")

    seen = set[str]()
    for _ in range(40):
        page.keyboard.press("Tab")
        name, outline = page.evaluate("(e => [e.tagName, getComputedStyle(e).outlineStyle])(document.activeElement)")
        if name == "BODY":
            break
        assert outline != "none", name
        seen.add(name)

    assert {"A", "BUTTON", "INPUT", "SELECT", "TEXTAREA", "SUMMARY"} <= seen


def _focused(page: Page) -> Locator:
    return page.locator(":focus")
