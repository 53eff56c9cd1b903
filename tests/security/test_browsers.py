"""What a page of another site can make a browser send is refused where the connection alone is the proof."""

import lzma
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import orjson
import pytest

from extender.api.access.browsers import foreign
from extender.config.settings import Settings
from extender.identity import LOOPBACK_ADDRESSES, AccessScope
from tests.reports import args_of, pod_of, report_of, sample
from tests.security.running import Files, Running, bearer, running

RECORDINGS = Path(__file__).parents[2] / "tests" / "recordings"
BIND = {"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": "node-a"}
CROSS_SITE = {
    "a form": {"Content-Type": "text/plain", "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"},
    "an old browser": {"Content-Type": "text/plain"},
    "a form with fields": {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"},
    "a form with files": {"Content-Type": "multipart/form-data; boundary=x"},
    "a sandboxed frame": {"Content-Type": "application/json", "Origin": "null"},
    "another port of this machine": {"Content-Type": "application/json", "Origin": "http://127.0.0.1:3000"},
    "the same port with TLS": {"Content-Type": "application/json", "Origin": "https://127.0.0.1"},
    "a page of the same site": {"Content-Type": "application/json", "Sec-Fetch-Site": "same-site"},
    "a request without type": {"Content-Type": "", "Sec-Fetch-Site": "cross-site"},
    "a name of its own": {"Content-Type": "application/json", "Host": "rebound.example"},
}
"""Headers by who sends them."""


@pytest.fixture(scope="module")
def default_extender() -> Iterator[Running]:
    """As it is without settings."""
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("NUMA_EXTENDER_LOOPBACK_SCOPES", raising=False)
        settings = Settings(port=0, drain_seconds=0)
    with running(settings) as service:
        yield service


@pytest.mark.parametrize("who", CROSS_SITE)
@pytest.mark.parametrize(
    ("path", "body"), [("/scheduler/filter", args_of(pod_of(), "node-a")), ("/scheduler/bind", BIND)]
)
def test_a_page_of_another_site_can_not_schedule(
    default_extender: Running, who: str, path: str, body: dict[str, Any]
) -> None:
    reply = default_extender.call("POST", path, content=orjson.dumps(body), headers=CROSS_SITE[who])

    assert reply.status_code in (401, 403), reply.text
    assert reply.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"},
        {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "iframe"},
    ],
)
def test_a_page_of_another_site_can_not_read(default_extender: Running, headers: dict[str, str]) -> None:
    assert default_extender.call("GET", "/v1/nodes", headers=headers).status_code == 403


def test_our_own_page_and_links_to_it_work(default_extender: Running) -> None:
    own = {"Origin": default_extender.plain, "Sec-Fetch-Site": "same-origin", "Content-Type": "application/json"}
    link = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
    typed = {"Sec-Fetch-Site": "none", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}

    assert default_extender.call("POST", "/v1/what-if", json={"pod": pod_of()}, headers=own).status_code == 200
    assert default_extender.call("GET", "/docs", headers=link).status_code == 200
    assert default_extender.call("GET", "/v1/nodes", headers=typed).status_code == 200


def test_curl_works_without_any_header_of_a_browser(default_extender: Running) -> None:
    """curl sends what is given with --data as a form, unless told otherwise."""
    body = orjson.dumps({"pod": pod_of()})
    form = {"Content-Type": "application/x-www-form-urlencoded", "Host": "localhost:9600"}

    assert default_extender.call("POST", "/v1/what-if", content=body, headers=form).status_code == 200
    assert default_extender.call("POST", "/scheduler/filter", json=args_of(pod_of(), "node-a")).status_code == 200


@pytest.mark.parametrize("name", ["full-nodes", "node-names"])
def test_kube_scheduler_is_never_taken_for_a_browser(name: str) -> None:
    with lzma.open(RECORDINGS / f"{name}.jsonl.xz") as lines:
        recorded = [orjson.loads(line) for line in lines]

    assert len(recorded) > 20
    for call in recorded:
        headers = [(name.lower().encode(), value.encode()) for name, value in call["headers"].items()]
        assert (b"content-type", b"application/json") in headers
        assert foreign(headers, method="POST", scheme="http", needed=AccessScope.SCHEDULE) == ""


def test_a_certificate_that_a_browser_shows_is_no_proof_for_other_sites(extender: Running, files: Files) -> None:
    scheduler = files.client("system:kube-scheduler")
    body = args_of(pod_of(), "node-a")
    foreign_origin = {"Origin": "https://evil.example"}

    reply = extender.call("POST", "/scheduler/filter", json=body, context=scheduler, headers=foreign_origin)

    assert reply.status_code == 403


def test_a_token_is_proof_enough(extender: Running) -> None:
    headers = {**bearer("reader"), "Origin": "https://console.example", "Sec-Fetch-Site": "cross-site"}

    assert extender.call("GET", "/v1/nodes", headers=headers).status_code == 200


def test_by_default_loopback_schedules_and_reads_and_reports_nothing(default_extender: Running) -> None:
    report = default_extender.call("PUT", "/v1/nodes/node-a/report", json=report_of(sample("node-a")))

    assert report.status_code == 403
    assert "NUMA_EXTENDER_LOOPBACK_SCOPES" in report.json()["detail"]
    assert default_extender.call("GET", "/metrics").status_code == 200


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("127.0.0.6", False),  # Istio's and Linkerd's proxies: what came from outside
        ("127.0.0.2", False),
        ("::ffff:127.0.0.6", False),
        ("10.0.0.1", False),
        ("", False),
        ("testclient", False),
    ],
)
def test_only_two_addresses_are_loopback(address: str, expected: bool) -> None:  # noqa: FBT001
    assert (address in LOOPBACK_ADDRESSES) is expected


def test_the_page_of_the_api_has_a_policy(default_extender: Running) -> None:
    reply = default_extender.call("GET", "/docs")
    policy = reply.headers["content-security-policy"]

    assert "frame-ancestors 'none'" in policy
    assert "default-src 'none'" in policy
    assert "script-src 'self';" in policy
    assert "<script>" not in reply.text
    for address in ("/docs", *re.findall(r'(?:src|href)="(/docs[^"]+)"', reply.text)):
        headers = default_extender.call("GET", address).headers
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["x-frame-options"] == "DENY"
        assert headers["referrer-policy"] == "no-referrer"
