"""Names are text, whatever they look like; and what the page does when the service does not do its part."""

import json

import httpx
from playwright.sync_api import Page, Route, expect

from tests.reports import pod_of
from tests.web.cluster import HOSTILE


def test_names_that_are_markup_stay_names(page: Page, hostile: str) -> None:
    page.goto(f"{hostile}/#/nodes/hostile")

    expect(page.get_by_role("heading", name="Who holds what")).to_be_visible()

    assert page.locator("#side").get_by_text(HOSTILE).count() > 0
    assert page.locator("img:not([src^='/web/'])").count() == 0
    assert page.title() == "hostile · numa-extender"


def test_a_name_in_the_address_is_text(page: Page, hostile: str) -> None:
    page.goto(f"{hostile}/#/nodes/%3Cimg src=x onerror=alert(1)%3E?q=%3Cb%3E")

    expect(page.get_by_role("alert").filter(has_text="no report of node")).to_be_visible()

    assert page.locator("img:not([src^='/web/'])").count() == 0


def test_a_manifest_that_is_markup_is_refused_in_words(page: Page, hostile: str) -> None:
    page.goto(hostile)

    page.get_by_label("Pod or workload").fill(HOSTILE)
    page.get_by_role("button", name="Where would it run?").click()

    expect(page.locator("#ask-error")).not_to_be_empty()
    assert page.locator("img:not([src^='/web/'])").count() == 0


def test_a_node_without_a_usable_report_says_so(page: Page, hostile: str) -> None:
    page.goto(f"{hostile}/#/nodes/bare")

    expect(page.get_by_text("Without a usable report there is no map.")).to_be_visible()
    expect(page.get_by_text("unknown: no verdict is possible")).to_be_visible()
    expect(page.get_by_role("table", name="Free, as the node reports")).to_contain_text("7 CPUs of 15 CPUs")
    expect(page.locator(".tile", has_text="bare")).to_contain_text("unknown")


def test_what_is_not_known_is_not_shown_as_free(page: Page, hostile: str) -> None:
    page.goto(hostile)
    expect(page.locator(".problems").get_by_role("listitem").filter(has_text="lost")).to_contain_text("partly unknown")
    page.goto(f"{hostile}/#/nodes/lost")

    expect(page.get_by_text("No verdict for pods that need the cpu or memory manager.")).to_be_visible()
    expect(page.locator("#side")).to_contain_text("partly unknown")
    expect(page.locator("#side")).to_contain_text("What pods hold here is not known.")
    expect(page.locator("#cluster")).to_contain_text("2 not known exactly")
    numa = page.locator(".numa", has_text="NUMA 0")
    expect(numa).to_contain_text("16 CPUs, free ones unknown")
    expect(numa).to_contain_text("memory, what is free is unknown")
    expect(numa.locator(".cpu.shared")).not_to_have_count(0)
    expect(numa.locator(".cpu.free")).to_have_count(0)
    expect(page.get_by_role("table", name="Largest request that one NUMA node could serve")).to_contain_text("\u2013")
    expect(page.get_by_role("list", name="Legend")).to_contain_text("free or held: unknown")
    tile = page.locator(".tile", has_text="lost")
    expect(tile).to_contain_text("32 CPUs, free ones unknown")
    expect(tile).not_to_contain_text("GiB free")


def test_a_service_that_fails_is_told_about(page: Page, hostile: str) -> None:
    def fail(route: Route) -> None:
        route.fulfill(status=500, content_type="text/html", body="<h1>broken</h1>")

    page.route("**/v1/map", fail)
    page.goto(hostile)

    expect(page.locator("#cluster")).to_have_text("The service answered 500.")


def test_who_is_not_known_is_asked_for_a_token(page: Page, hostile: str) -> None:
    shown: list[str | None] = []

    def check(route: Route) -> None:
        shown.append(route.request.headers.get("authorization"))
        if shown[-1] == "Bearer s3cret":
            route.fulfill(json=httpx.get(route.request.url, trust_env=False).json())
        else:
            route.fulfill(status=401, json={"status": 401, "title": "Unauthorized", "detail": "show a token"})

    page.route("**/v1/**", check)
    page.goto(hostile)
    dialog = page.get_by_role("dialog", name="Sign in")
    expect(dialog).to_contain_text("show a token")

    dialog.get_by_label("Token for this extender").fill("s3cret")
    page.keyboard.press("Enter")

    expect(page.locator("#count")).to_have_text("3 nodes")
    expect(dialog).not_to_be_visible()
    assert shown[0] is None


def test_a_service_that_has_no_time_is_asked_again(page: Page, hostile: str) -> None:
    answers = iter([429])

    def busy(route: Route) -> None:
        status = next(answers, None)
        if status is None:
            route.continue_()
        else:
            route.fulfill(status=status, headers={"Retry-After": "1"}, json={"status": status, "detail": "too often"})

    page.route("**/v1/nodes?**", busy)
    page.goto(hostile)

    expect(page.locator("#count")).to_have_text("3 nodes")


def test_a_service_that_is_gone_is_told_about(page: Page, hostile: str) -> None:
    page.goto(f"{hostile}/#/nodes/hostile")
    expect(page.get_by_role("heading", name="hostile", exact=True)).to_be_visible()
    page.route("**/v1/**", lambda route: route.abort())

    page.get_by_label("Pod or workload").fill("{}")
    page.get_by_role("button", name="Where would it run?").click()

    expect(page.locator("#ask-error")).to_have_text("The service does not answer. Is it running?")


def test_an_answer_that_comes_after_its_pod_was_cleared_is_not_shown(page: Page, hostile: str) -> None:
    held: list[Route] = []

    def hold(route: Route) -> None:
        if "explain" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    page.route("**/v1/what-if", hold)
    page.goto(f"{hostile}/#/nodes/hostile")
    with page.expect_request(lambda request: "explain" in (request.post_data or "")):
        page.get_by_label("Pod or workload").fill(json.dumps(pod_of(2)))
        page.get_by_role("button", name="Where would it run?").click()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("#headline")).to_be_empty()
    with page.expect_response("**/v1/what-if"):
        held[0].continue_()
    page.wait_for_timeout(300)

    assert page.get_by_role("region", name="What this node answers to the pod").count() == 0
