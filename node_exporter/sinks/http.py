"""Push to an extender: PUT /v1/nodes/{name}/report, POST /v1/nodes/{name}/heartbeat.

Laws of this file
- A reply is a value: whatever the extender or the network does ends in a `Reply`, never in an exception.
- Nothing is retried and nothing is kept here: the agent decides what to send next, from a fresh look.
- Reports are sent packed (gzip): JSON of this kind shrinks to a sixth and less.
- Token and certificate files are read again when they change, so that rotation needs no restart.
"""

import gzip
import ssl
import time
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import quote

import httpx
import orjson

from node_exporter.files import describe
from node_exporter.sinks import Outcome, Reply

REFUSED_DETAIL_CHARS = 500
MAX_ANSWER_BYTES = 64 << 10
CONFLICT = frozenset({404, 409})
GZIP_LEVEL = 6
PACKED_FROM_BYTES = 1024
"""A heartbeat is smaller, and would not shrink."""
RETRYABLE = frozenset({408, 425, 429})


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


class HttpSink:
    """The extender at `url`, for one node. Not safe for several threads at once."""

    def __init__(self, url: str, node_name: str, *, timeout_seconds: float, credentials: Credentials) -> None:
        self._base = f"{url.rstrip('/')}/v1/nodes/{quote(node_name, safe='')}"
        self._timeout = timeout_seconds
        self._credentials = credentials
        self._client: httpx.Client | None = None
        self._fingerprint: tuple[tuple[int, int] | None, ...] = ()

    def put_report(self, body: bytes) -> Reply:
        """Send a full report."""
        return self._send("PUT", f"{self._base}/report", body)

    def post_heartbeat(self, body: bytes) -> Reply:
        """Say that an earlier report still holds; WANTS_REPORT if the extender does not have it."""
        return self._send("POST", f"{self._base}/heartbeat", body)

    def close(self) -> None:
        """Close idle connections; the sink can be used again."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _send(self, method: str, url: str, body: bytes) -> Reply:
        is_packed = len(body) >= PACKED_FROM_BYTES
        content = gzip.compress(body, GZIP_LEVEL, mtime=0) if is_packed else body
        try:
            headers = self._headers() | ({"content-encoding": "gzip"} if is_packed else {})
            with self._connected().stream(method, url, content=content, headers=headers) as response:
                reply = _reply(response, _beginning(response, self._timeout), is_heartbeat=method == "POST")
        except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
            self.close()
            reply = Reply(outcome=Outcome.UNAVAILABLE, detail=f"{type(error).__name__}: {describe(error)}")
        return replace(reply, sent_bytes=len(content))

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


def _beginning(response: httpx.Response, seconds: float) -> bytes:
    """The beginning of the answer's body: no more than is worth reading, and no longer than `seconds`."""
    deadline = time.monotonic() + seconds
    content = b""
    for chunk in response.iter_bytes():
        content += chunk
        if len(content) > MAX_ANSWER_BYTES or time.monotonic() > deadline:
            break
    return content


def _reply(response: httpx.Response, content: bytes, *, is_heartbeat: bool) -> Reply:
    status = response.status_code
    if response.is_success:
        return Reply(outcome=Outcome.ACCEPTED)
    detail = f"{status} {_problem_detail(content)}".strip()
    if is_heartbeat and status in CONFLICT:
        return Reply(outcome=Outcome.WANTS_REPORT, detail=detail)
    if status >= 500 or status in RETRYABLE:
        return Reply(outcome=Outcome.UNAVAILABLE, detail=detail, retry_after_seconds=_retry_after(response))
    return Reply(outcome=Outcome.REFUSED, detail=detail)


def _problem_detail(content: bytes) -> str:
    """Title and detail of a problem+json body (RFC 9457), or the beginning of whatever came."""
    try:
        problem = orjson.loads(content)
    except orjson.JSONDecodeError:
        problem = None
    if isinstance(problem, dict):
        text = ": ".join(str(problem[key]) for key in ("title", "detail") if problem.get(key)) or str(problem)
    else:
        text = content.decode(errors="replace")
    return " ".join(text.split())[:REFUSED_DETAIL_CHARS]


def _retry_after(response: httpx.Response) -> float | None:
    value = response.headers.get("retry-after", "")
    return float(value) if value.isdecimal() else None


def _stamp(path: Path | None) -> tuple[int, int] | None:
    try:
        stat = path.stat() if path else None
    except OSError:
        return None
    return (stat.st_ino, stat.st_mtime_ns) if stat else None
