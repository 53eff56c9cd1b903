"""An extender that places groups, with a few nodes, driven by its verbs, and an API server that binds everything."""

from collections.abc import Mapping
from typing import Any

from extender.api.service import Service
from extender.app import make_service
from extender.config.settings import Settings
from extender.features.groups.feature import GroupsFeature
from extender.features.groups.groups import Groups
from extender.features.groups.objector import Gangs
from extender.samples.nodes import SampleNode
from extender.scheduling.binder import Binding, BindOutcome, GatedBinder, PodBound, Unelected
from extender.scheduling.objections import Filtered
from extender.wire.groups import GROUP, SIZE
from extender.wire.pods import pod_from_json
from extender.wire.scheduler import ExtenderBindingArgs, SchedulerArgs
from tests.api.conftest import Clock
from tests.observations import observation_of
from tests.reports import pod_of, sample

Json = dict[str, Any]


def gangs_of(service: Service) -> Gangs:
    """The groups of a service whose setting `gangs` is on."""
    (feature,) = (each for each in service.features if isinstance(each, GroupsFeature))
    return feature.gangs


class Api:
    """A `BindingApi` that binds every pod."""

    def __init__(self) -> None:
        self.outcome: BindOutcome = PodBound()

    async def bind(self, _binding: Binding) -> BindOutcome:
        return self.outcome


def member(name: str, group: str, size: int, cpus: int = 8, **annotations: str) -> Json:
    """A pod of a group; the DUAL node of tests has room for 3 of 8 CPUs, and for 2 of 14."""
    pod = pod_of(cpus, name=name)
    pod["metadata"]["annotations"] = {GROUP: group, SIZE: str(size), **annotations}
    return pod


class GangWorld:
    """*nodes*: with 14 and 16 CPUs on two NUMA nodes."""

    def __init__(self, *nodes: str, **settings: Any) -> None:
        self.clock, self.api = Clock(), Api()
        given: Mapping[str, Any] = {"gangs": "on", "bind_wait_seconds": 0, "assume_seconds": 1e6, **settings}
        self.service: Service = make_service(Settings(**given), self.clock)
        self.service.known.link.binder = GatedBinder(self.api, Unelected(), seconds=1.0)
        self.names: tuple[str, ...] = ()
        for name in nodes:
            self.add(sample(name))

    def add(self, node: SampleNode) -> None:
        """A further node."""
        observation = observation_of(node.name, node)
        self.names = (*self.names, node.name)
        self.service.known.nodes.observe(observation, self.clock())

    @property
    def gangs(self) -> Gangs:
        return gangs_of(self.service)

    @property
    def groups(self) -> Groups:
        return self.gangs.groups

    async def filter(self, pod: Json, *names: str, priority: int = 0) -> Filtered:
        args = SchedulerArgs(
            pod=pod_from_json(pod),
            names=names or self.names,
            nodes=None,
            priority=priority,
            document=pod,
        )
        return await self.service.scheduling.filter.filter(args)

    async def bind(self, pod: Json, node_name: str) -> BindOutcome:
        metadata = pod["metadata"]
        return await self.service.scheduling.bind.bind(
            ExtenderBindingArgs(
                PodName=metadata["name"],
                PodNamespace=metadata["namespace"],
                PodUID=metadata["uid"],
                Node=node_name,
            )
        )

    async def place(self, pod: Json) -> str:
        """The node on which the pod is bound; "" if it is refused."""
        feasible = list((await self.filter(pod)).feasible)
        if not feasible or await self.bind(pod, feasible[0]) != PodBound():
            return ""
        return feasible[0]

    async def place_on(self, pod: Json, node_name: str) -> None:
        """Bind the pod to the node, which admits it."""
        assert list((await self.filter(pod, node_name)).feasible) == [node_name]
        assert await self.bind(pod, node_name) == PodBound()
