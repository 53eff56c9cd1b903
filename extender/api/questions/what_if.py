"""Routes for what-if and for the catalogue of machines."""

from typing import Annotated

from fastapi import APIRouter, Query, Request, Response

from extender.answers.question import QuestionKind, Questions
from extender.api.questions.routes import PROBLEMS, NodeQuery, answered, question_body, read_asked
from extender.api.questions.what_if_models import MachineIndex, WhatIfReply
from extender.api.service import Service
from extender.samples.machines import CATALOGUE

Json = dict[str, object]


def what_if_router(service: Service, questions: Questions) -> APIRouter:
    """POST /v1/what-if, GET /v1/machines."""
    router = APIRouter(prefix="/v1", tags=["what-if"])

    @router.post(
        "/what-if",
        response_class=Response,
        summary="What each node would answer to a pod",
        responses={200: {"model": WhatIfReply}, **PROBLEMS},
        openapi_extra=question_body("WhatIfRequest"),
    )
    async def post_what_if(
        request: Request,
        node: NodeQuery = None,
        *,
        explain: Annotated[bool, Query(description="As `explain` in the body.")] = False,
        compact: Annotated[
            bool, Query(description="Group equal answers in `groups`; `nodes` has explained nodes only.")
        ] = False,
    ) -> Response:
        """Replay the pod's admission on live or hypothetical nodes. Nothing in the cluster changes.

        The body is a question, or a bare manifest (`kubectl get -o yaml`), as JSON or YAML.
        """
        options = {"explain": explain, "compact": compact}
        asked = await read_asked(service, request, QuestionKind.WHAT_IF, node, **options)
        return await answered(request, questions, asked)

    @router.get("/machines", summary="Machine shapes for hypothetical nodes")
    async def list_machines() -> MachineIndex:
        """The catalogue of machine shapes that `hypothetical[].machine` can name."""
        return MachineIndex.model_validate({"machines": [_machine(name) for name in CATALOGUE]})

    return router


def _machine(name: str) -> Json:
    shape = CATALOGUE[name]
    hardware = shape.hardware
    return {
        "name": name,
        "about": shape.about,
        "sockets": hardware.sockets,
        "numa_nodes": len(hardware.numa_ids),
        "cpus": hardware.cpus,
        "threads": hardware.threads,
        "memory_bytes": len(hardware.numa_ids) * hardware.memory_gib << 30,
        "devices": {resource: len(numas) for resource, numas in shape.devices.items()},
    }
