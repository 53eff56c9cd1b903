"""Authentication, authorization and limits for every route. ASGI, outside FastAPI's routing.

Rules of this file
- Credentials that are presented are always evaluated: a rejected token is rejected, even on loopback. Only a caller
  without credentials is identified by its connection.
- Where the connection alone is the credential, requests made by a page of another web site are refused.
- A certificate is valid until it expires, not until its connection closes.
- Refused callers get plain HTTP statuses (401, 403, 429, 503), also on the scheduler's routes: a caller that did not
  authenticate as the scheduler gets no reply in its format. A call over the concurrency limit is the scheduler's, and
  is answered in its format where that has a field for an error.
- The body is not read before the caller is known.
"""

import logging
import time
from collections.abc import Callable
from contextlib import ExitStack
from http import HTTPStatus
from typing import Final

from fastapi import Response
from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from extender.api.access.authority import Authority
from extender.api.access.browsers import foreign
from extender.api.access.limits import BodyBudget, LimitError, Limits
from extender.api.access.routes import UnlistedRouteError, need_of
from extender.api.http.problems import problem
from extender.config.settings import Settings
from extender.identity import (
    EVERYTHING,
    AccessScope,
    Means,
    NotAllowedError,
    Peer,
    Principal,
)
from extender.observability.metrics import Metrics
from extender.wire.scheduler import error_reply

