"""Connects the admission check with its watches, filter and bind, its route and its metrics."""

from collections import Counter
from collections.abc import Iterable
from http import HTTPStatus
from typing import Annotated, Final

from fastapi import APIRouter, Depends, Response

from extender.api.http.parameters import known_parameters
from extender.api.http.problems import replies_with
from extender.api.http.replies import json_reply
from extender.api.service import Service
from extender.features.kueue.controller import AlignmentController, Shown
from extender.features.kueue.held import HeldPlaces, owner_of_record
from extender.features.kueue.objects import ACCOUNT, CHECKS, FLAVORS, WORKLOADS
from extender.features.kueue.places import Planner
from extender.features.profiles import read_profiles
from extender.questions.asked import Questions
from extender.runtime.connection import ApiConnection, ConnectedFeature
from extender.wire.replies import ReplyBody, about

STEP_SECONDS: Final = 1.0


class AnsweredWorkload(ReplyBody):
    """The last answer to a Workload."""

    namespace: str
    name: str
    state: Annotated[str, about("`Ready`, `Retry`, `Rejected` or `Pending`.")]
    message: Annotated[str, about("Why, and what was not checked.")]
    retry_seconds: Annotated[int | None, about("Until Kueue tries again; null: not said.")]
    at: Annotated[float, about("Unix seconds.")]
    written: Annotated[bool, about("Whether the Workload has the answer. Never in a dry run.")]
    nodes: Annotated[dict[str, int], about("Places that were found, by node; empty: not all pods get one.")]
    held_seconds: Annotated[float | None, about("How long places are still held; null: none are.")]


class KueueAnswers(ReplyBody):
    """What this process has answered since it leads."""

    mode: Annotated[str, about("`on`, `dry-run` or `off`.")]
    workloads: Annotated[list[AnsweredWorkload], about("The newest first.")]


class KueueFeature(ConnectedFeature):
    """Answers the admission check, and holds places.

    Raises:
        ProfileError: a file of the setting `node_profiles` cannot be used.
    """

    def __init__(self, service: Service) -> None:
        super().__init__(service)
        directory = service.settings.node_profiles
        self.held: Final = HeldPlaces(service)
        self.planner: Final = Planner(service, self.held, read_profiles(directory) if directory else ())
        self.objectors = (self.held,)
        self.controller: AlignmentController | None = None

    def use(self, questions: Questions) -> None:
        """Plan with these."""
        self.planner.questions = questions

    def connect(self, connection: ApiConnection) -> None:
        """Watch Kueue's objects, and run the controller."""
        client = connection.client.acting_as(self.service.settings.lease_namespace, ACCOUNT)
        self.controller = AlignmentController(
            self.service, client, connection.leads, planner=self.planner, held=self.held
        )
        connection.on_nodes.append(self.planner.apply_nodes)
        connection.on_pods(self.held.apply_pods, owner_of_record)
        connection.watch("admissionchecks", CHECKS, self.controller.apply_checks)
        connection.watch("resourceflavors", FLAVORS, self.controller.apply_flavors)
        connection.watch("workloads", WORKLOADS, self.controller.apply_workloads)
        connection.every(STEP_SECONDS, self.controller.step)

    def scrape(self) -> None:
        """Count the places that are held."""
        self.service.metrics.kueue_held_places.set(len(self.held))

    def routers(self) -> Iterable[APIRouter]:
        """GET /v1/kueue."""
        router = APIRouter(prefix="/v1", tags=["kueue"], dependencies=[Depends(known_parameters)])

        @router.get(
            "/kueue",
            summary="The answers to Workloads of Kueue",
            **replies_with(KueueAnswers, HTTPStatus.UNPROCESSABLE_ENTITY),
        )
        async def show_kueue() -> Response:
            """Only the leader answers."""
            controller = self.controller
            shown = [] if controller is None else [self._shown(each) for each in reversed(controller.shown.values())]
            return json_reply(KueueAnswers(mode=self.service.settings.kueue, workloads=shown))

        yield router

    def _shown(self, shown: Shown) -> AnsweredWorkload:
        head, answer, until = shown.head, shown.answer, self.held.until(shown.head.uid)
        places = () if answer.found is None else answer.found.places
        return AnsweredWorkload(
            namespace=head.namespace,
            name=head.name,
            state=answer.state.value,
            message=answer.message,
            retry_seconds=answer.seconds,
            at=shown.at,
            written=shown.is_written,
            nodes=dict(Counter(place.node_name for place in places)),
            held_seconds=None if until is None else round(until - self.service.clock(), 1),
        )


make = KueueFeature
