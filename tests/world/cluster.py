"""An extender in this process: its verbs as values, what reports and watches tell it, and an API server that binds."""

import asyncio
from typing import Any

from extender.api.service import Service
from extender.app import make_service
from extender.config.settings import Settings
from extender.kube.changes import Batch, Mirror, Seen
from extender.kube.feed import ClusterFeed
from extender.kube.nodes import WatchedSurroundings
from extender.kube.pods import PodDecoder, PodRecord
from extender.samples.nodes import SampleNode
from extender.scheduling.binder import Binding, BindOutcome, GatedBinder, PodBound, Unelected
from extender.scheduling.objections import Filtered
from extender.wire.binding import ExtenderBindingArgs
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import SchedulerArgs
from tests.observations import observation_of
from tests.reports import pod_of, sample
from tests.world.clock import Clock
from tests.world.scheduler import binding_of
from tests.world.watched import node_object

Json = dict[str, Any]
BOUND = PodBound()
NO_WAIT = Settings(bind_wait_seconds=0.0)


class Answers:
    """A `BindingApi` that says what the test wants to hear. `outcome` None: it does not answer."""

    def __init__(self, outcome: BindOutcome | None = BOUND) -> None:
        self.outcome = outcome
        self.called = asyncio.Event()
        self.bindings: list[Binding] = []

    async def bind(self, binding: Binding) -> BindOutcome:
        """As the product's."""
        self.bindings.append(binding)
        self.called.set()
        if self.outcome is None:
            await asyncio.Event().wait()
        assert self.outcome is not None
        return self.outcome


def gate(api: Answers) -> GatedBinder:
    """The binder of a service that needs no leadership."""
    return GatedBinder(api, Unelected(), seconds=1.0)


class World:
    """Empty nodes with 2 NUMA nodes, of 14 and 16 CPUs that pods can have. No call waits for a node."""

    def __init__(
        self,
        *names: str,
        outcome: BindOutcome | None = BOUND,
        settings: Settings = NO_WAIT,
        **parts: Any,
    ) -> None:
        """*parts*: of `make_service`."""
        self.clock, self.api = Clock(), Answers(outcome)
        self.service: Service = make_service(settings, self.clock, **parts)
        self.service.known.link.binder = gate(self.api)
        self.names: tuple[str, ...] = ()
        for name in names:
            self.add(sample(name))
        self._decode = PodDecoder()
        self._mirror: Mirror[PodRecord] = Mirror()
        self._surroundings = WatchedSurroundings()
        self._feed = ClusterFeed(self.service.known.nodes, self.service.known.pods, self.clock, lambda: None)

    def add(self, node: SampleNode) -> None:
        """A further node reports."""
        self.names = (*self.names, node.name)
        self.service.known.nodes.observe(observation_of(node.name, node), self.clock())

    def watch(self, *pods: Json) -> None:
        """The watches show that each node can give 16 CPUs in all, and *pods*."""
        for name in self.names:
            node = node_object(name, status={"allocatable": {"cpu": "16"}})
            self._surroundings.apply_nodes(Batch((Seen(node),)))
        decoded = [record for pod in pods if (record := self._decode(pod)) is not None]
        batch = Batch(tuple(change for record in decoded if (change := self._mirror.upsert(*record)) is not None))
        self._surroundings.apply_pods(batch)
        self._feed.apply_pods(batch)
        self.service.surroundings.use(self._surroundings)

    async def filter(self, pod: Json, *names: str, priority: int = 0) -> Filtered:
        """Without names: about all nodes."""
        args = SchedulerArgs(
            pod=pod_from_json(pod), names=names or self.names, nodes=None, priority=priority, document=pod
        )
        return await self.service.scheduling.filter.filter(args)

    async def describe(self, name: str, cpus: int = 2) -> list[str]:
        """A filter call about a new pod: the nodes that are offered."""
        return list((await self.filter(pod_of(cpus, name=name))).feasible)

    async def bind(self, pod: Json, node_name: str) -> BindOutcome:
        """A bind call."""
        return await self.service.scheduling.bind.bind(ExtenderBindingArgs(**binding_of(pod, node_name)))

    async def bind_named(self, name: str, node_name: str = "node-a") -> BindOutcome:
        """A bind call about a pod of `describe`."""
        return await self.bind(pod_of(name=name), node_name)

    async def place(self, pod: Json) -> str:
        """The node on which the pod is bound; "" if it is refused."""
        feasible = list((await self.filter(pod)).feasible)
        if not feasible or await self.bind(pod, feasible[0]) != PodBound():
            return ""
        return feasible[0]

    async def place_on(self, pod: Json, node_name: str) -> None:
        """Bind the pod to the node, which must be offered."""
        assert list((await self.filter(pod, node_name)).feasible) == [node_name]
        assert await self.bind(pod, node_name) == PodBound()

    @property
    def in_flight(self) -> int:
        """Pods that are bound, or about to be, and that no report shows yet."""
        return self.service.known.nodes.pods_in_flight
