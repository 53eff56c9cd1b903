"""How the page's files are sent."""

import re
from collections.abc import Iterator

import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings


@pytest.fixture(scope="module")
def client() -> Iterator[TestClient]:
    """Somebody on another machine, who shows nothing."""
    with TestClient(make_app(make_service(Settings()))) as client:
        yield client


def test_the_page_allows_nothing_but_itself(client: TestClient) -> None:
    reply = client.get("/")

    policy = reply.headers["content-security-policy"]
    assert reply.headers["content-type"] == "text/html; charset=utf-8"
    assert reply.headers["x-content-type-options"] == "nosniff"
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy
    assert not re.search(r"\son\w+=|\sstyle=|javascript:|https?://", reply.text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", reply.text)


def test_every_file_that_the_page_names_is_there(client: TestClient) -> None:
    waiting, seen = ["/"], set[str]()
    while waiting:
        path = waiting.pop()
        if path in seen:
            continue
        seen.add(path)
        reply = client.get(path)
        assert reply.status_code == 200, path
        waiting += re.findall(r'(?:src|href)="(/web/[^"]+)"', reply.text)
        waiting += [f"/web/js/{name}" for name in re.findall(r'(?:from |import\()"\./([\w-]+\.js)"', reply.text)]

    assert {"/web/js/main.js", "/web/js/map.js", "/web/js/audit.js", "/web/css/tokens.css", "/web/icon.svg"} <= seen


def test_files_are_asked_for_again_and_not_sent_again(client: TestClient) -> None:
    first = client.get("/web/js/main.js")

    again = client.get("/web/js/main.js", headers={"If-None-Match": first.headers["etag"]})

    assert first.headers["cache-control"] == "no-cache"
    assert (again.status_code, again.content) == (304, b"")


def test_the_page_is_for_everybody_and_what_it_shows_is_not(client: TestClient) -> None:
    assert client.get("/").status_code == 200
    assert client.get("/web/js/main.js").status_code == 200
    assert client.get("/v1/nodes").status_code == 401


@pytest.mark.parametrize("path", ["nothing.js", "__init__.py", "..%2fapi%2fpage.py", "css", "css/", "%2e%2e/app.py"])
def test_nothing_else_can_be_read(client: TestClient, path: str) -> None:
    reply = client.get(f"/web/{path}")

    assert reply.status_code in {401, 404}
    assert reply.headers["content-type"] == "application/problem+json"
