"""People's questions are answered apart from the scheduler's verbs, and end when they should: a real process."""

import contextlib
import http.client
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest
from starlette.testclient import TestClient

from extender.app import make_app, make_service
from extender.config.settings import Settings
from extender.samples.nodes import Workload
from tests.faults.parts import Extender
from tests.faults.people import children_of, cpu_seconds, family_of
from tests.plain_http import HTTP
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import A_DAY, PATIENCE_SECONDS, until

CLUSTER = [
    sample("node-0", workloads=[Workload(name="w", copies=2, resources={"cpu": 4, "memory": "1Gi"})]),
    sample("node-1"),
]
NODES = [node.name for node in CLUSTER]
MACHINES = [{"machine": "epyc-nps4-128", "name": f"m{i}"} for i in range(64)]
LONG = {"pods": [{"pod": pod_of(1, f"{i + 1}Mi")} for i in range(10_000)], "hypothetical": MACHINES}
"""Ten thousand shapes, each judged by a replay: about a minute. The first lines come at once."""
SOON_SECONDS = 15
"""Much less than a long question takes, also on a machine that is three times as fast."""
WORKING = 'numa_extender_questions_now{state="working"}'
ENDED = 'numa_extender_questions_total{{kind="{}",outcome="{}"}}'


@pytest.fixture(scope="module")
def extender(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Extender]:
    log = tmp_path_factory.mktemp("workers") / "log"
    with started(log, stale_after_seconds=A_DAY) as extender:
        yield extender


@contextlib.contextmanager
def started(log: Path, **settings: object) -> Iterator[Extender]:
    with Extender(log, **settings) as extender:
        until(extender.is_ready, "the extender")
        for node in CLUSTER:
            path = f"{extender.url}/v1/nodes/{node.name}/report"
            assert HTTP.put(path, json=report_of(node)).is_success
        yield extender


def ask(extender: Extender, path: str, question: object, **parts: Any) -> httpx.Response:
    return HTTP.post(extender.url + path, json=question, **parts)


def ended(extender: Extender, kind: str, outcome: str) -> float:
    return extender.metric(ENDED.format(kind, outcome))


@contextlib.contextmanager
def asking_long(extender: Extender) -> Iterator[http.client.HTTPConnection]:
    """Somebody asks a question that takes long; he leaves when the context ends."""
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", extender.port, timeout=PATIENCE_SECONDS)
    ) as connection:
        connection.request("POST", "/v1/plan", orjson.dumps(LONG), {"Content-Type": "application/json"})
        until(lambda: extender.metric(WORKING) == 1, "the question")
        yield connection
    if extender.is_running:
        until(lambda: not workers_of(extender), "the end of the worker")


def workers_of(extender: Extender) -> list[int]:
    """The processes that answer; the template is their parent."""
    return [worker for template in children_of(extender.pid) for worker in children_of(template)]


def test_workers_answer_as_the_service_itself_does(extender: Extender) -> None:
    """The tests in `tests/api` ask a service without workers: here both are asked the same."""
    made = [
        {"copy_of": "node-0", "remove_pods": ["demo/w-0"], "kubelet": {"topologyManagerPolicy": "restricted"}},
        {"machine": "arm-80", "add_pods": [pod_of(4)]},
    ]
    about = {"nodes": NODES, "hypothetical": made}
    questions: list[tuple[str, object, dict[str, str]]] = [
        ("/v1/what-if", {"pod": pod_of(4), "explain": True, **about}, {}),
        ("/v1/what-if", {"pod": pod_of(4), "nodes": ["node-9"]}, {}),
        ("/v1/what-if?explain=true&node=node-1", pod_of(40), {}),
        ("/v1/capacity", {"pods": [pod_of(2), pod_of(3)], **about}, {}),
        ("/v1/capacity", {"pods": [pod_of(2)]}, {"accept": "application/x-ndjson"}),
        ("/v1/capacity?max_copies=3", pod_of(2), {}),
        ("/v1/capacity", {"pods": [pod_of("x")]}, {}),
        ("/v1/plan", {"pods": [{"pod": pod_of(4), "copies": 9}], **about}, {}),
        ("/v1/plan", [], {}),
        ("/v1/what-if", {"pod": pod_of(4), "hypothetical": [{"machine": "no"}]}, {}),
        ("/v1/what-if", "{", {"content-type": "application/json"}),
        ("/v1/what-if", "a: [", {"content-type": "application/yaml"}),
    ]
    with TestClient(make_app(make_service(Settings(question_workers=0))), client=("127.0.0.1", 1)) as client:
        for node in CLUSTER:
            assert client.put(f"/v1/nodes/{node.name}/report", json=report_of(node)).is_success
        for path, question, headers in questions:
            content = question.encode() if isinstance(question, str) else orjson.dumps(question)
            parts = {"content": content, "headers": headers}
            ours = client.post(path, **parts)  # type: ignore[arg-type]
            theirs = HTTP.post(extender.url + path, **parts)  # type: ignore[arg-type]
            assert (theirs.status_code, theirs.content) == (ours.status_code, ours.content), path
            assert theirs.headers["content-type"] == ours.headers["content-type"]
    assert ended(extender, "what-if", "invalid") == 4
    assert ended(extender, "capacity", "answered") == 3


