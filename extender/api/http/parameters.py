"""Rejects query parameters that a route does not have, so that a misspelt one is not ignored."""

from difflib import get_close_matches
from typing import Final

from fastapi import Request
from fastapi.routing import APIRoute

from extender.wire.errors import WireError

MAX_SHOWN: Final = 64


async def known_parameters(request: Request) -> None:
    """A dependency of routers that people call. Raises WireError for the first unknown parameter."""
    route = request.scope.get("route")
    if not request.query_params or not isinstance(route, APIRoute):
        return
    known = [field.alias for part in (route.dependant, *route.dependant.dependencies) for field in part.query_params]
    for name in request.query_params:
        if name not in known:
            near = get_close_matches(name[:MAX_SHOWN], known, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known are: {', '.join(known) or 'none'}"
            raise WireError(f"query.{name[:MAX_SHOWN]}", f"unknown parameter; {hint}")
