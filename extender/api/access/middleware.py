"""Authentication, authorization, limits, log and id of every request. ASGI, outside FastAPI's routing.

`AccessControl` decides. `AccessMiddleware` asks it for every request that `extender.api.short_way` has not taken.

Rules of this file
- Credentials that are presented are always evaluated: a rejected token is rejected, even on loopback. Only a caller
  without credentials is identified by its connection.
- Where the connection alone is the credential, requests made by a page of another web site are refused.
- A certificate is valid until it expires, not until its connection closes.
- Refused callers get plain HTTP statuses (401, 403, 429, 503), also on the scheduler's routes: a caller that did not
  authenticate as the scheduler gets no reply in its format. A call over the concurrency limit is the scheduler's, and
  is answered in its format where that has a field for an error.
- The body is not read before the caller is known.
- The log line is INFO for statuses of 400 and above and DEBUG otherwise: kube-scheduler sends a hundred requests a
  second. The id comes from the caller's X-Request-Id or is new. The reply carries it.
"""

import itertools
import logging
import re
import secrets
import time
from contextlib import ExitStack
from http import HTTPStatus
from typing import Final

from fastapi import Response
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Send
from starlette.types import Scope as ASGIScope

from extender.api.access.authority import Authority
from extender.api.access.browsers import foreign
from extender.api.access.limits import LimitError, Limits
from extender.api.access.routes import Need, need_of
from extender.api.http.problems import problem
from extender.config.settings import Settings
from extender.identity import EVERYTHING, LOOPBACK_ADDRESSES, AccessScope, Means, NotAllowedError, Peer, Principal
from extender.observability.logs import REQUEST_ID
from extender.observability.metrics import Metrics
from extender.wire.scheduler import error_reply

LOG: Final = logging.getLogger(__name__)
HEADER: Final = "X-Request-Id"
_PLAIN: Final = re.compile(r"[A-Za-z0-9._:/+=-]{1,128}")
"""Log lines are parsed by other programs, so ids of callers are used only if they are short and plain."""
_PROCESS: Final = secrets.token_hex(8)
_NUMBERS: Final = itertools.count()
"""A new id is the process and a number. Each random one would cost a system call."""
WITHOUT_ERROR: Final = frozenset({"/scheduler/preempt", "/scheduler/prioritize"})
"""Routes whose replies have no field for an error. No victims would mean that preemption helps on no node, and the
reply of prioritize is a bare list."""
REFUSED: Final = "refused"
"""The key in a request's state under which its refusal is kept, if `AccessControl` has refused it already."""
_OUTCOMES: Final = {
    HTTPStatus.UNAUTHORIZED: "unauthenticated",
    HTTPStatus.FORBIDDEN: "forbidden",
    HTTPStatus.SERVICE_UNAVAILABLE: "unavailable",
}


class AccessControl:
    """Who may do what, and the replies to those who may not."""

    def __init__(self, settings: Settings, authority: Authority, limits: Limits, metrics: Metrics) -> None:
        self._settings, self._authority, self.limits, self.metrics = settings, authority, limits, metrics

    def known(self, asgi: ASGIScope, peer: Peer, needed: AccessScope) -> Principal | None:
        """The caller, identified by its token, else by its certificate, else by its address on loopback.

        None: call `admit`, which asks the API server about the token.

        Raises:
            NotAllowedError: the caller is not known, or does not have the scope.
            LimitError: too many callers of this address were not known.
        """
        settings = self._settings
        if settings.insecure:
            _check_origin(asgi, needed, Means.INSECURE)
            return Principal(name="anybody", means=Means.INSECURE, scopes=EVERYTHING, node_name=None)
        headers = Headers(scope=asgi)
        if (authorization := headers.get("authorization")) is not None:
            return self._authority.known(_bearer(authorization), needed)
        if peer.certificate:
            _check_origin(asgi, needed, Means.CERTIFICATE)
            return self._by_certificate(peer, needed)
        if peer.address in LOOPBACK_ADDRESSES and _names_this_machine(headers.get("host", "")):
            scopes = settings.loopback_scopes
            if needed not in scopes:
                raise NotAllowedError(
                    HTTPStatus.FORBIDDEN,
                    f"callers on loopback do not have the scope {needed} (NUMA_EXTENDER_LOOPBACK_SCOPES)",
                    Means.LOOPBACK,
                )
            _check_origin(asgi, needed, Means.LOOPBACK)
            return Principal(name="loopback", means=Means.LOOPBACK, scopes=scopes, node_name=None)
        self.limits.check_refused(peer.address)
        raise NotAllowedError(HTTPStatus.UNAUTHORIZED, "a token or a client certificate is required")

    async def admit(self, asgi: ASGIScope, peer: Peer, needed: AccessScope) -> Principal:
        """The owner of the request's token. Raises as `known`."""
        self.limits.check_refused(peer.address)
        return await self._authority.admit(_bearer(Headers(scope=asgi)["authorization"]), needed)

    def enter(self, principal: Principal, needed: AccessScope, node_name: str, stack: ExitStack) -> None:
        """Count a request of a known caller. *stack* holds its place.

        Raises:
            NotAllowedError: it reports another node.
            LimitError: a limit is exceeded.
        """
        if needed is AccessScope.REPORT and principal.node_name not in (None, node_name):
            raise NotAllowedError(
                HTTPStatus.FORBIDDEN, f"{principal.name} may not report another node", principal.means
            )
        self.metrics.admissions.labels(principal.means.value, needed.value, "allowed").inc()
        caller = "" if principal.means in (Means.LOOPBACK, Means.INSECURE) else principal.name
        if caller:
            self.limits.check_rate(needed, caller)
        stack.enter_context(self.limits.place(needed, caller))

    def _by_certificate(self, peer: Peer, needed: AccessScope) -> Principal:
        if peer.certificate_ends <= time.time():
            raise NotAllowedError(HTTPStatus.UNAUTHORIZED, "the certificate has expired", Means.CERTIFICATE)
        allowed = peer.subjects & set(self._settings.scheduler_subjects)
        if needed is not AccessScope.SCHEDULE or not allowed:
            names = ", ".join(sorted(peer.subjects)) or "no name"
            raise NotAllowedError(
                HTTPStatus.FORBIDDEN, f"the certificate of {names} does not grant the scope {needed}", Means.CERTIFICATE
            )
        return Principal(name=min(allowed), means=Means.CERTIFICATE, scopes=frozenset({AccessScope.SCHEDULE}))

    def denied(self, error: NotAllowedError, needed: AccessScope, peer: Peer) -> Response:
        """Count and log the refusal; returns the reply."""
        status = error.status
        self.metrics.admissions.labels(error.means.value, needed.value, _OUTCOMES[status]).inc()
        if status is not HTTPStatus.SERVICE_UNAVAILABLE:
            self.limits.note_refused(peer.address)
        LOG.warning(
            "request refused address=%s means=%s scope=%s reason=%r", peer.address, error.means, needed, str(error)
        )
        response = problem(status, str(error))
        if status is HTTPStatus.UNAUTHORIZED:
            response.headers["WWW-Authenticate"] = 'Bearer realm="numa-extender"'
        if status is HTTPStatus.SERVICE_UNAVAILABLE:
            response.headers["Retry-After"] = "2"
        return response

    def limited(self, error: LimitError, needed: AccessScope, path: str) -> Response:
        """Count the refusal; returns the reply."""
        self.metrics.limited.labels(error.limit).inc()
        if needed is AccessScope.SCHEDULE and path not in WITHOUT_ERROR:
            return Response(error_reply(f"numa-extender: {error}"), media_type="application/json")
        response = problem(HTTPStatus.TOO_MANY_REQUESTS, str(error))
        response.headers["Retry-After"] = str(error.retry_after_seconds)
        return response


