"""Lists and watches one resource continuously: after every batch the consumer knows what the server knows.

It lists in pages (consistent, from the server's quorum read, so that a relist never goes back in time), delivers the
differences, watches from the list's resourceVersion and resumes from the last version seen. It lists again only if the
server has lost or dropped that version: HTTP 410, an ERROR event 410, a version too large for the server, or events
older than what we have. After all other errors it resumes, after a delay with full jitter.

It never hangs: each silence of a stream is limited by `idle_seconds`, each stream by its `timeoutSeconds`, which we
also enforce ourselves. A consumer that raises ends the watch for good (`status().broken`), because the two no longer
agree and only a restart repairs that.

Each object is read by itself, by the source's reader and by those of its consumers (`Source.check`). An object that
cannot be read is skipped, whatever the exception. Its last value stays until it is deleted. See `source`.

Bytes alone are no progress. A watch makes progress with each list, page, event and bookmark that it has applied. It
also makes progress when the server accepts a stream, unless the last stream ended with bytes that are no event.

A silent stream is not a fault. Bookmarks arrive about once a minute. But an API server sends none while its watch cache
has seen no event of the resource, and older etcd versions report no progress in between. The watch is then reopened at
the same resourceVersion. A server that accepts it (status 200) has the history from that version on and sends what has
happened since, so an accepted watch confirms as much as a bookmark.

RBAC: `list` and `watch` on the resource.
"""

import logging
import math
import random as _random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final, Generic, TypeVar

from extender.kube.changes import Batch, Change, ConsumerGoneError, Mirror, batches
from extender.kube.client import KubeClient, SilentStreamError, Stream
from extender.kube.errors import ApiError, Backoff, KubeError, NoReplyError
from extender.kube.objects import (
    BrokenStreamError,
    LineReader,
    Page,
    WatchEvent,
    parse_events,
    read_head,
    read_page,
    resource_version,
    went_back,
)
from extender.kube.source import ObjectReader, Source, UnreadObject
from extender.observability.logs import FaultLog
from extender.wire.errors import WireError

T = TypeVar("T")
Deliver = Callable[[Batch[T]], None]
"""Called in the watch's thread, one batch after the other. The next batch is read when it returns."""

