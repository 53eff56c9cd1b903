"""Connections to HTTP/1.1 servers, with limits on the time and bytes that the other side can use up.

Rules of this file
- A whole exchange has one deadline, from connecting to the last byte. It ends slow headers, endless interim responses
  (1xx) and slow bodies. A timeout for each read would be renewed by every byte.
- The bytes received for one response are limited, headers and interim responses included.
- Content is not decompressed, whatever Content-Encoding says. Redirects are not followed.
- Token and certificate files are read again when they change, so that rotation needs no restart. Every file is read
  once, with a size limit, and OpenSSL gets the content: other code opens no file.
"""

import ssl
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import httpcore

from node_exporter.files import MAX_CREDENTIAL_BYTES, as_path, identity, read_file, read_token

KEEP_IDLE_SECONDS: Final = 5.0
"""An idle connection is kept this long. Servers close theirs at about the same time."""
HEADER_BYTES: Final = 256 << 10
"""For headers and interim responses, in addition to the content. h11 refuses header blocks of more than 100 KiB."""
WRITE_BYTES: Final = 64 << 10
MAX_ANSWER_BYTES: Final = 64 << 10
_FAILURES: Final = (
    httpcore.NetworkError,
    httpcore.TimeoutException,
    httpcore.ProtocolError,
    httpcore.UnsupportedProtocol,
    httpcore.ConnectionNotAvailable,
)


class NoAnswerError(OSError):
    """There is no usable response. The message gives the reason in one line."""


