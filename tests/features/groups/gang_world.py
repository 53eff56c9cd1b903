"""An extender that places groups."""

from collections.abc import Mapping
from typing import Any

from extender.api.service import Service
from extender.config.settings import Settings
from extender.features.groups.feature import GroupsFeature
from extender.features.groups.groups import Groups
from extender.features.groups.objector import Gangs
from extender.wire.groups import GROUP, SIZE
from tests.reports import pod_of
from tests.world.cluster import World

Json = dict[str, Any]


def gangs_of(service: Service) -> Gangs:
    """The groups of a service whose setting `gangs` is on."""
    (feature,) = (each for each in service.features if isinstance(each, GroupsFeature))
    return feature.gangs


def member(name: str, group: str, size: int, cpus: int = 8, **annotations: str) -> Json:
    """A pod of a group; the DUAL node of tests has room for 3 of 8 CPUs, and for 2 of 14."""
    pod = pod_of(cpus, name=name)
    pod["metadata"]["annotations"] = {GROUP: group, SIZE: str(size), **annotations}
    return pod


class GangWorld(World):
    """Nodes with 14 and 16 CPUs on two NUMA nodes. *settings*: those that differ."""

    def __init__(self, *names: str, **settings: Any) -> None:
        given: Mapping[str, Any] = {"gangs": "on", "bind_wait_seconds": 0, "assume_seconds": 1e6, **settings}
        super().__init__(*names, settings=Settings(**given))

    @property
    def gangs(self) -> Gangs:
        return gangs_of(self.service)

    @property
    def groups(self) -> Groups:
        return self.gangs.groups
