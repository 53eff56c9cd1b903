"""Connects labels of namespaces with the demands of pods."""

from extender.features.namespaces.feed import NAMESPACES, LabelledNamespace, NamespaceFeed
from extender.kube.changes import Batch
from extender.runtime.connection import ApiConnection, ConnectedFeature


class NamespacesFeature(ConnectedFeature):
    """Watches namespaces, whose labels are the default demands of their pods."""

    def connect(self, connection: ApiConnection) -> None:
        """Watch namespaces. The service is not ready before they are listed."""
        feed = NamespaceFeed(self.service.scheduling.demands)

        def take(batch: Batch[LabelledNamespace]) -> None:
            feed.apply(batch)
            connection.check()

        connection.watch("namespaces", NAMESPACES, take)
        connection.need("namespaces", lambda: feed.complete)


make = NamespacesFeature
