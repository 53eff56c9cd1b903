"""One connection pool to the API server, for all threads of the process.

`KubeClient.request` is one call with a deadline for all of it, including the body. `KubeClient.stream` opens a watch
with a limit on every silence, which another thread can abort. Only two retries are made here, both always safe: a call
answered with 401 is repeated once with credentials read again, and a GET on a connection that the server closed while
idle is repeated once.
"""

import contextlib
import copy
import socket
import ssl
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypedDict, Unpack
from urllib.parse import quote, urlencode, urlsplit

import orjson
import urllib3
from urllib3.exceptions import (
    ConnectTimeoutError,
    HTTPError,
    InsecureRequestWarning,
    LocationParseError,
    NameResolutionError,
    NewConnectionError,
    ProtocolError,
    ReadTimeoutError,
)

from extender.kube.errors import NoReplyError, api_error
from extender.kube.objects import WHOLE, read_object
from extender.wire.errors import WireError

if TYPE_CHECKING:  # it loads the Kubernetes client, which only the extra `server` brings
    from extender.kube.access import Access, Credentials

JSON = dict[str, Any]
USER_AGENT: Final = "numa-extender"
MAX_REPLY_BYTES: Final = 512 * 1024 * 1024
"""A list page of 500 pods is 2 to 10 MB. A server that ignores `limit` may send everything."""
MAX_ERROR_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 256 * 1024
_POOL_SIZE: Final = 32
"""Connections that are kept open. More are opened when they are needed."""
_NEVER_SENT: Final = (ConnectTimeoutError, NewConnectionError, NameResolutionError, LocationParseError)


class CallOptions(TypedDict, total=False):
    """The options of a call to the API server, which `KubeClient.read` explains."""

    query: Mapping[str, str] | None
    body: JSON | None
    content_type: str
    timeout_seconds: float


class Requester(Protocol):
    """The methods of a client that the writers of this package need."""

    def request(self, method: str, path: str, **call: Unpack[CallOptions]) -> JSON:
        """Make one call; see KubeClient.request."""


