"""What the running kubelet says: podresources v1 on its unix socket; over https its configuration and version.

Rules of this file
- Only this file uses gRPC, for podresources. Whatever that service does (absent, restarting, slow, refusing,
  malformed) becomes None and a Problem. Nothing raises.
- Each call has a deadline. A channel that failed is discarded, so that a restarted kubelet is reached at once.
- gRPC is imported on first use, so that an exporter on a node without the socket does not load it.
- List shows app containers, and sidecars from 1.30 on, never ordinary init containers (pkg/kubelet/apis/podresources).
- https: configuration is from /configz, the version from /metrics. The token is sent only to a kubelet that has
  authenticated: with a certificate of a given CA for its address, or with exactly the certificate in a given file
  (kubelets that sign their own). Neither check can be switched off. Token, CA and pinned certificate are read for each
  request, so that rotation needs no restart. It needs the rights nodes/configz and nodes/metrics (before 1.33
  nodes/proxy instead of nodes/configz) on its own node, and no other.
"""

import os
import re
import socket
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from node_exporter.bounded_http import Connection, CredentialFiles, HTTPReply, NoAnswerError
from node_exporter.files import describe, is_there, parse_json
from node_exporter.observation import DeviceNuma, ListedPod, PodResources, RunningConfig
from node_exporter.report import Problem, ReportedContainer, ReportedMemoryBlock

if TYPE_CHECKING:
    import grpc
    from google.protobuf.message import Message

    from node_exporter._podresources import podresources_pb2 as messages

Answer = TypeVar("Answer", bound="Message")

SOURCE = "podresources"
SERVICE = "/v1.PodResourcesLister"
DEADLINE_SECONDS = 5.0
"""The deadline of one call, from connecting to the last byte of the reply."""
GREETING_SECONDS = 1.0
"""How long a process may take to begin a connection. A kubelet that is only slow begins one at once."""
MAX_MESSAGE_BYTES = 4 << 20
"""Limit for one reply. A device costs about 70 bytes for each of its NUMA nodes, a container about 50:
500 containers and 10,000 devices are 1 MB. A larger reply is RESOURCE_EXHAUSTED, a problem of the report."""


class PodResourcesClient:
    """Calls the service at one socket. Not thread-safe."""

    def __init__(self, path: Path, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._path = path
        self._deadline = deadline_seconds
        self._channel: grpc.Channel | None = None
        self.is_answering: bool | None = None
        """Whether the kubelet's process answered at the last call, late or not. None: this process cannot tell."""

    def ask(self) -> tuple[PodResources | None, tuple[Problem, ...]]:
        """List and GetAllocatableResources together; None if either fails."""
        if not is_there(self._path):
            self.close()
            self.is_answering = _greets(self._path)
            return None, (_problem(self._path, "no socket, or no permission to see it"),)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the Problem has the reason, in one line
        import grpc  # noqa: PLC0415 - see the rules of this file

        try:
            from node_exporter._podresources import podresources_pb2 as pb  # noqa: PLC0415

            listed = self._call("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
            allocatable = self._call(
                "GetAllocatableResources", pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse
            )
            self.is_answering = True
            return _facts(listed, allocatable), ()
        except grpc.RpcError as error:
            self.close()
            code, details = getattr(error, "code", None), getattr(error, "details", None)
            self.is_answering = _greets(self._path)
            said = f"{code().name if code else type(error).__name__}: {details() if details else ''}"
            return None, (_problem(self._path, " ".join(said.split())[:200]),)
        except (ImportError, ValueError, OverflowError) as error:
            self.close()
            return None, (_problem(self._path, describe(error)),)

    def close(self) -> None:
        """Close the connection. The next call opens a new one."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None

    def _call(self, method: str, request: "Message", kind: type[Answer]) -> Answer:
        call: grpc.UnaryUnaryMultiCallable[Message, Answer] = self._connected().unary_unary(
            f"{SERVICE}/{method}",
            request_serializer=lambda message: message.SerializeToString(),
            response_deserializer=kind.FromString,
        )
        return call(request, timeout=self._deadline)

    def _connected(self) -> "grpc.Channel":
        import grpc  # noqa: PLC0415

        if self._channel is None:
            options = (
                ("grpc.max_receive_message_length", MAX_MESSAGE_BYTES),
                ("grpc.enable_http_proxy", 0),
                ("grpc.use_local_subchannel_pool", 1),
                ("grpc.default_authority", "localhost"),
            )
            self._channel = grpc.insecure_channel(f"unix:{self._path}", options=options)
        return self._channel


def _greets(path: Path) -> bool | None:
    """Whether a process begins a connection at the socket, as a gRPC server does at once, however late its replies are.

    None: this process may not or cannot connect, so that nothing is known.
    """
    with socket.socket(socket.AF_UNIX) as attempt:
        attempt.settimeout(GREETING_SECONDS)
        try:
            attempt.connect(str(path))
            return bool(attempt.recv(1))
        except OSError as error:
            return None if isinstance(error, PermissionError) or "path too long" in str(error) else False


def _facts(
    listed: "messages.ListPodResourcesResponse", allocatable: "messages.AllocatableResourcesResponse"
) -> PodResources:
    return PodResources(
        pods=tuple(_pod(pod) for pod in listed.pod_resources),
        devices=_device_numa(allocatable.devices),
        allocatable_cpus=frozenset(allocatable.cpu_ids),
    )


def _pod(pod: "messages.PodResources") -> ListedPod:
    return ListedPod(
        namespace=pod.namespace,
        name=pod.name,
        containers=tuple(map(_container, pod.containers)),
        cpus=tuple(sorted(set(pod.cpu_ids))),
    )


def _container(container: "messages.ContainerResources") -> ReportedContainer:
    blocks = [
        (block.memory_type, tuple(sorted({node.ID for node in block.topology.nodes})), block.size)
        for block in container.memory
    ]
    return ReportedContainer(
        name=container.name,
        cpus=tuple(sorted(set(container.cpu_ids))),
        memory=tuple(ReportedMemoryBlock(type=kind, size=size, numa=numa) for kind, numa, size in sorted(blocks)),
        devices={resource: tuple(sorted(ids)) for resource, ids in sorted(_device_numa(container.devices).items())},
    )


def _device_numa(devices: "Iterable[messages.ContainerDevices]") -> dict[str, DeviceNuma]:
    """Join the elements of each device: the service sends one for each of its NUMA nodes. None: no topology."""
    found: dict[str, dict[str, frozenset[int] | None]] = {}
    for element in devices:
        known = found.setdefault(element.resource_name, {})
        nodes = frozenset(node.ID for node in element.topology.nodes) if element.HasField("topology") else None
        for id_ in element.device_ids:
            before = known.get(id_)
            known[id_] = nodes if before is None else before | (nodes or frozenset())
    return dict(found)


def _problem(path: Path, reason: str) -> Problem:
    return Problem(source=SOURCE, path=path.name, reason=reason, severity="error")


API_SOURCE = "kubelet api"
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
        problems.append(_api_problem(path, error))
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


def _api_problem(path: str, error: Exception) -> Problem:
    is_clear = isinstance(error, NoAnswerError | _RefusedError)
    reason = describe(error) if is_clear else f"{type(error).__name__}: {describe(error)}"
    return Problem(source=API_SOURCE, path=path, reason=reason, severity="error")
