"""Types checked by pydantic, faults told as `WireError`.

Types are checked strictly: a number in quotes is not a number, `true` is not 1. Unknown keys are ignored, because a
newer writer may have more to say.
"""

from typing import TypeVar

import orjson
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from extender.wire.errors import NotJSONError, WireError, shown

T = TypeVar("T")


class Document(BaseModel):
    """Base of the models of foreign JSON documents."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


def load_json(body: bytes) -> object:
    """The JSON text *body*, parsed; raises NotJSONError. Decides alone what is JSON: no NaN, no broken UTF-8."""
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise NotJSONError(str(error)) from None


def parse_json(adapter: TypeAdapter[T], body: bytes) -> T:
    """The value that the JSON text *body* describes; raises WireError for the first fault."""
    load_json(body)  # pydantic's parser is the more lenient one
    try:
        return adapter.validate_json(body, strict=True)
    except ValidationError as error:
        raise _first_fault(error) from None


def parse_object(adapter: TypeAdapter[T], value: object, field: str) -> T:
    """The value that parsed JSON describes; raises WireError for the first fault, its path starting with *field*."""
    try:
        return adapter.validate_python(value)
    except ValidationError as error:
        raise _first_fault(error).below(field) from None


def _first_fault(error: ValidationError) -> WireError:
    fault = error.errors(include_url=False)[0]
    path = ""
    for part in fault["loc"]:
        if isinstance(part, int):
            path += f"[{part}]"
        elif "[" not in part:  # the name of a union's member, such as list[str]
            path += f".{part}" if path else part
    if fault["type"] == "missing":
        return WireError(path, "missing")
    if fault["type"] == "extra_forbidden":
        return WireError(path, "there is no such field")
    return WireError(path, f"{fault['msg']}, not {shown(fault['input'])}")
