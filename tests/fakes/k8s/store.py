"""The objects, their history and who watches: etcd and the watch cache in one.

Thread-safe by one lock: the server's loop and the test's own threads both write. A watcher has a bounded backlog of
its own; one that falls behind is expired (410), as the real watch cache does with slow readers.
"""

import sys
import threading
from bisect import bisect_left, bisect_right, insort
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import orjson

from tests.fakes.k8s.resources import JSON, STORED, ApiProblem, Resource, expired, key_of, text
from tests.fakes.k8s.selectors import Fields, Selector

BACKLOG: Final = 20_000
"""Entries a watcher may be behind before it is expired."""


@dataclass(frozen=True, slots=True)
class Stored:
    """One version of one object, encoded."""

    raw: bytes
    revision: int
    fields: Fields

    def decode(self) -> JSON:
        """A fresh copy that the caller may change."""
        value: JSON = orjson.loads(self.raw)
        return value

    def matches(self, selector: Selector) -> bool:
        if not selector.matches_fields(self.fields):
            return False
        return not selector.labels or selector.matches_labels(self.decode().get("metadata", {}).get("labels") or {})


@dataclass(slots=True)
class Entry:
    """One change: `old` None for a creation, `new` None for a removal."""

    revision: int
    key: str
    old: Stored | None
    new: Stored | None
    _lines: dict[str, bytes] = field(default_factory=dict)

    def line(self, selector: Selector) -> bytes:
        """The watch event as a reader with *selector* sees it; empty when it is none of its business."""
        before = self.old is not None and self.old.matches(selector)
        after = self.new is not None and self.new.matches(selector)
        if not before and not after:
            return b""
        event = "DELETED" if not after else "MODIFIED" if before else "ADDED"
        if event not in self._lines:
            self._lines[event] = b'{"type":"%b","object":%b}\n' % (event.encode(), self._object(event))
        return self._lines[event]

    def _object(self, event: str) -> bytes:
        if event != "DELETED":
            assert self.new is not None
            return self.new.raw
        assert self.old is not None
        last = self.old.decode()
        last["metadata"]["resourceVersion"] = str(self.revision)
        return orjson.dumps(last)


class Watcher:
    """One open watch: what it has yet to be told. `wake` is called, from any thread, when there is something new."""

    def __init__(self, selector: Selector, wake: Callable[[], None]) -> None:
        self.selector = selector
        self.wake = wake
        self.backlog: deque[Entry] = deque()
        self.expired = False

    def offer(self, entry: Entry) -> None:
        if len(self.backlog) >= BACKLOG:
            self.expired = True
            self.backlog.clear()
        elif not self.expired:
            self.backlog.append(entry)
        self.wake()


class Collection:
    """All objects of one resource and the changes since the last compaction."""

    def __init__(self, resource: Resource, history: int) -> None:
        self.resource = resource
        self.objects: dict[str, Stored] = {}
        self.keys: list[str] = []
        self.log: deque[Entry] = deque(maxlen=history)
        self.compacted = 0
        self.watchers: dict[str | None, set[Watcher]] = {}
        self.applied: dict[str, dict[str, JSON]] = {}

    def commit(self, entry: Entry) -> None:
        if entry.new is None:
            del self.objects[entry.key]
            del self.keys[bisect_left(self.keys, entry.key)]
            self.applied.pop(entry.key, None)
        else:
            if entry.old is None:
                insort(self.keys, entry.key)
            self.objects[entry.key] = entry.new
        if len(self.log) == self.log.maxlen:
            self.compacted = self.log[0].revision
        self.log.append(entry)
        nodes = {None, *(s.fields.node for s in (entry.old, entry.new) if s is not None)}
        for node in nodes:
            for watcher in self.watchers.get(node, ()):
                watcher.offer(entry)

    def compact(self) -> None:
        """Forget every change so far: whoever asks for one gets 410."""
        if self.log:
            self.compacted = self.log[-1].revision
            self.log.clear()

    def since(self, revision: int) -> Iterable[Entry]:
        """Changes after *revision*; ApiProblem 410 when some of them are no longer known."""
        if revision < self.compacted:
            raise expired(f"too old resource version: {revision} ({self.compacted})")
        start = bisect_right(self.log, revision, key=lambda e: e.revision)
        return list(islice(self.log, start, None))


