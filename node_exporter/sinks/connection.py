"""An authenticated connection to a server, kept open between messages.

Rules of this file
- Token and certificate files are read again when they change, so that rotation needs no restart.
- Every file is read once, with a size limit, and OpenSSL gets the content: other code opens no file.
"""

import ssl
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from node_exporter.bounded_http import BoundedClient, HTTPReply
from node_exporter.files import MAX_CREDENTIAL_BYTES, as_path, read_file, read_token

MAX_ANSWER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialFiles:
    """Files with our credentials and trusted CAs, each optional. Without `ca_file` the system trust store is used."""

    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def fingerprint(self) -> tuple[tuple[int, int] | None, ...]:
        """Changes whenever one of the certificate files is replaced."""
        return tuple(_stamp(path) for path in (self.ca_file, self.cert_file, self.key_file))


class Connection:
    """Connects to the server of `url`. A whole exchange has `timeout_seconds`. Not thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        timeout_seconds: float,
        credentials: CredentialFiles,
        max_answer_bytes: int = MAX_ANSWER_BYTES,
    ) -> None:
        self._base = url
        self._timeout = timeout_seconds
        self._credentials = credentials
        self._max_answer = max_answer_bytes
        self._client: BoundedClient | None = None
        self._fingerprint: tuple[tuple[int, int] | None, ...] = ()

    def send(self, method: str, path: str, *, content: bytes = b"", headers: dict[str, str] | None = None) -> HTTPReply:
        """Send one request.

        Raises:
            OSError, ValueError: there is no reply, or a credential file is not readable; the connection is closed.
        """
        try:
            client = self._connected()
            every = self._headers() | (headers or {})
            return client.send(method, path, content=content, headers=every, max_answer_bytes=self._max_answer)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close idle connections. It can be used again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> BoundedClient:
        fingerprint = self._credentials.fingerprint()
        if self._client is None or fingerprint != self._fingerprint:
            self.close()
            self._client = BoundedClient(self._base, timeout_seconds=self._timeout, tls=self._tls_context())
            self._fingerprint = fingerprint
        return self._client

    def _tls_context(self) -> ssl.SSLContext | None:
        if not self._base.startswith("https:"):
            return None
        credentials = self._credentials
        context = trusting(credentials.ca_file)
        if credentials.cert_file:
            with ExitStack() as held:
                paths = [
                    held.enter_context(as_path(read_file(path, MAX_CREDENTIAL_BYTES)))
                    for path in (credentials.cert_file, credentials.key_file)
                    if path
                ]
                context.load_cert_chain(*paths)
        return context

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json"}
        if self._credentials.token_file:
            headers["authorization"] = f"Bearer {read_token(self._credentials.token_file)}"
        return headers


def trusting(ca_file: Path | None) -> ssl.SSLContext:
    """A client's TLS context that trusts the CAs of a file; None: those of the system. Raises OSError, ValueError."""
    if ca_file is None:
        return ssl.create_default_context()
    with as_path(read_file(ca_file, MAX_CREDENTIAL_BYTES)) as path:
        return ssl.create_default_context(cafile=path)


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        stat = path.stat() if path else None
    except OSError:
        return None
    return (stat.st_ino, stat.st_mtime_ns) if stat else None
