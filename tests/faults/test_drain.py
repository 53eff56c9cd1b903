"""A service that is told to end says so first, and loses no request."""

import signal
import threading
from pathlib import Path

from tests.faults.parts import Extender, until
from tests.reports import args_of, pod_of


def test_readiness_fails_first_and_requests_go_on(tmp_path: Path) -> None:
    extender = Extender(tmp_path / "log", drain_seconds=1.5)
    with extender:
        until(extender.is_ready, 60, "readiness")
        ending = threading.Thread(target=extender.kill, args=(signal.SIGTERM,))
        ending.start()
        until(lambda: not extender.is_ready(), 5, "the drain")
        reply = extender.get("/readyz")
        answer = extender.post("/scheduler/filter", args_of(pod_of(), "a"))
        ending.join(30)

    assert reply is not None
    assert (reply.status_code, reply.json()["detail"]) == (503, "the service is ending")
    assert answer is not None
    assert answer["NodeNames"] == ["a"]
    assert not ending.is_alive()
