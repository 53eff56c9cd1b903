"""Connects the janitor with the watch of pods."""

from extender.features.janitor.janitor import Janitor, is_refused_for_topology
from extender.runtime.connection import ApiConnection, ConnectedFeature


class JanitorFeature(ConnectedFeature):
    """Watches pods, and deletes those that kubelets refused for their topology."""

    def connect(self, connection: ApiConnection) -> None:
        """Watch pods, and delete."""
        service = self.service
        janitor = Janitor(connection.client, service.settings, service.metrics, connection.leads, service.clock)
        connection.on_pods(janitor.apply, is_refused_for_topology)
        connection.tasks.append(janitor.run)


make = JanitorFeature
