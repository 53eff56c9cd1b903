"""The page on paper: the question, its answer and the open section, in light colours and without controls."""

import json

import pytest
from playwright.sync_api import Page, expect

from tests.reports import pod_of

A4_PX = {"width": 720, "height": 1040}


@pytest.mark.parametrize("address", ["nodes/gpu-a", "", "decisions", "audit"])
def test_a_printed_page_is_whole_and_light(page: Page, demo: str, address: str) -> None:
    page.emulate_media(color_scheme="dark")
    page.goto(f"{demo}/#/{address}")
    page.get_by_label("Pod or workload").fill(json.dumps(pod_of(16, "48Gi", name="solver")))
    page.get_by_role("button", name="Where would it run?").click()
    expect(page.locator("#headline")).to_contain_text("Aligned on")

    page.emulate_media(media="print", color_scheme="dark")
    page.set_viewport_size(A4_PX)  # type: ignore[arg-type]

    expect(page.locator("#headline")).to_be_visible()
    expect(page.locator("#manifest")).to_have_value(json.dumps(pod_of(16, "48Gi", name="solver")))
    for control in ("nav", "#filters", "#ask button", "#theme"):
        expect(page.locator(control).first).to_be_hidden()
    assert page.locator("#side").evaluate("(side) => getComputedStyle(side).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("document.documentElement.scrollWidth") <= A4_PX["width"]
    side = page.locator("#side")
    assert side.evaluate("(side) => side.clientHeight >= side.scrollHeight")
    title = {"nodes/gpu-a": "gpu-a", "": "Overview", "decisions": "Decisions", "audit": "Audit"}[address]
    expect(side.get_by_role("heading", name=title, exact=True)).to_be_visible()
    expect(page.locator("#list")).to_be_visible(visible=not address)


def test_without_a_question_there_is_none_on_paper(page: Page, demo: str) -> None:
    page.goto(f"{demo}/#/audit")
    expect(page.get_by_text("0 predictions")).to_be_visible()
    page.emulate_media(media="print")
    expect(page.locator("#pod-pane")).to_be_hidden()
    expect(page.get_by_text("0 predictions")).to_be_visible()
