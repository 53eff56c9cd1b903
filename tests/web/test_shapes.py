"""Declared shapes on the page: how many could start, since when, and what cannot be read."""

import time
from collections.abc import Iterator
from types import SimpleNamespace

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.features.room.feature import RoomFeature
from extender.features.room.record import MovePlan, PodMove, RoomRecord
from extender.features.shapes.counts import ShapeCount
from extender.features.shapes.feature import ShapesFeature
from extender.identity import EVERYTHING
from extender.questions.shapes import read_shapes

MARKUP = "<b>bold</b>"
ENTRY = "requests: {cpu: 14, memory: 4Gi}\ncopies: 3"


@pytest.fixture(scope="module")
def shapes() -> Iterator[str]:
    """The URL of an extender: a shape lacks copies, one is not counted, and one entry cannot be read."""
    service = make_service(
        Settings(port=0, shapes="on", room="dry-run", loopback_scopes=EVERYTHING, question_workers=0)
    )
    (feature,) = [each for each in service.features if isinstance(each, ShapesFeature)]
    feature.counts.declare(read_shapes({"large": ENTRY, MARKUP: ENTRY, "bad": "copies: none"}))
    now, large = service.clock(), feature.counts.shapes["large"]
    large.count = ShapeCount(at=now - 7, nodes={"a": 2}, pools={"gpu": 2, "other": 0}, fits=2, most=2)
    large.history.extend((now - 300.0 * i, 4 - i % 3) for i in range(20, 0, -1))
    (room,) = [each for each in service.features if isinstance(each, RoomFeature)]
    move = PodMove("team", MARKUP, "uid-0", "uid-1", "old", "new", {"cpu": "8"}, 30, {})
    plan = MovePlan("1", "pod", "ml/training-0", "uid-2", 0, "old", [move], time.time() - 300, "dry_run")
    room.controller = SimpleNamespace(record=RoomRecord(history=[plan]), finding="", movable={"team"})  # type: ignore[assignment]
    with serving(service) as url:
        yield url


def test_shapes_are_shown_with_their_history(page: Page, shapes: str) -> None:
    page.goto(f"{shapes}/#/shapes")
    items = page.get_by_role("list", name="Declared shapes").get_by_role("listitem")
    expect(items).to_have_count(2)
    large = items.filter(has_text="large")
    expect(large).to_contain_text("1 missing")
    expect(large).to_contain_text("2 could start now, 3 must")
    expect(large).to_contain_text("gpu: 2, other: 0")
    expect(large.get_by_role("img")).to_have_attribute(
        "aria-label", "20 earlier counts since 100 min ago: 2 at least, 4 at most"
    )
    expect(items.filter(has_text="not counted yet")).to_contain_text(MARKUP)
    expect(page.get_by_text("bad cannot be read: copies")).to_be_visible()
    expect(page.get_by_text("Dry run · 0 of 6 evictions in the last hour")).to_be_visible()
    (plan,) = page.get_by_role("list", name="Plans").get_by_role("listitem").all_inner_texts()
    assert (
        plan.split() == f"For ml/training-0 dry run on old, began 5 min ago team/{MARKUP}: old to new, planned".split()
    )
    assert Axe().run(page).violations_count == 0


def test_without_shapes_it_says_what_to_do(page: Page, demo: str) -> None:
    page.goto(f"{demo}/#/shapes")
    expect(page.get_by_text("Set NUMA_EXTENDER_SHAPES=on")).to_be_visible()
