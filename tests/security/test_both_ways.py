"""The short way of kube-scheduler's calls and reports answers what FastAPI answers, whatever is sent."""

import gzip
import re
import socket
import ssl
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from typing import Any, Final

import orjson
import pytest
from fastapi.routing import APIRoute

from extender.api.short_way import MAX_BYTES, PlainCall, ShortWay
from extender.config.settings import Settings
from extender.identity import AccessScope
from tests.fakes.apiserver import FakeApiServer
from tests.reports import args_of, pod_of, report_of, sample
from tests.security.running import Files, Running, running
from tests.security.sockets import read_to_the_end
from tests.waiting import PATIENCE_SECONDS, until

LIMIT = 1 << 20
NODE = "node-a"
REPORT = orjson.dumps(report_of(sample(NODE)))
CALL = orjson.dumps(args_of(pod_of(2), NODE, "node-b"))
BIND = orjson.dumps({"PodName": "a", "PodNamespace": "default", "PodUID": "u", "Node": NODE})
JSON = b"Content-Type: application/json\r\n"
GZIP = b"Content-Encoding: gzip\r\n"
BY_RIGHT = b"Host: 127.0.0.1\r\n"
AFTERWARDS = b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Request-Id: a\r\nConnection: close\r\n\r\n"
COUNTED = re.compile(
    r"^numa_extender_(?:(?:responses|admissions|limited|reports|binds)_total|verb_seconds_count)\{.*", re.MULTILINE
)


def head(line: bytes, fields: bytes = JSON) -> bytes:
    return line + b" HTTP/1.1\r\nX-Request-Id: a\r\n" + BY_RIGHT + fields


def whole(line: bytes, body: bytes, fields: bytes = JSON) -> bytes:
    return head(line, fields) + b"Content-Length: %d\r\n\r\n" % len(body) + body


FILTER, PRIORITIZE, PREEMPT, BOUND = (
    b"POST /scheduler/" + verb for verb in (b"filter", b"prioritize", b"preempt", b"bind")
)
PUT, BEAT = b"PUT /v1/nodes/node-a/report", b"POST /v1/nodes/node-a/heartbeat"
LINES = (FILTER, PRIORITIZE, PREEMPT, BOUND, PUT, BEAT)

PLAIN: Mapping[str, bytes] = {
    "filter": whole(FILTER, CALL),
    "prioritize": whole(PRIORITIZE, CALL),
    "bind": whole(BOUND, BIND),
    "preempt": whole(PREEMPT, orjson.dumps({"Pod": pod_of(2), "NodeNameToVictims": {}})),
    "a report": whole(PUT, REPORT),
    "a packed report": whole(PUT, gzip.compress(REPORT), JSON + GZIP),
    "a heartbeat": whole(BEAT, orjson.dumps({"boot_id": "x", "sequence": 9, "digest": "0" * 64})),
    **{f"an empty body: {line!r}": whole(line, b"") for line in LINES},
    **{f"an empty object: {line!r}": whole(line, b"{}") for line in LINES},
    **{f"no JSON: {line!r}": whole(line, b"\xff{") for line in LINES},
    "two calls in turn": whole(FILTER, CALL),
    "an id that cannot be used": whole(FILTER, CALL).replace(b"X-Request-Id: a", b"X-Request-Id: a b\tc"),
    "the end of the connection": whole(FILTER, CALL, JSON + b"Connection: close\r\n"),
    "a kept connection": whole(FILTER, CALL, JSON + b"Connection: keep-alive\r\n"),
}
"""Requests that take the short way."""

