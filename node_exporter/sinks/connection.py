"""One HTTP connection to a server that proves who it is, kept open between messages.

Laws of this file
- Token and certificate files are read again when they change, so that rotation needs no restart.
- Of an answer no more is read than is worth it, and no longer than the timeout.
"""

import ssl
import time
from dataclasses import dataclass
from pathlib import Path

import httpx

MAX_ANSWER_BYTES = 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Credentials:
    """Files to prove who we are and whom we trust, each optional. Without `ca_file` the system trust store serves."""

    token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None

    def fingerprint(self) -> tuple[tuple[int, int] | None, ...]:
        """Changes whenever one of the certificate files is replaced."""
        return tuple(_stamp(path) for path in (self.ca_file, self.cert_file, self.key_file))


@dataclass(frozen=True, slots=True)
class Answer:
    """A reply as it came; `content` may be cut off."""

    status: int
    headers: httpx.Headers
    content: bytes

    @property
    def retry_after_seconds(self) -> float | None:
        """The server's own wish; None if it has none."""
        value = self.headers.get("retry-after", "")
        return float(value) if value.isdecimal() else None


class Connection:
    """Speaks to the server of `url`. Not safe for several threads at once."""

    def __init__(
        self, url: str, *, timeout_seconds: float, credentials: Credentials, max_answer_bytes: int = MAX_ANSWER_BYTES
    ) -> None:
        self._base = url.rstrip("/")
        self._timeout = timeout_seconds
        self._credentials = credentials
        self._max_answer = max_answer_bytes
        self._client: httpx.Client | None = None
        self._fingerprint: tuple[tuple[int, int] | None, ...] = ()

    def send(self, method: str, path: str, *, content: bytes = b"", headers: dict[str, str] | None = None) -> Answer:
        """Send one request.

        Raises:
            httpx.HTTPError, httpx.InvalidURL, OSError, ValueError: there is no answer; the connection is closed.
        """
        try:
            client = self._connected()
            every = self._headers() | (headers or {})
            with client.stream(method, self._base + path, content=content, headers=every) as response:
                return Answer(response.status_code, response.headers, self._beginning(response))
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close idle connections; it can be used again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connected(self) -> httpx.Client:
        fingerprint = self._credentials.fingerprint()
        if self._client is None or fingerprint != self._fingerprint:
            self.close()
            self._client = httpx.Client(timeout=self._timeout, verify=self._tls_context(), trust_env=False)
            self._fingerprint = fingerprint
        return self._client

    def _tls_context(self) -> ssl.SSLContext | bool:
        if not self._base.startswith("https:"):
            return False
        credentials = self._credentials
        context = ssl.create_default_context(cafile=str(credentials.ca_file) if credentials.ca_file else None)
        if credentials.cert_file:
            context.load_cert_chain(credentials.cert_file, credentials.key_file)
        return context

    def _headers(self) -> dict[str, str]:
        headers = {"content-type": "application/json", "accept-encoding": "identity"}
        if self._credentials.token_file:
            headers["authorization"] = f"Bearer {self._credentials.token_file.read_text().strip()}"
        return headers

    def _beginning(self, response: httpx.Response) -> bytes:
        """The beginning of the answer's body."""
        deadline = time.monotonic() + self._timeout
        content = b""
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > self._max_answer or time.monotonic() > deadline:
                break
        return content


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        stat = path.stat() if path else None
    except OSError:
        return None
    return (stat.st_ino, stat.st_mtime_ns) if stat else None
