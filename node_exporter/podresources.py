"""The client of the kubelet's podresources v1 service on its unix socket. Only this file uses gRPC.

Rules of this file
- Whatever the service does (absent, restarting, slow, refusing, malformed) becomes None and a Problem. Nothing raises.
- Each call has a deadline. A channel that failed is discarded, so that a restarted kubelet is reached at once.
- gRPC is imported on first use, so that an exporter on a node without the socket does not load it.
- List shows app containers, and sidecars from 1.30 on, never ordinary init containers (pkg/kubelet/apis/podresources).
"""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from node_exporter.files import describe, is_hidden, is_there
from node_exporter.observation import DeviceNuma, ListedPod, PodResources
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
MAX_MESSAGE_BYTES = 4 << 20
"""Limit for one reply. A device costs about 70 bytes for each of its NUMA nodes, a container about 50:
500 containers and 10,000 devices are 1 MB. A larger reply is RESOURCE_EXHAUSTED, a problem of the report."""


class PodResourcesClient:
    """Calls the service at one socket. Not thread-safe."""

    def __init__(self, socket: Path, deadline_seconds: float = DEADLINE_SECONDS) -> None:
        self._socket = socket
        self._deadline = deadline_seconds
        self._channel: grpc.Channel | None = None
        self.is_listening: bool | None = None
        """Whether the kubelet listened on the socket at the last call, whatever the reply. None: unknown."""

    def ask(self) -> tuple[PodResources | None, tuple[Problem, ...]]:
        """List and GetAllocatableResources together; None if either fails."""
        if not is_there(self._socket):
            self.close()
            self.is_listening = None if is_hidden(self._socket) else False
            return None, (_problem(self._socket, "no socket, or no permission to see it"),)
        os.environ.setdefault("GRPC_VERBOSITY", "NONE")  # the Problem has the reason, in one line
        import grpc  # noqa: PLC0415 - see the rules of this file

        try:
            from node_exporter._podresources import podresources_pb2 as pb  # noqa: PLC0415

            listed = self._call("List", pb.ListPodResourcesRequest(), pb.ListPodResourcesResponse)
            allocatable = self._call(
                "GetAllocatableResources", pb.AllocatableResourcesRequest(), pb.AllocatableResourcesResponse
            )
            self.is_listening = True
            return _facts(listed, allocatable), ()
        except grpc.RpcError as error:
            self.close()
            code, details = getattr(error, "code", None), getattr(error, "details", None)
            self.is_listening = code is not None and code() is not grpc.StatusCode.UNAVAILABLE
            said = f"{code().name if code else type(error).__name__}: {details() if details else ''}"
            return None, (_problem(self._socket, " ".join(said.split())[:200]),)
        except (ImportError, ValueError, OverflowError) as error:
            self.close()
            return None, (_problem(self._socket, describe(error)),)

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
            self._channel = grpc.insecure_channel(f"unix:{self._socket}", options=options)
        return self._channel


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


def _problem(socket: Path, reason: str) -> Problem:
    return Problem(source=SOURCE, path=socket.name, reason=reason, severity="error")
