"""The OpenAPI document. It also describes bodies that routes read themselves, without FastAPI."""

from importlib.resources import files
from inspect import cleandoc
from typing import Any, Final, Literal

import msgspec
import orjson
from fastapi import FastAPI
from pydantic import TypeAdapter

from extender.answers.capacity import PlanEnd
from extender.api.http.problems import ProblemDetails, StreamProblem
from extender.api.nodes.map import ClusterMap
from extender.api.nodes.models import NodeDetail, NodeIndex
from extender.api.questions.machines import MachineIndex
from extender.api.questions.table import ROUTES
from extender.api.records.decisions import DecisionIndex, PodDecision
from extender.questions.plan import PlannedPod
from extender.wire.preemption import ExtenderPreemptionArgs, ExtenderPreemptionResult
from extender.wire.reports import CONTRACT
from extender.wire.scheduler import (
    EXAMPLE_POD,
    ExtenderArgs,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderFilterResult,
    HostPriority,
)

DESCRIPTION: Final = """
numa-extender knows the topology of every node and what its kubelet has allocated, and replays the kubelet's admission.

* **scheduler**: the routes that kube-scheduler calls. filter and bind always reply with status 200 and report errors in
  `Error`. prioritize and preempt, whose replies have no such field, use HTTP statuses.
* **nodes**: the reports of exporters, and the state of each node.
* **what-if**: what each node would do with a pod, and why; how many copies fit; where a list of pods would go. Bodies
  are questions or bare manifests, as JSON or YAML.
* **advice**: what would happen before you restart, move, resize or reconfigure. Nothing is changed.
* **decisions**: the answers given to kube-scheduler, and why.
* **groups**: pods that are placed together or not at all, and the places that are held for them.
* **service**: liveness, readiness, metrics, and the predictions beside what the kubelets did.

Errors of all routes except filter and bind are `application/problem+json` (RFC 9457) and name the faulty field.
"""
TAGS: Final = [
    {"name": "scheduler", "description": "The extender protocol of kube-scheduler."},
    {"name": "nodes", "description": "Reports of exporters, and the state of each node."},
    {"name": "what-if", "description": "Questions about the cluster. They change nothing."},
    {"name": "advice", "description": "Before you restart, move, resize or reconfigure. Nothing is changed."},
    {"name": "decisions", "description": "Why the last scheduling calls gave their answers."},
    {"name": "groups", "description": "Groups of pods that are placed together or not at all."},
    {"name": "service", "description": "Liveness, readiness, metrics, and the audit of predictions."},
]
BODIES: Final[dict[str, TypeAdapter[Any]]] = {
    **{route.question.__name__: TypeAdapter(route.question) for route in ROUTES},
    "ProblemDetails": TypeAdapter(ProblemDetails),
    "StreamProblem": TypeAdapter(StreamProblem),
}
"""Schemas of pydantic that routes name in `openapi_extra` and `responses`."""
STRUCTS: Final = (
    *(route.reply for route in ROUTES if route.reply is not None),
    PlannedPod,
    PlanEnd,
    MachineIndex,
    NodeIndex,
    NodeDetail,
    ClusterMap,
    DecisionIndex,
    PodDecision,
    *CONTRACT,
    ExtenderArgs,
    ExtenderFilterResult,
    HostPriority,
    ExtenderBindingArgs,
    ExtenderBindingResult,
    ExtenderPreemptionArgs,
    ExtenderPreemptionResult,
)
"""Schemas of msgspec that routes name there, and by `described`."""
_REFERENCE: Final = "#/components/schemas/"
_EXAMPLES: Final[dict[str, object]] = {
    "ExtenderArgs": {"Pod": EXAMPLE_POD, "Nodes": None, "NodeNames": ["node-a", "node-b"]},
    "ExtenderPreemptionArgs": {
        "Pod": EXAMPLE_POD,
        "NodeNameToVictims": None,
        "NodeNameToMetaVictims": {
            "node-a": {"Pods": [{"UID": "5c0f7c1e-6a0b-4e0f-8f0e-1b2c3d4e5f60"}], "NumPDBViolations": 0}
        },
    },
    "WhatIfRequest": {"pod": EXAMPLE_POD, "nodes": None},
    "CapacityRequest": {"pods": [EXAMPLE_POD], "max_copies": 100},
    "PlanRequest": {"pods": [{"pod": EXAMPLE_POD, "copies": 3}]},
    "DefragmentRequest": {"pod": EXAMPLE_POD, "max_moves": 3},
    "RightsizeRequest": {"limit": 5},
    "TuneRequest": {"configurations": 4},
    "MakeRoomRequest": {"pod": EXAMPLE_POD, "max_evictions": 2},
    "ResizeCheckRequest": {"pod": "demo/worker-0", "cpu": "4"},
    "RestartCheckRequest": {"kubelet": {"memoryManagerPolicy": "None"}},
}


def install(app: FastAPI) -> None:
    """Add the schemas of `BODIES` to the document of *app*."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "ExtenderArgs" not in schemas:
            schemas.update(_body_schemas())
            for name, example in orjson.loads(files(__package__).joinpath("examples.json").read_bytes()).items():
                schemas[name]["examples"] = [example]
        return document

    # the documented way to extend FastAPI's document
    app.openapi = openapi  # type: ignore[method-assign]


def _any_json(kind: type) -> dict[str, Any]:
    """The schema of `object`."""
    if kind is not object:
        raise NotImplementedError
    return {"description": "A value of another program's document."}


def _body_schemas() -> dict[str, Any]:
    inputs: list[tuple[str, Literal["validation"], TypeAdapter[Any]]] = [
        (name, "validation", adapter) for name, adapter in BODIES.items()
    ]
    _, shared = TypeAdapter.json_schemas(inputs, ref_template=f"{_REFERENCE}{{model}}")
    _, structs = msgspec.json.schema_components(STRUCTS, schema_hook=_any_json, ref_template=f"{_REFERENCE}{{name}}")
    for struct in structs.values():
        struct["description"] = cleandoc(struct.get("description", ""))
        if "step" in (fields := struct.get("properties", {})):  # the tag of a union, which msgspec does not describe
            fields["step"]["description"] = "What kind of step it is."
    schemas: dict[str, Any] = {**shared["$defs"], **structs}
    for name, example in _EXAMPLES.items():
        schemas[name]["examples"] = [example]
    return schemas
