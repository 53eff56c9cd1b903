"""Calls frequently used endpoints without FastAPI's routing. ASGI, inside `AccessMiddleware`.

For each request FastAPI finds a route, opens exit stacks and resolves dependencies, and then calls an endpoint that
takes the bare request. For kube-scheduler's calls this is a quarter of the cost that does not depend on the number of
nodes, and for an exporter's heartbeat most of it. The routes are registered with FastAPI as well, for the API
documentation and for other methods.
"""

import re
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial

from fastapi import Request, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from extender.api.http.problems import replied


@dataclass(frozen=True, slots=True)
class FrequentRoute:
    """An endpoint that is called without FastAPI's routing.

    `path`: matches whole paths. `endpoint` takes its groups and the request. `raises`: whether errors of the caller
    are still to be turned into replies.
    """

    method: str
    path: re.Pattern[str]
    endpoint: Callable[..., Awaitable[Response]]
    raises: bool = False


class FastPath:
    """Sends requests to the first of *routes* that matches, and all others to *app*."""

    def __init__(self, app: ASGIApp, *, routes: Sequence[FrequentRoute]) -> None:
        self._app, self._routes = app, tuple(routes)

    async def __call__(self, asgi: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        answer = self._find(asgi["method"], asgi["path"]) if asgi["type"] == "http" else None
        if answer is None:
            await self._app(asgi, receive, send)
            return
        response = await answer(Request(asgi, receive, send))
        await response(asgi, receive, send)

    def _find(self, method: str, path: str) -> Callable[[Request], Awaitable[Response]] | None:
        for route in self._routes:
            if route.method == method and (found := route.path.fullmatch(path)) is not None:
                endpoint = partial(route.endpoint, *found.groups())
                return partial(replied, endpoint) if route.raises else endpoint
        return None
