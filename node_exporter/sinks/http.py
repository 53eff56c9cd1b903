"""Push to an extender: PUT /v1/nodes/{name}/report, POST /v1/nodes/{name}/heartbeat.

Rules of this file
- A reply is a value: whatever the extender or the network does ends in a `Reply`, never in an exception.
- Nothing is retried and nothing is kept here: the agent decides what to send next, from a new observation.
- Reports are compressed with gzip, to a sixth of their size or less.
"""

import gzip
from dataclasses import replace
from urllib.parse import quote

from node_exporter.bounded_http import Connection, CredentialFiles, HTTPReply, NoAnswerError
from node_exporter.files import describe, parse_json
from node_exporter.report import NodeReport
from node_exporter.sinks import Delivery, Reply

REFUSED_DETAIL_CHARS = 500
CONFLICT = frozenset({404, 409})
GZIP_LEVEL = 6
PACKED_FROM_BYTES = 1024
"""A heartbeat is smaller, and would not get smaller."""
RETRYABLE = frozenset({408, 425, 429})


class HttpSink:
    """The extender at `url`, for one node. Not safe for several threads at once."""

    def __init__(self, url: str, node_name: str, *, timeout_seconds: float, credentials: CredentialFiles) -> None:
        self._connection = Connection(url, timeout_seconds=timeout_seconds, credentials=credentials)
        self._node = f"/v1/nodes/{quote(node_name, safe='')}"

    def put_report(self, report: NodeReport, body: bytes) -> Reply:
        """Send a full report."""
        del report
        return self._send("PUT", f"{self._node}/report", body)

    def post_heartbeat(self, body: bytes) -> Reply:
        """Confirm that an earlier report is still valid. WANTS_REPORT if the extender does not have it."""
        return self._send("POST", f"{self._node}/heartbeat", body)

    def close(self) -> None:
        """Close idle connections; the sink can be used again."""
        self._connection.close()

    def _send(self, method: str, path: str, body: bytes) -> Reply:
        is_packed = len(body) >= PACKED_FROM_BYTES
        content = gzip.compress(body, GZIP_LEVEL, mtime=0) if is_packed else body
        headers = {"content-encoding": "gzip"} if is_packed else {}
        try:
            answer = self._connection.send(method, path, content=content, headers=headers)
            reply = _reply(answer, is_heartbeat=method == "POST")
        except (OSError, ValueError) as error:
            reply = no_answer(error)
        return replace(reply, sent_bytes=len(content))


def no_answer(error: Exception) -> Reply:
    """The result of a message without a reply."""
    text = describe(error) if isinstance(error, NoAnswerError) else f"{type(error).__name__}: {describe(error)}"
    return Reply(outcome=Delivery.UNAVAILABLE, detail=text)


def refused(answer: HTTPReply) -> Reply:
    """The result of a reply with an error status."""
    detail = f"{answer.status} {_problem_detail(answer.content)}".strip()
    if answer.status >= 500 or answer.status in RETRYABLE:
        return Reply(outcome=Delivery.UNAVAILABLE, detail=detail, retry_after_seconds=answer.retry_after_seconds)
    return Reply(outcome=Delivery.REFUSED, detail=detail)


def _reply(answer: HTTPReply, *, is_heartbeat: bool) -> Reply:
    if answer.is_success:
        return Reply(outcome=Delivery.ACCEPTED)
    reply = refused(answer)
    return replace(reply, outcome=Delivery.WANTS_REPORT) if is_heartbeat and answer.status in CONFLICT else reply


def _problem_detail(content: bytes) -> str:
    """Title and detail of a problem+json body (RFC 9457), the message of a Status, or the beginning of the body."""
    try:
        problem = parse_json(content)
    except ValueError:
        problem = None
    if isinstance(problem, dict):
        text = ": ".join(str(problem[key]) for key in ("title", "detail", "message") if problem.get(key))
        text = text or str(problem)
    else:
        text = content.decode(errors="replace")
    return " ".join(text.split())[:REFUSED_DETAIL_CHARS]
