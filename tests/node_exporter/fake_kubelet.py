"""A podresources service on a real unix socket, played as the kubelet does; and the https side with /configz."""

import ssl
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import orjson
import trustme

from node_exporter._podresources import podresources_pb2 as pb

Devices = Mapping[str, Mapping[str, Sequence[int] | None]]
"""Resource -> device id -> NUMA ids; None: no topology."""


def container_devices(devices: Devices) -> list[pb.ContainerDevices]:
    """One element for each pair of device and NUMA node, as the kubelet sends them."""
    elements: list[pb.ContainerDevices] = []
    for resource, by_id in devices.items():
        for id_, numa in by_id.items():
            if numa is None:
                elements.append(pb.ContainerDevices(resource_name=resource, device_ids=[id_]))
            elements += [
                pb.ContainerDevices(
                    resource_name=resource, device_ids=[id_], topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=node)])
                )
                for node in numa or ()
            ]
    return elements


def pod(
    name: str,
    *,
    cpus: Sequence[int] = (),
    devices: Devices | None = None,
    memory: Sequence[tuple[str, int, Sequence[int]]] = (),
    namespace: str = "default",
    container: str = "c0",
) -> pb.PodResources:
    """A listed pod with one container; `memory` is (type, bytes, NUMA ids)."""
    blocks = [
        pb.ContainerMemory(
            memory_type=kind, size=size, topology=pb.TopologyInfo(nodes=[pb.NUMANode(ID=node) for node in numa])
        )
        for kind, size, numa in memory
    ]
    resources = pb.ContainerResources(
        name=container, cpu_ids=cpus, devices=container_devices(devices or {}), memory=blocks
    )
    return pb.PodResources(name=name, namespace=namespace, containers=[resources])


class FakeKubelet:
    """Serves List, GetAllocatableResources and Get from its attributes, which a test changes at will."""

    def __init__(self, socket: Path) -> None:
        self.socket = socket
        self.pods: list[pb.PodResources] = []
        self.devices: Devices = {}
        self.cpus: Sequence[int] = ()
        self.refusal: grpc.StatusCode | None = None
        self.before_answer: Callable[[], object] = lambda: None
        self.asked = 0
        self._server: grpc.Server | None = None

    def start(self) -> "FakeKubelet":
        """Listen on a new socket, as a kubelet that starts."""
        self.socket.parent.mkdir(parents=True, exist_ok=True)
        self.socket.unlink(missing_ok=True)
        server = grpc.server(ThreadPoolExecutor(max_workers=4))
        handlers = {
            "List": self._handler(pb.ListPodResourcesRequest, self._list),
            "GetAllocatableResources": self._handler(pb.AllocatableResourcesRequest, self._allocatable),
        }
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("v1.PodResourcesLister", handlers)])
        server.add_insecure_port(f"unix:{self.socket}")
        server.start()
        self._server = server
        return self

    def stop(self) -> None:
        """Go away; the socket file stays behind, as after a crash, unless gRPC removed it."""
        if self._server is not None:
            self._server.stop(grace=None).wait()
            self._server = None

    def _handler(self, request: type, answer: Callable[..., object]) -> grpc.RpcMethodHandler:  # type: ignore[type-arg]
        def behave(message: object, context: grpc.ServicerContext) -> object:
            self.asked += 1
            self.before_answer()
            if self.refusal is not None:
                context.abort(self.refusal, "as told by the test")
            return answer(message, context)

        return grpc.unary_unary_rpc_method_handler(
            behave,
            request_deserializer=request.FromString,  # type: ignore[attr-defined]
            response_serializer=lambda message: message.SerializeToString(),
        )

    def _list(self, _request: object, _context: grpc.ServicerContext) -> pb.ListPodResourcesResponse:
        return pb.ListPodResourcesResponse(pod_resources=self.pods)

    def _allocatable(self, _request: object, _context: grpc.ServicerContext) -> pb.AllocatableResourcesResponse:
        return pb.AllocatableResourcesResponse(devices=container_devices(self.devices), cpu_ids=self.cpus)


class FakeKubeletApi:
    """Answers /configz and /metrics over https to one token; without `context`, with a certificate of `authority`."""

    def __init__(self, context: ssl.SSLContext | None = None, token: str = "good") -> None:
        self.authority = trustme.CA()
        self.token = token
        if context is None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.authority.issue_cert("127.0.0.1").configure_cert(context)
        self.configz: bytes = orjson.dumps({"kubeletconfig": {"cpuManagerPolicy": "static"}})
        self.metrics = b'# HELP x\nkubernetes_build_info{build_date="d",git_version="v1.36.2",major="1"} 1\n'
        self.requests: list[str] = []
        api = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                api.requests.append(self.path)
                body = {"/configz": api.configz, "/metrics": api.metrics}.get(self.path, b"")
                granted = self.headers["authorization"] == f"Bearer {api.token}"
                self.send_response(200 if granted else 401)
                self.send_header("content-length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._server.handle_error = lambda *_: None  # type: ignore[method-assign]
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        self.url = f"https://127.0.0.1:{self._server.server_address[1]}"

    def close(self) -> None:
        """Stop to answer."""
        self._server.shutdown()
        self._server.server_close()
