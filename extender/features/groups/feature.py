"""Connects groups with filter and bind, their watches, their routes and their metrics."""

from collections import Counter
from collections.abc import Iterable
from typing import Final

from fastapi import APIRouter

from extender.api.service import Service
from extender.features.groups.feed import GroupFeed, group_of_record, sized_objects
from extender.features.groups.objector import Gangs
from extender.features.groups.record import GroupState
from extender.features.groups.routes import groups_router
from extender.runtime.connection import ApiConnection, ConnectedFeature
from extender.wire.groups import apis_of


class GroupsFeature(ConnectedFeature):
    """Watches the objects that state sizes of groups, and gives the groups to filter and bind."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.gangs: Final = Gangs(service)
        self.objectors = (self.gangs,)

    def routers(self) -> Iterable[APIRouter]:
        """GET /v1/groups, GET /v1/group."""
        return (groups_router(self.service, self.gangs),)

    def scrape(self) -> None:
        """Count groups of pods, and the places that are held for them."""
        groups, metrics = self.gangs.groups, self.service.metrics
        groups.expire(self.service.clock())
        states = Counter(record.state for record in groups)
        for state in GroupState:
            metrics.groups.labels(state.value).set(states[state])
        metrics.held_places.set(sum(map(len, groups.held.values())))
        metrics.expired_groups.set(groups.expired)

    def connect(self, connection: ApiConnection) -> None:
        """Watch the objects with sizes, and the pods of groups."""
        feed = GroupFeed(self.gangs.groups, self.service.clock)
        connection.on_pods(feed.apply_pods, group_of_record)
        for api in apis_of(self.service.settings.gang_apis):
            connection.watch(api, sized_objects(api), feed.apply_objects)


make = GroupsFeature
