"""The pure parts: lines, back-off, mirror, hand-off to the loop, TTL cache."""

import asyncio
import threading
from itertools import islice
from random import Random

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from extender.kube.changes import Batch, ConsumerGoneError, Gone, LoopHandoff, Mirror, Seen, batches
from extender.kube.client import KubeClient
from extender.kube.errors import ApiError, Backoff, status_error
from extender.kube.objects import BrokenStreamError, LineReader, parse_events, went_back
from extender.kube.pods import PODS, PodRecord
from extender.kube.reviews import TTLCache
from extender.kube.watch import Watch
from tests.fakes.apiserver import FakeApiServer
from tests.kube.watching import pod
from tests.waiting import PATIENCE_SECONDS, until
from tests.world.clock import Clock


@given(st.lists(st.binary(min_size=1, max_size=20).filter(lambda b: b"\n" not in b)), st.integers(1, 9))
def test_lines_come_out_whole_wherever_they_are_cut(lines: list[bytes], size: int) -> None:
    data = b"".join(line + b"\n" for line in lines)
    reader = LineReader()

    assert [line for i in range(0, len(data), size) for line in reader.feed(data[i : i + size])] == lines


def test_a_line_without_end_is_a_broken_stream() -> None:
    reader = LineReader(limit=100)
    for _ in range(10):
        assert reader.feed(b"x" * 10) == []

    with pytest.raises(BrokenStreamError, match="longer than 100"):
        reader.feed(b"x")


def test_events() -> None:
    status = {"kind": "Status", "code": 410, "reason": "Expired"}
    lines = [
        orjson.dumps({"type": kind, "object": {"a": 1}}) for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK", "X")
    ]
    events = parse_events([*lines, orjson.dumps({"type": "ERROR", "object": status})])

    raw = b'{"a":1}'
    assert list(islice(events, 4)) == [(kind, raw) for kind in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")]
    with pytest.raises(ApiError) as error:
        next(events)
    assert error.value.expired


@pytest.mark.parametrize("line", [b"", b"{", b"[]", b'{"type":"ADDED"}', b'{"type":"ADDED","object":3}', b"\xff"])
def test_what_is_no_event_is_a_broken_stream(line: bytes) -> None:
    with pytest.raises(BrokenStreamError):
        list(parse_events([line]))


@pytest.mark.parametrize(
    ("before", "now", "back"),
    [("9", "10", False), ("10", "9", True), ("x", "1", False), ("5", "", False), ("5", "5", False)],
)
def test_history_that_goes_back(before: str, now: str, *, back: bool) -> None:
    assert went_back(before, now) is back


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.text()))
def test_any_status_makes_an_error(status: dict[str, str]) -> None:
    assert status_error(status).status == 500


def test_a_version_the_server_has_not_reached() -> None:
    assert status_error({"code": 504, "details": {"causes": [{"reason": "ResourceVersionTooLarge"}]}}).ahead
    assert ApiError(504, "Timeout", "Too large resource version: 9, current: 3").ahead
    assert not ApiError(504, "Timeout", "").ahead


@given(st.integers(0, 200), st.floats(0, 1, exclude_max=True), st.none() | st.floats(0, 1e9))
def test_a_wait_is_jittered_and_bounded(failures: int, random: float, retry_after: float | None) -> None:
    backoff = Backoff(base_seconds=0.5, cap_seconds=30.0)
    delay = backoff.delay_seconds(failures, lambda: random, retry_after_seconds=retry_after)
    floor = min(retry_after or 0.0, 30.0)

    if failures == 0:
        assert delay == 0.0
    else:
        assert floor <= delay <= floor + min(30.0, 0.5 * 2.0 ** (failures - 1))


