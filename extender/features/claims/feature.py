"""Connects the devices of DRA drivers with filter, prioritize, bind and questions."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import lru_cache, partial
from typing import Any, Final

import orjson

from extender.api.service import Service
from extender.dra.rules import AllocatorRules, UnknownAllocatorError, rules_for
from extender.features.claims.cpus.controller import ACCOUNT, WAITING, CpuClaims
from extender.features.claims.feed import CLAIMS, CLASSES, SLICES, TEMPLATES
from extender.features.claims.forecast import Forecasts
from extender.features.claims.objector import ClaimCheck
from extender.features.claims.objects import ClaimObjects
from extender.features.claims.questions import QuestionForecast
from extender.features.claims.ranking import ClaimRanking
from extender.kube.changes import Batch, Gone
from extender.kubelet.machine import Machine
from extender.kubelet.sets import parse_list
from extender.runtime.connection import ApiConnection, ConnectedFeature

LOG: Final = logging.getLogger(__name__)
ROOTS_SECONDS: Final = 2.0
CHOOSE_SECONDS: Final = 1.0
ANY_VERSION: Final = "1.36"
"""Any version: nothing is predicted, so its rules do not matter."""
NEEDED: Final = frozenset(("slices", "claims", "classes"))
"""What must be listed before anything is predicted."""


class ClaimsFeature(ConnectedFeature):
    """Watches slices, classes and claims, and gives their devices to filter, prioritize, bind and questions."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        rules = _rules(service.settings.dra_scheduler)
        self.objects: Final = ClaimObjects(rules or rules_for(ANY_VERSION), service.clock)
        self.forecasts = Forecasts(self.objects, self._count) if rules else None
        self._listed: Final = set[str]()
        self._claimed: dict[str, tuple[Machine, str, Mapping[str, int]]] = {}
        self.objectors = (
            ClaimCheck(service, self.objects, self.forecasts),
            ClaimRanking(self.objects, service.offload, self.forecasts, service.surroundings, clock=service.clock),
        )

    def connect(self, connection: ApiConnection) -> None:
        """Watch them. Questions get the devices of each node."""
        objects = self.objects
        connection.watch("resource slices", SLICES, partial(self._take, objects.set_slice, "slices"))
        connection.watch("resource claims", CLAIMS, partial(self._take, objects.set_claim, "claims"))
        connection.surroundings.devices_on = lambda name: objects.devices_on(name) if objects.complete else None
        connection.every(ROOTS_SECONDS, self.read_reports)
        if self.forecasts is not None:
            connection.watch("device classes", CLASSES, partial(self._take, self.objects.set_class, "classes"))
            connection.watch("claim templates", TEMPLATES, partial(self._take, self.objects.set_template, "templates"))
            connection.surroundings.claims_on = self.objects.claims_on
            self.service.surroundings.make_forecast = self._forecast
            if self.service.settings.dra_cpus == "on":
                client = connection.client.acting_as(self.service.settings.lease_namespace, ACCOUNT)
                chooser = CpuClaims(self.service, client, connection.leads, objects, self._forecast)
                connection.watch("pods that wait for CPUs", WAITING, chooser.apply)
                connection.every(CHOOSE_SECONDS, chooser.step)

    async def read_reports(self) -> None:
        """Take the NUMA nodes of PCIe roots, and of CPUs of claims, from the reports of the nodes that need them."""
        for name in {*self.objects.rooted.values()}:
            record = self.service.known.nodes.get(name)
            text = None if record is None else record.observation.facts.get("pcie_roots")
            if isinstance(text, str):
                self.objects.set_roots(name, _roots_of(text))
        before, self._claimed = self._claimed, {}
        for name in self.objects.cpu_nodes:
            record = self.service.known.nodes.get(name)
            kubelet = None if record is None else record.observation.kubelet
            text = None if record is None else record.observation.facts.get("claimed_cpus")
            if kubelet is None or not isinstance(text, str):
                continue
            known = before.get(name)
            if known is None or known[0] is not kubelet.machine or known[1] != text:
                known = kubelet.machine, text, _numa_of_claims(text, kubelet.machine)
                await asyncio.sleep(0)  # many nodes at once do not hold up the event loop
            self._claimed[name] = known
        self.objects.cpus = {name: numa for name, (_, _, numa) in self._claimed.items()}

    def _take(self, put: Callable[[str, Any], None], watch: str, batch: Batch[Any]) -> None:
        for change in batch.changes:
            put(change.value.name, None if isinstance(change, Gone) else change.value)
        self._listed.update([watch] if batch.complete else [])
        self.objects.complete = self._listed >= {"slices", "claims"}
        if self.forecasts is not None:
            self.forecasts.is_complete = self._listed >= NEEDED

    def _count(self, result: str) -> None:
        self.service.metrics.claim_forecasts.labels(result).inc()
        self.service.audit.allocations[result] += 1

    def _forecast(self) -> QuestionForecast | None:
        known = self.forecasts
        return QuestionForecast.of(self.objects) if known is not None and known.is_complete else None


@lru_cache(256)
def _roots_of(text: str) -> Mapping[str, int]:
    """The same object for equal texts: many nodes are alike."""
    roots: dict[str, int] = orjson.loads(text)
    return roots


def _numa_of_claims(text: str, machine: Machine) -> Mapping[str, int]:
    """The NUMA nodes of the CPUs of each claim, by its UID. A claim whose CPUs cannot be read is left out."""
    found: dict[str, int] = {}
    for uid, cpus in orjson.loads(text).items():
        with suppress(ValueError):
            found[uid] = machine.numa_bits_of_cpus(parse_list(cpus, machine.all_cpus.bit_length()))
    return found


def _rules(version: str) -> AllocatorRules | None:
    """The rules of the kube-scheduler; None: the setting names none that can be replayed, so nothing is predicted."""
    try:
        return rules_for(version) if version else None
    except UnknownAllocatorError as error:
        LOG.warning("kube-scheduler cannot be replayed, so nothing is predicted for claims error=%s", error)
        return None


make = ClaimsFeature
