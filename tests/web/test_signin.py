"""Somebody who may not read: the page says why, how to get a token, and takes another one."""

from playwright.sync_api import Page, expect

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
