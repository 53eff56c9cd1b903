"""Describes replies in the OpenAPI document."""

from typing import Any

from extender.wire.replies import ReplyBody


def described(reply: type[ReplyBody]) -> dict[str, Any]:
    """The entry of a route's `responses` for a reply in JSON. *reply* is one of `openapi.STRUCTS`."""
    schema = {"$ref": f"#/components/schemas/{reply.__name__}"}
    return {"description": "Successful Response", "content": {"application/json": {"schema": schema}}}
