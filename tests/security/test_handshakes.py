"""TLS handshakes that do not end: each is counted from `accept`, has a deadline, and delays nobody else."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from extender.config.settings import Settings
from extender.transport import handshakes
from tests.faults.half_open import client_hello
from tests.security.running import Files, Running, running
from tests.waiting import PATIENCE_SECONDS, until

MAX_CONNECTIONS = 96
HEAD_SECONDS = 0.5
HELLO = client_hello()


@pytest.fixture(scope="module")
def extender(files: Files) -> Iterator[Running]:
    """Its deadline ends no test: what is closed here is closed for another reason."""
    settings = Settings(
        port=0, drain_seconds=0, head_seconds=2 * PATIENCE_SECONDS, max_connections=MAX_CONNECTIONS, **files.settings
    )
    with running(settings) as service:
        yield service


@pytest.fixture(scope="module")
def hasty(files: Files) -> Iterator[Running]:
    """An extender whose deadline is near."""
    with running(Settings(port=0, drain_seconds=0, head_seconds=HEAD_SECONDS, **files.settings)) as service:
        yield service


@pytest.fixture
def stack(extender: Running) -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack
    until(lambda: unfinished(extender) == 0)


def begin(extender: Running, stack: ExitStack, sent: bytes, address: str = "127.0.0.2") -> socket.socket:
    host, port = extender.tls.removeprefix("https://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=PATIENCE_SECONDS, source_address=(address, 0))
    stack.enter_context(connection)
    connection.sendall(sent)
    return connection


def unfinished(extender: Running) -> float:
    return float(extender.service.metrics.connections.labels("handshake")._value.get())


def limited(extender: Running, limit: str) -> float:
    return float(extender.service.metrics.limited.labels(limit)._value.get())


def is_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed it by now; what it sent before does not matter."""
    connection.settimeout(0.01)
    try:
        while connection.recv(65_536):
            pass
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True
    return True


def is_alive(extender: Running, files: Files) -> bool:
    return extender.call("GET", "/livez", context=files.client()).status_code == 200


@pytest.mark.parametrize(
    "sent", [b"", HELLO[:1], HELLO[:5], HELLO[:-1], HELLO], ids=["nothing", "a byte", "a header", "almost all", "all"]
)
def test_a_handshake_that_does_not_end_is_closed_at_its_deadline(hasty: Running, stack: ExitStack, sent: bytes) -> None:
    before, began = limited(hasty, "handshake_timeout"), time.monotonic()
    connection = begin(hasty, stack, sent)

    until(lambda: is_closed(connection))

    assert time.monotonic() - began >= HEAD_SECONDS
    until(lambda: limited(hasty, "handshake_timeout") == before + 1)
    assert unfinished(hasty) == 0


@pytest.mark.parametrize(
    "sent", [b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x00\x04nope", HELLO[:20]], ids=["HTTP", "nonsense", "part"]
)
def test_a_client_that_speaks_no_tls_or_leaves_is_forgotten_at_once(
    extender: Running, stack: ExitStack, sent: bytes
) -> None:
    before = limited(extender, "handshake")
    connection = begin(extender, stack, sent)
    connection.shutdown(socket.SHUT_WR)

    until(lambda: is_closed(connection))
    until(lambda: limited(extender, "handshake") == before + 1)


def test_a_client_hello_may_come_in_pieces(extender: Running, stack: ExitStack) -> None:
    connection = begin(extender, stack, b"")
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    for i in range(0, len(HELLO), 40):
        connection.sendall(HELLO[i : i + 40])

    assert connection.recv(3, socket.MSG_WAITALL) == b"\x16\x03\x03"  # the ServerHello


def test_beyond_the_limit_the_longest_unfinished_handshake_of_the_busiest_address_is_closed(
    extender: Running, stack: ExitStack, files: Files
) -> None:
    before = limited(extender, "connections")
    patient = begin(extender, stack, HELLO[:100], "127.0.0.3")
    storm = [begin(extender, stack, HELLO[:100]) for _ in range(MAX_CONNECTIONS + 9)]
    until(lambda: limited(extender, "connections") == before + 10)

    assert [is_closed(connection) for connection in storm] == [True] * 10 + [False] * (MAX_CONNECTIONS - 1)
    assert not is_closed(patient)
    assert is_alive(extender, files)


def test_handshakes_that_wait_for_their_client_delay_nobody_else(
    extender: Running, stack: ExitStack, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also not as long as the others may be late."""
    monkeypatch.setattr(handshakes, "PATIENCE_SECONDS", 2 * PATIENCE_SECONDS)
    for _ in range(handshakes.AT_ONCE + 10):
        begin(extender, stack, HELLO)
    until(lambda: unfinished(extender) == handshakes.AT_ONCE + 10)

    assert is_alive(extender, files)


def test_a_handshake_of_the_same_address_waits_for_one_that_is_late(
    extender: Running, stack: ExitStack, files: Files
) -> None:
    """It does not wait for their deadline, which is beyond its own patience."""
    for _ in range(handshakes.AT_ONCE + 10):
        begin(extender, stack, HELLO, "127.0.0.1")
    until(lambda: unfinished(extender) == handshakes.AT_ONCE + 10)

    assert is_alive(extender, files)


def test_the_server_ends_while_handshakes_are_under_way(files: Files) -> None:
    with ExitStack() as stack, running(Settings(port=0, drain_seconds=0, **files.settings)) as service:
        for sent in (b"", HELLO[:100], HELLO):
            begin(service, stack, sent)
        until(lambda: unfinished(service) == 3)
