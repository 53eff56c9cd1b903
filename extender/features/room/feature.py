"""Connects the controller that makes room with filter, its watches, its route and its metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from operator import attrgetter
from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends, Response

from extender.api.http.parameters import known_parameters
from extender.api.http.problems import replies_with
from extender.api.http.replies import json_reply
from extender.api.service import Service
from extender.features.room.controller import STEP_SECONDS, RoomController
from extender.features.room.objector import RoomObjector
from extender.features.room.planner import RoomPlanner
from extender.features.room.record import MovePlan
from extender.kube.changes import Batch, Gone
from extender.kube.objects import mapping, strings, text
from extender.kube.shapes import passed_to, shapes_in
from extender.kube.source import Source
from extender.questions.asked import Questions
from extender.questions.shapes import DeclaredShapes
from extender.runtime.connection import ApiConnection, ConnectedFeature
from extender.wire.replies import ReplyBody, about

MOVABLE: Final = "numa-extender.io/movable"
"""The label of namespaces whose pods may be moved, with the value `true`."""


@dataclass(frozen=True, slots=True)
class MovableNamespace:
    """A namespace, and whether its pods may be moved."""

    name: str
    is_movable: bool


def decode_movable(value: Mapping[str, Any]) -> tuple[str, MovableNamespace] | None:
    """The namespace under its name. None without a name."""
    metadata = mapping(value, "metadata")
    name = text(metadata, "name")
    return (name, MovableNamespace(name, strings(metadata, "labels").get(MOVABLE) == "true")) if name else None


MOVABLE_NAMESPACES: Final = Source(path="/api/v1/namespaces", decode=decode_movable, key=attrgetter("name"))
"""All namespaces."""


class RoomView(ReplyBody):
    """The controller that makes room."""

    mode: Annotated[str, about("The setting `NUMA_EXTENDER_ROOM`: `off`, `dry-run` or `on`.")]
    leads: Annotated[bool, about("Whether this process leads; the other fields are those of the leader.")]
    stopped: Annotated[str, about("Why it makes no further plan; empty: it may.")]
    finding: Annotated[str, about("Why the last search found no plan to carry out; empty: it found one, or was none.")]
    namespaces: Annotated[list[str], about("Namespaces whose pods may be moved.")]
    evictions: Annotated[int, about("Evictions in the last hour.")]
    evictions_per_hour: Annotated[int, about("Their limit.")]
    plan: Annotated[MovePlan | None, about("The plan that is carried out; null: none.")]
    history: Annotated[list[MovePlan], about("The last plans, the newest first.")]


class RoomFeature(ConnectedFeature):
    """Makes room for waiting pods and declared shapes."""

    controller: RoomController | None = None

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        self._objector: Final = RoomObjector()
        self._questions: Questions | None = None
        self.objectors = (self._objector,)

    def use(self, questions: Questions) -> None:
        """Plan by asking these."""
        self._questions = questions

    def connect(self, connection: ApiConnection) -> None:
        """Watch namespaces and shapes, and make room."""
        assert self._questions is not None
        planner = RoomPlanner(self._questions)
        controller = self.controller = RoomController(
            self.service, connection.client, connection.leads, planner, self._objector
        )

        def take_namespaces(batch: Batch[MovableNamespace]) -> None:
            for change in batch.changes:
                is_movable = change.value.is_movable and not isinstance(change, Gone)
                (controller.movable.add if is_movable else controller.movable.discard)(change.value.name)

        def take_shapes(declared: DeclaredShapes) -> None:
            controller.shapes = declared.shapes

        connection.watch("movable namespaces", MOVABLE_NAMESPACES, take_namespaces)
        if self.service.settings.shapes == "on":
            namespace = self.service.settings.lease_namespace
            connection.watch("shapes for room", shapes_in(namespace), passed_to(take_shapes))
        connection.on_refused.append(lambda refused: controller.note_refusal(refused.node_name))
        connection.every(STEP_SECONDS, controller.step)

    def routers(self) -> Iterable[APIRouter]:
        """GET /v1/room."""
        router = APIRouter(prefix="/v1", tags=["shapes"], dependencies=[Depends(known_parameters)])

        @router.get(
            "/room",
            summary="Pods that were moved to make room, and the plan that is carried out",
            **replies_with(RoomView, HTTPStatus.UNPROCESSABLE_ENTITY),
        )
        async def show_room() -> Response:
            """The record of the controller."""
            settings, controller = self.service.settings, self.controller
            record = None if controller is None else controller.record
            view = RoomView(
                mode=settings.room,
                leads=record is not None,
                stopped="" if record is None else record.stopped,
                finding="" if controller is None else controller.finding,
                namespaces=[] if controller is None else sorted(controller.movable),
                evictions=0 if record is None else len(record.evicted_at),
                evictions_per_hour=settings.room_per_hour,
                plan=None if record is None else record.plan,
                history=[] if record is None else record.history,
            )
            return json_reply(view)

        yield router


make = RoomFeature
