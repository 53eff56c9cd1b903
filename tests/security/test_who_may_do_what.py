"""Who may do what: each cell of the tables in docs/security.md, over real sockets and TLS.

Every client of these tests comes over loopback. What loopback may do by itself is one row, asked at the plain listener;
the other rows show something, and what is shown counts.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.routing import APIRoute

from extender.api.access.routes import ROUTES, need_of
from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.identity import AccessScope
from tests.reports import args_of, pod_of, report_of, sample
from tests.security.running import Files, Running, bearer

PAGE = Path(__file__).parents[2] / "docs" / "security.md"
SCHEDULER = "system:kube-scheduler"
REQUESTS: dict[AccessScope, tuple[str, str, dict[str, Any]]] = {
    AccessScope.REPORT: ("PUT", "/v1/nodes/node-a/report", {"json": report_of(sample("node-a"))}),
    AccessScope.SCHEDULE: ("POST", "/scheduler/filter", {"json": args_of(pod_of(), "node-a")}),
    AccessScope.READ: ("GET", "/v1/nodes", {}),
    AccessScope.METRICS: ("GET", "/metrics", {}),
}
"""One request for each scope."""
TOKENS = {
    "token of the exporter on node-a": "exporter-a",
    "token of the exporter on node-b": "exporter-b",
    "token of the exporter, bound to no node": "exporter-unbound",
    "token of the exporter, for another audience": "exporter-elsewhere",
    "token of another pod on node-a": "pod-on-node-a",
    "token with every right, bound to no node": "admin",
    "token of a reader": "reader",
    "token of a person without rights": "nothing",
    "unknown or expired token": "made-up",
}


def shown(caller: str, files: Files) -> dict[str, Any]:
    """What a caller shows: `context` for TLS, and headers."""
    if caller in TOKENS:
        return {"context": files.client(), "headers": bearer(TOKENS[caller])}
    match caller:
        case "loopback, set to schedule only":
            return {}
        case "nothing":
            return {"context": files.client(), "headers": {"Host": "extender.example", "X-Forwarded-For": "127.0.0.1"}}
        case "Authorization of another kind":
            return {"context": files.client(), "headers": {"Authorization": "Basic YTpi"}}
        case "certificate of the scheduler":
            return {"context": files.client(SCHEDULER)}
        case "certificate of a kubelet, same CA":
            return {"context": files.client("system:node:node-a")}
        case "certificate of another CA":
            return {"context": files.client(SCHEDULER, authority=files.server_ca)}
        case "certificate that has ended":
            return {"context": files.client(SCHEDULER, days=-1)}
    raise AssertionError(caller)


def cells() -> Iterator[tuple[str, AccessScope, str]]:
    """The table of the page: caller, scope, what it gets."""
    _, _, rest = (Path(__file__).parent / "README.md").read_text().partition("| what is shown |")
    header, _, *rows = rest.partition("\n\n")[0].splitlines()
    scopes = [AccessScope(name) for name in re.findall(r"`(\w+)`", header)]
    for row in rows:
        caller, *answers = (cell.strip() for cell in row.strip("|").split("|"))
        yield from ((caller, scope, answer) for scope, answer in zip(scopes, answers, strict=True))


@pytest.mark.parametrize(("caller", "scope", "answer"), list(cells()))
def test_each_cell_is_true(extender: Running, files: Files, caller: str, scope: AccessScope, answer: str) -> None:
    method, path, request = REQUESTS[scope]
    try:
        status = str(extender.call(method, path, **request, **shown(caller, files)).status_code)
    except httpx.TransportError:
        status = "no connection"

    assert status == answer.replace("yes", "200")


@pytest.mark.parametrize("scope", list(AccessScope))
@pytest.mark.parametrize("asked", list(AccessScope))
def test_a_scope_opens_its_own_routes_and_no_others(
    extender: Running, files: Files, scope: AccessScope, asked: AccessScope
) -> None:
    for method, path, request in ways_in(asked):
        headers = bearer(f"only-{scope}")
        status = extender.call(method, path, context=files.client(), headers=headers, **request).status_code

        assert (status == 403) is (scope is not asked), (method, path, status)


def ways_in(scope: AccessScope) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """A request for each row of the table of routes that needs *scope*."""
    for row in ROUTES:
        if row.scope is scope:
            path = row.path.replace("{name}", "node-a").replace("/scheduler/*", "/scheduler/prioritize")
            yield row.method, path.replace("/*", "/openapi.json"), {} if row.method == "GET" else {"content": b"{}"}


def test_every_route_of_the_service_is_listed() -> None:
    app = make_app(make_service(Settings()))
    for route in app.routes:
        if not isinstance(route, APIRoute):
            continue
        for method in route.methods or ():
            found = need_of(method, route.path.replace("{path:path}", "x"))
            assert found is not None, f"{method} {route.path} needs a row in extender/api/access/routes.py"


@pytest.mark.parametrize("path", ["/v1/nodes/a%2Freport/report", "/v1//nodes/a/report", "/V1/nodes/a/report"])
def test_a_path_that_no_row_knows_is_no_way_around(extender: Running, files: Files, path: str) -> None:
    headers = bearer("exporter-a")

    assert extender.call("PUT", path, context=files.client(), headers=headers, json={}).status_code in (403, 405)


def test_the_page_lists_the_routes_as_the_code_has_them() -> None:
    table = PAGE.read_text().partition("| route | needs |")[2].partition("\n\n")[0]
    cells = (line.strip("| ").split(" | ") for line in table.splitlines()[2:])
    shown = [(route, needed) for routes, needed in cells for route in re.findall(r"`([^`]+)`", routes)]

    assert shown == [
        (f"{row.method} {row.path}", "everyone" if row.scope is None else f"`{row.scope}`") for row in ROUTES
    ]


def test_the_open_routes_are_open(extender: Running, files: Files) -> None:
    for path in ("/livez", "/readyz"):
        assert extender.call("GET", path, context=files.client()).status_code == 200


def test_a_bad_token_is_refused_on_loopback_too(extender: Running) -> None:
    method, path, request = REQUESTS[AccessScope.SCHEDULE]

    assert extender.call(method, path, headers=bearer("made-up"), **request).status_code == 401


def test_a_page_of_another_domain_is_not_loopback(extender: Running) -> None:
    method, path, request = REQUESTS[AccessScope.SCHEDULE]

    assert extender.call(method, path, headers={"Host": "rebound.example"}, **request).status_code == 401


def test_refusals_say_why_and_are_counted(extender: Running, files: Files) -> None:
    reply = extender.call("GET", "/v1/nodes", context=files.client(), headers=bearer("nothing"))

    assert reply.headers["content-type"] == "application/problem+json"
    assert reply.json()["detail"] == "nobody-in-particular may not get /numa-extender/read"
    counted = extender.service.metrics.exposition().decode()
    assert re.search(r'admissions_total\{means="token",outcome="forbidden",scope="read"\} [1-9]', counted)