def test_the_work_ends_when_the_client_leaves(extender: Extender) -> None:
    before = ended(extender, "plan", "client_left")
    with asking_long(extender):
        until(lambda: workers_of(extender), "a worker")
    until(lambda: ended(extender, "plan", "client_left") == before + 1, "the end of the question")
    assert until(lambda: not workers_of(extender), "the end of the worker") < SOON_SECONDS
    family = family_of(extender.pid)
    used = cpu_seconds(family)
    time.sleep(0.5)  # a measurement, not a wait
    assert cpu_seconds(family) - used < 0.2


def test_a_worker_has_no_socket_of_the_service(extender: Extender) -> None:
    with asking_long(extender):
        until(lambda: workers_of(extender), "a worker")
        (worker,) = workers_of(extender)
        (template,) = children_of(extender.pid)
        listening = _inodes_listening(extender.port)
        assert listening & _sockets(extender.pid)
        for pid in (worker, template):
            assert not listening & _sockets(pid)
            # while the template starts a worker it has the worker's socket as well
            until(lambda pid=pid: len(_sockets(pid)) <= 3, "no other sockets")  # type: ignore[misc]
        ours, theirs = (os.getpriority(os.PRIO_PROCESS, pid) for pid in (extender.pid, template))
        assert ours < theirs < os.getpriority(os.PRIO_PROCESS, worker) == 19
        assert Path(f"/proc/{worker}/oom_score_adj").read_text().strip() == "1000"


def _sockets(pid: int) -> set[str]:
    found = set()
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                found.add(target[8:-1])
    return found


def _inodes_listening(port: int) -> set[str]:
    rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return {row[9] for row in rows if row[1].endswith(f":{port:04X}") and row[3] == "0A"}


def test_a_worker_that_dies_fails_its_own_question_only(extender: Extender) -> None:
    pods = [pod_of(1, f"{i + 1}Mi") for i in range(64)]
    question = {"pods": pods, "hypothetical": MACHINES, "max_copies": 10_000}
    with contextlib.closing(
        http.client.HTTPConnection("127.0.0.1", extender.port, timeout=PATIENCE_SECONDS)
    ) as connection:
        connection.request("POST", "/v1/capacity", orjson.dumps(question), {"Content-Type": "application/json"})
        until(lambda: workers_of(extender), "a worker")
        for worker in workers_of(extender):
            os.kill(worker, signal.SIGKILL)
        reply = connection.getresponse()
        problem = orjson.loads(reply.read())

    assert reply.status == 503
    assert reply.headers["Retry-After"] == "1"
    assert "the worker process ended before the reply was complete" in problem["detail"]
    assert ask(extender, "/v1/what-if", {"pod": pod_of(4)}).status_code == 200


def test_a_template_that_dies_is_replaced(extender: Extender) -> None:
    ask(extender, "/v1/what-if", {"pod": pod_of(4)})
    (template,) = children_of(extender.pid)
    os.kill(template, signal.SIGKILL)

    def answered() -> bool:
        return ask(extender, "/v1/what-if", {"pod": pod_of(4)}).status_code == 200

    until(answered, "an answer")
    assert children_of(extender.pid) != [template]


def test_workers_end_with_the_service_however_it_ends(tmp_path: Path) -> None:
    with started(tmp_path / "log") as extender, asking_long(extender):
        until(lambda: workers_of(extender), "a worker")
        family = family_of(extender.pid)
        assert len(family) == 3
        extender.kill(signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}").exists() for pid in family), "the end of the workers")


def test_a_signal_ends_the_service_while_a_question_is_at_work(tmp_path: Path) -> None:
    with started(tmp_path / "log", shutdown_seconds=1) as extender, asking_long(extender):
        family = family_of(extender.pid)
        began = time.monotonic()
        extender.kill(signal.SIGTERM)
        assert time.monotonic() - began < SOON_SECONDS
        assert not any(Path(f"/proc/{pid}").exists() for pid in family)


def test_a_question_without_a_worker_is_refused_and_the_scheduler_is_answered(tmp_path: Path) -> None:
    with started(tmp_path / "log", question_workers=1, max_waiting_questions=0) as extender:
        with asking_long(extender):
            busy = ask(extender, "/v1/what-if", {"pod": pod_of(4)})
            filtered = extender.post("/scheduler/filter", args_of(pod_of(3), *NODES))
        assert (busy.status_code, busy.headers["retry-after"]) == (429, "5")
        assert busy.headers["content-type"] == "application/problem+json"
        assert filtered["NodeNames"] == NODES
        assert ended(extender, "what-if", "refused") == 1


def test_a_question_that_takes_too_long_ends_with_a_problem(tmp_path: Path) -> None:
    with started(tmp_path / "log", question_seconds=2) as extender, asking_long(extender) as connection:
        reply = connection.getresponse()
        last = orjson.loads(reply.read().splitlines()[-1])
        problem = last if reply.status == 504 else last["problem"]  # lines may have been sent, or the machine is slow
        assert problem["status"] == 504
        assert "longer than 2 s (NUMA_EXTENDER_QUESTION_SECONDS)" in problem["detail"]
        assert ended(extender, "plan", "time_limit") == 1
