"""The extender under test: its whole HTTP application, without sockets; it can be killed and started anew."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from extender.api.service import Service
from extender.app import make_app, make_service
from extender.cluster.events import Watching
from extender.config.settings import Settings
from extender.features.groups.feed import GroupFeed
from extender.features.preemption.nominated import NominatedPod, apply_nominated, decode_nominated
from extender.features.preemption.running import WatchedPods
from extender.features.profiles import read_profiles
from extender.features.siblings.siblings import Siblings
from extender.identity import EVERYTHING
from extender.kube.changes import Batch, Mirror, Seen
from extender.kube.feed import ClusterFeed, Refused
from extender.kube.nodes import NodeObject, WatchedSurroundings, decode_node
from extender.kube.pods import PodDecoder, PodRecord
from extender.questions.node_context import WatchedPod
from extender.scheduling.binder import GatedBinder, Unelected
from extender.scheduling.judgement import Action
from extender.scheduling.victims import DisruptionBudget
from tests.drill.api import Api, Binds, Event, Watcher
from tests.drill.machines import GROUP_LABEL
from tests.features.groups.gang_world import gangs_of

Json = dict[str, Any]


class Killed(Exception):  # noqa: N818 - an event, not a fault
    """The process ended while a request was under way."""


async def _inline(work: Callable[..., Any], *args: Any) -> Any:  # noqa: ANN401
    return work(*args)


class SimExtender:
    """One process after the other. `call` is what its clients see. *finish_seconds*: see the settings.

    *gangs*: whether it places groups of pods together. *profiles*: of nodes that come; None: none come or go, and
    nodes are not watched.
    """

    def __init__(
        self, api: Api, finish_seconds: float = 3.0, *, gangs: bool = False, profiles: Path | None = None
    ) -> None:
        self.api, self.finish_seconds, self.gangs, self.profiles = api, finish_seconds, gangs, profiles
        self.timeline = api.timeline
        self.starts = 0
        self._calls: dict[asyncio.Future[Any], None] = {}  # in the order of their end
        self._watchers: list[Watcher] = []
        self.service: Service | None = None
        self.budgets: list[DisruptionBudget] = []
        self.outcomes: dict[str, int] = {}

    def start(self) -> None:
        """Start a process: it knows nothing, lists pods, and is ready after that."""
        self.starts += 1
        settings = Settings(
            bind_seconds=3600,  # the wait for a node's lock is in real time, which must decide nothing here
            finish_seconds=self.finish_seconds,
            unknown_nodes=Action.REFUSE,
            max_remembered_judgements=1_000_000,
            log_level="error",
            loopback_scopes=EVERYTHING,
            question_workers=0,
            gangs="on" if self.gangs else "off",
            sibling_labels=GROUP_LABEL if self.profiles else "",
            node_profiles=self.profiles,
        )
        self.running, self.surroundings = WatchedPods(self._pods_on), WatchedSurroundings()
        service = make_service(settings, self.timeline.clock, offload=_inline, sleep=self.timeline.sleep)
        service.known.running.on_node, service.known.running.budgets = self.running.on_node, self.running.budgets
        service.surroundings.use(self.surroundings)
        service.known.link.binder = GatedBinder(Binds(self.api), Unelected(), seconds=settings.binding_seconds)
        service.known.link.trouble = "not listed yet"
        self.service = service
        self.app = make_app(service)
        self.feed = ClusterFeed(
            service.known.nodes, service.known.pods, self.timeline.clock, service.records.barrier.seen
        )
        self.feed.on_refused, self.feed.on_dropped = self._note_refused, service.audit.forget
        self.feed.pods_on = self._pods_on
        self.groups = GroupFeed(gangs_of(service).groups, self.timeline.clock) if settings.gangs == "on" else None
        self.mirror: Mirror[PodRecord] = Mirror()
        self.nominated: Mirror[NominatedPod] = Mirror()
        self.decode = PodDecoder()
        self.nodes: Mirror[NodeObject] = Mirror()
        self.siblings = Siblings(
            service.known.nodes,
            [GROUP_LABEL],
            self.timeline.clock,
            self._pods_on,
            read_profiles(self.profiles) if self.profiles else (),
        )
        self.timeline.after(self.timeline.between(0.05, 1.0), lambda: self._list(service))
        self.timeline.after(1.0, lambda: self._tick(service))

    def running_on(self, node_name: str) -> set[str]:
        """The pods that the watch shows on the node, neither finished nor being deleted."""
        pods = () if self.service is None else self.surroundings(node_name).pods
        return {pod.uid for pod in pods or () if not pod.terminating}

    def kill(self) -> None:
        """End the process; whoever waits for an answer gets none."""
        self.service = None
        for watcher in self._watchers:
            watcher.closed = True
            (self.api.of_nodes if watcher in self.api.of_nodes else self.api.everywhere).remove(watcher)
        self._watchers = []
        for call in list(self._calls):
            call.cancel()

    async def call(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        """Status and body of the answer; None if there was none."""
        if self.service is None:
            return None
        call = asyncio.ensure_future(self._call(method, path, body))
        self._calls[call] = None
        try:
            return await call
        except asyncio.CancelledError:
            return None
        finally:
            self._calls.pop(call, None)

    async def _call(self, method: str, path: str, body: bytes) -> tuple[int, bytes]:
        status = 0
        parts: list[bytes] = []
        messages = [{"type": "http.request", "body": body, "more_body": False}]

        async def receive() -> Json:
            if not messages:  # the client stays until it has the whole answer
                await asyncio.get_running_loop().create_future()
            return messages.pop()

        async def send(message: Json) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            else:
                parts.append(message.get("body", b""))

        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "scheme": "http",
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": headers,
            "client": ("127.0.0.1", 40000),
            "server": ("127.0.0.1", 9600),
            "state": {},
        }
        await self.app(scope, receive, send)  # type: ignore[arg-type] # the callables of ASGI, with plain dicts
        return status, b"".join(parts)

    def _list(self, service: Service) -> None:
        if service is not self.service:
            return
        if not self.api.up:
            self.timeline.after(0.5, lambda: self._list(service))
            return
        self._watchers = [Watcher(self.api, take, (0.001, 0.05)) for take in (self._take, self._take_nominated)]
        self.api.everywhere += self._watchers
        self._take_nominated([("ADDED", pod) for pod in self.api.pods.values()])
        listed = {}
        for pod in self.api.pods.values():
            decoded = self.decode(pod)
            if decoded is not None:
                listed[decoded[0]] = decoded[1]
        self.running.apply_budgets(Batch(tuple(map(Seen, self.budgets))))
        if self.profiles is None:
            self.surroundings.apply_nodes(Batch(tuple(map(Seen, self._nodes()))))
            self._apply(Batch(tuple(self.mirror.replace(listed)), listed=True))
        else:
            self._list_with_nodes(listed)
        service.known.nodes.set_watching(Watching.LIVE, self.timeline.now)
        service.known.link.trouble = ""

    def _list_with_nodes(self, pods: dict[str, PodRecord]) -> None:
        """The first lists of pods and nodes, in any order, and a watch of nodes."""
        watcher = Watcher(self.api, self._take_nodes, (0.001, 0.05), self.api.node_log)
        self._watchers.append(watcher)
        self.api.of_nodes.append(watcher)
        nodes = Batch(tuple(self.nodes.replace({node.name: node for node in self._nodes()})), listed=True)
        lists = [partial(self._apply, Batch(tuple(self.mirror.replace(pods)), listed=True))]
        lists.insert(self.timeline.random.randrange(2), partial(self._apply_nodes, nodes))
        for apply in lists:
            apply()

    def _pods_on(self, node_name: str) -> Sequence[WatchedPod] | None:
        return self.surroundings(node_name).pods

    def _note_refused(self, refused: Refused) -> None:
        assert self.service is not None
        self.service.records.refusals.note(
            refused.node_name, refused.pod, refused.reason, refused.at, is_ours=refused.is_ours
        )
        if refused.is_ours:
            self.siblings.note_refused(refused.node_name, refused.pod)

    def _take_nodes(self, events: list[Event]) -> None:
        changes = []
        for kind, node in events:
            decoded = decode_node(node)
            assert decoded is not None
            change = self.nodes.remove(decoded[0]) if kind == "DELETED" else self.nodes.upsert(*decoded)
            if change is not None:
                changes.append(change)
        self._apply_nodes(Batch(tuple(changes)))

    def _apply_nodes(self, batch: Batch[NodeObject]) -> None:
        self.surroundings.apply_nodes(batch)
        self.feed.apply_nodes(batch)
        self.siblings.apply(batch)

    def _take(self, events: list[Event]) -> None:
        changes = []
        for kind, pod in events:
            decoded = self.decode(pod)
            if decoded is None:
                continue
            change = self.mirror.remove(decoded[0]) if kind == "DELETED" else self.mirror.upsert(*decoded)
            if change is not None:
                changes.append(change)
        self._apply(Batch(tuple(changes)))

    def _take_nominated(self, events: list[Event]) -> None:
        """The watch of nominated pods: the server tells of one that no longer matches as if it were deleted."""
        assert self.service is not None
        changes = []
        for kind, pod in events:
            decoded = None if kind == "DELETED" else decode_nominated(pod)
            uid = pod["metadata"]["uid"]
            change = self.nominated.remove(uid) if decoded is None else self.nominated.upsert(*decoded)
            if change is not None:
                changes.append(change)
        apply_nominated(self.service.known.pods, Batch(tuple(changes)), self.timeline.clock())

    def _apply(self, batch: Batch[PodRecord]) -> None:
        self.surroundings.apply_pods(batch)
        self.feed.apply_pods(batch)
        if self.groups is not None:
            self.groups.apply_pods(batch)

    def _nodes(self) -> Iterator[NodeObject]:
        for node in self.api.nodes.values():
            decoded = decode_node(node)
            if decoded is not None:
                yield decoded[1]

    def _tick(self, service: Service) -> None:
        if service is self.service:
            service.known.nodes.expire(self.timeline.now)
            self.siblings.settle()
            if self.api.up:
                service.known.link.note_progress(self.timeline.now)
            else:
                service.known.link.note_failure(self.timeline.now)
            self.timeline.after(1.0, lambda: self._tick(service))
