"""What the running kubelet says of itself over https: /configz, and its version from /metrics.

Laws of this file
- The token is sent only to a kubelet that proved who it is: by a certificate of a given CA for its address, or by the
  very certificate of a given file (kubelets that sign their own). There is no way to skip both.
- Token, CA and pinned certificate are read for each question, so that rotation needs no restart.
- Needs the rights nodes/configz and nodes/metrics (before 1.33 nodes/proxy instead of nodes/configz) on its own node,
  and no other.
"""

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import httpx
import orjson

from node_exporter.files import describe
from node_exporter.observation import RunningConfig
from node_exporter.report import Problem

SOURCE = "kubelet api"
MAX_ANSWER_BYTES = 4 << 20
MAX_METRICS_BYTES = 32 << 20
Answer = TypeVar("Answer")
BUILD_INFO = re.compile(r'^kubernetes_build_info\{[^}]*\bgit_version="([^"]{1,64})"')


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletApi:
    """Where the kubelet answers, and how both sides prove who they are.

    `url` as in "https://127.0.0.1:10250". Exactly one of `ca_file` (its certificate must be signed by this CA and name
    the address) and `pin_file` (it must show this certificate; the address does not matter).
    """

    url: str
    token_file: Path
    ca_file: Path | None = None
    pin_file: Path | None = None
    timeout_seconds: float = 5.0

    def __post_init__(self) -> None:
        if not self.url.startswith("https://"):
            raise ValueError("the kubelet's address must begin with https://")
        if (self.ca_file is None) == (self.pin_file is None):
            raise ValueError("name either a CA file or a pinned certificate for the kubelet")


def ask_kubelet(api: KubeletApi) -> RunningConfig:
    """Ask for configuration and version; each is None, with a Problem, if the kubelet did not give it."""
    problems: list[Problem] = []
    document: dict[str, object] | None = None
    version: str | None = None
    try:
        headers = {"authorization": f"Bearer {api.token_file.read_text().strip()}"}
        with httpx.Client(
            base_url=api.url, verify=_tls_context(api), timeout=api.timeout_seconds, headers=headers, trust_env=False
        ) as client:
            document = _attempt("/configz", lambda: _configz(client), problems)
            version = _attempt("/metrics", lambda: _version(client), problems)
    except (OSError, ValueError) as error:
        problems.append(_problem("", error))
    return RunningConfig(document=document, version=version, problems=tuple(problems))


def _tls_context(api: KubeletApi) -> ssl.SSLContext:
    if api.pin_file is None:
        return ssl.create_default_context(cafile=str(api.ca_file))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.load_verify_locations(api.pin_file)
    return context


def _attempt(path: str, question: Callable[[], Answer], problems: list[Problem]) -> Answer | None:
    try:
        return question()
    except (httpx.HTTPError, OSError, ValueError) as error:
        problems.append(_problem(path, error))
        return None


def _configz(client: httpx.Client) -> dict[str, object]:
    content = b""
    with client.stream("GET", "/configz") as response:
        response.raise_for_status()
        for chunk in response.iter_bytes():
            content += chunk
            if len(content) > MAX_ANSWER_BYTES:
                raise ValueError(f"larger than {MAX_ANSWER_BYTES} bytes")
    answer = orjson.loads(content)
    document = answer.get("kubeletconfig") if isinstance(answer, dict) else None
    if not isinstance(document, dict):
        raise ValueError("no kubeletconfig in the answer")  # noqa: TRY004 - what came is a wrong value of another's
    return document


def _version(client: httpx.Client) -> str:
    """Read until the build info appears; the rest of the metrics is not fetched."""
    received = 0
    with client.stream("GET", "/metrics") as response:
        response.raise_for_status()
        for line in response.iter_lines():
            received += len(line)
            if match := BUILD_INFO.match(line):
                return match[1]
            if received > MAX_METRICS_BYTES:
                break
    raise ValueError("no kubernetes_build_info in the metrics")


def _problem(path: str, error: Exception) -> Problem:
    if isinstance(error, httpx.HTTPStatusError):
        status = error.response.status_code
        hint = {401: ": the token is not accepted", 403: ": the token has no right to this"}.get(status, "")
        return Problem(source=SOURCE, path=path, reason=f"answered {status}{hint}", severity="error")
    return Problem(source=SOURCE, path=path, reason=f"{type(error).__name__}: {describe(error)}", severity="error")
