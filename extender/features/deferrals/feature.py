"""Connects deferrals with filter and bind, and with the refusals that the watch of pods shows."""

from extender.api.service import Service
from extender.features.deferrals.left_out import (
    Deferrals,
    JustRefused,
    StartingKubelets,
    TotalsCheck,
    changing_nodes,
    ended_pods,
)
from extender.kube.feed import Refused
from extender.runtime.connection import ApiConnection, ConnectedFeature


class DeferralsFeature(ConnectedFeature):
    """Nodes that are not ready, and nodes that have just refused a pod like this one."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        known, clock, seconds = service.known, service.clock, service.settings.hold_back_seconds
        self.objectors = [
            JustRefused(service.records.refusals, clock),
            ended_pods(known.nodes, clock),
            changing_nodes(clock),
            StartingKubelets(known.nodes, known.link, clock),
            Deferrals(known.pods, seconds, clock),
        ]
        if service.settings.uncertainty.requires_certainty:
            self.objectors.append(TotalsCheck(known.totals, known.pods, known.link, seconds, clock))

    def connect(self, connection: ApiConnection) -> None:
        """Note each pod that a kubelet has just refused."""
        connection.on_refused.append(self._note)

    def _note(self, refused: Refused) -> None:
        self.service.records.refusals.note(
            refused.node_name, refused.pod, refused.reason, refused.at, is_ours=refused.is_ours
        )


make = DeferralsFeature
