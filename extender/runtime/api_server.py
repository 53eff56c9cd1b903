"""The connection with the API server: watches in, bindings and leadership out.

Rules of this file
- One client serves watches, bindings, token reviews, the lease and the annotations.
- The service is not ready until the first list is complete, because pods that are not listed yet hold resources.
- If a watch has ended for good or makes no progress for too long, every node is stale. The known state is kept. If the
  server answers meanwhile, the service is not ready: another process may fare better.
"""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, Final, TypeVar

from extender.api.service import Service
from extender.cluster.watching import Watching
from extender.config.settings import Settings
from extender.kube.access import Access, discover
from extender.kube.binder import AsyncBinder, Binder
from extender.kube.changes import Batch, Gone
from extender.kube.client import KubeClient
from extender.kube.dynamic_resources import CLAIMS, SLICES, DynamicDevicesFeed
from extender.kube.feed import ClusterFeed, Refused, read_shape
from extender.kube.groups import GroupFeed, group_of_record, sized_objects
from extender.kube.handoff import LoopHandoff
from extender.kube.namespaces import NAMESPACES, LabelledNamespace, NamespaceFeed
from extender.kube.node_annotations import NodeToucher
from extender.kube.node_context import WatchedSurroundings, requests_of
from extender.kube.nodes import NODES, NodeObject
from extender.kube.nominated import NOMINATED, NominatedFeed
from extender.kube.pdbs import BUDGETS
from extender.kube.pods import PODS, PodRecord
from extender.kube.running import WatchedPods
from extender.kube.siblings import Siblings
from extender.kube.topologies import BATCH, TOPOLOGIES, TopologyFeed
from extender.kube.watch import Watch, WatchSettings, WatchStatus
from extender.questions.node_context import WatchedPod
from extender.runtime.janitor import Janitor, is_refused_for_topology
from extender.runtime.leadership import leadership
from extender.runtime.pod_events import PodEvents
from extender.runtime.requeue import Requeuer
from extender.runtime.server import make_authority
from extender.scheduling.binder import GatedBinder, Leadership
from extender.wire.groups import apis_of

LOG: Final = logging.getLogger(__name__)
CHECK_SECONDS: Final = 1.0
IDLE_SHARE: Final = 0.8
"""Share of the silence that makes nodes stale. A quiet stream is reopened after it, to show that the server runs."""
_NEEDED: Final = ("pods", "nodes")
"""Watches without which nothing is known for certain."""
T = TypeVar("T")


