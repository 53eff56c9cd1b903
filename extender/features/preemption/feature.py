"""Connects nominations with filter and bind, and preempt with its route and its watches."""

from collections.abc import Iterable, Mapping
from http import HTTPStatus
from typing import Final

from fastapi import APIRouter, Response

from extender.api.http.problems import documented
from extender.api.http.replies import described, json_body
from extender.api.scheduler import Lap, VerbCall
from extender.api.service import Service
from extender.features.preemption.nominated import NOMINATED, apply_nominated
from extender.features.preemption.nominator import Nominator
from extender.features.preemption.preempt import Preempt
from extender.features.preemption.running import BUDGETS, WatchedPods
from extender.runtime.connection import ApiConnection, ConnectedFeature
from extender.wire.preemption import (
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
    parse_preemption,
    preemption_reply,
)


class PreemptionFeature(ConnectedFeature):
    """Watches nominated pods, running pods and disruption budgets for the preempt verb."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        nominator = Nominator(service)
        self.objectors = (nominator,)
        self.verb: Final = Preempt(service, nominator, self._count)

    def routers(self) -> Iterable[APIRouter]:
        """POST /scheduler/preempt."""
        router = APIRouter(prefix="/scheduler", tags=["scheduler"], default_response_class=Response)
        service, most = self.service, self.service.settings.max_scheduler_body_bytes
        call = VerbCall("preempt", self._answer, most, None, service.metrics, service.clock, service.lifecycle)
        router.post(
            "/preempt",
            name="preempt",
            description="The extender's `preemptVerb`. Both forms of victims are read; the reply names victims by UID.",
            responses={
                200: described(ExtenderPreemptionResult),
                **documented(
                    HTTPStatus.BAD_REQUEST, HTTPStatus.REQUEST_ENTITY_TOO_LARGE, HTTPStatus.UNPROCESSABLE_ENTITY
                ),
            },
            openapi_extra=json_body(ExtenderPreemptionArgs),
            summary="Find the nodes on which evicting these pods, or more, makes the pod fit",
        )(call.run)
        yield router

    def connect(self, connection: ApiConnection) -> None:
        """Watch nominated pods and budgets."""
        known, running = self.service.known, WatchedPods(connection.pods_on)
        known.running.on_node, known.running.budgets = running.on_node, running.budgets
        connection.watch(
            "nominations", NOMINATED, lambda batch: apply_nominated(known.pods, batch, self.service.clock())
        )
        connection.watch("budgets", BUDGETS, running.apply_budgets)

    async def _answer(self, body: bytes, _lap: Lap) -> bytes:
        plans = await self.verb.preempt(parse_preemption(body))
        return preemption_reply({name: (plan.victims, plan.violations) for name, plan in plans.items()})

    def _count(self, results: Mapping[str, int]) -> None:
        for result, count in results.items():
            self.service.metrics.preemptions.labels(result).inc(count)


make = PreemptionFeature