UNUSUAL: Mapping[str, bytes] = {
    "another method": whole(b"PUT /scheduler/filter", CALL),
    "no body at all": head(b"GET /scheduler/filter") + b"\r\n",
    "a method of its own": whole(b"BREW /scheduler/filter", CALL),
    "a lower-case method": whole(b"post /scheduler/filter", CALL),
    "a verb that there is not": whole(b"POST /scheduler/unfilter", CALL),
    "a path above": whole(b"POST /scheduler/../scheduler/filter", CALL),
    "a path twice": whole(b"POST //scheduler/filter", CALL),
    "a slash at the end": whole(FILTER + b"/", CALL),
    "a query": whole(FILTER + b"?a=b", CALL),
    "a coded path": whole(b"POST /scheduler/%66ilter", CALL),
    "a whole URL": whole(b"POST http://127.0.0.1/scheduler/filter", CALL),
    "a coded node": whole(b"PUT /v1/nodes/node%2Da/report", REPORT),
    "a node of bytes": whole(b"PUT /v1/nodes/%FF%00/report", REPORT),
    "a long node": whole(b"PUT /v1/nodes/" + b"a" * 300 + b"/report", REPORT),
    "no node": whole(b"PUT /v1/nodes//report", REPORT),
    "another node": whole(b"PUT /v1/nodes/node-b/report", REPORT),
    "HTTP 1.0": whole(FILTER, CALL).replace(b"HTTP/1.1", b"HTTP/1.0"),
    "HTTP 9": whole(FILTER, CALL).replace(b"HTTP/1.1", b"HTTP/9.9"),
    "a form": whole(FILTER, CALL, b"Content-Type: text/plain\r\n"),
    "no type": whole(FILTER, CALL, b""),
    "another site": whole(FILTER, CALL, JSON + b"Origin: http://evil.example\r\n"),
    "another name": whole(FILTER, CALL).replace(BY_RIGHT, b"Host: rebound.example\r\n"),
    "two names": whole(FILTER, CALL, JSON + b"Host: rebound.example\r\n"),
    "two origins": whole(FILTER, CALL, JSON + b"Origin: http://127.0.0.1\r\nOrigin: http://evil.example\r\n"),
    "no name": whole(FILTER, CALL).replace(BY_RIGHT, b""),
    "another scheme of proof": whole(FILTER, CALL, JSON + b"Authorization: Basic YTpi\r\n"),
    "a token without an API server": whole(FILTER, CALL, JSON + b"Authorization: Bearer a\r\n"),
    "chunks": head(FILTER) + b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (len(CALL), CALL),
    "chunks that lie": head(FILTER) + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n{}\r\n0\r\n\r\n",
    "chunks and a length": head(FILTER) + b"Transfer-Encoding: chunked\r\nContent-Length: 2\r\n\r\n{}",
    "two lengths": head(FILTER) + b"Content-Length: 2\r\nContent-Length: 3\r\n\r\n{} ",
    "a negative length": head(FILTER) + b"Content-Length: -1\r\n\r\n",
    "a length in words": head(FILTER) + b"Content-Length: two\r\n\r\n{}",
    "a length with a sign": head(FILTER) + b"Content-Length: +2\r\n\r\n{}",
    "a length beyond numbers": head(FILTER) + b"Content-Length: %s\r\n\r\n" % (b"9" * 30),
    "a length that is less": head(FILTER) + b"Content-Length: 1\r\n\r\n{}",
    "a body over the limit of bind": whole(BOUND, b" " * (LIMIT + 1)),
    "a length over the limit of bind": head(BOUND) + b"Content-Length: %d\r\n\r\n" % (LIMIT + 1),
    "a length over the limit of a report": head(PUT) + b"Content-Length: %d\r\n\r\n" % (1 << 40),
    "a body over the short way's own limit": whole(FILTER, b" " * (MAX_BYTES + 1)),
    "bodies over all that may be in memory": whole(PRIORITIZE, b" " * (3 * LIMIT)),
    "a bomb": whole(PUT, gzip.compress(bytes(8 * LIMIT)), JSON + GZIP),
    "half a stream": whole(PUT, gzip.compress(REPORT)[:-9], JSON + GZIP),
    "no stream": whole(PUT, REPORT, JSON + GZIP),
    "another packing": whole(PUT, REPORT, JSON + b"Content-Encoding: br\r\n"),
    "a packed call": whole(FILTER, gzip.compress(CALL), JSON + GZIP),
    "leave to send": whole(FILTER, CALL, JSON + b"Expect: 100-continue\r\n"),
    "another protocol": whole(FILTER, CALL, JSON + b"Connection: Upgrade\r\nUpgrade: h2c\r\n"),
    "a socket": whole(FILTER, CALL, JSON + b"Connection: Upgrade\r\nUpgrade: websocket\r\n"),
    "one call behind the other": whole(FILTER, CALL) + whole(FILTER, CALL),
    "a call behind a reading": b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n" + whole(FILTER, CALL),
    "a reading behind a call": whole(FILTER, CALL) + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
    "no HTTP behind a call": whole(FILTER, CALL) + b"NONSENSE\r\n\r\n",
    "a field without a colon": head(FILTER, b"NONSENSE\r\n") + b"\r\n",
    "a folded field": head(FILTER, b"X-A: a\r\n b\r\n") + b"Content-Length: 2\r\n\r\n{}",
    "a space before the colon": head(FILTER, b"Content-Length : 2\r\n") + b"\r\n{}",
    "a zero in a field": head(FILTER, b"X-A: \x00\r\n") + b"Content-Length: 2\r\n\r\n{}",
    "bare line feeds": whole(FILTER, CALL).replace(b"\r\n", b"\n"),
    "too many fields": head(FILTER, b"X-A: a\r\n" * 300) + b"\r\n",
    "too long a field": head(FILTER, b"X-A: " + b"a" * 70_000 + b"\r\n") + b"\r\n",
    "trailers": head(FILTER) + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX-A: a\r\n\r\n",
}
"""Requests that are refused, or that only FastAPI answers."""
BEHIND: Final = {name for name in UNUSUAL if " behind a" in name or " behind the" in name}
"""The connection may be closed before the first call has its reply. FastAPI counts that reply, the short way none."""