class AccessMiddleware:
    """Passes allowed requests to *app*, with `principal` in their state. Logs and counts all requests."""

    def __init__(self, app: ASGIApp, access: AccessControl) -> None:
        self._app, self._access = app, access

    async def __call__(self, asgi: ASGIScope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if asgi["type"] != "http":
            await self._app(asgi, receive, send)
            return
        need, request_id = need_of(asgi["method"], asgi["path"]), request_id_of(Headers(scope=asgi).get(HEADER))
        token, started, status = REQUEST_ID.set(request_id), time.perf_counter(), 0

        async def watch(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
                MutableHeaders(scope=message)[HEADER] = request_id
            await send(message)

        try:
            await self._guard(asgi, need, receive, watch)
        except Exception:
            status = status or 500  # an outer layer will answer this status
            raise
        finally:
            label = "unlisted" if need is None else need.scope or "open"
            note(self._access.metrics, asgi, label, status, time.perf_counter() - started)
            REQUEST_ID.reset(token)

    async def _guard(self, asgi: ASGIScope, need: Need | None, receive: Receive, send: Send) -> None:
        if need is None:
            detail = f"{asgi['method']} is not allowed for this path"
            await problem(HTTPStatus.METHOD_NOT_ALLOWED, detail)(asgi, receive, send)
            return
        if (needed := need.scope) is None:
            await self._app(asgi, receive, send)
            return
        budget, held = self._access.limits.bodies[needed], 0

        async def bounded() -> Message:
            """Counts the bytes of the body until the request ends."""
            nonlocal held
            message = await receive()
            size = len(message.get("body", b""))
            budget.take(size)
            held += size
            return message

        with ExitStack() as stack:
            stack.callback(lambda: budget.give_back(held))
            try:
                refused = await self._refusal(asgi, needed, need.node_name or "", stack)
                await (refused or self._app)(asgi, bounded, send)
            except ClientDisconnect:
                LOG.debug("client disconnected path=%s", asgi["path"])
            except LimitError as error:
                await self._access.limited(error, needed, asgi["path"])(asgi, receive, send)

    async def _refusal(self, asgi: ASGIScope, needed: AccessScope, node_name: str, stack: ExitStack) -> Response | None:
        """The reply to a refused request. None: it is allowed, and *stack* holds its place. Raises LimitError."""
        access, peer = self._access, _peer(asgi)
        try:
            if (found := asgi["state"].pop(REFUSED, None)) is not None:
                raise found
            principal = access.known(asgi, peer, needed) or await access.admit(asgi, peer, needed)
            access.enter(principal, needed, node_name, stack)
        except NotAllowedError as error:
            return access.denied(error, needed, peer)
        asgi["state"]["principal"] = principal
        return None


def note(metrics: Metrics, asgi: ASGIScope, label: str, status: int, seconds: float) -> None:
    """Log and count a request. *label*: the scope of its route. *status* 0: the client had gone before a reply."""
    metrics.responses.labels(str(label), f"{status // 100}xx" if status else "none").inc()
    level = logging.INFO if status >= 400 or not status else logging.DEBUG
    if LOG.isEnabledFor(level):
        method, path = asgi["method"], asgi["path"][:200]
        LOG.log(level, "request method=%s path=%r status=%d ms=%.1f", method, path, status, seconds * 1000)


def request_id_of(proposed: str | None) -> str:
    """The caller's own id if it can be used, else a new one."""
    if proposed is not None and _PLAIN.fullmatch(proposed):
        return proposed
    return f"{_PROCESS}{next(_NUMBERS):016x}"


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
