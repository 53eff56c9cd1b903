"""Bytes that are not HTTP, from anybody who reaches the port: the real program logs a few lines of them."""

import socket
from pathlib import Path

from tests.faults.parts import Extender
from tests.waiting import PATIENCE_SECONDS, until

GARBAGE = 40


def test_garbage_is_counted_and_logged_a_few_times(tmp_path: Path) -> None:
    log = tmp_path / "extender.log"
    with Extender(log, kubernetes="off") as extender:
        until(extender.is_ready, "readiness")
        for _ in range(GARBAGE):
            with socket.create_connection(("127.0.0.1", extender.port), PATIENCE_SECONDS) as connection:
                connection.sendall(b"\x16\x03\x01 garbage\r\n\r\n")
                assert b"400" in connection.recv(4096)
        assert extender.metric('numa_extender_limited_total{limit="malformed"}') == GARBAGE

    assert 1 <= log.read_text().count("Invalid HTTP request") <= 3