@dataclass
class Pair:
    """Two services with the same settings: one with the short way, and one without."""

    short: Running
    usual: Running

    def same(self, request: bytes, *, context: ssl.SSLContext | None = None, without: str = "-") -> bytes:
        """What both answer to the request, and to one after it on the same connection.

        They count the same, but for what is named *without*.
        """
        before = counts(self.short), counts(self.usual)
        with_short, usually = (answers(each, request, context) for each in (self.short, self.usual))
        assert with_short == usually
        until(lambda: changes(self.short, before[0], without) == changes(self.usual, before[1], without))
        return usually


def counts(service: Running) -> Mapping[str, str]:
    lines = COUNTED.findall(service.service.metrics.exposition().decode())
    return dict(line.rsplit(" ", 1) for line in lines)


def changes(service: Running, before: Mapping[str, str], without: str = "-") -> Mapping[str, float]:
    return {
        name: float(value) - float(before.get(name, 0))
        for name, value in counts(service).items()
        if value != before.get(name, "0.0") and without not in name
    }


def answers(service: Running, request: bytes, context: ssl.SSLContext | None) -> bytes:
    with closing(connected(service, context)) as connection:
        try:
            connection.sendall(request)
            said = one_reply(connection)
            connection.sendall(AFTERWARDS)
            said += read_to_the_end(connection)
        except (BrokenPipeError, ConnectionResetError):
            said = b"closed"
    return re.sub(rb"(?m)^date: .*$|(?<=x-request-id: )[0-9a-f]{32}", b"", said)


def connected(service: Running, context: ssl.SSLContext | None = None) -> socket.socket:
    host, port = (service.plain if context is None else service.tls).rpartition("//")[2].split(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS)
    return connection if context is None else context.wrap_socket(connection, server_hostname=host)


def one_reply(connection: socket.socket) -> bytes:
    """One reply, which has a length or no body; less if the other side closes the connection before its end."""
    said = b""
    while piece := connection.recv(65_536):
        said = (said + piece).removeprefix(b"HTTP/1.1 100 Continue\r\n\r\n")
        head_, end, body = said.partition(b"\r\n\r\n")
        length = re.search(rb"content-length: (\d+)", head_)
        if end and len(body) >= (0 if length is None else int(length[1])):
            break
    return said


def settings(**more: Any) -> Settings:
    changes_: dict[str, Any] = {
        "port": 0, "drain_seconds": 0, "max_body_bytes": LIMIT, "max_buffered_bytes": 2 * LIMIT, "refused_rate": 1e6,
        "loopback_scopes": frozenset({AccessScope.SCHEDULE, AccessScope.REPORT}), "preemption": "on",
    }  # fmt: skip
    known = {name: value for name, value in (changes_ | more).items() if name in Settings.model_fields}
    return Settings(**known)


