"""The watch against a server that misbehaves in one way at a time."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ClassVar

import orjson
import pytest

from extender.kube.access import plain
from extender.kube.changes import Batch
from extender.kube.client import KubeClient
from extender.kube.errors import ApiError, Backoff, NoReplyError
from extender.kube.pods import PODS, PodRecord
from extender.kube.source import Source
from extender.kube.watch import Watch, WatchSettings
from tests.fakes.apiserver import FakeApiServer
from tests.kube.scripted import reply, scripted
from tests.kube.watching import QUICK, Consumer, followed, pod, truth
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.clock import Clock

HOUR = 3600.0


def test_lists_in_pages_and_then_follows(server: FakeApiServer, client: KubeClient) -> None:
    for i in range(20):
        server.pods.create(pod(f"old-{i}", "node-a"))
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        assert consumer.pods == truth(server)
        assert [len(b.changes) for b in consumer.batches] == [5, 5, 5, 5]
        assert [b.complete for b in consumer.batches] == [False, False, False, True]

        server.pods.create(pod("new", "node-a"))
        server.pods.patch("old-3", {"status": {"phase": "Succeeded"}})
        server.pods.delete("old-4")
        until(lambda: consumer.pods == truth(server))

        assert consumer.kinds[20:] == ["Seen", "Changed", "Gone"]
        status = watch.status()
        assert (status.lists, status.streams, status.objects) == (1, 1, 20)


def test_an_empty_cluster_is_told_as_one_complete_batch(client: KubeClient) -> None:
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        assert consumer.batches == [Batch((), complete=True, listed=True)]


def test_pods_on_no_node_are_not_sent_until_they_are_bound(server: FakeApiServer, client: KubeClient) -> None:
    server.pods.create(pod("waiting"))
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        assert consumer.pods == {}
        server.pods.bind("waiting", "node-a")
        until(lambda: len(consumer.pods) == 1)

        (record,) = consumer.pods.values()
        assert record.node_name == "node-a"
        assert consumer.kinds == ["Seen"]


def test_a_change_that_we_do_not_keep_is_not_told(server: FakeApiServer, client: KubeClient) -> None:
    server.pods.create(pod("steady", "node-a"))
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        changed = server.pods.patch(
            "steady", {"status": {"podIP": "10.0.0.1"}, "metadata": {"annotations": {"a": "b"}}}
        )
        version = int(changed["metadata"]["resourceVersion"])
        until(lambda: int(watch.status().resource_version) >= version)
        assert consumer.kinds == ["Seen"]


@pytest.mark.parametrize("trouble", ["break_streams", "end_streams"])
def test_a_stream_that_ends_is_resumed_without_a_list(server: FakeApiServer, client: KubeClient, trouble: str) -> None:
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: server.open_streams == 1)
        for i in range(5):
            server.pods.create(pod(f"before-{i}", "node-a"))
            streams = watch.status().streams
            getattr(server, trouble)()
            server.pods.create(pod(f"after-{i}", "node-a"))
            until(lambda streams=streams: watch.status().streams > streams)  # type: ignore[misc]
        until(lambda: consumer.pods == truth(server))

        assert watch.status().lists == 1
        assert len(consumer.pods) == 10


def test_gone_as_an_event_means_list_again(server: FakeApiServer, client: KubeClient) -> None:
    server.pods.create(pod("stays", "node-a"))
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: server.open_streams == 1)
        server.expire_streams()
        server.pods.create(pod("new", "node-a"))
        until(lambda: watch.status().lists == 2)
        until(lambda: consumer.pods == truth(server))

        assert consumer.kinds == ["Seen", "Seen"]


def test_gone_as_a_reply_means_list_again(server: FakeApiServer, client: KubeClient) -> None:
    server.pods.create(pod("leaves", "node-a"))
    server.pods.create(pod("changes", "node-a"))
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: server.open_streams == 1)
        server.faults.fail(10_000, 503, verb="watch")
        server.break_streams()
        until(lambda: watch.status().failures > 1)
        server.pods.delete("leaves")
        server.pods.patch("changes", {"status": {"phase": "Failed", "reason": "TopologyAffinityError"}})
        server.pods.create(pod("comes", "node-a"))
        server.compact()
        server.faults.clear()
        until(lambda: watch.status().lists == 2)
        until(lambda: consumer.pods == truth(server))

        assert sorted(consumer.kinds[2:]) == ["Changed", "Gone", "Seen"]


def test_a_list_whose_snapshot_expires_is_read_in_one_page(server: FakeApiServer, client: KubeClient) -> None:
    for i in range(20):
        server.pods.create(pod(f"pod-{i}", "node-a"))
    server.faults.latency = 0.1
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: sum(number for call, number in server.access.calls.items() if call.verb == "list") == 2)
        server.pods.delete("pod-0")
        server.compact()
        until(lambda: watch.status().synced)
        until(lambda: consumer.pods == truth(server))


def test_too_many_requests_waits_as_long_as_the_server_says(server: FakeApiServer, client: KubeClient) -> None:
    server.faults.fail(1, 429, verb="list", retry_after=1)
    settings = WatchSettings(backoff=Backoff(base_seconds=0.01, cap_seconds=5.0))
    consumer = Consumer()
    started = time.monotonic()

    with followed(client, consumer, settings) as watch:
        until(lambda: watch.status().synced)

        assert time.monotonic() - started >= 1.0


@pytest.mark.parametrize("status", [401, 403, 429, 500, 503, 504])
def test_refusals_are_lived_through(server: FakeApiServer, client: KubeClient, status: int) -> None:
    server.pods.create(pod("a", "node-a"))
    server.faults.fail(3, status, verb="list")
    server.faults.fail(3, status, verb="watch")
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        until(lambda: server.open_streams == 1)
        server.pods.create(pod("b", "node-a"))
        until(lambda: consumer.pods == truth(server))

        assert watch.status().lists == 1
        assert watch.status().failures == 0


def test_a_silent_stream_is_given_up_and_resumed(server: FakeApiServer, client: KubeClient) -> None:
    server.faults.mute_streams = True
    consumer = Consumer()
    settings = WatchSettings(idle_seconds=0.2, backoff=QUICK.backoff)

    with followed(client, consumer, settings) as watch:
        until(lambda: watch.status().streams == 1)
        server.pods.create(pod("unheard", "node-a"))
        until(lambda: watch.status().streams >= 2)
        server.faults.mute_streams = False
        until(lambda: consumer.pods == truth(server))

        assert watch.status().lists == 1


def test_a_trickling_stream_delivers_whole_events(server: FakeApiServer, client: KubeClient) -> None:
    server.faults.trickle_bytes, server.faults.trickle_delay = 11, 0.0005
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: server.open_streams == 1)
        for i in range(10):
            server.pods.create(pod(f"slow-{i}", "node-a"))
        until(lambda: consumer.pods == truth(server))

        assert (watch.status().lists, watch.status().streams) == (1, 1)


def test_bookmarks_carry_the_version_past_foreign_changes(server: FakeApiServer, client: KubeClient) -> None:
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: server.open_streams == 1)
        for i in range(50):
            server.nodes.create({"metadata": {"name": f"node-{i}"}})
        until(lambda: watch.status().resource_version == str(server.store.revision))
        server.compact()
        server.break_streams()
        server.pods.create(pod("new", "node-a"))
        until(lambda: consumer.pods == truth(server))

        assert watch.status().lists == 1


def test_a_restart_that_keeps_state(server: FakeApiServer, client: KubeClient) -> None:
    for i in range(10):
        server.pods.create(pod(f"pod-{i}", "node-a"))
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        server.restart(down_seconds=0.1)
        server.pods.delete("pod-1")
        until(lambda: consumer.pods == truth(server))

        assert consumer.kinds.count("Seen") == 10


def test_a_restart_that_loses_everything(server: FakeApiServer, client: KubeClient) -> None:
    for i in range(10):
        server.pods.create(pod(f"pod-{i}", "node-a"))
    consumer = Consumer()

    with followed(client, consumer) as watch:
        until(lambda: watch.status().synced)
        until(lambda: server.open_streams == 1)
        server.restart(lose_state=True)
        server.pods.create(pod("pod-1", "node-b"))
        until(lambda: consumer.pods == truth(server))

        assert watch.status().lists >= 2
        assert consumer.kinds.count("Gone") == 10


def test_a_server_that_is_down_does_not_hold_up_the_stop(server: FakeApiServer, client: KubeClient) -> None:
    server.faults.fail(10_000, 503)
    watch = Watch(client, PODS, Consumer(), WatchSettings(backoff=Backoff(base_seconds=HOUR, cap_seconds=HOUR)))
    watch.start()
    until(lambda: watch.status().failures > 0)

    assert watch.stop(PATIENCE_SECONDS)


def test_an_idle_stream_does_not_hold_up_the_stop(server: FakeApiServer, client: KubeClient) -> None:
    server.faults.mute_streams = True
    watch = Watch(client, PODS, Consumer(), WatchSettings(idle_seconds=HOUR, stream_seconds=HOUR))
    watch.start()
    until(lambda: server.open_streams == 1)

    assert watch.stop(PATIENCE_SECONDS)
    until(lambda: server.open_streams == 0)


def test_a_consumer_that_fails_ends_the_watch_and_is_told(client: KubeClient) -> None:
    def fail(batch: Batch[PodRecord]) -> None:
        raise ZeroDivisionError(len(batch.changes))

    watch = Watch(client, PODS, fail, QUICK)
    watch.start()
    until(lambda: watch.status().broken != "")

    assert watch.status().broken == "ZeroDivisionError: 0"
    assert watch.stop(PATIENCE_SECONDS)


def test_a_watch_that_was_never_started_stops(client: KubeClient) -> None:
    assert Watch(client, PODS, Consumer()).stop()


def event(kind: str, name: str, version: int) -> dict[str, object]:
    value = pod(name, "node-a")
    value["metadata"] |= {"uid": name, "resourceVersion": str(version)}
    return {"type": kind, "object": value}


def listing(version: str, *names: str) -> bytes:
    items = [event("", name, 1)["object"] for name in names]
    return reply(orjson.dumps({"metadata": {"resourceVersion": version}, "items": [*items, 7, {}]}))


def stream(*events: dict[str, object]) -> bytes:
    return reply(b"".join(orjson.dumps(e) + b"\n" for e in events))


def test_a_server_that_went_back_in_time_is_listed_again() -> None:
    back = stream(event("ADDED", "b", 11), event("ADDED", "c", 5))
    with scripted(listing("10", "a"), back, listing("6", "c"), back) as url:
        consumer = Consumer()
        with followed(KubeClient(plain(url)), consumer) as watch:
            until(lambda: watch.status().lists == 2)
            until(lambda: set(consumer.pods) == {"c"} or "b" in consumer.pods)

            assert consumer.kinds[:4] == ["Seen", "Seen", "Gone", "Gone"]
            assert watch.status().skipped == 4


@pytest.mark.parametrize("broken", [b"not json\n", b'{"type":"ADDED"}\n', b"[]\n"])
def test_nonsense_in_a_stream_keeps_what_came_before_it(broken: bytes) -> None:
    first = orjson.dumps(event("ADDED", "b", 11)) + b"\n"
    with scripted(listing("10"), reply(first + broken), stream(event("ADDED", "c", 12))) as url:
        consumer = Consumer()
        with followed(KubeClient(plain(url)), consumer) as watch:
            until(lambda: set(consumer.pods) == {"b", "c"})

            assert watch.status().lists == 1


def test_a_list_without_a_version_is_not_believed() -> None:
    with scripted(listing(""), listing("3", "a")) as url:
        consumer = Consumer()
        with followed(KubeClient(plain(url)), consumer) as watch:
            until(lambda: watch.status().synced)

            assert set(consumer.pods) == {"a"}


def test_a_stream_that_outlives_its_time_is_left(server: FakeApiServer, client: KubeClient) -> None:
    settings = WatchSettings(stream_seconds=0.1, idle_seconds=2.0, backoff=QUICK.backoff)

    with followed(client, Consumer(), settings) as watch:
        until(lambda: watch.status().streams >= 2)

        assert watch.status().failures == 0
    assert server.open_streams <= 1


@contextmanager
def timed(client: KubeClient, settings: WatchSettings, clock: Clock) -> Iterator[Watch[None]]:
    """A running watch of budgets, of which there are none, by a clock of the test."""
    watch: Watch[None] = Watch(
        client,
        Source(path="/apis/policy/v1/poddisruptionbudgets", decode=lambda _value: None),
        lambda _batch: None,
        settings,
        clock=clock,
    )
    watch.start()
    try:
        yield watch
    finally:
        assert watch.stop(PATIENCE_SECONDS)


@contextmanager
def timed_pods(client: KubeClient, clock: Clock) -> Iterator[Watch[PodRecord]]:
    """A running watch of pods, by a clock of the test."""
    watch: Watch[PodRecord] = Watch(client, PODS, Consumer(), QUICK, clock=clock)
    watch.start()
    try:
        yield watch
    finally:
        assert watch.stop(PATIENCE_SECONDS)


def test_thirty_quiet_minutes_of_a_resource_without_bookmarks(
    server: FakeApiServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    """15 streams of 120 s in which nothing is sent: that the server accepts the watch again is a sign of life."""
    server.bookmark_seconds = 3600.0
    clock = Clock(0.0)
    with timed(client, WatchSettings(idle_seconds=0.2), clock) as watch:
        until(lambda: watch.status().streams > 0)
        for _ in range(15):
            clock.now += 120.0
            until(lambda: watch.status().silent_seconds == 0.0)

        assert watch.status().streams > 15
        assert watch.status().lists == 1
        assert caplog.records == []


class Recorded(Backoff):
    """The back-off of QUICK; remembers how many failures in a row each wait was for."""

    rows: ClassVar[list[int]] = []

    def delay_seconds(
        self, failures: int, random: Callable[[], float], *, retry_after_seconds: float | None = None
    ) -> float:
        self.rows.append(failures)
        return QUICK.backoff.delay_seconds(failures, random, retry_after_seconds=retry_after_seconds)


def test_a_server_that_closes_every_stream_at_once_is_not_hammered() -> None:
    Recorded.rows.clear()
    settings = WatchSettings(backoff=Recorded())
    with (
        scripted(listing("3"), *[reply(b"")] * 50) as url,
        followed(KubeClient(plain(url)), Consumer(), settings) as watch,
    ):
        until(lambda: watch.status().streams > 5)

        assert Recorded.rows[:5] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("open_seconds", "rows"), [(60.0, [1, 1, 1, 1]), (2.0, [1, 2, 3, 4])])
def test_only_streams_that_break_soon_make_the_waits_longer(
    server: FakeApiServer, client: KubeClient, open_seconds: float, rows: list[int]
) -> None:
    server.bookmark_seconds = 3600.0
    clock = Clock(0.0)
    Recorded.rows.clear()
    with timed(client, WatchSettings(backoff=Recorded()), clock) as watch:
        for streams in range(1, 5):
            until(lambda streams=streams: server.open_streams == 1 and watch.status().streams == streams)  # type: ignore[misc]
            clock.now += open_seconds
            server.break_streams()
        until(lambda: watch.status().streams == 5)

        assert Recorded.rows == rows


def test_an_outage_is_one_warning_a_minute_and_its_end_one_line(
    server: FakeApiServer, client: KubeClient, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "extender")
    server.faults.fail(10_000, 503)
    with followed(client, Consumer()) as watch:
        until(lambda: watch.status().failures > 5)
        server.faults.clear()
        until(lambda: watch.status().synced)
        until(lambda: watch.status().failures == 0)
    lines = [(record.levelname, record.getMessage()) for record in caplog.records]

    assert [level for level, _ in lines] == ["WARNING", "INFO"]
    assert "scripted failure 503" in lines[0][1]
    assert "works again" in lines[1][1]


def test_a_server_that_is_gone_is_tried_every_second_and_its_first_error_is_the_first(client: KubeClient) -> None:
    """After an outage of ten seconds the next attempt could be sixteen away, and pods waited for it."""
    watch: Watch[PodRecord] = Watch(client, PODS, Consumer(), WatchSettings(), random=lambda: 0.999)

    gone = [watch._failed(NoReplyError("connection refused", maybe_done=False)) for _ in range(50)]
    assert max(gone) < 1.0
    busy = [watch._failed(ApiError(503, "", "")) for _ in range(8)]
    assert [round(seconds) for seconds in busy] == [0, 1, 2, 4, 8, 16, 30, 30]


def test_a_server_that_has_just_started_is_tried_every_second_until_it_knows_its_roles(client: KubeClient) -> None:
    """A real API server answers 403 for seconds after its start; the watch of pods was away for sixteen more."""
    clock = Clock(0.0)
    watch: Watch[PodRecord] = Watch(client, PODS, Consumer(), WatchSettings(), random=lambda: 0.999, clock=clock)
    forbidden = ApiError(403, "Forbidden", "")

    watch._failed(NoReplyError("connection refused", maybe_done=False))
    clock.now += 29
    assert max(watch._failed(forbidden) for _ in range(20)) < 1.0
    clock.now += 2
    assert [round(watch._failed(forbidden)) for _ in range(8)] == [0, 1, 2, 4, 8, 16, 30, 30]


def test_a_quiet_watch_lists_again_at_once_after_each_restart_of_the_server(
    server: FakeApiServer, client: KubeClient
) -> None:
    """A real API server that restarts knows no versions of before. The fifth restart made the watch wait for 21 s."""
    server.bookmark_seconds = 3600.0
    clock = Clock(0.0)
    Recorded.rows.clear()
    with timed(client, WatchSettings(backoff=Recorded()), clock) as watch:
        for lists in range(1, 6):
            until(lambda lists=lists: server.open_streams == 1 and watch.status().lists == lists)  # type: ignore[misc]
            clock.now += 20.0
            server.expire_streams()
        until(lambda: watch.status().lists == 6)

        assert Recorded.rows == []


def test_bytes_are_no_progress() -> None:
    """A line that never ends, byte by byte: the server is heard, and nothing is learned."""
    clock = Clock(0.0)
    endless = b"HTTP/1.1 200 OK\r\n\r\n" + b" " * 100_000
    with (
        scripted(listing("10", "a"), endless, pause=0.001) as url,
        timed_pods(KubeClient(plain(url)), clock) as watch,
    ):
        until(lambda: watch.status().streams == 1)
        clock.now += 100.0
        until(lambda: watch.status().heard_seconds == 0.0)

        assert watch.status().silent_seconds == 100.0


def test_a_line_that_nobody_can_apply_leads_to_a_new_list() -> None:
    """The server would send it again for ever, and an accepted stream would look like progress."""
    clock = Clock(0.0)
    broken = [reply(b'{"type":"ADDED","object":{"a":1]}\n')] * 3
    with (
        scripted(listing("10", "a"), *broken, listing("12", "a", "b"), stream(event("ADDED", "c", 13))) as url,
        timed_pods(KubeClient(plain(url)), clock) as watch,
    ):
        until(lambda: watch.status().lists == 2)
        until(lambda: watch.status().objects == 3)


def test_streams_that_end_with_bytes_of_no_event_are_no_progress(server: FakeApiServer, client: KubeClient) -> None:
    clock = Clock(0.0)
    server.bookmark_seconds = 3600.0
    with timed_pods(client, clock) as watch:
        until(lambda: server.open_streams == 1)
        for _ in range(2):  # in the middle of the first line
            streams = watch.status().streams
            server.break_streams()
            until(lambda streams=streams: watch.status().streams > streams)  # type: ignore[misc]
            clock.now += 50.0
        silent = watch.status().silent_seconds
        server.pods.create(pod("b", "node-a"))
        until(lambda: watch.status().silent_seconds == 0.0)

        assert silent == 100.0


def test_a_list_that_breaks_off_at_the_same_page_is_no_progress() -> None:
    """Each attempt reads the first page again."""
    clock = Clock(0.0)
    page = orjson.loads(listing("10", "a").split(b"\r\n\r\n")[1])
    page["metadata"]["continue"] = "more"
    attempt = [reply(orjson.dumps(page)), reply(b"{", status="500 Internal Server Error")]
    with scripted(*attempt * 500) as url, timed_pods(KubeClient(plain(url)), clock) as watch:
        until(lambda: watch.status().failures > 3)
        clock.now += 70.0
        failures = watch.status().failures
        until(lambda: watch.status().failures > failures + 3)

        assert watch.status().silent_seconds == 70.0
        assert watch.status().heard_seconds == 0.0
        assert watch.status().trouble.startswith("500")
