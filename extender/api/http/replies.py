"""Describes replies in the OpenAPI document."""

from typing import Any

from msgspec import Struct


def described(reply: type[Struct], *, is_list: bool = False) -> dict[str, Any]:
    """The entry of a route's `responses` for a reply in JSON. *reply* is one of `openapi.STRUCTS`.

    *is_list*: the reply is a list of it.
    """
    schema: dict[str, Any] = {"$ref": f"#/components/schemas/{reply.__name__}"}
    schema = {"type": "array", "items": schema} if is_list else schema
    return {"description": "Successful Response", "content": {"application/json": {"schema": schema}}}
