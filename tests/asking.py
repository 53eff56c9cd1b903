"""A scheduler's endpoint asked without a server: what it answers, as JSON."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import orjson
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message

Endpoint = Callable[[Request], Awaitable[Response]]


def ask(endpoint: Endpoint, document: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """One request with *document* as its body."""
    return asyncio.run(asked(endpoint, document))


async def asked(endpoint: Endpoint, document: Mapping[str, Any]) -> Any:  # noqa: ANN401
    """As `ask`, for who has a loop."""

    async def receive() -> Message:
        return {"type": "http.request", "body": orjson.dumps(document), "more_body": False}

    request = Request({"type": "http", "method": "POST", "path": "/", "headers": []}, receive)
    return orjson.loads((await endpoint(request)).body)