def make_pair(stack: ExitStack, chosen: Settings, api_server: FakeApiServer | None = None) -> Pair:
    pair = Pair(*(stack.enter_context(running(chosen, api_server)) for _ in range(2)))
    pair.usual.app.state.short_way._routes.clear()
    return pair


@pytest.fixture(scope="module")
def pair() -> Iterator[Pair]:
    with ExitStack() as stack:
        yield make_pair(stack, settings())


@pytest.fixture
def taken(monkeypatch: pytest.MonkeyPatch) -> list[PlainCall]:
    """The calls that the short way takes."""
    calls: list[PlainCall] = []
    begin = ShortWay.begin

    def noted(way: ShortWay, *arguments: Any) -> PlainCall | None:
        if (call := begin(way, *arguments)) is not None:
            calls.append(call)
        return call

    monkeypatch.setattr(ShortWay, "begin", noted)
    return calls


@pytest.mark.parametrize("name", PLAIN)
def test_a_plain_call_is_answered_as_by_fastapi(pair: Pair, name: str) -> None:
    assert pair.same(PLAIN[name]).startswith(b"HTTP/1.1 ")


@pytest.mark.parametrize("name", UNUSUAL)
def test_an_unusual_request_is_answered_as_by_fastapi(pair: Pair, name: str) -> None:
    pair.same(UNUSUAL[name], without="responses_total" if name in BEHIND else "-")


def test_only_plain_calls_take_the_short_way(taken: list[PlainCall]) -> None:
    with running(settings()) as service:
        for request in PLAIN.values():
            answers(service, request, None)
        assert len(taken) == len(PLAIN)
        for name in ("chunks", "HTTP 1.0", "a query", "leave to send", "another site", "two names", "a socket"):
            answers(service, UNUSUAL[name], None)
        assert len(taken) == len(PLAIN)


def test_short_and_other_calls_share_a_connection(pair: Pair) -> None:
    said: list[list[bytes]] = []
    for service in (pair.short, pair.usual):
        with closing(connected(service)) as connection:
            replies = []
            for request in (PLAIN["filter"], UNUSUAL["chunks"], PLAIN["bind"], UNUSUAL["a query"], PLAIN["filter"]) * 3:
                connection.sendall(request)
                replies.append(re.sub(rb"(?m)^date: .*$", b"", one_reply(connection)))
            said.append(replies)
    assert said[0] == said[1]
    assert all(b" 200 OK" in reply for reply in said[0])


def test_a_call_in_pieces_is_the_call(pair: Pair) -> None:
    for service in (pair.short, pair.usual):
        with closing(connected(service)) as connection:
            for byte in PLAIN["bind"]:
                connection.sendall(bytes([byte]))
            assert b" 200 OK" in one_reply(connection)


@pytest.mark.parametrize("name", ["filter", "a report"])
def test_a_client_that_goes_or_stops_in_its_body_holds_nothing(name: str) -> None:
    with ExitStack() as stack:
        pair = make_pair(stack, settings(body_seconds=0.5))
        for leave in (True, False):
            before = counts(pair.short), counts(pair.usual)
            for service in (pair.short, pair.usual):
                with closing(connected(service)) as connection:
                    connection.sendall(PLAIN[name][:-10])
                    if not leave:
                        assert read_to_the_end(connection) == b""
            until(lambda before=before: any("none" in line for line in changes(pair.short, before[0])))  # type: ignore[misc]
            until(lambda before=before: changes(pair.short, before[0]) == changes(pair.usual, before[1]))  # type: ignore[misc]
        for service in (pair.short, pair.usual):
            limits = service.app.state.limits
            until(lambda limits=limits: not any(limits._now.values()))  # type: ignore[misc]
            assert {budget.held for budget in limits.bodies.values()} == {0}


