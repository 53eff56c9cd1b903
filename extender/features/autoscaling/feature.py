"""Connects the requests for nodes with the watch of nodes, and shows them."""

from collections.abc import Iterable
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Response

from extender.api.http.parameters import known_parameters
from extender.api.http.problems import replies_with
from extender.api.http.replies import json_reply
from extender.api.service import Service
from extender.features.autoscaling.controller import Controller
from extender.features.autoscaling.documents import Record
from extender.features.autoscaling.expander import Expander
from extender.features.autoscaling.objects import ACCOUNT
from extender.features.autoscaling.pools import POOL_LABELS, Pools
from extender.features.autoscaling.templates import TemplateNodes
from extender.features.autoscaling.waiting import Waiting
from extender.features.profiles import read_profiles
from extender.runtime.connection import ApiConnection, ConnectedFeature
from extender.wire.replies import ReplyBody, about

STEP_SECONDS: Final = 5.0


class ScaleUp(ReplyBody):
    """One request for nodes."""

    namespace: str
    name: Annotated[str, about("Of the PodTemplate and the ProvisioningRequest.")]
    pods: Annotated[list[str], about("NAMESPACE/NAME of the pods that it is for.")]
    pools: Annotated[list[str], about("LABEL=VALUE of the pools whose new nodes take the pods.")]
    nodes: Annotated[int, about("How many nodes it asks for.")]
    since: Annotated[int, about("Unix seconds.")]
    state: Annotated[str, about("`asked`, `proposed` (dry run), `placed`, `gone`, `timed_out` or `stopped`.")]
    autoscaler: Annotated[str, about("The reason or state that the autoscaler gives. Empty: none yet.")]
    guarded: Annotated[int, about("Pods that the autoscaler must not move, since they fit nowhere else.")]
    objects: Annotated[list[dict[str, Any]], about("In a dry run: what would be created.")]


class ScaleUps(ReplyBody):
    """All requests for nodes."""

    mode: Annotated[str, about("`on`, `dry-run` or `off`.")]
    scale_ups: list[ScaleUp]


class AutoscalingFeature(ConnectedFeature):
    """Asks autoscalers for nodes for pods that only the extender refuses."""

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        settings = service.settings
        profiles = read_profiles(settings.node_profiles) if settings.node_profiles else ()
        labels = [label.strip() for label in settings.pool_labels.split(",") if label.strip()] or POOL_LABELS
        self.pools: Final = Pools(labels, service.known.nodes, service.surroundings, profiles)
        self._templates: Final = TemplateNodes(service, self.pools)
        self.objectors = (self._templates,)
        self._controller: Controller | None = None

    def connect(self, connection: ApiConnection) -> None:
        """Watch nodes, and run the controller."""
        service = self.service
        waiting = Waiting(service, service.settings.autoscaling_wait_seconds)
        client = connection.client.acting_as(service.settings.lease_namespace, ACCOUNT)
        self._controller = Controller(service, client, connection.leads, self.pools, waiting)
        connection.on_nodes.append(self.pools.apply)
        connection.every(STEP_SECONDS, self._controller.step)
        if service.settings.autoscaling_expander_port:
            connection.tasks.append(Expander(service, self.pools, self._templates).serve)

    def routers(self) -> Iterable[APIRouter]:
        """GET /v1/scale-ups."""
        router = APIRouter(prefix="/v1", tags=["scale-ups"], dependencies=[Depends(known_parameters)])

        @router.get("/scale-ups", summary="Requests for nodes to autoscalers", **replies_with(ScaleUps))
        async def scale_ups() -> Response:
            """The requests of this process's last step. Only the leader has any."""
            shown = [] if self._controller is None else self._controller.shown
            found = [_shown(record, outcome, list(objects)) for record, outcome, objects in shown]
            return json_reply(ScaleUps(mode=self.service.settings.autoscaling, scale_ups=found))

        yield router


def _shown(record: Record, outcome: str, objects: list[dict[str, Any]]) -> ScaleUp:
    return ScaleUp(
        namespace=record.namespace,
        name=record.name,
        pods=[pod.path for pod in record.pods],
        pools=[pool.text for pool in record.pools],
        nodes=record.nodes,
        since=record.since,
        state="proposed" if objects else record.ended or "asked",
        autoscaler="" if objects else outcome,
        guarded=len(record.guarded),
        objects=objects,
    )


make = AutoscalingFeature
