"""The OpenAPI document. It also describes bodies that routes read themselves, without FastAPI."""

from importlib.resources import files
from inspect import cleandoc
from typing import Any, Final

import msgspec
import orjson
from fastapi import FastAPI

from extender.api.http.replies import DESCRIBED, REFERENCE
from extender.wire.scheduler import EXAMPLE_POD

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
    """Add the schemas of `DESCRIBED` to the document of *app*."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        schemas = document.setdefault("components", {}).setdefault("schemas", {})
        if "ExtenderArgs" not in schemas:
            schemas.update(_schemas())
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


def _schemas() -> dict[str, Any]:
    """The schemas of all that routes have described."""
    kinds = DESCRIBED.values()
    _, schemas = msgspec.json.schema_components(kinds, schema_hook=_any_json, ref_template=f"{REFERENCE}{{name}}")
    for schema in schemas.values():
        schema["description"] = cleandoc(schema.get("description", ""))
        if "step" in (fields := schema.get("properties", {})):  # the tag of a union, which msgspec does not describe
            fields["step"]["description"] = "What kind of step it is."
    for name, example in _EXAMPLES.items():
        if name in schemas:  # the route of a feature may be off
            schemas[name]["examples"] = [example]
    return schemas