class ClusterWatches:
    """The watches of one service and their health."""

    def __init__(self, service: Service, client: KubeClient, settings: WatchSettings) -> None:
        self._service = service
        self._running, self._surroundings = WatchedPods(), WatchedSurroundings(service.known.devices)
        service.known.running.use(self._running)
        service.surroundings.use(self._surroundings)
        demands = service.scheduling.demands
        self._feed = ClusterFeed(service.known.nodes, service.known.pods, service.clock, service.records.barrier.seen)
        self._feed.young_seconds = service.settings.young_node_seconds
        self._feed.demands, self._feed.on_refused = demands, self._note_refused
        self._feed.on_dropped = service.audit.forget
        self._feed.pods_on = self._pods_on
        self._namespaces = NamespaceFeed(demands)
        labels = [label.strip() for label in service.settings.sibling_labels.split(",")]
        self._siblings = Siblings(
            service.known.nodes, list(filter(None, labels)), service.clock, self._pods_on, service.profiles
        )
        nominated = NominatedFeed(service.known.pods, service.clock)
        self.on_pods: Callable[[Batch[PodRecord]], None] = lambda _batch: None
        self._handoffs: list[LoopHandoff[Any]] = []
        self._watches: dict[str, Watch[Any]] = {
            "nodes": Watch(client, NODES, self._handoff(self._take_nodes), settings),
            "pods": Watch(client, replace(PODS, check=read_all), self._handoff(self._take_pods), settings),
            "nominations": Watch(client, NOMINATED, self._handoff(nominated.apply), settings),
            "budgets": Watch(client, BUDGETS, self._handoff(self._running.apply_budgets), settings),
        }
        self._topologies = TopologyFeed(
            service.known.nodes,
            service.clock,
            max_bytes=service.settings.max_body_bytes,
            uid_of=self._feed.uid_of,
            switches=service.settings.switches,
        )
        if service.settings.topologies == "on":
            small = replace(settings, batch_size=BATCH)
            self._watches["topologies"] = Watch(client, TOPOLOGIES, self._handoff(self._topologies.apply), small)
        gangs = service.scheduling.gangs
        self._groups = None if gangs is None else GroupFeed(gangs.groups, service.clock)
        if self._groups is not None:
            for api in apis_of(service.settings.gang_apis):
                apply = self._handoff(self._groups.apply_objects)
                self._watches[api] = Watch(client, sized_objects(api), apply, settings)
        if service.known.devices is not None:
            claimed = DynamicDevicesFeed(service.known.devices)
            self._watches["resource slices"] = Watch(client, SLICES, self._handoff(claimed.apply_slices), settings)
            self._watches["resource claims"] = Watch(client, CLAIMS, self._handoff(claimed.apply_claims), settings)
        self._needs_namespaces = service.settings.namespace_demands == "on"
        if self._needs_namespaces:
            self._watches["namespaces"] = Watch(client, NAMESPACES, self._handoff(self._take_namespaces), settings)

    def start(self) -> None:
        """Start the watches."""
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
        service, feed = self._service, self._feed
        states = {name: watch.status() for name, watch in self._watches.items()}
        if states["pods"].failures:
            service.known.link.note_failure(service.clock())
        else:
            service.known.link.note_progress(service.clock() - states["pods"].silent_seconds)
        broken = [f"the watch of {name} has ended: {state.broken}" for name, state in states.items() if state.broken]
        unsynced = not (feed.pods_complete and feed.nodes_complete)
        unlabelled = self._needs_namespaces and not self._namespaces.complete
        limit = service.settings.watch_silent_seconds
        late = {name: state for name, state in states.items() if state.silent_seconds > limit}
        heard = [name for name in _NEEDED if name in late and late[name].heard_seconds <= limit]
        service.known.link.late = tuple(late)
        service.known.link.stalled = _stalled_text(heard[0], late[heard[0]]) if heard else ""
        service.known.link.unread = {name: len(state.unread) for name, state in states.items() if state.unread}
        for name, state in states.items():
            service.metrics.watch_silence.labels(name).set(state.silent_seconds)
            service.metrics.unread_objects.labels(name).set(len(state.unread))
        missing = "pods and nodes" if unsynced else "namespaces" if unlabelled else ""
        service.known.link.trouble = f"{missing} are not listed yet" if missing else broken[0] if broken else ""
        quiet = bool(broken) or any(name in late for name in _NEEDED)
        if not unsynced:
            service.known.nodes.set_watching(Watching.SILENT if quiet else Watching.LIVE, service.clock())
        topologies = states.get("topologies")
        if topologies and not topologies.broken and "topologies" not in late:
            self._topologies.confirm()
            service.metrics.topology_faults.set(len(self._topologies.trouble))
        service.known.nodes.expire(service.clock())
        service.known.pods.expire(service.clock())
        self._siblings.settle()

    async def keep_checking(self) -> None:
        """Check until cancelled."""
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
        if self._groups is not None:
            self._groups.apply_pods(batch)
        self.on_pods(batch)
        self._service.authority.end_pods(change.value.uid for change in batch.changes if isinstance(change, Gone))
        if self._feed.pods_complete is not was_complete:
            self.check()

    def _pods_on(self, node_name: str) -> Sequence[WatchedPod] | None:
        return self._surroundings(node_name).pods

    def _note_refused(self, refused: Refused) -> None:
        self._service.records.refusals.note(
            refused.node_name, refused.pod, refused.reason, refused.at, is_ours=refused.is_ours
        )
        if refused.is_ours:
            self._siblings.note_refused(refused.node_name, refused.pod)

    def _take_nodes(self, batch: Batch[NodeObject]) -> None:
        was_complete = self._feed.nodes_complete
        self._surroundings.apply_nodes(batch)
        self._feed.apply_nodes(batch)
        self._siblings.apply(batch)
        if self._feed.nodes_complete is not was_complete:
            self.check()

    def _take_namespaces(self, batch: Batch[LabelledNamespace]) -> None:
        self._namespaces.apply(batch)
        self.check()


