"""Slow, half-closed, greedy and rude clients, over real sockets: each costs what was allowed, no more."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import orjson
import pytest

from extender.config.settings import Settings
from extender.identity import AccessScope
from extender.transport.protocol import MAX_HEAD_BYTES, MAX_HEAD_FIELDS
from tests.reports import args_of, pod_of
from tests.security.running import Running, running
from tests.security.sockets import read_head, read_to_the_end
from tests.waiting import PATIENCE_SECONDS, until

MAX_CONNECTIONS = 16
HEAD = b"POST /scheduler/filter HTTP/1.1\r\nHost: 127.0.0.1\r\n"


SETTINGS = Settings(
    port=0, drain_seconds=0, shutdown_seconds=1, max_connections=MAX_CONNECTIONS,
    max_buffered_bytes=12 << 20, max_questions_at_once=2,
    loopback_scopes=frozenset({AccessScope.SCHEDULE, AccessScope.READ}),
    head_seconds=2 * PATIENCE_SECONDS, body_seconds=2 * PATIENCE_SECONDS, answer_seconds=2 * PATIENCE_SECONDS,
)  # fmt: skip


@pytest.fixture(scope="module")
def extender() -> Iterator[Running]:
    """Its limits of time end no test: what is closed here is closed for another reason."""
    with running(SETTINGS) as service:
        yield service


@pytest.fixture(scope="module")
def hasty() -> Iterator[Running]:
    """An extender that soon loses patience."""
    changes = {"head_seconds": 0.5, "body_seconds": 0.5, "answer_seconds": 1.0}
    with running(SETTINGS.model_copy(update=changes)) as service:
        yield service


@contextmanager
def connected(extender: Running) -> Iterator[socket.socket]:
    port = int(extender.plain.rsplit(":", 1)[1])
    with socket.create_connection(("127.0.0.1", port), timeout=PATIENCE_SECONDS) as connection:
        yield connection


def limited(extender: Running, limit: str) -> float:
    return float(extender.service.metrics.limited.labels(limit)._value.get())


@pytest.mark.parametrize(
    ("sent", "limit"),
    [
        (b"P", "head_timeout"),
        (HEAD, "head_timeout"),
        (HEAD + b"X-Slow: " + b"a" * 100, "head_timeout"),
        (HEAD + b"Content-Length: 10\r\n\r\n", "body_timeout"),
        (HEAD + b"Content-Length: 10\r\n\r\n{", "body_timeout"),
        (HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n{", "body_timeout"),
    ],
)
def test_who_stops_in_the_middle_is_hung_up_on(hasty: Running, sent: bytes, limit: str) -> None:
    before = limited(hasty, limit)
    with connected(hasty) as connection:
        connection.sendall(sent)
        read_to_the_end(connection)
    assert limited(hasty, limit) == before + 1


def test_who_sends_a_byte_now_and_then_is_hung_up_on_too(hasty: Running) -> None:
    with connected(hasty) as connection:
        connection.settimeout(0.05)
        until(lambda: is_closed_after_a_byte(connection), "the end of the connection")


def is_closed_after_a_byte(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"P")
        return connection.recv(10) == b""
    except TimeoutError:
        return False
    except OSError:
        return True


def test_a_connection_that_has_sent_nothing_may_wait(hasty: Running) -> None:
    """It is open after the time in which another, with half a head, was hung up on."""
    with connected(hasty) as connection, connected(hasty) as other:
        other.sendall(HEAD)
        read_to_the_end(other)
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")

        assert b"200 OK" in read_head(connection)


def test_half_closed_is_answered(extender: Running) -> None:
    with connected(extender) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        connection.shutdown(socket.SHUT_WR)

        assert b"200 OK" in read_head(connection)


def test_who_does_not_read_the_answer_is_hung_up_on(hasty: Running) -> None:
    before = limited(hasty, "answer_timeout")
    body = orjson.dumps(args_of(pod_of(), *(f"node-{i:0100d}" for i in range(80_000))))
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(hasty.plain.rsplit(":", 1)[1])))
        connection.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        until(lambda: limited(hasty, "answer_timeout") > before)


def test_pipelining_is_refused(extender: Running) -> None:
    before = limited(extender, "pipelining")
    with connected(extender) as connection:
        connection.sendall(b"GET /v1/nodes HTTP/1.1\r\nHost: x\r\n\r\n" * 50)
        read_to_the_end(connection)

    assert limited(extender, "pipelining") > before


def send_quietly(connection: socket.socket, data: bytes) -> None:
    try:
        connection.sendall(data)
    except OSError:
        return


@pytest.mark.parametrize(
    "head",
    [
        b"X-Long: " + b"a" * MAX_HEAD_BYTES,
        b"".join(b"X-%d: a\r\n" % i for i in range(MAX_HEAD_BYTES // 8)),
        b"X-" + b"a" * MAX_HEAD_BYTES,
    ],
)
def test_heads_are_bounded(extender: Running, head: bytes) -> None:
    with connected(extender) as connection:
        send_quietly(connection, HEAD + head)

        assert b"400 Bad Request" in read_head(connection)


def test_no_more_fields_of_a_head_are_parsed_than_the_bound(extender: Running) -> None:
    before = limited(extender, "head")
    fields = b"X-A: a\r\n" * (MAX_HEAD_FIELDS - 4)
    with connected(extender) as connection:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\n" + fields + b"Connection: close\r\n\r\n")
        assert b"200 OK" in read_head(connection)
    assert limited(extender, "head") == before
    with connected(extender) as connection:
        send_quietly(connection, HEAD + fields + b"X-A: a\r\n" * 9)  # a few kilobytes, and no end
        assert b"400 Bad Request" in read_head(connection)
    assert limited(extender, "head") == before + 1


def test_trailers_and_chunk_sizes_are_bounded(extender: Running) -> None:
    before = limited(extender, "head")
    with connected(extender) as connection:
        send_quietly(connection, HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\n \r\n" * (MAX_HEAD_BYTES // 4))
        read_to_the_end(connection)

    assert limited(extender, "head") == before + 1


@pytest.mark.parametrize(
    "request_bytes",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /\x00 HTTP/1.1\r\n\r\n",
        b"\r\n" * 100 + b"NONSENSE",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        HEAD + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\nhello!",
        HEAD + b"Content-Length: -1\r\n\r\n",
        HEAD + b"Content-Length: 99999999999999999999\r\n\r\n",
        HEAD + b"Transfer-Encoding: chunked\r\n\r\nFFFFFFFFFFFFFFFFF\r\n",
    ],
)
def test_what_is_no_http_ends_the_connection_and_nothing_else(extender: Running, request_bytes: bytes) -> None:
    with connected(extender) as connection:
        send_quietly(connection, request_bytes)
        connection.shutdown(socket.SHUT_WR)
        read_to_the_end(connection)

    assert extender.call("GET", "/livez").status_code == 200


def is_answered(connection: socket.socket) -> bool:
    try:
        connection.sendall(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n")
        return b"200 OK" in read_head(connection)
    except ConnectionError:
        return False


def test_at_the_limit_the_connection_closes_that_has_waited_longest_without_a_request(extender: Running) -> None:
    with ExitStack() as stack:
        first = stack.enter_context(connected(extender))
        assert is_answered(first)
        silent = [stack.enter_context(connected(extender)) for _ in range(MAX_CONNECTIONS - 1)]
        started = stack.enter_context(connected(extender))
        started.sendall(b"GET /livez HT")
        last = stack.enter_context(connected(extender))

        assert is_answered(last)
        read_to_the_end(silent[0])
        read_to_the_end(silent[1])
        assert all(map(is_answered, (first, *silent[2:], last)))


def test_at_the_limit_the_longest_idle_closes_if_all_have_had_a_request(extender: Running) -> None:
    with ExitStack() as stack:
        connections = []
        for _ in range(MAX_CONNECTIONS + 1):
            connections.append(stack.enter_context(connected(extender)))
            assert is_answered(connections[-1])

        assert [is_answered(connection) for connection in connections] == [False] + [True] * MAX_CONNECTIONS


def test_bodies_together_are_bounded(extender: Running) -> None:
    half = b" " * 7_000_000
    with connected(extender) as first:
        first.sendall(HEAD + b"Content-Length: %d\r\n\r\n" % (len(half) + 1) + half)
        until(lambda: extender.call("POST", "/scheduler/filter", content=half).json()["Error"].find("too many") >= 0)
    until(lambda: "too many" not in extender.call("POST", "/scheduler/filter", content=half).json()["Error"])
