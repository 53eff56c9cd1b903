"""The audit on the page, the question in the address, and what is shown when the service is gone or refuses."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import BrowserContext, Page, expect

from extender.app import make_service
from extender.cluster.events import PodSeen
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.identity import EVERYTHING
from extender.wire.pods import pod_from_json
from tests.reports import pod_of, report_of, sample
from tests.waiting import A_DAY
from tests.web.cluster import report
from tests.world.kubelet import Kubelet

DISTRIBUTES: dict[str, Any] = {"cpuManagerPolicyOptions": {"distribute-cpus-across-numa": "true"}}


@pytest.fixture(scope="module")
def audited() -> Iterator[str]:
    """The URL of an extender: two kubelets do as predicted, one packs CPUs although its report says otherwise."""
    service = make_service(Settings(port=0, stale_after_seconds=A_DAY, loopback_scopes=EVERYTHING, question_workers=0))
    kubelets = [
        Kubelet.of(sample(name, topologyManagerPolicy="best-effort", version=version))
        for name, version in (("agrees", "v1.36.2"), ("agrees-too", "v1.34.9"), ("differs", "v1.36.2"))
    ]
    kubelets[-1].machine = report_of(sample("differs", topologyManagerPolicy="best-effort", **DISTRIBUTES))
    with serving(service) as url:
        for kubelet in kubelets:
            pod = pod_of(20, name=f"on-{kubelet.name}")
            report(url, kubelet.report())
            service.known.nodes.apply(PodSeen(kubelet.name, pod_from_json(pod), started=False), now=service.clock())
            kubelet.admit(pod)
            report(url, kubelet.report())
        yield url


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1440])
def test_the_audit_shows_counts_by_kubelet_and_both_placements(
    page: Page, audited: str, scheme: Literal["light", "dark"], width: int, screenshots: Path
) -> None:
    page.emulate_media(color_scheme=scheme)
    page.set_viewport_size({"width": width, "height": 900})
    page.goto(f"{audited}/#/audit")
    rows = page.get_by_role("group", name="Predictions by kubelet").locator("tbody tr")
    expect(rows).to_have_count(2)
    expect(page.get_by_text("3 predictions")).to_be_visible()
    assert {tuple(row.split()[:5]) for row in rows.all_inner_texts()} == {
        ("1.34", "best-effort/container", "exact", "1", "0"),
        ("1.36", "best-effort/container", "exact", "1", "1"),
    }
    (wrong,) = page.get_by_role("list", name="Wrong predictions, the newest first").get_by_role("listitem").all()
    expect(wrong).to_contain_text("default/on-differs")
    predicted, reported = wrong.locator("dd").all_inner_texts()
    assert predicted != reported
    assert "CPUs" in predicted
    assert "CPUs" in reported
    assert Axe().run(page).violations_count == 0
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    page.screenshot(path=screenshots / f"audit-{width}-{scheme}.png")
    wrong.get_by_role("link", name="differs").click()
    expect(page.get_by_role("heading", name="differs", exact=True)).to_be_visible()


def _ask(page: Page, text: str) -> None:
    page.get_by_label("Pod or workload").fill(text)
    page.get_by_role("button", name="Where would it run?").click()


def test_the_address_has_the_question_and_a_colleague_gets_its_answer(
    page: Page, context: BrowserContext, demo: str
) -> None:
    pod = json.dumps(pod_of(4, name="sent"))
    page.goto(demo)
    _ask(page, pod)
    expect(page.locator("#headline")).to_contain_text("Aligned on")
    page.get_by_label("Search nodes by name").fill("xeon")
    page.evaluate("location.hash = '#/nodes/xeon-a'")
    expect(page.get_by_role("heading", name="xeon-a", exact=True)).to_be_visible()
    page.wait_for_function("location.hash.includes('ask=')")

    other = context.new_page()
    other.goto(page.url)

    expect(other.locator("#headline")).to_contain_text("Aligned on")
    expect(other.locator("#answer")).to_contain_text("Pod default/sent")
    expect(other.get_by_role("heading", name="xeon-a", exact=True)).to_be_visible()
    page.get_by_role("button", name="Clear").click()
    assert "ask=" not in page.url


def test_no_answer_is_left_below_the_error_of_another_question(page: Page, demo: str) -> None:
    page.goto(demo)
    _ask(page, json.dumps(pod_of(4)))
    expect(page.locator("#headline")).to_contain_text("Aligned on")

    _ask(page, "spec: {containers: [{name: a, resources: {limits: {cpu: x}}}]}")

    expect(page.locator("#ask-error")).to_contain_text("'x' is not a quantity")
    expect(page.locator("#headline")).to_be_empty()
    expect(page.locator("#answer")).to_be_empty()


def test_a_service_that_is_gone_is_seen_at_once_and_until_it_is_back(page: Page, demo: str, screenshots: Path) -> None:
    page.goto(f"{demo}/#/nodes/xeon-a")
    expect(page.get_by_role("heading", name="xeon-a", exact=True)).to_be_visible()
    expect(page.locator("#away")).to_be_empty()

    page.route("**/v1/**", lambda route: route.abort())

    expect(page.locator("#away")).to_contain_text("The service has not answered since", timeout=10_000)
    assert "grayscale" in page.locator("#side").evaluate("(side) => getComputedStyle(side).filter")
    page.screenshot(path=screenshots / "away.png")
    page.unroute("**/v1/**")
    expect(page.locator("#away")).to_be_empty(timeout=10_000)


def test_a_section_that_cannot_be_loaded_says_so(page: Page, demo: str) -> None:
    page.route("**/web/js/shapes.js", lambda route: route.abort())
    page.goto(demo)

    page.get_by_role("link", name="Shapes", exact=True).click()
    expect(page.get_by_text("This section cannot be loaded.")).to_be_visible()

    page.get_by_role("link", name="Audit", exact=True).click()
    expect(page.get_by_text("0 predictions")).to_be_visible()