def read_all(record: PodRecord) -> None:
    """Read all that the consumers of the watch read later. Raises whatever they would raise."""
    read_shape(record.reduced)
    requests_of(record.reduced)
    group_of_record(record)
    is_refused_for_topology(record)


def _stalled_text(name: str, state: WatchStatus) -> str:
    seconds = round(state.silent_seconds)
    return f"the watch of {name} has made no progress for {seconds} s, although the API server answers: {state.trouble}"


def watch_settings(settings: Settings) -> WatchSettings:
    """The timeouts of the watches."""
    return WatchSettings(idle_seconds=min(120.0, IDLE_SHARE * settings.watch_silent_seconds))


@asynccontextmanager
async def connected(
    service: Service, access: Access | None = None, settings: WatchSettings | None = None
) -> AsyncIterator[None]:
    """Runs everything that needs the API server while the context lasts.

    Each part gets the parts that it depends on as arguments. So there is no binder without a leadership, and no
    leadership without a client.

    Raises:
        ClientConfigError: there is no usable configuration for the API server.
    """
    access = access or discover(service.settings.kubeconfig)
    if access.configuration.host.startswith("https:") and not access.configuration.verify_ssl:
        LOG.warning(
            "the API server's certificate is not verified (insecure-skip-tls-verify): anyone on the network path "
            "can read the token and answer in its place; set its CA in the kubeconfig"
        )
    async with AsyncExitStack() as stack:
        client = KubeClient(access)
        stack.callback(client.close)
        authority = make_authority(client, service.settings, service.metrics, service.clock)
        stack.callback(authority.close)
        service.authority.use(authority)
        leads = await stack.enter_async_context(
            leadership(client, service.settings, service.lifecycle, service.metrics, service.clock)
        )
        await stack.enter_async_context(_binding(service, client, leads))
        watches = ClusterWatches(service, client, settings or watch_settings(service.settings))
        if service.settings.janitor != "off":
            janitor = Janitor(client, service.settings, service.metrics, lambda: leads.leads, service.clock)
            watches.on_pods = janitor.apply
            await stack.enter_async_context(_running(janitor.run()))
        await stack.enter_async_context(_watching(watches))
        if service.settings.pod_events == "on":
            await stack.enter_async_context(_running(PodEvents(service, client, lambda: leads.leads).run()))
        if service.settings.wake_up:
            requeuer = Requeuer(service, NodeToucher(client), lambda: leads.leads)
            await stack.enter_async_context(_running(requeuer.run()))
        yield


@asynccontextmanager
async def _binding(service: Service, client: KubeClient, leads: Leadership) -> AsyncIterator[None]:
    """Writes bindings while this process leads. At the end it waits for bindings in progress."""
    seconds = service.settings.binding_seconds
    calls = AsyncBinder(Binder(client, timeout_seconds=seconds), clock=service.clock)
    service.known.link.binder = GatedBinder(calls, leads, seconds=seconds)
    try:
        yield
    finally:
        service.known.link.binder = None
        await asyncio.to_thread(calls.close)


@asynccontextmanager
async def _watching(watches: ClusterWatches) -> AsyncIterator[None]:
    """Runs the watches and checks their health."""
    watches.start()
    try:
        async with _running(watches.keep_checking()):
            yield
    finally:
        await watches.stop()


@asynccontextmanager
async def _running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Runs *work* as a task, and cancels it at the end."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task