def test_the_mirror_tells_every_difference_once() -> None:
    random = Random(5)
    mirror: Mirror[int] = Mirror()
    told: dict[int, int] = {}
    for _ in range(200):
        truth = {str(k): k * 100 + random.randrange(2) for k in random.sample(range(20), random.randrange(20))}
        for change in mirror.replace(dict(truth)):
            if isinstance(change, Gone):
                assert told.pop(change.value // 100) == change.value
            else:
                told[change.value // 100] = change.value
        assert told == {int(k): v for k, v in truth.items()}


def test_the_mirror_knows_nothing_of_strangers() -> None:
    mirror: Mirror[int] = Mirror()

    assert mirror.remove("a") is None
    assert mirror.upsert("a", 1) == Seen(1)
    assert mirror.upsert("a", 1) is None


@pytest.mark.parametrize(("count", "sizes"), [(0, [0]), (1, [1]), (3, [3]), (4, [3, 1]), (6, [3, 3])])
def test_batches_end_with_a_complete_one(count: int, sizes: list[int]) -> None:
    made = list(batches([Seen(i) for i in range(count)], 3))

    assert [len(b.changes) for b in made] == sizes
    assert [b.complete for b in made] == [False] * (len(sizes) - 1) + [True]


def in_thread(handoff: LoopHandoff[int], batch: Batch[int]) -> tuple[threading.Thread, list[BaseException | None]]:
    ended: list[BaseException | None] = []

    def deliver() -> None:
        try:
            handoff(batch)
        except Exception as error:  # noqa: BLE001 - the test looks at it
            ended.append(error)
        else:
            ended.append(None)

    thread = threading.Thread(target=deliver, daemon=True)
    thread.start()
    return thread, ended


def test_the_handoff_runs_on_the_loop_and_waits() -> None:
    async def scene() -> None:
        handled: list[tuple[Batch[int], int]] = []
        handoff = LoopHandoff[int](
            asyncio.get_running_loop(), lambda batch: handled.append((batch, threading.get_ident()))
        )
        thread, ended = in_thread(handoff, Batch((Seen(1),)))
        await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
        assert ended == [None]
        assert handled == [(Batch((Seen(1),)), threading.get_ident())]

    asyncio.run(scene())


@pytest.mark.parametrize("kind", [ValueError, TimeoutError])
def test_what_the_handler_raises_reaches_the_watch(kind: type[Exception]) -> None:
    async def scene() -> None:
        def fail(batch: Batch[int]) -> None:
            raise kind(str(batch))

        thread, ended = in_thread(LoopHandoff(asyncio.get_running_loop(), fail), Batch(()))
        await asyncio.to_thread(thread.join, PATIENCE_SECONDS)
        assert [type(e) for e in ended] == [kind]

    asyncio.run(scene())


def test_closing_the_handoff_releases_a_thread_that_waits() -> None:
    loop = asyncio.new_event_loop()
    handoff: LoopHandoff[int] = LoopHandoff(loop, lambda _: None)
    thread, ended = in_thread(handoff, Batch(()))
    handoff.close()
    thread.join(PATIENCE_SECONDS)
    loop.close()

    assert [type(e) for e in ended] == [ConsumerGoneError]
    with pytest.raises(ConsumerGoneError):
        handoff(Batch(()))


def test_a_loop_that_is_closed_takes_nothing() -> None:
    loop = asyncio.new_event_loop()
    loop.close()
    with pytest.raises(ConsumerGoneError):
        LoopHandoff[int](loop, lambda _: None)(Batch(()))


def test_the_cache_forgets_by_time_and_by_size() -> None:
    clock = Clock()
    cache: TTLCache[str, int] = TTLCache(2, clock)
    cache.put("a", 1, 10.0)
    cache.put("b", 2, 20.0)
    assert cache.get("a") == 1
    cache.put("c", 3, 20.0)

    assert (cache.get("a"), cache.get("b"), cache.get("c")) == (1, None, 3)
    clock.now += 10.0
    assert (cache.get("a"), cache.get("c"), len(cache)) == (None, 3, 1)


def test_the_cache_keeps_little_of_what_is_over() -> None:
    """Seen red: 40,000 UIDs of pods that had ended, 18 MiB, each of which mattered for ten seconds."""
    clock = Clock()
    cache: TTLCache[int, int] = TTLCache(40_000, clock)
    for number in range(1000):
        clock.now += 1.0
        cache.put(number, number, 10.0)
        assert cache.get(number) == number

    assert len(cache) <= 12


def test_a_watch_feeds_the_loop_and_stops_with_it(server: FakeApiServer, client: KubeClient) -> None:
    """The wiring of an application: hand-off made on the loop, closed before the watch is stopped."""
    server.pods.create(pod("a", "node-a"))

    async def application() -> list[str]:
        names: list[str] = []
        both = asyncio.Event()

        def take(batch: Batch[PodRecord]) -> None:
            names.extend(change.value.name for change in batch.changes)
            if len(names) == 2:
                both.set()

        handoff = LoopHandoff(asyncio.get_running_loop(), take)
        watch = Watch(client, PODS, handoff)
        watch.start()
        await asyncio.to_thread(until, lambda: watch.status().synced)
        server.pods.create(pod("b", "node-a"))
        await asyncio.wait_for(both.wait(), PATIENCE_SECONDS)
        handoff.close()
        assert await asyncio.to_thread(watch.stop, PATIENCE_SECONDS)
        return names

    assert asyncio.run(application()) == ["a", "b"]
