"""Advice on the page: each question is asked, answered and readable, on a screen and on a phone."""

import os
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, Route, expect

from tests.waiting import PATIENCE_SECONDS

SOLVER = (Path(__file__).parents[2] / "docs/examples/solver.yaml").read_text()
PICTURES = os.environ.get("NUMA_PICTURES", "")
"""A folder for screenshots, to look at."""
ANSWER_MS = 1000 * PATIENCE_SECONDS
CASES = {
    "Restart or reconfigure a kubelet": (
        {"node": "quad-a", "settings": "cpuManagerPolicyOptions.full-pcpus-only=true"},
        "12 of 12 pods would fail",
    ),
    "Make room for a pod": (
        {"pod": SOLVER, "node": "xeon-b"},
        "1 eviction can open an aligned place",
    ),
    "Defragment the cluster": ({"pod": SOLVER, "max_moves": "2"}, "2 moves would make room for 4 more aligned pods"),
    "Resize a pod in place": ({"target": "demo/worker-0", "cpu": "12"}, "infeasible"),
    "Compare kubelet configurations": ({"configurations": "12"}, "pods on 11 nodes"),
    "Find requests that just miss a boundary": ({}, "suggestions for 10 shapes of pods"),
}


def _ask(page: Page, question: str) -> None:
    fields, _ = CASES[question]
    page.get_by_label("Question").select_option(label=question)
    for name, value in fields.items():
        control = page.locator(f".advice [name={name}]")
        if control.evaluate("each => each.localName") == "select":
            control.select_option(value)
        else:
            control.fill(value)
    with page.expect_event("requestfinished", lambda each: "/v1/advice/" in each.url, timeout=ANSWER_MS):
        page.get_by_role("button", name="Replay").click()


@pytest.mark.parametrize("question", CASES)
def test_every_question_is_answered_and_fits(page: Page, demo: str, question: str) -> None:
    """The answer is asked for once, and looked at on both."""
    page.goto(f"{demo}/#/advice")
    expect(page.locator("#cluster")).to_contain_text("11 nodes")
    _ask(page, question)
    for width in (390, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        expect(page.locator(".advice-result")).to_contain_text(CASES[question][1])
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        found = Axe().run(page)
        assert found.violations_count == 0, found.generate_report()
        if PICTURES:
            for scheme in ("light", "dark"):
                page.emulate_media(color_scheme=scheme)
                page.screenshot(
                    path=f"{PICTURES}/{width}-{question.split(maxsplit=1)[0].lower()}-{scheme}.png", full_page=True
                )


def test_a_mistake_names_the_field(page: Page, demo: str) -> None:
    page.goto(f"{demo}/#/advice")
    expect(page.locator("#cluster")).to_contain_text("11 nodes")
    page.get_by_label("Kubelet version afterwards").fill("v1.9")
    page.get_by_role("button", name="Replay").click()

    expect(page.locator(".advice .error")).to_contain_text("kubelet_version")


def test_a_long_replay_can_be_cancelled(page: Page, demo: str) -> None:
    """The answer is held back until after the cancellation."""
    held: list[Route] = []
    page.route("**/v1/advice/tune", lambda route: held.append(route))  # noqa: PLW0108 - playwright marks its handler
    page.goto(f"{demo}/#/advice")
    expect(page.locator("#cluster")).to_contain_text("11 nodes")
    page.get_by_label("Question").select_option(label="Compare kubelet configurations")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("progressbar", name="Progress of the replay")).to_be_visible()
    page.get_by_role("button", name="Cancel").click()

    expect(page.locator(".advice .error")).to_have_text("Cancelled.")
    expect(page.get_by_role("button", name="Replay")).to_be_enabled()
    for route in held:
        route.abort()
