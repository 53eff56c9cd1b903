"""A caller without the right to read: the pages give the reason and the command for a token, and accept a new token."""

import httpx
from playwright.sync_api import Page, Route, expect

from extender.app import make_service
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.identity import AccessScope


def test_who_is_refused_is_offered_another_token(page: Page) -> None:
    """Loopback may only schedule here, so the page's first question is answered with 403."""
    with serving(make_service(Settings(port=0, loopback_scopes=frozenset({AccessScope.SCHEDULE})))) as url:
        with page.expect_response(lambda reply: reply.status == 403):
            page.goto(url)
        dialog = page.get_by_role("dialog")
        expect(dialog).to_be_visible()
        expect(dialog).to_contain_text("loopback do not have the scope read")
        expect(dialog).to_contain_text("kubectl -n numa-extender create token numa-reader --audience=numa-extender")
        page.get_by_role("button", name="Continue without a token").click()
        expect(dialog).to_be_hidden()


def test_the_page_of_the_api_opens_behind_a_token_and_its_requests_have_it(page: Page, demo: str) -> None:
    shown: dict[str, str | None] = {}

    def check(route: Route) -> None:
        shown[httpx.URL(route.request.url).path] = token = route.request.headers.get("authorization")
        if token == "Bearer s3cret":
            route.continue_(headers={k: v for k, v in route.request.headers.items() if k != "authorization"})
        else:
            route.fulfill(status=401, json={"status": 401, "title": "Unauthorized", "detail": "show a token"})

    page.route("**/openapi.json", check)
    page.route("**/v1/**", check)
    page.goto(f"{demo}/docs")
    dialog = page.get_by_role("dialog", name="Sign in")
    expect(dialog).to_contain_text("show a token")
    dialog.get_by_label("Token for this extender").fill("s3cret")
    page.keyboard.press("Enter")

    machines = page.locator("[id='operations-what-if-list_machines']")
    machines.locator(".opblock-summary").click()
    machines.get_by_role("button", name="Try it out").click()
    machines.get_by_role("button", name="Execute").click()

    expect(machines.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
    assert shown == {"/openapi.json": "Bearer s3cret", "/v1/machines": "Bearer s3cret"}

    page.goto(demo)
    page.get_by_role("link", name="API").click()
    expect(machines).to_be_visible()
