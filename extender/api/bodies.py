"""Request bodies, bounded."""

from typing import Any, Final

from fastapi import Request


class BodyTooLargeError(Exception):
    """The body is over the limit; it was not read to its end."""

    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is larger than {limit} bytes")
        self.limit: Final = limit


async def read_body(request: Request, limit: int) -> bytes:
    """The whole body; raises BodyTooLargeError as soon as it is known to be over *limit* bytes."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > limit:
        raise BodyTooLargeError(limit)
    chunks = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limit:
            raise BodyTooLargeError(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def json_body(schema: str) -> dict[str, Any]:
    """The `openapi_extra` of a route that reads its body itself; *schema* is one of `openapi.BODIES`."""
    content = {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}}
    return {"requestBody": {"required": True, "content": content}}
