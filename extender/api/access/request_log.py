"""Gives every request an id, a log line and a metric. ASGI, outermost.

The line is INFO for statuses of 400 and above and DEBUG otherwise: kube-scheduler sends a hundred requests a second.
The id comes from the caller's X-Request-Id or is new. The reply carries it.
"""

import logging
import re
import time
import uuid
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from extender.api.access.routes import UnlistedRouteError, need_of
from extender.observability.logs import REQUEST_ID
from extender.observability.metrics import Metrics

LOG: Final = logging.getLogger(__name__)
HEADER: Final = "X-Request-Id"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""Log lines are parsed by other programs, so ids of callers are used only if they are short and plain."""


class RequestLog:
    """Logs and counts the requests to *app*."""

    def __init__(self, app: ASGIApp, *, metrics: Metrics) -> None:
        self._app, self._metrics = app, metrics

    async def __call__(self, asgi: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if asgi["type"] != "http":
            await self._app(asgi, receive, send)
            return
        request_id = _request_id(Headers(scope=asgi).get(HEADER))
        token = REQUEST_ID.set(request_id)
        started, status = time.perf_counter(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        try:
            await self._app(asgi, receive, watch)
        except Exception:
            status = status or 500  # an outer layer will answer this status
            raise
        finally:
            self._note(asgi, status, time.perf_counter() - started)
            REQUEST_ID.reset(token)

    def _note(self, asgi: Scope, status: int, seconds: float) -> None:
        """Log and count. *status* 0: the client had disconnected before a reply."""
        label = f"{status // 100}xx" if status else "none"
        self._metrics.responses.labels(_scope_label(asgi), label).inc()
        level = logging.INFO if status >= 400 or not status else logging.DEBUG
        if LOG.isEnabledFor(level):
            method, path = asgi["method"], asgi["path"][:200]
            LOG.log(level, "request method=%s path=%r status=%d ms=%.1f", method, path, status, seconds * 1000)


def _scope_label(asgi: Scope) -> str:
    try:
        needed = need_of(asgi["method"], asgi["path"]).scope
    except UnlistedRouteError:
        return "unlisted"
    return needed.value if needed else "open"


def _request_id(proposed: str | None) -> str:
    """The caller's own id if it can be used, else a new one."""
    if proposed is not None and _PLAIN.fullmatch(proposed):
        return proposed
    return uuid.uuid4().hex
