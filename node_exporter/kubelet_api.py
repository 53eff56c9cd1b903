"""Reads the running kubelet's configuration from /configz and its version from /metrics, over https.

Rules of this file
- The token is sent only to a kubelet that has authenticated: with a certificate of a given CA for its address, or with
  exactly the certificate in a given file (kubelets that sign their own). Neither check can be switched off.
- Token, CA and pinned certificate are read for each request, so that rotation needs no restart.
- Needs the rights nodes/configz and nodes/metrics (before 1.33 nodes/proxy instead of nodes/configz) on its own node,
  and no other.
"""

import re
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeVar

from node_exporter.bounded_http import Connection, CredentialFiles, HTTPReply, NoAnswerError
from node_exporter.files import describe, parse_json
from node_exporter.observation import RunningConfig
from node_exporter.report import Problem

SOURCE = "kubelet api"
MAX_ANSWER_BYTES = 256 << 10
"""Limit for /configz, which has up to 10 kB."""
MAX_METRICS_BYTES = 32 << 20
"""Limit for /metrics, which has up to a few MB. Only the last line is kept while it is read."""
MAX_LINE_BYTES = 64 << 10
Found = TypeVar("Found")
BUILD_INFO = re.compile(rb'^kubernetes_build_info\{[^}\n]*\bgit_version="([^"\n]{1,64})"', re.MULTILINE)


def kubelet_at(url: str, credentials: CredentialFiles, timeout_seconds: float = 5.0) -> Connection:
    """The kubelet at an address such as "https://127.0.0.1:10250".

    Raises:
        ValueError: the address is not https, or not exactly one of `ca_file` and `pin_file` is given.
    """
    if not url.startswith("https://"):
        raise ValueError("the kubelet's address must begin with https://")
    if (credentials.ca_file is None) == (credentials.pin_file is None):
        raise ValueError("name either a CA file or a pinned certificate for the kubelet")
    return Connection(url, timeout_seconds=timeout_seconds, credentials=credentials)


def ask_kubelet(kubelet: Connection) -> RunningConfig:
    """Read configuration and version. Each is None, with a Problem, if the kubelet did not provide it."""
    problems: list[Problem] = []
    with closing(kubelet):
        document = _attempt("/configz", lambda: _configz(kubelet), problems)
        version = _attempt("/metrics", lambda: _version(kubelet), problems)
    return RunningConfig(document=document, version=version, problems=tuple(problems))


class _RefusedError(ValueError):
    """The kubelet replied with an error status."""


def _attempt(path: str, question: Callable[[], Found], problems: list[Problem]) -> Found | None:
    try:
        return question()
    except (OSError, ValueError) as error:
        problems.append(_problem(path, error))
        return None


def _configz(connection: Connection) -> dict[str, object]:
    answer = _succeeded(connection.send("GET", "/configz", max_answer_bytes=MAX_ANSWER_BYTES))
    if len(answer.content) > MAX_ANSWER_BYTES:
        raise ValueError(f"larger than {MAX_ANSWER_BYTES} bytes")
    parsed = parse_json(answer.content)
    document = parsed.get("kubeletconfig") if isinstance(parsed, dict) else None
    if not isinstance(document, dict):
        raise ValueError("the reply contains no kubeletconfig")  # noqa: TRY004 - it is the kubelet's value that is wrong
    return document


def _version(connection: Connection) -> str:
    """Read up to the build info. The rest of the metrics is not fetched."""
    answer = connection.send("GET", "/metrics", max_answer_bytes=MAX_METRICS_BYTES, take=_find_version)
    version = _succeeded(answer).content.decode(errors="replace")
    if not version:
        raise ValueError("the metrics contain no kubernetes_build_info")
    return version


def _find_version(pieces: Iterator[bytes]) -> bytes:
    """The version in the first line that has one. Empty if none has. A line longer than the limit is cut."""
    rest = b""
    for piece in pieces:
        text = rest + piece
        if match := BUILD_INFO.search(text):
            return match[1]
        rest = text[text.rfind(b"\n") + 1 :][:MAX_LINE_BYTES]
    return b""


def _succeeded(answer: HTTPReply) -> HTTPReply:
    if answer.is_success:
        return answer
    hint = {401: ": the token is not accepted", 403: ": the token lacks the permission"}.get(answer.status, "")
    raise _RefusedError(f"answered {answer.status}{hint}")


def _problem(path: str, error: Exception) -> Problem:
    is_clear = isinstance(error, NoAnswerError | _RefusedError)
    reason = describe(error) if is_clear else f"{type(error).__name__}: {describe(error)}"
    return Problem(source=SOURCE, path=path, reason=reason, severity="error")
