"""A service that is told to end says so first, and loses no request."""

import signal
import socket
import threading
from pathlib import Path

from tests.faults.parts import Extender
from tests.reports import args_of, pod_of
from tests.security.running import make_files
from tests.waiting import PATIENCE_SECONDS, until


def test_readiness_fails_first_and_requests_go_on(tmp_path: Path) -> None:
    extender = Extender(tmp_path / "log", drain_seconds=5)
    with extender:
        until(extender.is_ready, "readiness")
        ending = threading.Thread(target=extender.kill, args=(signal.SIGTERM,))
        ending.start()
        until(lambda: not extender.is_ready(), "the drain")
        reply = extender.get("/readyz")
        answer = extender.post("/scheduler/filter", args_of(pod_of(), "a"))
        ending.join(PATIENCE_SECONDS)

    assert reply is not None
    assert (reply.status_code, reply.json()["detail"]) == (503, "the service is shutting down")
    assert answer is not None
    assert answer["NodeNames"] == ["a"]
    assert not ending.is_alive()


def test_a_port_that_is_taken_is_an_error_at_the_start(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        settings = {**make_files(tmp_path).settings, "tls_port": taken.getsockname()[1]}
        with Extender(tmp_path / "log", **settings) as extender:
            assert extender.wait() == 3

    assert "cannot listen" in (tmp_path / "log").read_text()