LOG: Final = logging.getLogger(__name__)
WITHOUT_ERROR: Final = frozenset({"/scheduler/preempt", "/scheduler/prioritize"})
"""Routes whose replies have no field for an error. No victims would mean that preemption helps on no node, and the
reply of prioritize is a bare list."""
_OUTCOMES: Final = {
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


class AccessMiddleware:
    """Passes allowed requests to *app*, with `principal` in their state. *wall*: Unix seconds, for certificates."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        settings: Settings,
        authority: Authority,
        limits: Limits,
        metrics: Metrics,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._app, self._settings, self._authority = app, settings, authority
        self._limits, self._metrics, self._wall = limits, metrics, wall

    async def __call__(self, asgi: ASGIScope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if asgi["type"] != "http":
            await self._app(asgi, receive, send)
            return
        try:
            needed, node_name = need_of(asgi["method"], asgi["path"])
        except UnlistedRouteError as error:
            await problem(HTTPStatus.METHOD_NOT_ALLOWED, str(error))(asgi, receive, send)
            return
        if needed is None:
            await self._app(asgi, receive, send)
            return
        with ExitStack() as stack:
            refused = await self._refusal(asgi, needed, node_name, stack)
            if refused is not None:
                await refused(asgi, receive, send)
                return
            bounded = _BoundedReceive(receive, self._limits.bodies[needed])
            stack.callback(bounded.give_back)
            try:
                await self._app(asgi, bounded, send)
            except ClientDisconnect:
                LOG.debug("client disconnected path=%s", asgi["path"])
            except LimitError as error:
                await self._limited(error, needed, asgi)(asgi, receive, send)

    async def _refusal(
        self, asgi: ASGIScope, needed: AccessScope, node_name: str | None, stack: ExitStack
    ) -> Response | None:
        """The reply to a refused request; None if the request is allowed and *stack* holds its place."""
        peer = _peer(asgi)
        try:
            principal = await self._identify(asgi, peer, needed)
            _check_node(principal, needed, node_name or "")
            self._metrics.admissions.labels(principal.means.value, needed.value, "allowed").inc()
            caller = "" if principal.means in (Means.LOOPBACK, Means.INSECURE) else principal.name
            if caller:
                self._limits.check_rate(needed, caller)
            stack.enter_context(self._limits.place(needed, caller))
        except NotAllowedError as error:
            return self._denied(error, needed, peer)
        except LimitError as error:
            return self._limited(error, needed, asgi)
        asgi["state"]["principal"] = principal
        return None

    async def _identify(self, asgi: ASGIScope, peer: Peer, needed: AccessScope) -> Principal:
        """The caller: by its token, else its certificate, else its address on loopback."""
        settings = self._settings
        if settings.insecure:
            _check_origin(asgi, needed, Means.INSECURE)
            return Principal(name="anybody", means=Means.INSECURE, scopes=EVERYTHING, node_name=None)
        headers = Headers(scope=asgi)
        if (authorization := headers.get("authorization")) is not None:
            token = _bearer(authorization)
            if (known := self._authority.known(token, needed)) is not None:
                return known
            self._limits.check_refused(peer.address)
            return await self._authority.admit(token, needed)
        if peer.certificate:
            _check_origin(asgi, needed, Means.CERTIFICATE)
            return self._by_certificate(peer, needed)
        if peer.is_loopback and _names_this_machine(headers.get("host", "")):
            scopes = settings.loopback_scopes
            if needed not in scopes:
                raise NotAllowedError(
                    HTTPStatus.FORBIDDEN,
                    f"callers on loopback do not have the scope {needed} (NUMA_EXTENDER_LOOPBACK_SCOPES)",
                    Means.LOOPBACK,
                )
            _check_origin(asgi, needed, Means.LOOPBACK)
            return Principal(name="loopback", means=Means.LOOPBACK, scopes=scopes, node_name=None)
        self._limits.check_refused(peer.address)
        raise NotAllowedError(HTTPStatus.UNAUTHORIZED, "a token or a client certificate is required")

    def _by_certificate(self, peer: Peer, needed: AccessScope) -> Principal:
        if peer.certificate_ends <= self._wall():
            raise NotAllowedError(HTTPStatus.UNAUTHORIZED, "the certificate has expired", Means.CERTIFICATE)
        allowed = peer.subjects & set(self._settings.scheduler_subjects)
        if needed is not AccessScope.SCHEDULE or not allowed:
            names = ", ".join(sorted(peer.subjects)) or "no name"
            raise NotAllowedError(
                HTTPStatus.FORBIDDEN, f"the certificate of {names} does not grant the scope {needed}", Means.CERTIFICATE
            )
        return Principal(name=min(allowed), means=Means.CERTIFICATE, scopes=frozenset({AccessScope.SCHEDULE}))

    def _denied(self, error: NotAllowedError, needed: AccessScope, peer: Peer) -> Response:
        """Count and log the refusal; returns the reply."""
        status = error.status
        self._metrics.admissions.labels(error.means.value, needed.value, _OUTCOMES[status]).inc()
        if status is not HTTPStatus.SERVICE_UNAVAILABLE:
            self._limits.note_refused(peer.address)
        LOG.warning(
            "request refused address=%s means=%s scope=%s reason=%r", peer.address, error.means, needed, str(error)
        )
        response = problem(status, str(error))
        if status is HTTPStatus.UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = 'Bearer realm="numa-extender"'
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "2"
        return response

    def _limited(self, error: LimitError, needed: AccessScope, asgi: ASGIScope) -> Response:
        self._metrics.limited.labels(error.limit).inc()
        if needed is AccessScope.SCHEDULE and asgi["path"] not in WITHOUT_ERROR:
            return Response(error_reply(f"numa-extender: {error}"), media_type="application/json")
        response = problem(HTTPStatus.TOO_MANY_REQUESTS, str(error))
        response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response


class _BoundedReceive:
    """Counts the bytes of the request's body until the request ends."""

    def __init__(self, receive: Receive, budget: BodyBudget) -> None:
        self._receive, self._budget, self._held = receive, budget, 0

    async def __call__(self) -> Message:
        message = await self._receive()
        size = len(message.get("body", b""))
        if size:
            self._budget.take(size)
            self._held += size
        return message

    def give_back(self) -> None:
        self._budget.give_back(self._held)
        self._held = 0


def _check_node(principal: Principal, needed: AccessScope, node_name: str) -> None:
    if needed is AccessScope.REPORT and not principal.may_report(node_name):
        raise NotAllowedError(HTTPStatus.FORBIDDEN, f"{principal.name} may not report another node", principal.means)


def _check_origin(asgi: ASGIScope, needed: AccessScope, means: Means) -> None:
    if reason := foreign(asgi["headers"], method=asgi["method"], scheme=asgi["scheme"], needed=needed):
        raise NotAllowedError(
            HTTPStatus.FORBIDDEN,
            f"a page of another web site may have made a browser send this request: {reason}",
            means,
        )


def _peer(asgi: ASGIScope) -> Peer:
    """The peer of the connection. A server other than ours provides only the address."""
    state = asgi.setdefault("state", {})
    found = state.get("peer")
    if isinstance(found, Peer):
        return found
    client = asgi.get("client")
    return Peer(client[0] if client else "")


def _bearer(authorization: str) -> str:
    scheme, _, token = authorization.partition(" ")
    if scheme.lower() != "bearer" or not token.strip():
        raise NotAllowedError(HTTPStatus.UNAUTHORIZED, "the only Authorization scheme accepted is Bearer", Means.TOKEN)
    return token.strip()


def _names_this_machine(host: str) -> bool:
    """Whether a Host header is an address or a name without dots.

    A browser that was directed here by a page's own domain (DNS rebinding) sends that domain.
    """
    name = host.rsplit(":", 1)[0] if not host.endswith("]") else host
    return name.startswith("[") or "." not in name or name.replace(".", "").isdecimal()
