"""Answers to Workloads of Kueue on the page: each state, and places that are held; nothing while the setting is off."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.features.kueue.controller import Answer, Shown
from extender.features.kueue.feature import KueueFeature
from extender.features.kueue.held import WorkloadPlace
from extender.features.kueue.objects import CheckState, Phase, WorkloadHead
from extender.features.kueue.places import FoundPlaces
from extender.identity import EVERYTHING
from extender.scheduling.pod_shape import PodShape
from extender.wire.pods import pod_from_json
from tests.reports import pod_of

MARKUP = "<b>bold</b>"


def shown(name: str, state: CheckState, message: str, seconds: int | None = None, nodes: int = 0) -> Shown:
    shape = PodShape(pod_from_json(pod_of(4)))
    found = FoundPlaces(places=[WorkloadPlace(f"node-{i}", "main", shape, {}) for i in range(nodes)])
    head = WorkloadHead(f"uid-{name}", "team", name, Phase.RESERVED, 0, {})
    return Shown(head, Answer(state, message, seconds, found if nodes else None), 1_800_000_000, name != "unwritten")


@pytest.fixture(scope="module")
def answers() -> Iterator[str]:
    """The URL of an extender that has answered four Workloads."""
    service = make_service(Settings(port=0, kueue="on", loopback_scopes=EVERYTHING, question_workers=0))
    (feature,) = [each for each in service.features if isinstance(each, KueueFeature)]
    all_of_them = [
        shown("unwritten", CheckState.REJECTED, "no node of the flavor can ever take a pod"),
        shown("unknown", CheckState.PENDING, "1 no report of the node"),
        shown("waiting", CheckState.RETRY, f"the pods do not fit together now {MARKUP}", 120),
        shown("training", CheckState.READY, "6 pods have places on 6 nodes", None, 6),
    ]
    ready = all_of_them[-1]
    assert ready.answer.found is not None
    feature.held.hold(ready.head, 0, service.clock() + 90, ready.answer.found.places)
    feature.controller = SimpleNamespace(shown={each.head.uid: each for each in all_of_them})  # type: ignore[assignment]
    with serving(service) as url:
        yield url


def test_each_answer_is_shown(page: Page, answers: str) -> None:
    page.goto(answers)
    page.get_by_role("link", name="Kueue").click()
    items = page.get_by_role("list", name="Workloads").get_by_role("listitem")
    expect(items).to_have_count(4)
    expect(page.get_by_text("NUMA_EXTENDER_KUEUE is on: 4 Workloads.")).to_be_visible()
    expect(items.nth(0)).to_contain_text("Places: node-0 (1), node-1 (1), node-2 (1), node-3 (1) and 2 more nodes")
    expect(items.nth(0)).to_contain_text("Places are held for")
    expect(items.nth(1)).to_contain_text(f"the pods do not fit together now {MARKUP}")
    expect(items.nth(1)).to_contain_text("Kueue tries again after 120 s.")
    expect(items.nth(3)).to_contain_text("not written")


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1440)])
def test_everybody_can_read_the_answers(page: Page, answers: str, scheme: Literal["light", "dark"], width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{answers}/#/kueue")
    expect(page.get_by_role("link", name="Kueue")).to_have_attribute("aria-current", "page")
    expect(page.get_by_role("list", name="Workloads")).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_there_is_no_link_while_kueue_is_not_answered(page: Page, demo: str) -> None:
    with page.expect_response("**/v1/kueue") as reply:
        page.goto(demo)
    assert reply.value.json()["mode"] == "off"
    expect(page.get_by_role("link", name="Kueue")).to_have_count(0)
