"""Connects the devices of DRA drivers with filter, prioritize, bind and questions."""

from collections.abc import Sequence
from typing import Final

from extender.api.service import Service
from extender.features.claims.devices import DynamicDevices
from extender.features.claims.feed import CLAIMS, SLICES, AllocatedClaim, NamedSlice
from extender.features.claims.objector import ClaimCheck
from extender.features.claims.ranking import ClaimRanking
from extender.kube.changes import Batch, Gone
from extender.questions.node_context import DynamicDevice
from extender.runtime.connection import ApiConnection, ConnectedFeature


class ClaimsFeature(ConnectedFeature):
    """Watches slices and claims, and gives their devices to filter, prioritize, bind and questions."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.devices: Final = DynamicDevices()
        self._listed: Final = set[str]()
        self.objectors = (
            ClaimCheck(service, self.devices),
            ClaimRanking(self.devices, service.offload, clock=service.clock),
        )

    def connect(self, connection: ApiConnection) -> None:
        """Watch slices and claims. Questions get the devices of each node."""
        connection.watch("resource slices", SLICES, self._take_slices)
        connection.watch("resource claims", CLAIMS, self._take_claims)
        connection.surroundings.devices_on = self._devices_on

    def _take_slices(self, batch: Batch[NamedSlice]) -> None:
        for change in batch.changes:
            self.devices.set_slice(change.value.name, None if isinstance(change, Gone) else change.value.published)
        self._note_complete("slices", is_complete=batch.complete)

    def _take_claims(self, batch: Batch[AllocatedClaim]) -> None:
        for change in batch.changes:
            claim, devices, extended = change.value
            self.devices.set_claim(claim, () if isinstance(change, Gone) else devices, extended)
        self._note_complete("claims", is_complete=batch.complete)

    def _note_complete(self, watch: str, *, is_complete: bool) -> None:
        self._listed.update([watch] if is_complete else [])
        self.devices.complete = self._listed == {"slices", "claims"}

    def _devices_on(self, node_name: str) -> Sequence[DynamicDevice] | None:
        return self.devices.of_node(node_name) if self.devices.complete else None


make = ClaimsFeature
