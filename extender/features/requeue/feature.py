"""Runs the requeuer."""

from extender.features.requeue.annotations import NodeToucher
from extender.features.requeue.requeuer import Requeuer
from extender.runtime.connection import ConnectedFeature, Connection


class RequeueFeature(ConnectedFeature):
    """See the package."""

    def connect(self, connection: Connection) -> None:
        """Scan and touch nodes."""
        toucher = NodeToucher(connection.client)
        connection.tasks.append(Requeuer(self.service, toucher, connection.leads).run)


make = RequeueFeature
