"""The whole page without a mouse."""

import json

from playwright.sync_api import Locator, Page, expect

from tests.reports import pod_of


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


def test_a_pod_is_asked_about_and_its_answer_read(page: Page, demo: str) -> None:
    page.goto(demo)
    expect(page.locator("#count")).to_have_text("11 nodes")

    page.get_by_label("Pod or workload").focus()
    page.keyboard.insert_text(json.dumps(pod_of(24, "64Gi", devices={"vendor.example/gpu": 4})))
    page.keyboard.press("Control+Enter")
    expect(page.get_by_role("status").filter(has_text="Aligned on")).to_have_text("Aligned on 1 of 11 nodes")
    _tab_to(page, "the pod is aligned")
    page.keyboard.press("Enter")
    expect(page.locator("#count")).to_have_text("1 of 11 nodes")
    expect(_focused(page)).to_contain_text("the pod is aligned")
    _tab_to(page, "gpu-a")
    page.keyboard.press("Enter")

    expect(page.get_by_role("region", name="Node gpu-a")).to_be_focused()
    expect(page.get_by_role("status").filter(has_text="gpu-a")).to_have_text("gpu-a: The pod would be aligned here")
    _tab_to(page, "How the kubelet decides")
    page.keyboard.press("Enter")
    expect(page.get_by_role("table", name="Hints of each manager")).to_be_visible()


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


def _tab_to(page: Page, text: str) -> None:
    for _ in range(30):
        page.keyboard.press("Tab")
        if text in _focused(page).inner_text():
            return
    raise AssertionError(f"{text} is not reached")


def _focused(page: Page) -> Locator:
    return page.locator(":focus")
