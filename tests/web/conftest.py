"""One Chromium and one server a test process; a page of its own, watched for errors, for each test."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

from tests.web.cluster import demo_cluster, hostile_cluster, large_cluster

# The first one draws no windows of its own: half the CPU time of the others.
NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
ARGUMENTS = (
    "--no-sandbox",  # of a container's root
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
PATIENCE_MS = 20_000
"""On a machine that runs other tests beside."""
MEDIUM = 300
LARGE = 5000


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        message = f"no Chromium: none of {', '.join(NAMES)} is installed (make browser installs it with apt, as root)"
        if os.environ.get("CI"):
            pytest.fail(message)
        pytest.skip(message)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    context = browser.new_context(
        viewport={"width": 1440, "height": 900}, color_scheme="light", reduced_motion="reduce"
    )
    context.set_default_timeout(PATIENCE_MS)
    expect.set_options(timeout=PATIENCE_MS)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A page on which no script may fail, nothing may be refused by the policy, and no request may be unanswered."""
    page = context.new_page()
    faults: list[str] = []

    def listen(message: ConsoleMessage) -> None:
        # The browser itself notes each answer 4xx; what the page makes of it is what tests look at.
        if message.type in {"error", "warning"} and "Failed to load resource" not in message.text:
            faults.append(message.text)

    page.on("console", listen)
    page.on("pageerror", lambda error: faults.append(str(error)))
    yield page
    assert faults == []


@pytest.fixture(scope="package")
def demo() -> Iterator[str]:
    with demo_cluster() as url:
        yield url


@pytest.fixture(scope="package")
def large() -> Iterator[str]:
    with large_cluster(LARGE) as url:
        yield url


@pytest.fixture(scope="package")
def medium() -> Iterator[str]:
    with large_cluster(MEDIUM) as url:
        yield url


@pytest.fixture(scope="package")
def hostile() -> Iterator[str]:
    with hostile_cluster() as url:
        yield url


@pytest.fixture(scope="package")
def screenshots(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where screenshots go: `NUMA_SCREENSHOTS=docs/screenshots` renews the ones that are kept."""
    kept = os.environ.get("NUMA_SCREENSHOTS")
    return Path(kept) if kept else tmp_path_factory.mktemp("screenshots")
