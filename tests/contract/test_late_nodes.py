"""Filter calls that end before every node is judged, over real sockets: what the first and the next call answer."""

import http.client
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import orjson
import pytest

from extender.api.service import Service
from extender.app import make_service
from extender.cluster.node_class import NodeClass
from extender.config.settings import Settings
from extender.demo.serving import serving
from extender.kubelet.budget import Budget
from extender.kubelet.verdict import Certainty
from extender.samples.nodes import Workload
from extender.scheduling import cached_judge
from extender.scheduling.judge import BoundedJudge
from extender.scheduling.judgement import Judgement, Trouble, UncertaintyPolicy
from extender.scheduling.pod_shape import PodShape
from extender.scheduling.ranking.strategies import Weights, make_strategy
from extender.scheduling.reasons import RefusalReason
from tests.contract.live import Client
from tests.reports import args_of, pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS

NAMES = [f"node-{i}" for i in range(6)]
FULL = [Workload(name="w", copies=2, resources={"cpu": 13, "memory": "1Gi"})]


class SlowJudge(BoundedJudge):
    """The real judge, that finishes a replay for each permit. Without one it works until its time is over."""

    def __init__(self) -> None:
        super().__init__(make_strategy("least-numa", Weights.parse("")), UncertaintyPolicy())
        self.permits = threading.Semaphore(0)
        self.waits = threading.Event()
        self.shapes: list[str] = []

    def __call__(self, shape: PodShape, node_class: NodeClass, budget: Budget | None = None, /) -> Judgement:
        give_up = time.monotonic() + PATIENCE_SECONDS
        while not self.permits.acquire(timeout=0.001):
            assert time.monotonic() < give_up, "no permit for a replay on the event loop"
            self.waits.set()
            if budget is not None and budget._out_of_time():
                return Judgement(None, Certainty.UNKNOWN, trouble=Trouble.TIME)
        self.shapes.append(shape.pod.name)
        return super().__call__(shape, node_class, budget)

    def follows_from_key(self, *_: object) -> bool:
        """Each node is replayed by itself."""
        return False

    def permit(self, count: int) -> None:
        for _ in range(count):
            self.permits.release()


@contextmanager
def _extender(judge: SlowJudge, late: str = "refuse") -> Iterator[tuple[Service, Client]]:
    service = make_service(Settings(port=0, filter_seconds=1.0, late_nodes=late), judge=judge)  # type: ignore[arg-type]
    with serving(service) as url, closing(Client(url)) as client:
        for number, name in enumerate(NAMES):
            workloads = [Workload(name="w", resources={"cpu": 1, "memory": f"{number + 1}Gi"})]
            client.report(report_of(sample(name, workloads=workloads)))
        yield service, client


def test_the_first_call_answers_what_is_certain_and_the_next_one_finds_everything_judged() -> None:
    judge = SlowJudge()
    judge.permit(2)
    with _extender(judge) as (_, client):
        first = client.filter(pod_of(name="a"), *NAMES)
        judge.permit(4)
        second = client.filter(pod_of(name="b"), *NAMES)

        assert first["NodeNames"] == NAMES[:2]
        assert first["FailedAndUnresolvableNodes"] == dict.fromkeys(NAMES[2:], RefusalReason.NO_TURN.text)
        assert (second["NodeNames"], second["Error"]) == (NAMES, "")
        assert judge.shapes == ["a"] * 6


@pytest.mark.parametrize(("late", "permits"), [("error", 2), ("refuse", 0)])
def test_a_call_that_may_not_or_cannot_answer_says_so_and_the_next_one_answers(late: str, permits: int) -> None:
    judge = SlowJudge()
    judge.permit(permits)
    with _extender(judge, late) as (_, client):
        first = client.filter(pod_of(name="a"), *NAMES)
        judge.permit(6 - permits)

        assert first["NodeNames"] is None
        assert f"out of time with {6 - permits} of 6 kinds of nodes to judge" in first["Error"]
        assert client.filter(pod_of(name="b"), *NAMES)["NodeNames"] == NAMES
        assert len(judge.shapes) == 6


def test_a_known_feasible_node_is_an_answer_beside_nodes_without_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cached_judge, "MAX_AT_ONCE", 0)
    judge = SlowJudge()
    judge.permit(1)
    with _extender(judge) as (_, client):
        assert client.filter(pod_of(name="a"), NAMES[0])["NodeNames"] == NAMES[:1]
        assert client.filter(pod_of(name="b"), *NAMES)["NodeNames"] == NAMES[:1]


def test_a_node_that_changes_while_it_is_judged_is_answered_as_it_is() -> None:
    judge = SlowJudge()
    with _extender(judge) as (_, client):
        assert client.filter(pod_of(cpu=8, name="a"), *NAMES)["Error"]
        client.report(report_of(sample(NAMES[3], workloads=FULL), sequence=2))
        judge.permit(6)
        reply = client.filter(pod_of(cpu=8, name="b"), *NAMES)
        assert reply["NodeNames"] == [name for name in NAMES if name != NAMES[3]]
        assert len(judge.shapes) == 6


def test_a_client_that_leaves_during_its_call_harms_nobody() -> None:
    judge = SlowJudge()
    with _extender(judge) as (_, client):
        connection = http.client.HTTPConnection(client._address)
        connection.request("POST", "/scheduler/filter", orjson.dumps(args_of(pod_of(name="gone"), *NAMES)))
        assert judge.waits.wait(PATIENCE_SECONDS)
        connection.close()
        assert client.filter(pod_of(name="a"), *NAMES)["Error"]
        judge.permit(6)
        reply: Any = client.filter(pod_of(name="b"), *NAMES)
        assert (reply["NodeNames"], reply["Error"]) == (NAMES, "")
