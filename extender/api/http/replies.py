"""Describes bodies and replies in the OpenAPI document, and writes replies."""

from typing import Any, Final

import msgspec
from fastapi import Response

REFERENCE: Final = "#/components/schemas/"
JSON: Final = "application/json"
DESCRIBED: Final[dict[str, type]] = {}
"""What routes read or reply with, by name: the document has a schema of each."""


def schema_of(kind: type) -> dict[str, Any]:
    """A reference to the schema of a struct or dataclass. The schema is added to the document."""
    DESCRIBED[kind.__name__] = kind
    return {"$ref": f"{REFERENCE}{kind.__name__}"}


def described(reply: type, *, is_list: bool = False) -> dict[str, Any]:
    """The entry of a route's `responses` for a reply in JSON. *is_list*: the reply is a list of it."""
    schema = schema_of(reply)
    schema = {"type": "array", "items": schema} if is_list else schema
    return {"description": "Successful Response", "content": {JSON: {"schema": schema}}}


def json_body(kind: type, *other_types: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads its body itself: JSON, and other media types."""
    content = {media_type: {"schema": schema_of(kind)} for media_type in (JSON, *other_types)}
    return {"requestBody": {"required": True, "content": content}}


def json_reply(document: object) -> Response:
    """The reply with this document."""
    return Response(msgspec.json.encode(document), media_type=JSON)
