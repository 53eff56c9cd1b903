"""The service connected with the API server: watches in, bindings out.

Laws of this file
- Whoever is asked before the first whole list has come says so, and is not ready: pods not told of yet hold room.
- A watch that ended for good, or that stays silent for too long, makes every node stale; nothing is forgotten.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, Final, TypeVar

from extender.api.service import Service
from extender.cluster.store import Watching
from extender.config.settings import Settings
from extender.kube.access import Access, discover
from extender.kube.binder import AsyncBinder, Binder, Binding, Conflict, Failed, NotFound
from extender.kube.binder import BindingWritten as KubeBound
from extender.kube.changes import Batch, Gone
from extender.kube.client import KubeClient
from extender.kube.feed import ClusterFeed
from extender.kube.handoff import LoopHandoff
from extender.kube.node_context import WatchedSurroundings
from extender.kube.nodes import NodeObject, watch_nodes
from extender.kube.nominated import NominatedFeed, watch_nominated
from extender.kube.pdbs import DisruptionBudget, watch_budgets
from extender.kube.pods import PodRecord, watch_pods
from extender.kube.running import WatchedPods
from extender.kube.topologies import TopologyFeed, watch_topologies
from extender.kube.watch import Watch, WatchSettings
from extender.observability.logs import FaultLog
from extender.scheduling.bind import BindOutcome, Bound, Unbound, Unsure

LOG: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 1.0
IDLE_SHARE: Final = 0.8
"""Of the silence that makes nodes stale: a quiet stream is opened again before, and that is a sign of life."""
T = TypeVar("T")


class Bindings:
    """`extender.scheduling.bind.Binds`, through the API server."""

    def __init__(self, binder: AsyncBinder, clock: Callable[[], float]) -> None:
        self._binder = binder
        self._faults = FaultLog(LOG, "bindings", clock)

    async def bind(self, namespace: str, name: str, uid: str, node_name: str) -> BindOutcome:
        """See `Binds`. Failures that are not the pod's own are a warning a minute: an outage fails every binding."""
        outcome = await self._binder.bind(Binding(namespace=namespace, name=name, uid=uid, node_name=node_name))
        if isinstance(outcome, Failed):
            self._faults.failed("not bound pod=%s/%s node=%s reason=%r", namespace, name, node_name, outcome.reason)
        else:
            self._faults.ended()
        match outcome:
            case KubeBound():
                return Bound()
            case Conflict(reason):
                return Unbound(reason, "conflict")
            case NotFound():
                return Unbound("there is no such pod", "not_found")
            case Failed(reason, maybe_bound=True):
                return Unsure(reason)
            case Failed(reason):
                return Unbound(reason)


