"""Validates types with pydantic, and reports errors as `WireError`.

Validation is strict: a number in quotes is not a number, `true` is not 1. Unknown keys are ignored, because a newer
writer may send more.
"""

from typing import Any, Final, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from extender.wire.errors import WireError, shown

T = TypeVar("T")
MAX_PART: Final = 128
"""Characters of a key that the path of an error repeats."""


def doc(text: str) -> Any:  # noqa: ANN401 - as pydantic declares Field
    """The description of a field in the API's schema; stands in `Annotated`."""
    return Field(description=text)


class Document(BaseModel):
    """Base of the models of JSON documents from other programs."""

    model_config = ConfigDict(strict=True, frozen=True, extra="ignore", populate_by_name=True)


def parse_object(adapter: TypeAdapter[T], value: object, field: str) -> T:
    """The value of parsed JSON. Raises WireError for the first error, with a path that begins with *field*."""
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
            path += f".{part[:MAX_PART]}" if path else part[:MAX_PART]
    if fault["type"] == "missing":
        return WireError(path, "missing")
    if fault["type"] == "extra_forbidden":
        return WireError(path, "unknown field")
    if fault["type"] == "model_type":
        return WireError(path, f"an object is expected, not {shown(fault['input'])}")
    return WireError(path, f"{fault['msg']}, not {shown(fault['input'])}")
