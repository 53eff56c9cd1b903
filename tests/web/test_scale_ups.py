"""Requests for nodes on the page: those of a dry run and others; nothing of it while the setting is off."""

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Page, expect

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.features.autoscaling.cluster_autoscaler import request_of
from extender.features.autoscaling.documents import Record, template_of
from extender.features.autoscaling.feature import AutoscalingFeature
from extender.features.autoscaling.pools import NodePool
from extender.identity import EVERYTHING
from extender.kube.objects import ObjectName
from tests.reports import pod_of

MARKUP = "<b>bold</b>"
LINK = "Scale-ups"


def record(name: str, pods: int, ended: str = "", guarded: tuple[str, ...] = ()) -> Record:
    return Record(
        namespace="team",
        name=name,
        pods=tuple(ObjectName(f"uid-{i}", "team", f"{name}-{i}") for i in range(pods)),
        pools=(NodePool("cloud.google.com/gke-nodepool", "big"), NodePool("cloud.google.com/gke-nodepool", MARKUP)),
        nodes=-(-pods // 2),
        refused_on=("old-a", "old-b"),
        since=1_800_000_000,
        ended=ended,
        guarded=guarded,
    )


@pytest.fixture(scope="module")
def scale_ups() -> Iterator[str]:
    """The URL of an extender with requests in three states."""
    service = make_service(Settings(port=0, autoscaling="dry-run", loopback_scopes=EVERYTHING, question_workers=0))
    (feature,) = [each for each in service.features if isinstance(each, AutoscalingFeature)]
    proposed = record("training", 6)
    objects = template_of(proposed, pod_of(6), proposed.refused_on), request_of(proposed)
    shown = [
        (record("asked", 1), "CapacityIsNotFound", ()),
        (record("placed", 2, "placed", ("uid-0",)), "CapacityIsProvisioned", ()),
        (proposed, "proposed", objects),
    ]
    feature._controller = SimpleNamespace(shown=shown)  # type: ignore[assignment]
    with serving(service) as url:
        yield url


def test_requests_are_shown_with_what_became_of_them(page: Page, scale_ups: str) -> None:
    page.goto(scale_ups)
    page.get_by_role("link", name=LINK).click()
    items = page.get_by_role("list", name="Requests for nodes").get_by_role("listitem")
    expect(items).to_have_count(3)
    expect(page.get_by_text("NUMA_EXTENDER_AUTOSCALING is dry-run: 3 requests, 5 nodes.")).to_be_visible()
    expect(items.nth(0)).to_contain_text("The autoscaler says CapacityIsNotFound")
    expect(items.nth(1)).to_contain_text("1 node for 2 pods: team/placed-0, team/placed-1")
    expect(items.nth(1)).to_contain_text("1 pod must not be moved by the autoscaler.")
    expect(items.nth(2)).to_contain_text("3 nodes for 6 pods")
    expect(items.nth(2)).to_contain_text("team/training-3 and 2 more")
    expect(items.nth(2)).to_contain_text(f"gke-nodepool={MARKUP}")

    objects = page.get_by_role("group", name="2 objects that would be created")
    expect(objects).to_be_hidden()
    page.get_by_text("2 objects that would be created").click()
    expect(objects).to_contain_text("ProvisioningRequest")
    with page.expect_response("**/v1/scale-ups"):  # it stays open when the list is drawn again
        pass
    expect(objects).to_contain_text('"count": 3')


@pytest.mark.parametrize(("scheme", "width"), [("light", 390), ("dark", 1440)])
def test_everybody_can_read_them(page: Page, scale_ups: str, scheme: Literal["light", "dark"], width: int) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{scale_ups}/#/scale-ups")
    page.get_by_text("2 objects that would be created").click()
    expect(page.get_by_role("link", name=LINK)).to_have_attribute("aria-current", "page")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("side.scrollWidth <= side.clientWidth")  # long lines of objects scroll in their own frame
    found = Axe().run(page)
    assert found.violations_count == 0, found.generate_report()


def test_there_is_no_link_while_nothing_is_asked_for(page: Page, demo: str) -> None:
    with page.expect_response("**/v1/scale-ups") as reply:
        page.goto(demo)
    assert reply.value.json()["mode"] == "off"
    expect(page.locator("#cluster")).to_contain_text("11 nodes")
    expect(page.get_by_role("link", name=LINK)).to_have_count(0)
