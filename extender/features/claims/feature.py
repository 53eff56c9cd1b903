"""Connects the devices of DRA drivers with filter, prioritize, bind and questions."""

import logging
from collections.abc import Sequence
from typing import Final

from extender.api.service import Service
from extender.dra.rules import UnknownAllocatorError, rules_for
from extender.features.claims.devices import DynamicDevices
from extender.features.claims.feed import CLAIMS, CLASSES, SLICES, AllocatedClaim, NamedClass, NamedSlice
from extender.features.claims.forecast import Forecasts
from extender.features.claims.objector import ClaimCheck
from extender.features.claims.objects import ClaimObjects
from extender.features.claims.questions import QuestionForecast
from extender.features.claims.ranking import ClaimRanking
from extender.kube.changes import Batch, Gone
from extender.questions.node_context import DynamicDevice
from extender.runtime.connection import ApiConnection, ConnectedFeature

LOG: Final = logging.getLogger(__name__)
LISTS: Final = 3
"""What must be listed before anything is predicted: slices, claims and classes."""


class ClaimsFeature(ConnectedFeature):
    """Watches slices and claims, and gives their devices to filter, prioritize, bind and questions."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self.devices: Final = DynamicDevices()
        self._listed: Final = set[str]()
        self.forecasts: Final = _forecasts(service, self.devices)
        self.objectors = (
            ClaimCheck(service, self.devices, self.forecasts),
            ClaimRanking(self.devices, service.offload, self.forecasts, service.surroundings, clock=service.clock),
        )

    def connect(self, connection: ApiConnection) -> None:
        """Watch slices and claims. Questions get the devices of each node."""
        connection.watch("resource slices", SLICES, self._take_slices)
        connection.watch("resource claims", CLAIMS, self._take_claims)
        if self.forecasts is not None:
            connection.watch("device classes", CLASSES, self._take_classes)
            connection.surroundings.claims_on = self.forecasts.objects.of_node
            self.service.surroundings.foretell = self._forecast
        connection.surroundings.devices_on = self._devices_on

    def _take_slices(self, batch: Batch[NamedSlice]) -> None:
        for change in batch.changes:
            is_gone = isinstance(change, Gone)
            self.devices.set_slice(change.value.name, None if is_gone else change.value.published)
            if self.forecasts is not None:
                self.forecasts.objects.set_slice(change.value.name, None if is_gone else change.value)
        self._note_complete("slices", is_complete=batch.complete)

    def _take_claims(self, batch: Batch[AllocatedClaim]) -> None:
        for change in batch.changes:
            value, is_gone = change.value, isinstance(change, Gone)
            self.devices.set_claim(value.claim, () if is_gone else value.devices, value.extended)
            if self.forecasts is not None:
                self.forecasts.objects.set_claim(value.claim, None if is_gone else value)
        self._note_complete("claims", is_complete=batch.complete)

    def _take_classes(self, batch: Batch[NamedClass]) -> None:
        for change in batch.changes:
            if self.forecasts is not None:
                exact = None if isinstance(change, Gone) else change.value.exact
                self.forecasts.objects.set_class(change.value.name, exact)
        self._note_complete("classes", is_complete=batch.complete)

    def _note_complete(self, watch: str, *, is_complete: bool) -> None:
        self._listed.update([watch] if is_complete else [])
        self.devices.complete = self._listed >= {"slices", "claims"}
        if self.forecasts is not None:
            self.forecasts.is_complete = len(self._listed) == LISTS

    def _forecast(self) -> QuestionForecast | None:
        known = self.forecasts
        return QuestionForecast.of(known.objects) if known is not None and known.is_complete else None

    def _devices_on(self, node_name: str) -> Sequence[DynamicDevice] | None:
        return self.devices.of_node(node_name) if self.devices.complete else None


def _forecasts(service: Service, devices: DynamicDevices) -> Forecasts | None:
    """The predictions; None: the setting names no kube-scheduler that can be replayed."""
    version = service.settings.dra_scheduler
    try:
        rules = rules_for(version) if version else None
    except UnknownAllocatorError as error:
        LOG.warning("kube-scheduler cannot be replayed, so nothing is predicted for claims error=%s", error)
        return None
    counted = service.metrics.claim_forecasts
    if rules is None:
        return None
    return Forecasts(ClaimObjects(rules, service.clock), devices, lambda result: counted.labels(result).inc())


make = ClaimsFeature
