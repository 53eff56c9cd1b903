"""Calls frequently used endpoints without FastAPI's routing. ASGI, inside `AccessMiddleware`.

For each request FastAPI finds a route, opens exit stacks and resolves dependencies, and then calls an endpoint that
takes the bare request. For kube-scheduler's calls this is a quarter of the cost that does not depend on the number of
nodes. The routes are registered with FastAPI as well, for the API documentation and for other methods.
"""

from collections.abc import Awaitable, Callable, Mapping

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

Endpoint = Callable[[Request], Awaitable[Response]]


class FastPath:
    """Sends POST requests for a path in *endpoints* to that endpoint, and all others to *app*."""

    def __init__(self, app: ASGIApp, *, endpoints: Mapping[str, Endpoint]) -> None:
        self._app, self._endpoints = app, endpoints

    async def __call__(self, asgi: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        endpoint = None
        if asgi["type"] == "http" and asgi["method"] == "POST":
            endpoint = self._endpoints.get(asgi["path"])
        if endpoint is None:
            await self._app(asgi, receive, send)
            return
        response = await endpoint(Request(asgi, receive, send))
        await response(asgi, receive, send)
