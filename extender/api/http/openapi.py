"""The OpenAPI document. It also describes tokens, and bodies that routes read themselves, without FastAPI."""

from importlib.resources import files
from inspect import cleandoc
from typing import Any, Final

import msgspec
import orjson
import yaml
from fastapi import FastAPI

from extender.api.http.replies import DESCRIBED, REFERENCE

_DOCUMENT: Final[dict[str, Any]] = yaml.safe_load(files(__package__).joinpath("document.yaml").read_text())
DESCRIPTION: Final[str] = _DOCUMENT["description"]
TAGS: Final[list[dict[str, str]]] = _DOCUMENT["tags"]


def install(app: FastAPI) -> None:
    """Add the schemas of `DESCRIBED` and the token to the document of *app*."""
    generate = app.openapi

    def openapi() -> dict[str, Any]:
        document = generate()
        if "security" not in document:
            document["security"] = _DOCUMENT["security"]
            components = document.setdefault("components", {})
            components["securitySchemes"] = _DOCUMENT["securitySchemes"]
            schemas = components.setdefault("schemas", {})
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
    for name, example in _DOCUMENT["examples"].items():
        if name in schemas:  # the route of a feature may be off
            schemas[name]["examples"] = [example]
    return schemas
