"""Runs the writer of events."""

from extender.features.pod_events.events import PodEvents
from extender.runtime.connection import ApiConnection, ConnectedFeature


class PodEventsFeature(ConnectedFeature):
    """Writes an event on a pod that fits on no node."""

    def connect(self, connection: ApiConnection) -> None:
        """Write events."""
        connection.tasks.append(PodEvents(self.service, connection.client, connection.leads).run)


make = PodEventsFeature