_SHORT_SECONDS: Final = 1.0
_STEADY_SECONDS: Final = 10.0
"""A stream that was open for this long was good: when it breaks, the back-off starts again at its first delay. Proxies
close idle streams after a minute or more."""
_RECONNECT_SECONDS: Final = 1.0
"""The longest wait after a failed attempt to connect: it costs the server nothing, and pods wait for its return."""
_STARTING_SECONDS: Final = 30.0
"""For this long after the server was lost, its cheap refusals are tried again as soon as a failed connection. An API
server that has just started answers 403 until it has read its roles."""
_CHEAP: Final = (401, 403)
STREAM_CHANGES: Final = 64
"""Changes of a stream that the consumer gets at once: it may be an event loop, on which others wait."""
STREAM_BYTES: Final = 128 << 10
"""The events of a batch have not many more bytes."""
_STUCK_TIMES: Final = 3
"""After so many failures in a row without an event that can be applied, the list is read again."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchSettings:
    """`page_size`: objects per list page, each limited to `page_seconds`. `batch_size`: changes of a relist per batch.

    `idle_seconds`: silence after which a stream is reopened. `stream_seconds`: requested duration of each stream, drawn
    between this and twice this so that streams do not end together.
    """

    page_size: int = 500
    batch_size: int = 1000
    page_seconds: float = 60.0
    idle_seconds: float = 120.0
    stream_seconds: float = 300.0
    backoff: Backoff = field(default_factory=Backoff)


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchStatus:
    """The state of the watch. Counters start with the watch.

    `silent_seconds`: since the last progress; see the file's text. `heard_seconds`: since the last contact with the
    server: a page, an accepted watch, or a byte of one. `skipped`: objects that we do not use, or cannot read.
    `unread`: objects that cannot be read, by key. `failures`: since the server last accepted a watch. `trouble`: the
    last failure; empty once there is progress. `broken`: why the thread has ended for good; empty while it runs or
    after a stop.
    """

    synced: bool
    objects: int
    resource_version: str
    silent_seconds: float
    heard_seconds: float
    lists: int
    streams: int
    skipped: int
    unread: Mapping[str, UnreadObject]
    failures: int
    trouble: str
    broken: str


class Watch(Generic[T]):
    """One resource, watched by a daemon thread from `start` to `stop`."""

    def __init__(
        self,
        client: KubeClient,
        source: Source[T],
        deliver: Deliver[T],
        settings: WatchSettings | None = None,
        *,
        random: Callable[[], float] = _random.random,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client, self._source, self._deliver = client, source, deliver
        self._settings = settings or WatchSettings()
        self._random, self._clock = random, clock
        self._thread = threading.Thread(target=self._run, name=f"watch {source.path}", daemon=True)
        self._stop = threading.Event()
        self._synced = threading.Event()
        self._stream: Stream | None = None
        self._stream_lock = threading.Lock()
        self._mirror: Mirror[T] = Mirror()
        self._version = ""
        self._heard_at = self._progress_at = clock()
        self._pages_read = 0
        """The most pages of a list that was not completed since the last progress."""
        self._is_stuck = False
        """Whether the last stream ended with bytes that could not be applied."""
        self._is_listed = True
        """Whether the version is that of a list, and no stream has confirmed it."""
        self._lost_at = -math.inf
        """When a stream last ended or a connection failed."""
        self._trouble = ""
        self._lists = self._streams = self._events = self._failures = 0
        self._waits = 0
        """Consecutive delays. Unlike failures, it also grows while streams are accepted and end at once."""
        self._faults = FaultLog(_log, f"watch of {source.path}", clock)
        self._reader = ObjectReader(source, _log, clock)
        self._broken = ""

    def start(self) -> None:
        """Start. Returns at once."""
        self._thread.start()

    def stop(self, timeout_seconds: float = 5.0) -> bool:
        """Stop, even while waiting or in the middle of a stream. Returns whether the thread has ended in time."""
        self._stop.set()
        with self._stream_lock:
            if self._stream is not None:
                self._stream.abort()
        if self._thread.is_alive():
            self._thread.join(timeout_seconds)
        return not self._thread.is_alive()

    def status(self) -> WatchStatus:
        """The current state. Thread-safe."""
        return WatchStatus(
            synced=self._synced.is_set(),
            objects=len(self._mirror),
            resource_version=self._version,
            silent_seconds=max(0.0, self._clock() - self._progress_at),
            heard_seconds=max(0.0, self._clock() - self._heard_at),
            lists=self._lists,
            streams=self._streams,
            skipped=self._reader.skipped,
            unread=self._reader.unread,
            failures=self._failures,
            trouble=self._trouble,
            broken=self._broken,
        )

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self._stop.wait(self._round())
        except ConsumerGoneError:
            self._broken = "the consumer is gone"
        except Exception as error:  # noqa: BLE001 - a consumer may raise anything, and status() must tell
            self._broken = f"{type(error).__name__}: {error}"
            _log.exception("watch of %s failed and was ended", self._source.path)

    def _round(self) -> float:
        """List if needed, and follow one stream to its end. Returns the seconds to wait before the next round."""
        try:
            if not self._version:
                self._list()
            self._follow()
        except KubeError as error:
            return 0.0 if self._stop.is_set() else self._failed(error)
        return 0.0

    def _failed(self, error: KubeError) -> float:
        """Note a failure. Returns the seconds to wait; forgets the version where only a new list helps."""
        self._failures += 1
        if isinstance(error, NoReplyError) and not error.maybe_done:
            self._lost_at = self._clock()
            return self._told(error, self._soon())
        if isinstance(error, ApiError) and self._passes_soon(error):
            self._version = "" if error.expired else self._version
            return self._told(error, self._soon())
        self._waits += 1
        waits, retry_after = self._waits, None
        if isinstance(error, ApiError):
            retry_after = error.retry_after_seconds
            if error.expired or error.ahead or error.status == 400:
                self._version = ""
                waits -= error.expired
        if self._is_stuck and waits >= _STUCK_TIMES:
            self._version = ""
        return self._told(
            error, self._settings.backoff.delay_seconds(waits, self._random, retry_after_seconds=retry_after)
        )

    def _passes_soon(self, error: ApiError) -> bool:
        """Whether a server that has just started gives this error. One that lost what it has just listed has not."""
        if error.expired:
            return not self._is_listed
        return error.status in _CHEAP and self._clock() - self._lost_at < _STARTING_SECONDS

    def _soon(self) -> float:
        return min(_RECONNECT_SECONDS, self._settings.backoff.base_seconds * 2) * self._random()

    def _told(self, error: KubeError, delay: float) -> float:
        """Say that the watch failed, and goes on after *delay* seconds."""
        self._trouble = str(error)
        self._faults.failed("%s; again in %.1f s", error, delay)
        return delay

    def _list(self) -> None:
        """Read the whole list, and deliver how it differs from what the consumer has."""
        try:
            listed, version = self._read_pages(self._settings.page_size)
        except _PagesExpiredError:
            listed, version = self._read_pages(0)
        for batch in batches(self._mirror.replace(listed), self._settings.batch_size):
            self._deliver(batch)
        self._version, self._is_listed = version, True
        self._lists += 1
        self._note_progress()
        self._synced.set()

    def _read_pages(self, size: int) -> tuple[dict[str, T], str]:
        """The whole list, decoded page by page, and its version. *size* 0: in one page, whatever its length."""
        listed: dict[str, T] = {}
        self._reader.begin_list()
        token, pages = "", 0
        while True:
            page = self._read_page(size, token)
            for item in page.items or ():
                entry = self._reader.read(bytes(item), self._mirror.values).entry
                if entry is not None:
                    listed[entry[0]] = entry[1]
            self._reader.checked.clear()
            token, pages = page.metadata.token, pages + 1
            if pages > self._pages_read:  # a list that breaks off at the same page again and again is no progress
                self._pages_read, self._progress_at = pages, self._clock()
            if not token:
                break
            if self._stop.is_set():
                raise NoReplyError("stopped while listing", maybe_done=False)
        if not page.metadata.version:
            raise NoReplyError("the list has no resourceVersion", maybe_done=False)
        self._reader.end_list()
        return listed, page.metadata.version

    def _read_page(self, size: int, token: str) -> Page:
        query, seconds = self._source.query(limit=str(size or ""), **{"continue": token}), self._settings.page_seconds
        try:
            raw = self._client.read("GET", self._source.path, query=query, timeout_seconds=seconds)
            self._heard_at = self._clock()
            return read_page(raw)
        except ApiError as error:
            if error.expired and token:
                raise _PagesExpiredError(str(error)) from error
            raise
        except WireError as error:
            raise NoReplyError(f"the reply is not a list: {error}", maybe_done=True) from error

    def _note_progress(self) -> None:
        """Something was applied."""
        self._progress_at = self._clock()
        self._pages_read, self._is_stuck, self._trouble = 0, False, ""

    def _follow(self) -> None:
        """Follow one stream to its end. Returns if the server ended it normally; raises KubeError otherwise."""
        seconds = self._settings.stream_seconds * (1.0 + self._random())
        events_before, started = self._events, self._clock()
        lines, has_heard = LineReader(), False
        try:
            with self._opened(seconds) as stream:
                for piece in stream:
                    self._heard_at, has_heard = self._clock(), True
                    self._apply(parse_events(lines.feed(piece)))
                    if self._heard_at - started > seconds + self._settings.idle_seconds:
                        return
        except SilentStreamError:
            if not has_heard:  # the server would have sent what has happened at once
                self._is_stuck = False
            return
        finally:
            self._lost_at = self._clock()
            self._is_stuck = self._is_stuck or (has_heard and self._events == events_before)
            if self._clock() - started >= _STEADY_SECONDS:
                self._waits, self._is_listed = 0, False
        if self._events == events_before and self._clock() - started < _SHORT_SECONDS:
            raise BrokenStreamError("the server closed the stream at once")

    def _apply(self, events: Iterable[WatchEvent]) -> None:
        """Apply *events*. Those applied are delivered, even if a later one ends the stream."""
        changes: list[Change[T]] = []
        size = 0
        try:
            for event in events:
                change = self._take(event)
                size += len(event.object)
                if change is not None:
                    changes.append(change)
                if len(changes) >= STREAM_CHANGES or size > STREAM_BYTES:
                    self._hand_over(changes)
                    size = 0
        finally:
            self._hand_over(changes)

    def _hand_over(self, changes: list[Change[T]]) -> None:
        """Deliver the changes, if there are any, and empty the list."""
        batch = Batch(tuple(changes))
        changes.clear()
        if batch.changes:
            self._deliver(batch)
        self._reader.checked.clear()

    def _take(self, event: WatchEvent) -> Change[T] | None:
        """Apply one event to the mirror. Returns the change; None if no part that we keep has changed."""
        entry = None
        if event.type in ("ADDED", "MODIFIED"):
            head, entry = self._reader.read(event.object, self._mirror.values)
        else:
            head = read_head(event.object)
        version = resource_version(head)
        if went_back(self._version, version):
            message = f"events of version {version} after {self._version}"
            raise ApiError(410, "Expired", f"the server has lost history: {message}")
        change = None
        if event.type == "DELETED":
            change = self._mirror.remove(self._reader.gone(head))
        elif entry is not None:
            change = self._mirror.upsert(*entry)
        self._version = version or self._version
        self._events += 1
        self._waits, self._is_listed = 0, False
        self._note_progress()
        return change

    @contextmanager
    def _opened(self, seconds: float) -> Iterator[Stream]:
        """A stream from the last version on, which `stop` can end."""
        query = self._source.query(
            watch="true",
            resourceVersion=self._version,
            allowWatchBookmarks="true",
            timeoutSeconds=str(max(1, int(seconds))),
        )
        stream = self._client.stream(self._source.path, query=query, idle_seconds=self._settings.idle_seconds)
        self._streams += 1
        self._heard_at = self._clock()
        if not self._is_stuck:
            self._progress_at, self._trouble = self._heard_at, ""
        self._failures = 0
        self._faults.ended()
        with stream:
            with self._stream_lock:
                self._stream = stream
            if self._stop.is_set():
                stream.abort()
            try:
                yield stream
            finally:
                with self._stream_lock:
                    self._stream = None


class _PagesExpiredError(Exception):
    """The list took longer than the server keeps its snapshot: read it in one page."""