class Store:
    """Every collection under one revision counter. *history*: changes kept for each resource."""

    def __init__(self, history: int = 50_000) -> None:
        self.lock = threading.RLock()
        self.history = history
        self.revision = 1
        self.collections = {r: Collection(r, history) for r in STORED}
        self.verbatim: dict[bytes, bytes] = {}
        """JSON that is sent in place of a text (with its quotes): what a client stored and the server never parses."""

    def sent(self, data: bytes) -> bytes:
        """*data* as it is sent."""
        for instead, raw in self.verbatim.items():
            data = data.replace(instead, raw)
        return data

    def clear(self) -> None:
        """Lose everything, the revision too, as after an etcd that was restored from nothing."""
        with self.lock:
            self.revision = 1
            self.collections = {r: Collection(r, self.history) for r in STORED}

    def write(self, resource: Resource, key: str, value: JSON | None) -> JSON:
        """Commit *value* (None: remove) and return it as stored, with its new resourceVersion.

        An update that changes nothing commits nothing, as in the real server.
        """
        with self.lock:
            collection = self.collections[resource]
            old = collection.objects.get(key)
            if value is None:
                assert old is not None
                self.revision += 1
                collection.commit(Entry(self.revision, key, old, None))
                return old.decode()
            if old is not None:
                value["metadata"]["resourceVersion"] = str(old.revision)
                if orjson.dumps(value) == old.raw:
                    return value
            self.revision += 1
            value["metadata"]["resourceVersion"] = str(self.revision)
            exact = memoryview(orjson.dumps(value)).tobytes()  # without the encoder's spare buffer of 4 KB
            new = Stored(exact, self.revision, fields_of(value))
            collection.commit(Entry(self.revision, key, old, new))
            return value

    def read(self, resource: Resource, key: str) -> Stored | None:
        with self.lock:
            return self.collections[resource].objects.get(key)

    def page(
        self, resource: Resource, selector: Selector, *, after: str, limit: int, at: int | None
    ) -> tuple[list[bytes], str, int, int]:
        """One page of a list: the objects after key *after*, as they were at revision *at* (None: now).

        Returns the objects, the last key read (empty: no more), the revision of the snapshot and how many keys remain.
        """
        with self.lock:
            collection = self.collections[resource]
            past: dict[str, Stored | None] = {}
            if at is not None:
                for entry in collection.since(at):
                    past.setdefault(entry.key, entry.old)
            keys = collection.keys
            if revived := [k for k, was in past.items() if was is not None and k not in collection.objects]:
                keys = sorted([*keys, *revived])
            items: list[bytes] = []
            start = bisect_right(keys, after) if after else 0
            for i in range(start, len(keys)):
                found = past[keys[i]] if keys[i] in past else collection.objects[keys[i]]
                if found is not None and (selector.matches_all or found.matches(selector)):
                    items.append(found.raw)
                    if limit and len(items) == limit and i + 1 < len(keys):
                        return items, keys[i], at or self.revision, len(keys) - i - 1
            return items, "", at or self.revision, 0

    def watch(self, resource: Resource, selector: Selector, revision: int | None, wake: Callable[[], None]) -> Watcher:
        """Open a watch from *revision* (None: from now, existing objects first as ADDED)."""
        with self.lock:
            collection = self.collections[resource]
            if revision is not None and revision > self.revision:
                message = f"Too large resource version: {revision}, current: {self.revision}"
                raise ApiProblem(504, "Timeout", message, retry_after=1, causes="ResourceVersionTooLarge")
            watcher = Watcher(selector, wake)
            if revision is None:
                backlog = [Entry(s.revision, k, None, s) for k, s in collection.objects.items()]
            else:
                backlog = list(collection.since(revision))
            watcher.backlog.extend(backlog)
            collection.watchers.setdefault(selector.node, set()).add(watcher)
            return watcher

    def unwatch(self, resource: Resource, watcher: Watcher) -> None:
        with self.lock:
            bucket = self.collections[resource].watchers.get(watcher.selector.node, set())
            bucket.discard(watcher)
            if not bucket:
                self.collections[resource].watchers.pop(watcher.selector.node, None)


def fields_of(value: JSON) -> Fields:
    """What field selectors may ask of *value*."""
    return Fields(
        text(value, "metadata", "name"),
        sys.intern(text(value, "metadata", "namespace")),
        sys.intern(text(value, "spec", "nodeName")),
        sys.intern(text(value, "status", "phase")),
        sys.intern(text(value, "spec", "schedulerName")),
        sys.intern(text(value, "status", "nominatedNodeName")),
        sys.intern(text(value, "reason")),
    )


def key_of_object(resource: Resource, value: JSON) -> str:
    """Where *value* belongs; ApiProblem 422 without a name."""
    name = text(value, "metadata", "name")
    if not name:
        raise ApiProblem(422, "Invalid", "metadata.name: Required value: name or generateName is required")
    return key_of(resource, text(value, "metadata", "namespace"), name)