class KubeClient:
    """Calls one API server. Thread-safe. *connect_seconds*: time to connect, with TLS. *clock*: monotonic seconds."""

    def __init__(
        self, access: "Access", *, connect_seconds: float = 5.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        configuration = access.configuration
        if not configuration.verify_ssl:  # each connection would log a warning; `live` logs one
            urllib3.disable_warnings(InsecureRequestWarning)
        configuration.connection_pool_maxsize = _POOL_SIZE
        configuration.socket_options = _socket_options()
        configuration.retries = False
        self._credentials: Credentials | None = access.credentials
        from kubernetes.client.rest import RESTClientObject  # noqa: PLC0415 - with the extra `server` only

        manager: urllib3.PoolManager = RESTClientObject(configuration).pool_manager
        url = configuration.host.rstrip("/")
        self._pool: urllib3.PoolManager | urllib3.HTTPConnectionPool = manager
        self._prefix = url
        if manager.proxy is None:  # to find the connections to the server for each call takes a fifth of its time
            self._pool, self._prefix = manager.connection_from_url(url), urlsplit(url).path
        self._connect_seconds = connect_seconds
        self._clock = clock
        self.as_user = ""

    def acting_as(self, namespace: str, account: str) -> Self:
        """A client on the same connections whose calls count as those of this ServiceAccount (impersonation)."""
        other = copy.copy(self)
        other.as_user = f"system:serviceaccount:{namespace}:{account}"
        return other

    def close(self) -> None:
        """Close idle connections. Open streams are closed by their owners."""
        (self._pool.clear if isinstance(self._pool, urllib3.PoolManager) else self._pool.close)()

    def request(self, method: str, path: str, **call: Unpack[CallOptions]) -> JSON:
        """Make one call and return the JSON object of the reply. Empty for an empty body.

        *timeout_seconds* limits the call as a whole.

        Raises:
            ApiError: the server replied with a status of 400 or more.
            NoReplyError: no complete reply arrived in time, or it was not a JSON object.
        """
        raw = self.read(method, path, **call)
        try:
            return dict(read_object(raw, WHOLE)) if raw else {}
        except WireError as error:
            raise NoReplyError(f"{method} {path}: the reply is not a JSON object: {error}", maybe_done=True) from error

    def read(
        self,
        method: str,
        path: str,
        *,
        query: Mapping[str, str] | None = None,
        body: JSON | None = None,
        content_type: str = "application/json",
        timeout_seconds: float = 10.0,
    ) -> bytes:
        """As `request`, but returns the body, which need not be JSON."""
        deadline = self._clock() + timeout_seconds
        data = None if body is None else orjson.dumps(body)
        reply = self._send(method, _target(path, query), data, content_type, deadline)
        with contextlib.closing(reply):
            raw = self._read(reply, deadline)
        if reply.status >= 400:
            raise api_error(reply.status, raw, reply.headers.get("Retry-After"))
        return raw

    def stream(self, path: str, *, query: Mapping[str, str], idle_seconds: float) -> "Stream":
        """Open a watch. *idle_seconds* limits each silence of the server, before and after the head of the reply.

        Raises:
            ApiError: the server replied with a status of 400 or more.
            NoReplyError: it did not reply in time.
        """
        deadline = self._clock() + idle_seconds
        reply = self._send("GET", _target(path, query), None, "application/json", deadline)
        if reply.status >= 400:
            with contextlib.closing(reply):
                raw = self._read(reply, deadline, MAX_ERROR_BYTES)
            raise api_error(reply.status, raw, reply.headers.get("Retry-After"))
        return Stream(reply)

    def _send(
        self, method: str, target: str, data: bytes | None, content_type: str, deadline: float
    ) -> urllib3.BaseHTTPResponse:
        """Send one request. It is sent again after a 401 with renewed credentials, and a GET on a broken connection."""
        again = {"stale": method == "GET", "401": True}
        while True:
            left = deadline - self._clock()
            if left <= 0:
                raise NoReplyError(f"{method} {target}: out of time before sending", maybe_done=False)
            timeout = urllib3.Timeout(connect=min(left, self._connect_seconds), read=left)
            try:
                reply = self._pool.urlopen(
                    method,
                    self._prefix + target,
                    body=data,
                    headers=self._headers(None if data is None else content_type),
                    timeout=timeout,
                    preload_content=False,
                    decode_content=False,
                    redirect=False,
                    retries=False,
                )
            except ProtocolError as error:
                if again.pop("stale", False):
                    continue
                raise NoReplyError(f"{method} {target}: {error}", maybe_done=True) from error
            except (HTTPError, OSError) as error:
                raise NoReplyError(f"{method} {target}: {error}", maybe_done=_may_have_left(error)) from error
            if reply.status == 401 and self._credentials and again.pop("401", False) and self._credentials.renew():
                reply.close()
                continue
            return reply

    def _headers(self, content_type: str | None) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": USER_AGENT}
        if self.as_user:
            headers["Impersonate-User"] = self.as_user
        if content_type is not None:
            headers["Content-Type"] = content_type
        if self._credentials is not None and (authorization := self._credentials.authorization()) is not None:
            headers["Authorization"] = authorization
        return headers

    def _read(self, reply: urllib3.BaseHTTPResponse, deadline: float, limit: int = MAX_REPLY_BYTES) -> bytes:
        """The whole body. The deadline is checked between chunks, so that a slow server cannot exceed it."""
        pieces: list[bytes] = []
        size = 0
        try:
            while piece := reply.read1(_READ_BYTES):
                pieces.append(piece)
                size += len(piece)
                if size > limit or self._clock() > deadline:
                    raise NoReplyError(f"the reply is too long or too slow ({size} bytes so far)", maybe_done=True)
        except (HTTPError, OSError) as error:
            raise NoReplyError(f"the reply ended early after {size} bytes: {error}", maybe_done=True) from error
        return b"".join(pieces)


class SilentStreamError(NoReplyError):
    """An open watch delivered no byte for `idle_seconds`. On a quiet resource this is not a fault."""


class Stream:
    """An open watch. Iterate over its bytes as they arrive; `abort` from any thread ends the iteration.

    Ends when the server closes. Raises SilentStreamError if the server is silent for too long, and NoReplyError if the
    connection breaks.
    """

    def __init__(self, reply: urllib3.BaseHTTPResponse) -> None:
        self._reply = reply
        self._lock = threading.Lock()
        self._open = True

    def __iter__(self) -> Iterator[bytes]:
        """Chunks of the body, never empty, not split at line ends."""
        try:
            while piece := self._reply.read1(_READ_BYTES):
                yield piece
        except ReadTimeoutError as error:
            raise SilentStreamError("the stream was silent for too long", maybe_done=True) from error
        except (HTTPError, OSError, ValueError) as error:
            raise NoReplyError(f"the stream broke: {error}", maybe_done=True) from error

    def abort(self) -> None:
        """Wake the reader: its iteration ends or raises. Harmless if the stream is already closed."""
        with self._lock, contextlib.suppress(OSError, RuntimeError, ValueError):
            if self._open:
                self._reply.shutdown()

    def close(self) -> None:
        """Close the connection for good."""
        with self._lock:
            self._open = False
            self._reply.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> None:
        self.close()


def path_of(base: str, plural: str, *, namespace: str = "", name: str = "", subresource: str = "") -> str:
    """The path of an object or a collection. *base* is for example `/api/v1` or `/apis/GROUP/VERSION`."""
    parts = [base]
    if namespace:
        parts += ["namespaces", quote(namespace, safe="")]
    parts.append(plural)
    parts += [quote(part, safe="") for part in (name, subresource) if part]
    return "/".join(parts)


def _may_have_left(error: Exception) -> bool:
    """Whether the request may have reached the server. Not if there was no connection, or to the wrong server."""
    refused = bool(error.args) and isinstance(error.args[0], ssl.SSLCertVerificationError)
    return not refused and not isinstance(error, _NEVER_SENT)


def _target(path: str, query: Mapping[str, str] | None) -> str:
    return f"{path}?{urlencode(query)}" if query else path


def _socket_options() -> list[tuple[int, int, int]]:
    """No Nagle delay; and the kernel detects within a minute that the other side has vanished."""
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1), (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    if sys.platform == "linux":
        limits = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
        options += [(socket.IPPROTO_TCP, option, value) for option, value in limits]
    return options