def test_at_the_bound_of_concurrent_calls_both_refuse() -> None:
    with ExitStack() as stack:
        small = make_pair(stack, settings(max_scheduler_calls=2, max_reports_at_once=1))
        for service in (small.short, small.usual):
            for scope in (AccessScope.SCHEDULE, AccessScope.SCHEDULE, AccessScope.REPORT):
                stack.enter_context(service.app.state.limits.place(scope, "other"))
        for name in ("filter", "prioritize", "bind", "preempt", "a report"):
            said = small.same(PLAIN[name])
            assert b"429" in said or b"requests of this kind are in progress" in said


@pytest.mark.parametrize("name", ["filter", "prioritize", "preempt", "bind", "a report", "a heartbeat"])
def test_without_room_for_bodies_both_refuse(pair: Pair, name: str) -> None:
    budgets = [each.app.state.limits.bodies[scope] for each in (pair.short, pair.usual) for scope in AccessScope]
    with ExitStack() as stack:
        for budget in {id(each): each for each in budgets}.values():
            budget.take(2 * LIMIT)
            stack.callback(budget.give_back, 2 * LIMIT)
        assert b"too many request bodies are in memory" in pair.same(PLAIN[name])


def test_a_defect_is_answered_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    with ExitStack() as stack:
        pair = make_pair(stack, settings())
        for service in (pair.short, pair.usual):
            monkeypatch.setattr(service.service.known.nodes, "observe", fail)
        for service in (pair.short, pair.usual):
            with closing(connected(service)) as connection:
                connection.sendall(PLAIN["a report"])
                said = read_to_the_end(connection)
            assert said.startswith(b"HTTP/1.1 500 ")
            assert said.endswith(b'"detail":"internal error; see the log of the service","field":null}')


CALLERS: Mapping[str, tuple[str | None, bytes]] = {
    "nothing": (None, b""),
    "the scheduler": ("system:kube-scheduler", b""),
    "another certificate": ("system:node:node-a", b""),
    **{
        token: (None, b"Authorization: Bearer %s\r\n" % token.encode())
        for token in (
            "exporter-a", "exporter-b", "exporter-unbound", "exporter-elsewhere", "pod-on-node-a", "only-schedule",
            "only-report", "admin", "nothing", "unheard-of", "reader",
        )
    },
    "a token and a certificate": ("system:kube-scheduler", b"Authorization: Bearer exporter-a\r\n"),
    "two tokens": (None, b"Authorization: Bearer exporter-a\r\nAuthorization: Bearer exporter-b\r\n"),
    "a long token": (None, b"Authorization: Bearer " + b"a" * 20_000 + b"\r\n"),
}  # fmt: skip


def test_every_caller_may_do_the_same_both_ways(
    files: Files, api_server: FakeApiServer, taken: list[PlainCall]
) -> None:
    """Each asks twice: the first time the API server is asked about the token."""
    with ExitStack() as stack:
        pair = make_pair(stack, settings(loopback_scopes=frozenset(), **files.settings), api_server)
        for name, (certificate, fields) in CALLERS.items():
            context = files.client(certificate)
            for line, body in ((FILTER, CALL), (BOUND, BIND), (PUT, REPORT), (BEAT, b"{}")):
                for _ in range(2):
                    said = pair.same(whole(line, body, JSON + fields), context=context)
                    assert said.startswith(b"HTTP/1.1 "), name
    assert len(taken) > len(CALLERS)


def test_a_caller_over_its_rate_is_refused_alike(files: Files, api_server: FakeApiServer) -> None:
    with ExitStack() as stack:
        pair = make_pair(stack, settings(report_rate=0.01, **files.settings), api_server)
        request = whole(PUT, REPORT, JSON + b"Authorization: Bearer exporter-a\r\n")
        first, *others = (pair.same(request, context=files.client()) for _ in range(3))
    assert first.startswith(b"HTTP/1.1 200 ")
    assert all(said.startswith(b"HTTP/1.1 429 ") for said in others)


def test_every_short_way_is_documented(pair: Pair) -> None:
    documented = pair.short.app.openapi()["paths"]
    routes = pair.short.app.state.short_way._routes
    assert len(routes) == len(LINES)
    for route, _ in routes.values():
        assert isinstance(route, APIRoute)
        assert documented[route.path]


def test_with_tracing_every_call_is_a_span() -> None:
    with running(settings(tracing="otlp")) as service:
        assert service.app.state.short_way._routes == {}