class Live:
    """The watches of one service and their health."""

    def __init__(self, service: Service, client: KubeClient, settings: WatchSettings) -> None:
        self._service = service
        running, surroundings = service.running, service.surroundings
        assert isinstance(running, WatchedPods)
        assert isinstance(surroundings, WatchedSurroundings)
        self._running, self._surroundings = running, surroundings
        self._feed = ClusterFeed(service.cluster, service.pods, service.clock, service.barrier.seen)
        nominated = NominatedFeed(service.pods, service.clock)
        self._handoffs: list[LoopHandoff[Any]] = []
        self._watches: dict[str, Watch[Any]] = {
            "nodes": watch_nodes(client, self._handoff(self._take_nodes), settings),
            "pods": watch_pods(client, self._handoff(self._take_pods), settings),
            "nominations": watch_nominated(client, self._handoff(nominated.apply), settings),
            "budgets": watch_budgets(client, self._handoff(self._take_budgets), settings),
        }
        self._topologies = TopologyFeed(
            service.cluster, service.clock, max_bytes=service.settings.max_body_bytes, uid_of=self._feed.uid_of
        )
        if service.settings.topologies == "on":
            self._watches["topologies"] = watch_topologies(client, self._handoff(self._topologies.apply), settings)

    def start(self) -> None:
        """Begin to watch."""
        self.check()
        for watch in self._watches.values():
            watch.start()

    async def stop(self) -> None:
        """Stop watching."""
        for handoff in self._handoffs:
            handoff.close()
        for watch in self._watches.values():
            await asyncio.to_thread(watch.stop)

    def check(self) -> None:
        """Tell the service how sure its picture of the cluster is."""
        service, feed = self._service, self._feed
        states = {name: watch.status() for name, watch in self._watches.items()}
        if states["pods"].failures:
            service.link.failed_at = service.clock()
        broken = [f"the watch of {name} has ended: {state.broken}" for name, state in states.items() if state.broken]
        unsynced = not (feed.pods_complete and feed.nodes_complete)
        silent = max(states[name].silent_seconds for name in ("pods", "nodes"))
        service.link.trouble = "pods and nodes are not listed yet" if unsynced else broken[0] if broken else ""
        quiet = bool(broken) or silent > service.settings.watch_silent_seconds
        if not unsynced:
            service.cluster.set_watching(Watching.SILENT if quiet else Watching.LIVE, service.clock())
        topologies = states.get("topologies")
        if topologies and not topologies.broken and topologies.silent_seconds <= service.settings.watch_silent_seconds:
            self._topologies.confirm()
            service.metrics.topology_faults.set(len(self._topologies.trouble))
        service.cluster.expire(service.clock())

    async def keep_checking(self) -> None:
        """Check for ever."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            self.check()

    def _handoff(self, handle: Callable[[Batch[T]], None]) -> LoopHandoff[T]:
        handoff = LoopHandoff(asyncio.get_running_loop(), handle)
        self._handoffs.append(handoff)
        return handoff

    def _take_pods(self, batch: Batch[PodRecord]) -> None:
        was_complete = self._feed.pods_complete
        self._running.apply_pods(batch)
        self._surroundings.apply_pods(batch)
        self._feed.apply_pods(batch)
        self._service.authority.end_pods(change.value.uid for change in batch.changes if isinstance(change, Gone))
        if self._feed.pods_complete is not was_complete:
            self.check()

    def _take_nodes(self, batch: Batch[NodeObject]) -> None:
        was_complete = self._feed.nodes_complete
        self._surroundings.apply_nodes(batch)
        self._feed.apply_nodes(batch)
        if self._feed.nodes_complete is not was_complete:
            self.check()

    def _take_budgets(self, batch: Batch[DisruptionBudget]) -> None:
        self._running.apply_budgets(batch)


def watch_settings(settings: Settings) -> WatchSettings:
    """The times of the watches."""
    return WatchSettings(idle_seconds=min(120.0, IDLE_SHARE * settings.watch_silent_seconds))


@asynccontextmanager
async def connected(
    service: Service, access: Access | None = None, settings: WatchSettings | None = None
) -> AsyncIterator[None]:
    """The service with its watches and its bind verb, for as long as the context lasts.

    Raises:
        AccessError: there is no way to the API server.
    """
    settings = settings or watch_settings(service.settings)
    access = access or discover(service.settings.kubeconfig)
    if access.configuration.host.startswith("https:") and not access.configuration.verify_ssl:
        LOG.warning(
            "the API server's certificate is not verified (insecure-skip-tls-verify): whoever is on the way can read "
            "the token and answer in its place; name its CA in the kubeconfig instead"
        )
    client = KubeClient(access)
    binder = AsyncBinder(Binder(client, timeout_seconds=service.settings.binding_seconds))
    live = Live(service, client, settings)
    service.link.binder = Bindings(binder, service.clock)
    live.start()
    checking = asyncio.create_task(live.keep_checking())
    try:
        yield
    finally:
        checking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await checking
        service.link.binder = None
        await live.stop()
        await asyncio.to_thread(binder.close)
        client.close()