@dataclass(frozen=True, slots=True)
class HTTPReply:
    """A response as received. `content` may be truncated."""

    status: int
    headers: dict[str, str]
    content: bytes

    @property
    def is_success(self) -> bool:
        """Whether the status is one of success."""
        return 200 <= self.status < 300

    @property
    def retry_after_seconds(self) -> float | None:
        """The wait that the server requests. None if it requests none."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isascii() and value.isdecimal() else None


Take = Callable[[Iterator[bytes]], bytes]
"""Reads as much of a body as needed, and returns the part to keep."""


def beginning(limit: int) -> Take:
    """Takes the first `limit` bytes of a body, and at most one more chunk, so that a longer body can be detected."""

    def take(pieces: Iterator[bytes]) -> bytes:
        content = bytearray()
        for piece in pieces:
            content += piece
            if len(content) > limit:
                break
        return bytes(content)

    return take


class _Allowance:
    """The time and the bytes left for one exchange."""

    def __init__(self, timeout_seconds: float) -> None:
        self._timeout = timeout_seconds
        self._deadline = 0.0
        self._bytes = 0

    def renew(self, received_bytes: int) -> None:
        self._deadline = time.monotonic() + self._timeout
        self._bytes = received_bytes

    def seconds(self, error: type[httpcore.TimeoutException]) -> float:
        left = self._deadline - time.monotonic()
        if left <= 0:
            raise error(f"did not finish within {self._timeout:g} s")
        return left

    def receive(self, count: int) -> None:
        self._bytes -= count
        if self._bytes < 0:
            raise httpcore.RemoteProtocolError("the response is too large")


class _Stream(httpcore.NetworkStream):
    """A connection that counts every read and write against the allowance."""

    def __init__(self, stream: httpcore.NetworkStream, allowance: _Allowance) -> None:
        self._stream = stream
        self._allowance = allowance

    def read(self, max_bytes: int, timeout: float | None = None) -> bytes:
        del timeout
        received = self._stream.read(max_bytes, self._allowance.seconds(httpcore.ReadTimeout))
        self._allowance.receive(len(received))
        return received

    def write(self, buffer: bytes, timeout: float | None = None) -> None:
        del timeout
        for start in range(0, len(buffer), WRITE_BYTES):
            piece = buffer[start : start + WRITE_BYTES]
            self._stream.write(piece, self._allowance.seconds(httpcore.WriteTimeout))

    def close(self) -> None:
        self._stream.close()

    def start_tls(
        self, ssl_context: ssl.SSLContext, server_hostname: str | None = None, timeout: float | None = None
    ) -> httpcore.NetworkStream:
        del timeout
        left = self._allowance.seconds(httpcore.ConnectTimeout)
        return _Stream(self._stream.start_tls(ssl_context, server_hostname, left), self._allowance)

    def get_extra_info(self, info: str) -> Any:  # noqa: ANN401 - httpcore's own type
        return self._stream.get_extra_info(info)


class _Backend(httpcore.NetworkBackend):
    def __init__(self, allowance: _Allowance) -> None:
        self._allowance = allowance
        self._backend = httpcore.SyncBackend()

    def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.NetworkStream:
        del timeout
        left = self._allowance.seconds(httpcore.ConnectTimeout)
        stream = self._backend.connect_tcp(host, port, left, local_address, socket_options)
        return _Stream(stream, self._allowance)


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFiles:
    """Files with our credentials and trusted certificates, each optional.

    `ca_file`: the server's certificate must be signed by this CA, by default one of the system, and name the address.
    `pin_file`: instead, the server must present exactly this certificate; the address does not matter.
    """

    token_file: Path | None = None
    ca_file: Path | None = None
    pin_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def fingerprint(self) -> tuple[tuple[int, int] | None, ...]:
        """Changes whenever one of the certificate files is replaced."""
        files = (self.ca_file, self.pin_file, self.cert_file, self.key_file)
        return tuple(identity(path) if path else None for path in files)


class Connection:
    """Connects to the server of `url`. A whole exchange has *timeout_seconds*. Not thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        credentials: CredentialFiles,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self.url: Final = url.rstrip("/")
        self.credentials: Final = credentials
        self._host = urlsplit(self.url).netloc.rpartition("@")[2]
        self._allowance = _Allowance(timeout_seconds)
        self._max_answer = max_answer_bytes
        self._pool: httpcore.ConnectionPool | None = None
        self._fingerprint: tuple[tuple[int, int] | None, ...] = ()

    def send(
        self,
        method: str,
        path: str,
        *,
        content: bytes = b"",
        headers: dict[str, str] | None = None,
        max_answer_bytes: int | None = None,
        take: Take | None = None,
    ) -> HTTPReply:
        """Send one request and read the response. `max_answer_bytes` None: the limit of this connection.

        `take` None: the first `max_answer_bytes` of the body.

        Raises:
            NoAnswerError: no connection, no response in time, too many bytes, or not HTTP.
            OSError, ValueError: a credential file is not readable, or the address or a header cannot be sent.
        """
        most = self._max_answer if max_answer_bytes is None else max_answer_bytes
        try:
            pool, every = self._connected(), self._headers() | (headers or {})
            self._allowance.renew(most + HEADER_BYTES)
            with pool.stream(method, self.url + path, headers=list(every.items()), content=content) as response:
                received = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in response.headers}
                return HTTPReply(response.status, received, (take or beginning(most))(response.iter_stream()))
        except BaseException as error:
            self.close()
            if isinstance(error, _FAILURES):
                raise NoAnswerError(f"{type(error).__name__}: {error}") from error
            raise

    def close(self) -> None:
        """Close idle connections. It can be used again."""
        if self._pool is not None:
            self._pool.close()
            self._pool = None

    def _connected(self) -> httpcore.ConnectionPool:
        fingerprint = self.credentials.fingerprint()
        if self._pool is None or fingerprint != self._fingerprint:
            self.close()
            self._pool = httpcore.ConnectionPool(
                ssl_context=_tls_context(self.credentials) if self.url.startswith("https:") else None,
                max_connections=1,
                keepalive_expiry=KEEP_IDLE_SECONDS,
                network_backend=_Backend(self._allowance),
            )
            self._fingerprint = fingerprint
        return self._pool

    def _headers(self) -> dict[str, str]:
        headers = {"host": self._host, "accept-encoding": "identity", "content-type": "application/json"}
        if self.credentials.token_file:
            headers["authorization"] = f"Bearer {read_token(self.credentials.token_file)}"
        return headers


def _tls_context(credentials: CredentialFiles) -> ssl.SSLContext:
    """A client's TLS context. Raises OSError, ValueError."""
    with ExitStack() as held:

        def readable(path: Path) -> str:
            return held.enter_context(as_path(read_file(path, MAX_CREDENTIAL_BYTES)))

        if credentials.pin_file:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname = False
            context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
            context.load_verify_locations(readable(credentials.pin_file))
        else:
            context = ssl.create_default_context(cafile=readable(credentials.ca_file) if credentials.ca_file else None)
        if credentials.cert_file:
            key = readable(credentials.key_file) if credentials.key_file else None
            context.load_cert_chain(readable(credentials.cert_file), key)
        return context
