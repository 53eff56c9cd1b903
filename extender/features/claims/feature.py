"""Connects the devices of DRA drivers with filter, prioritize, bind and questions."""

from collections.abc import Sequence
from typing import Final

from extender.api.service import Service
from extender.features.claims.devices import DynamicDevices
from extender.features.claims.feed import CLAIMS, SLICES, DynamicDevicesFeed
from extender.features.claims.objector import ClaimCheck
from extender.features.claims.ranking import ClaimRanking
from extender.questions.dynamic_devices import DynamicDevice
from extender.runtime.connection import ApiConnection, ConnectedFeature


class ClaimsFeature(ConnectedFeature):
    """Watches slices and claims, and gives their devices to filter, prioritize, bind and questions."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.devices: Final = DynamicDevices()
        self.objectors = (
            ClaimCheck(service, self.devices),
            ClaimRanking(self.devices, service.offload, clock=service.clock),
        )

    def connect(self, connection: ApiConnection) -> None:
        """Watch slices and claims. Questions get the devices of each node."""
        feed = DynamicDevicesFeed(self.devices)
        connection.watch("resource slices", SLICES, feed.apply_slices)
        connection.watch("resource claims", CLAIMS, feed.apply_claims)
        connection.surroundings.devices_on = self._devices_on

    def _devices_on(self, node_name: str) -> Sequence[DynamicDevice] | None:
        return self.devices.of_node(node_name) if self.devices.complete else None


make = ClaimsFeature
