"""A real browser: a page of another site reaches nothing, and the API's own page works under its policy."""

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from playwright.sync_api import BrowserContext, Page, expect

ATTACK = """async ([url, type]) => {
    const body = JSON.stringify({PodName: "a", PodNamespace: "default", PodUID: "u", Node: "node-a"});
    try {
        await fetch(url, {method: "POST", mode: "no-cors", headers: {"Content-Type": type}, body});
    } catch (error) {
        return String(error);
    }
    return "sent";
}"""


class _Empty(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(b"<!doctype html><title>another site</title>")

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def other_site() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _Empty) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://localhost:{server.server_port}/"
        server.shutdown()


def forbidden(demo: str) -> float:
    lines = httpx.get(f"{demo}/metrics", trust_env=False).text.splitlines()
    labels = '{means="loopback",outcome="forbidden",scope="schedule"}'
    return sum(
        float(line.rsplit(" ", 1)[1]) for line in lines if line.startswith(f"numa_extender_admissions_total{labels}")
    )


@pytest.mark.parametrize("type_", ["text/plain", "application/x-www-form-urlencoded"])
def test_a_page_of_another_site_can_not_bind(context: BrowserContext, demo: str, other_site: str, type_: str) -> None:
    before = forbidden(demo)
    page = context.new_page()
    page.goto(other_site)

    assert page.evaluate(ATTACK, [f"{demo}/scheduler/bind", type_]) == "sent"  # it reached us,
    assert forbidden(demo) == before + 1  # and was refused


def test_the_page_of_the_api_works_under_its_policy(page: Page, demo: str) -> None:
    page.goto(f"{demo}/docs")
    livez = page.locator("#operations-service-livez")
    livez.locator(".opblock-summary").click()
    livez.get_by_role("button", name="Try it out").click()
    livez.get_by_role("button", name="Execute").click()

    expect(livez.locator(".live-responses-table tbody .response-col_status").first).to_contain_text("200")
