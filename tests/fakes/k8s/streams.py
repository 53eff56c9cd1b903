"""One open watch: changes, bookmarks and the ways a stream can go wrong."""

import asyncio
import contextlib
from typing import Final

import orjson

from tests.fakes.k8s.faults import Faults
from tests.fakes.k8s.http import STREAM_END, STREAM_HEAD, chunk
from tests.fakes.k8s.resources import JSON, Resource, expired
from tests.fakes.k8s.selectors import Selector
from tests.fakes.k8s.store import Store, Watcher

DEFAULT_TIMEOUT_SECONDS: Final = 3600.0
_BATCH: Final = 500


class BrokenOnPurposeError(Exception):
    """The stream is to be cut: the connection must be aborted, not closed."""


class Stream:
    """Serves one watch until it times out, the client leaves, or somebody breaks it."""

    def __init__(
        self, *, store: Store, faults: Faults, resource: Resource, selector: Selector, bookmark_seconds: float
    ) -> None:
        self._store, self._faults, self._resource, self._selector = store, faults, resource, selector
        self._bookmark_seconds = bookmark_seconds
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._order = ""

    def order(self, what: str) -> None:
        """Make the stream `cut` (mid-line), `expire` (ERROR event 410), `end` or note the client `gone`. Loop only."""
        self._order = what
        self._news.set()

    async def serve(
        self, writer: asyncio.StreamWriter, revision: int | None, *, seconds: float, bookmarks: bool
    ) -> None:
        """Answer the request; raises BrokenOnPurposeError when the connection must go, ApiProblem before any byte."""
        watcher = self._store.watch(self._resource, self._selector, revision, self._wake)
        try:
            writer.write(STREAM_HEAD)
            await self._run(writer, watcher, self._loop.time() + seconds, bookmarks=bookmarks)
        finally:
            self._store.unwatch(self._resource, watcher)
        writer.write(STREAM_END)
        await writer.drain()

    def _wake(self) -> None:
        if not self._news.is_set():
            self._loop.call_soon_threadsafe(self._news.set)

    async def _run(self, writer: asyncio.StreamWriter, watcher: Watcher, deadline: float, *, bookmarks: bool) -> None:
        bookmark_at = self._loop.time() + self._bookmark_seconds
        while not self._order:
            self._news.clear()
            mute = self._faults.mute_streams
            if not mute and await self._send_backlog(writer, watcher):
                continue
            if watcher.expired:
                self._order = "expire"
                break
            now = self._loop.time()
            if now >= deadline:
                break
            if now >= bookmark_at:
                bookmark_at = now + self._bookmark_seconds
                if bookmarks and not mute:
                    await self._send_bookmark(writer, watcher)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(max(min(deadline, bookmark_at) - now, 0.001)):
                    await self._news.wait()
        if self._order == "cut":
            await self._cut(writer, b'{"type":"MODIFIED","object":{"metadata":{"na')
        if self._order == "gone":
            raise BrokenOnPurposeError
        if self._order == "expire":
            line = orjson.dumps({"type": "ERROR", "object": expired().status()}) + b"\n"
            await self._send(writer, line)

    async def _send_backlog(self, writer: asyncio.StreamWriter, watcher: Watcher) -> bool:
        """Send what there is, a batch at most; returns whether there was anything."""
        with self._store.lock:
            entries = [watcher.backlog.popleft() for _ in range(min(_BATCH, len(watcher.backlog)))]
        sending: list[bytes] = []
        for entry in entries:
            line = self._store.sent(entry.line(self._selector))
            if line and self._faults.cuts():
                await self._send(writer, b"".join(sending))
                await self._cut(writer, line[: len(line) // 2])
            sending.append(line)
        await self._send(writer, b"".join(sending))
        return bool(entries)

    async def _send_bookmark(self, writer: asyncio.StreamWriter, watcher: Watcher) -> None:
        with self._store.lock:
            if watcher.backlog:
                return
            revision = self._store.revision
        bookmark: JSON = {
            "kind": self._resource.kind,
            "apiVersion": self._resource.api_version,
            "metadata": {"resourceVersion": str(revision), "creationTimestamp": None},
        }
        await self._send(writer, orjson.dumps({"type": "BOOKMARK", "object": bookmark}) + b"\n")

    async def _send(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        size = self._faults.trickle_bytes
        if not data:
            return
        if not size:
            writer.write(chunk(data))
            await writer.drain()
            return
        for start in range(0, len(data), size):
            writer.write(chunk(data[start : start + size]))
            await writer.drain()
            await asyncio.sleep(self._faults.trickle_delay)

    async def _cut(self, writer: asyncio.StreamWriter, part: bytes) -> None:
        writer.write(chunk(part))
        await writer.drain()
        await asyncio.sleep(0)
        raise BrokenOnPurposeError
