"""What a standby does with the scheduler's calls; tests/faults plays it with two processes."""

import asyncio
import logging

import pytest
from pydantic import ValidationError
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.observability.lifecycle import PASSED_ON
from extender.runtime.forwarding import Leader
from tests.kube.scripted import reply, scripted
from tests.reports import args_of, pod_of

FILTER = "/scheduler/filter"


class Recorded:
    """A leader that answers, or does not."""

    def __init__(self, answer: bytes | None) -> None:
        self.given, self.calls = answer, list[tuple[str, bytes]]()

    def takes(self, path: str) -> bool:
        return path.startswith("/scheduler/")

    async def answer(self, path: str, body: bytes) -> bytes | None:
        self.calls.append((path, body))
        return self.given


def ask(leader: Recorded, **headers: str) -> dict[str, object]:
    service = make_service(Settings(lease="on", own_url="http://127.0.0.1:1"))
    service.lifecycle.leader = leader
    with TestClient(make_app(service), client=("127.0.0.1", 1)) as client:
        answer: dict[str, object] = client.post(FILTER, json=args_of(pod_of(1), "a"), headers=headers).json()
        assert client.get("/readyz").status_code == 200
        return answer


def test_the_leader_s_answer_is_the_answer() -> None:
    leader = Recorded(b'{"NodeNames": ["of the leader"]}')

    assert ask(leader) == {"NodeNames": ["of the leader"]}
    assert [path for path, _ in leader.calls] == [FILTER]


@pytest.mark.parametrize("already", [False, True])
def test_without_an_answer_or_passed_on_already_it_answers_itself(*, already: bool) -> None:
    leader = Recorded(b"{}" if already else None)
    headers = {PASSED_ON: "1"} if already else {}

    assert ask(leader, **headers)["NodeNames"] == ["a"]
    assert len(leader.calls) == (0 if already else 1)


def test_a_leader_that_does_not_answer_is_left_alone_for_a_second(caplog: pytest.LogCaptureFixture) -> None:
    """It refuses the call, hangs up, and is no longer there; then it answers."""
    caplog.set_level(logging.INFO, "extender.runtime.forwarding")
    refusing = reply(b"no right", status="403 Forbidden")
    now = [0.0]
    with scripted(refusing, b"", reply(b"{}")) as url:
        leader = Leader(Settings(), lambda: url, lambda: now[0])

        def call() -> bytes | None:
            return asyncio.run(leader.answer(FILTER, b"{}"))

        answers = []
        for _ in range(3):
            assert leader.takes(FILTER)
            answers.append(call())
            assert leader.takes(FILTER) is (answers[-1] is not None)
            now[0] += 1.0
    assert answers == [None, None, b"{}"]
    assert call() is None
    leader.close()
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]

    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert "status 403" in lines[0][1]


def test_only_the_scheduler_s_verbs_are_passed_on_and_only_to_somebody_else() -> None:
    assert not Leader(Settings(), lambda: "").takes(FILTER)
    leader = Leader(Settings(), lambda: "http://127.0.0.1:1")

    paths = ("/scheduler/filter", "/scheduler/prioritize", "/scheduler/preempt", "/scheduler/bind")
    assert all(map(leader.takes, paths))
    assert not any(map(leader.takes, ("/v1/nodes/a/report", "/v1/what-if", "/metrics", "/readyz")))


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"own_url": "http://10.0.0.1:9643", "lease": "on"}, "over https:// only"),
        ({"own_url": "10.0.0.1", "lease": "on"}, "over https:// only"),
        ({"own_url": "https://10.0.0.1:9643"}, "without lease=on"),
    ],
)
def test_calls_are_passed_on_in_private_only(changes: dict[str, str], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        Settings.model_validate(changes)
