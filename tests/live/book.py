"""What happens to the pods of the namespace `default`, as the API server's watch tells it."""

import contextlib
import ssl
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import TracebackType
from typing import Self

import httpx
import orjson

from tests.live.api import Json

FINISHED = ("Succeeded", "Failed")


@dataclass
class Entry:
    """One pod. `bound_at`, `ended_at`: monotonic seconds; None: not yet."""

    pod: Json
    created_at: float
    nodes: list[str] = field(default_factory=list)
    bound_at: float | None = None
    ended_at: float | None = None
    running: bool = False
    deleted: bool = False
    preempted: bool = False

    @property
    def name(self) -> str:
        name: str = self.pod["metadata"]["name"]
        return name

    @property
    def uid(self) -> str:
        uid: str = self.pod["metadata"]["uid"]
        return uid

    @property
    def node(self) -> str | None:
        """Where it is bound."""
        return self.nodes[-1] if self.nodes else None

    @property
    def phase(self) -> str:
        """The last phase seen."""
        return str(self.pod["status"].get("phase", "Pending"))

    @property
    def has_own_cpus(self) -> bool:
        """All Guaranteed pods of the loads have exclusive CPUs, and the others have none."""
        return str(self.pod["status"].get("qosClass")) == "Guaranteed"

    @property
    def is_over(self) -> bool:
        """Whether it has ended or is gone."""
        return self.deleted or self.phase in FINISHED


class Book:
    """A watch in a thread of its own; it begins again where it broke off."""

    def __init__(self, url: str, context: ssl.SSLContext) -> None:
        self._url, self._context = url, context
        self._closed = threading.Event()
        self._changed = threading.Condition()
        self._stream: httpx.Response | None = None
        self._entries: dict[str, Entry] = {}
        self._thread = threading.Thread(target=self._follow, name="book", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self._closed.set()
        self._thread.join(10)

    def entries(self) -> list[Entry]:
        """All pods so far, the oldest first."""
        with self._changed:
            return list(self._entries.values())

    def entry(self, uid: str) -> Entry | None:
        """One pod."""
        with self._changed:
            return self._entries.get(uid)

    def wait(self, condition: Callable[[], object], seconds: float) -> bool:
        """Until the condition holds, looked at whenever something changes; whether it came in time."""
        deadline = time.monotonic() + seconds
        with self._changed:
            while not condition():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._changed.wait(min(left, 1.0))
        return True

    def _follow(self) -> None:
        path, version = "/api/v1/namespaces/default/pods", ""
        with httpx.Client(base_url=self._url, verify=self._context, trust_env=False) as client:
            while not self._closed.is_set():
                with contextlib.suppress(httpx.TransportError, KeyError):
                    if not version:
                        listed = client.get(path, timeout=30).json()
                        version = listed["metadata"]["resourceVersion"]
                        self._take_list(listed["items"])
                    version = self._stream_events(client, path, version)
                self._closed.wait(0.2)

    def _stream_events(self, client: httpx.Client, path: str, version: str) -> str:
        """Until the stream ends; the version to go on from, empty: list again."""
        parameters = {"watch": "true", "allowWatchBookmarks": "true", "timeoutSeconds": "5", "resourceVersion": version}
        with client.stream("GET", path, params=parameters, timeout=30) as answer:
            if not answer.is_success:
                return ""
            for line in answer.iter_lines():
                event = orjson.loads(line)
                if event["type"] == "ERROR":
                    return ""
                version = event["object"]["metadata"]["resourceVersion"]
                if event["type"] != "BOOKMARK":
                    self._take(event["object"], deleted=event["type"] == "DELETED")
        return version

    def _take_list(self, pods: list[Json]) -> None:
        there = {pod["metadata"]["uid"] for pod in pods}
        for entry in self.entries():
            if entry.pod["metadata"]["uid"] not in there and not entry.deleted:
                self._take(entry.pod, deleted=True)
        for pod in pods:
            self._take(pod, deleted=False)

    def _take(self, pod: Json, *, deleted: bool) -> None:
        now, uid = time.monotonic(), pod["metadata"]["uid"]
        with self._changed:
            entry = self._entries.setdefault(uid, Entry(pod, now))
            entry.pod, entry.deleted = pod, deleted
            node = pod["spec"].get("nodeName")
            if node and node not in entry.nodes:
                entry.nodes.append(node)
                entry.bound_at = entry.bound_at or now
            entry.running = entry.running or entry.phase == "Running"
            conditions = pod["status"].get("conditions", ())
            entry.preempted = entry.preempted or any(
                condition["type"] == "DisruptionTarget" and condition.get("reason") == "PreemptionByScheduler"
                for condition in conditions
            )
            if entry.is_over and entry.ended_at is None:
                entry.ended_at = now
            self._changed.notify_all()
