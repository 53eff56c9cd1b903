"""What makes the event loop late is named, and a node that does is left to another thread from then on."""

import asyncio
import logging
import sys
import time
from typing import Any

import orjson
import pytest

from extender.app import make_service
from extender.cluster import node_projection
from extender.cluster.events import PodSeen
from extender.cluster.node import NodeRecord
from extender.cluster.projection import Projection, project
from extender.config.settings import Settings
from extender.intake import observation_of
from extender.runtime.watchdog import blamed_by, watched
from extender.wire.pods import pod_from_json
from extender.wire.reports import read_report
from tests.reports import pod_of, report_of, sample
from tests.waiting import PATIENCE_SECONDS

BLOCKED = "numa_extender_event_loop_blocked_total"


def test_a_node_that_blocks_the_event_loop_is_named_and_left_out(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The stall is seeded: a projection that does not return before the watchdog has seen it."""
    on_loop = 0

    async def story() -> None:
        nonlocal on_loop
        service = make_service(Settings(question_workers=0))
        store, metrics = service.known.nodes, service.metrics
        body = orjson.dumps(report_of(sample("slow")))
        store.observe(observation_of(read_report(body, lambda _name: "v1.36.2"), body), service.clock())

        def stall(*args: Any, **more: Any) -> Projection:
            nonlocal on_loop
            on_loop += more.get("limit") is not None
            until = time.monotonic() + 1.5
            while more.get("limit") is not None and on_loop == 1 and time.monotonic() < until:
                pass
            return project(*args, **more)

        async with watched(service):
            await asyncio.sleep(0.3)
            monkeypatch.setattr(node_projection, "project", stall)
            for number in range(2):
                pod = pod_from_json(pod_of(2, name=f"p{number}"))
                store.apply(PodSeen("slow", pod, started=False), now=service.clock())
                store.classes_of(["slow"])
                began = time.monotonic()
                while not metrics.registry.get_sample_value(BLOCKED, {"kind": "node"}):
                    assert time.monotonic() - began < PATIENCE_SECONDS
                    await asyncio.sleep(0.05)
                assert await service.judging.projections.settled("slow", PATIENCE_SECONDS)
        await service.judging.projections.aclose()
        assert metrics.registry.get_sample_value("numa_extender_event_loop_lag_seconds_count")

    with caplog.at_level(logging.WARNING):
        asyncio.run(story())

    assert "event loop late" in caplog.text
    assert "node=slow" in caplog.text
    assert on_loop == 1, "later projections of the node are computed in another thread"


def test_the_pod_that_is_worked_on_is_named() -> None:
    pod = pod_from_json(pod_of(2, name="odd"))

    def work(_pod: object) -> object:
        return blamed_by(sys._getframe())

    found = work(pod)
    assert found == ("", "default/odd", "tests.runtime.test_watchdog.work")
    assert blamed_by(None) == ("", "", "")


def test_a_value_that_is_being_made_does_not_end_the_watch() -> None:
    """Seen red: the names of a node's record are in a part of it that is set last, and the watchdog's thread ended."""
    pod = pod_from_json(pod_of(2, name="odd"))

    def work(_record: object, _pod: object) -> object:
        return blamed_by(sys._getframe())

    assert work(object.__new__(NodeRecord), pod)[:2] == ("", "default/odd")  # type: ignore[index]
