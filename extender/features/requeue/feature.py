"""Runs the requeuer."""

from extender.features.requeue.annotations import NodeToucher
from extender.features.requeue.requeuer import Requeuer
from extender.runtime.connection import ApiConnection, ConnectedFeature


class RequeueFeature(ConnectedFeature):
    """Touches nodes that changed, so that kube-scheduler tries refused pods again."""

    def connect(self, connection: ApiConnection) -> None:
        """Scan and touch nodes."""
        toucher = NodeToucher(connection.client)
        connection.tasks.append(Requeuer(self.service, toucher, connection.leads).run)


make = RequeueFeature
