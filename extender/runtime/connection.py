"""What a feature takes from the connection with the API server: watches, consumers of pods and nodes, and tasks.

Rules of this file
- The service is not ready until the first list of what is needed is complete: pods that are not listed yet hold
  resources.
- If a watch has ended for good or makes no progress for too long, every node is stale. The known state is kept. If the
  server answers meanwhile, the service is not ready: another process may fare better.
- Consumers of one batch are called in the order in which they were added. The cluster is the first one.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from extender.api.service import Feature, Service
from extender.cluster.events import Watching
from extender.kube.changes import Batch, Gone, LoopHandoff
from extender.kube.client import KubeClient, Requester
from extender.kube.feed import ClusterFeed, Refused
from extender.kube.nodes import NODES, NodeObject, WatchedSurroundings
from extender.kube.pods import PODS, PodRecord, ReducedPod, read_reduced
from extender.kube.source import Source
from extender.kube.watch import Watch, WatchSettings, WatchStatus
from extender.questions.node_context import WatchedPod

LOG: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 1.0
_NEEDED: Final = ("pods", "nodes")
"""Watches without which nothing is known for certain."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class _Watched:
    source: Source[Any]
    apply: Callable[[Batch[Any]], None]
    settings: WatchSettings


class ApiConnection:
    """The watches of one service and their health. *leads*: whether this process may write now."""

    def __init__(
        self, service: Service, client: KubeClient, settings: WatchSettings, leads: Callable[[], bool] = lambda: True
    ) -> None:
        self.service, self.client, self.leads = service, client, leads
        self.surroundings: Final = WatchedSurroundings()
        self.tasks: Final[list[Callable[[], Coroutine[Any, Any, None]]]] = []
        """Functions that run until cancelled."""
        self.on_refused: Final[list[Callable[[Refused], None]]] = []
        self.on_check: Final[list[Callable[[Mapping[str, WatchStatus]], None]]] = []
        """Called each second with the states of the watches."""
        self.on_nodes: Final[list[Callable[[Batch[NodeObject]], None]]] = []
        self.feed: Final = ClusterFeed(
            service.known.nodes, service.known.pods, service.clock, service.records.barrier.seen
        )
        self.feed.young_seconds = service.settings.young_node_seconds
        self.feed.demands = service.known.demands
        self.feed.on_refused = lambda refused: _each(self.on_refused, refused)
        self.feed.on_dropped = service.audit.forget
        self.feed.pods_on = self.pods_on
        service.surroundings.use(self.surroundings)
        self._settings = settings
        self._pod_readers: list[Callable[[PodRecord], object]] = []
        self._on_pods: list[Callable[[Batch[PodRecord]], None]] = []
        self._needed: list[tuple[str, Callable[[], bool]]] = [("pods and nodes", lambda: self._is_listed)]
        self._watched: dict[str, _Watched] = {}
        self._handoffs: list[LoopHandoff[Any]] = []
        self._watches: dict[str, Watch[Any]] = {}
        self.watch("nodes", NODES, self._take_nodes)
        self.watch("pods", replace(PODS, check=self.read_pod), self._take_pods)
        for feature in service.features:
            if isinstance(feature, ConnectedFeature):
                feature.connect(self)

    def watch(
        self, name: str, source: Source[T], apply: Callable[[Batch[T]], None], *, batch_size: int | None = None
    ) -> None:
        """Watch a further resource, and call *apply* on the event loop. *batch_size*: changes of a relist per batch."""
        settings = self._settings if batch_size is None else replace(self._settings, batch_size=batch_size)
        self._watched[name] = _Watched(source, apply, settings)

    def need(self, name: str, is_listed: Callable[[], bool]) -> None:
        """The service is not ready before all objects of this kind are listed."""
        self._needed.append((name, is_listed))

    def on_pods(self, apply: Callable[[Batch[PodRecord]], None], read: Callable[[PodRecord], object]) -> None:
        """Call *apply* with each batch of pods. *read*: reads a pod as *apply* does, and raises whatever it raises."""
        self._on_pods.append(apply)
        self._pod_readers.append(read)

    def every(self, seconds: float, step: Callable[[], Awaitable[object]]) -> None:
        """Await *step* again and again, with this pause before each. One that raises is logged."""

        async def run() -> None:
            while True:
                await asyncio.sleep(seconds)
                try:
                    await step()
                except Exception:  # the next step may succeed, and nothing else depends on this one
                    LOG.exception("a step failed step=%s", step.__qualname__)

        self.tasks.append(run)

    def read_pod(self, record: PodRecord) -> ReducedPod:
        """Read all that the consumers of the watch read later. Raises whatever they would raise."""
        _each(self._pod_readers, record)
        return read_reduced(record.reduced)

    def pods_on(self, node_name: str) -> Sequence[WatchedPod] | None:
        """The pods on a node that are not finished; None: not known yet."""
        return self.surroundings(node_name).pods

    def start(self) -> None:
        """Start the watches."""
        loop = asyncio.get_running_loop()
        for name, each in self._watched.items():
            handoff: LoopHandoff[Any] = LoopHandoff(loop, each.apply)
            self._handoffs.append(handoff)
            self._watches[name] = Watch(self.client, each.source, handoff, each.settings)
        self.check()
        for watch in self._watches.values():
            watch.start()

    async def stop(self) -> None:
        """Stop the watches."""
        for handoff in self._handoffs:
            handoff.close()
        for watch in self._watches.values():
            await asyncio.to_thread(watch.stop)

    def check(self) -> None:
        """Update whether the known state of the cluster is complete and current."""
        service = self.service
        states = {name: watch.status() for name, watch in self._watches.items()}
        if states["pods"].failures:
            service.known.link.note_failure(service.clock())
        else:
            service.known.link.note_progress(service.clock() - states["pods"].silent_seconds)
        broken = [f"the watch of {name} has ended: {state.broken}" for name, state in states.items() if state.broken]
        limit = service.settings.watch_silent_seconds
        late = {name: state for name, state in states.items() if state.silent_seconds > limit}
        heard = [name for name in _NEEDED if name in late and late[name].heard_seconds <= limit]
        service.known.link.late = tuple(late)
        service.known.link.stalled = _stalled_text(heard[0], late[heard[0]]) if heard else ""
        service.known.link.unread = {name: len(state.unread) for name, state in states.items() if state.unread}
        for name, state in states.items():
            service.metrics.watch_silence.labels(name).set(state.silent_seconds)
            service.metrics.unread_objects.labels(name).set(len(state.unread))
        missing = [f"{name} are not listed yet" for name, is_listed in self._needed if not is_listed()]
        service.known.link.trouble = next(iter((*missing, *broken)), "")
        if self._is_listed:
            is_quiet = bool(broken) or any(name in late for name in _NEEDED)
            service.known.nodes.set_watching(Watching.SILENT if is_quiet else Watching.LIVE, service.clock())
        service.known.nodes.expire(service.clock())
        service.known.pods.expire(service.clock())
        _each(self.on_check, states)

    async def keep_checking(self) -> None:
        """Check until cancelled."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.check()

    @property
    def _is_listed(self) -> bool:
        return self.feed.pods_complete and self.feed.nodes_complete

    def _take_pods(self, batch: Batch[PodRecord]) -> None:
        was_complete = self.feed.pods_complete
        self.surroundings.apply_pods(batch)
        self.feed.apply_pods(batch)
        _each(self._on_pods, batch)
        self.service.authority.end_pods(change.value.uid for change in batch.changes if isinstance(change, Gone))
        if self.feed.pods_complete is not was_complete:
            self.check()

    def _take_nodes(self, batch: Batch[NodeObject]) -> None:
        was_complete = self.feed.nodes_complete
        self.surroundings.apply_nodes(batch)
        self.feed.apply_nodes(batch)
        _each(self.on_nodes, batch)
        if self.feed.nodes_complete is not was_complete:
            self.check()


class ConnectedFeature(Feature):
    """A feature that needs the API server."""

    def connect(self, connection: ApiConnection, /) -> None:
        """Say what to watch and to run. Called once, before the watches start."""
        raise NotImplementedError


@dataclass
class LeaderTask:
    """Work that only the leader does. `can_write`: whether this process leads. `wall`: Unix seconds, for its writes."""

    service: Service
    client: Requester
    can_write: Callable[[], bool]
    wall: Callable[[], float] = field(default=time.time, kw_only=True)


def _each(consumers: Sequence[Callable[[T], object]], value: T) -> None:
    for consumer in consumers:
        consumer(value)


def _stalled_text(name: str, state: WatchStatus) -> str:
    seconds = round(state.silent_seconds)
    return f"the watch of {name} has made no progress for {seconds} s, although the API server answers: {state.trouble}"
