"""The short way of kube-scheduler's calls and of exporters' messages: from the head of a request to its endpoint.

Rules of this file
- It takes only calls with nothing unusual about them: the route, the head, the size, a caller that is known and within
  its limits. All others take the usual way through FastAPI, which says what is wrong with them.
- Access, limits, endpoints, replies to errors, metrics and log are the same objects as on the usual way.
  `tests/security/test_both_ways.py` sends the same requests both ways.
"""

import re
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Final

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute
from starlette.types import Message, Scope

from extender.api.access.browsers import CHANGES
from extender.api.access.limits import LimitError
from extender.api.access.middleware import HEADER, REFUSED, AccessControl, note, request_id_of
from extender.api.access.routes import need_of
from extender.api.http.problems import problem_of
from extender.identity import AccessScope, NotAllowedError
from extender.observability.logs import REQUEST_ID

MAX_BYTES: Final = 512 << 10
"""Enough for 8,000 names. Larger bodies take the usual way. It pauses clients, so long calls do not come in a row."""
_NODE: Final = re.compile(rb"/v1/nodes/([A-Za-z0-9.-]{1,253})(/report|/heartbeat)")
_ID: Final = HEADER.lower().encode()


class ShortWay:
    """The short way to those *routes* that schedule or report. *max_bytes*: the least of the limits of their bodies."""

    def __init__(self, routes: Iterable[BaseRoute], access: AccessControl, max_bytes: int) -> None:
        self._access, self._max_bytes = access, min(MAX_BYTES, max_bytes)
        self._routes: Final = {
            f"{method} {route.path}".encode(): (route, need.scope)
            for route in routes
            if isinstance(route, APIRoute)
            for method in route.methods or ()
            if (need := need_of(method, route.path)) is not None and need.scope in CHANGES
        }

    def begin(self, asgi: Scope, method: bytes, target: bytes) -> "PlainCall | None":
        """The call whose head is *asgi*; None: the call must take the usual way."""
        node_name, path = "", target
        if (node := _NODE.fullmatch(target)) is not None:
            node_name, path = node[1].decode(), b"/v1/nodes/{name}" + node[2]
        route, needed = self._routes.get(method + b" " + path, (None, None))
        fields = dict(asgi["headers"])  # fewer, if one comes twice
        length = fields.get(b"content-length", b"")
        is_plain = len(fields) == len(asgi["headers"]) and length.isdigit() and int(length) <= self._max_bytes
        if route is None or needed is None or not is_plain:
            return None
        asgi["method"], asgi["path"] = method.decode(), target.decode()
        with ExitStack() as stack:
            try:
                principal = self._access.known(asgi, asgi["state"]["peer"], needed)
                if principal is None:
                    return None
                self._access.enter(principal, needed, node_name, stack)
            except (NotAllowedError, LimitError) as error:
                asgi["state"][REFUSED] = error
                return None
            return PlainCall(
                route, {"name": node_name} if node_name else {}, asgi, needed, self._access, stack.pop_all()
            )


@dataclass(slots=True, eq=False)
class PlainCall:
    """One call, from head to reply. `places`: what it holds until its reply. `fault`: why its body is not complete."""

    route: APIRoute
    arguments: Mapping[str, Any]
    asgi: Scope
    needed: AccessScope
    access: AccessControl
    places: ExitStack
    body: list[bytes] = field(default_factory=list)
    fault: Exception | None = None
    started: float = field(default_factory=time.perf_counter)

    def take(self, piece: bytes) -> bool:
        """A piece of the body has arrived. False: there is no room for it, so that `reply` refuses the call."""
        try:
            self.access.limits.bodies[self.needed].take(len(piece))
        except LimitError as error:
            self.fault = error
        else:
            self.body.append(piece)
        return self.fault is None

    def cut(self) -> None:
        """The client has gone before the end of the body."""
        self.fault = ClientDisconnect()

    async def reply(self) -> Response:
        """The reply. Raises nothing. If the client left during the call, the reply is not sent."""
        request_id = request_id_of(Headers(scope=self.asgi).get(HEADER))
        REQUEST_ID.set(request_id)
        try:
            response: Response = await self.route.endpoint(request=Request(self.asgi, self._receive), **self.arguments)
        except ClientDisconnect:
            response = Response()
        except LimitError as error:
            response = self.access.limited(error, self.needed, self.asgi["path"])
        except Exception as error:  # noqa: BLE001 - as FastAPI's handlers
            response = problem_of(error, self.asgi["method"], self.asgi["path"])
        response.raw_headers.append((_ID, request_id.encode()))
        return response

    def end(self, status: int) -> None:
        """Log the call, and give back what it held. *status* 0: the client has gone before the reply."""
        self.access.limits.bodies[self.needed].give_back(sum(map(len, self.body)))
        self.places.close()
        seconds = time.perf_counter() - self.started
        note(self.access.metrics, self.asgi, self.needed.value, status, seconds)

    async def _receive(self) -> Message:
        if self.fault is not None:
            raise self.fault
        return {"type": "http.request", "body": b"".join(self.body), "more_body": False}
