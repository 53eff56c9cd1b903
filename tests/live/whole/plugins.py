"""A device plugin with a kubelet's real registration, and no device behind it."""
# ruff: noqa: N802 - methods are named as the calls

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import grpc

from tests.live.api import Json

Message = Any
"""Of the generated code, or a gRPC context."""
_P, _SERVICES = grpc.protos_and_services("tests/live/whole/device_plugin.proto")
VERSION = "v1beta1"
KUBELET_SOCKET = "kubelet.sock"


class DevicePlugin:
    """Serves one resource on a socket beside the kubelet's. *devices*: `id`, `numa`, `healthy`, as in a scenario.

    The kubelet removes all sockets of plugins when it starts, so that each registration begins with a new socket.
    """

    def __init__(self, directory: Path, resource: str, devices: Sequence[Json]) -> None:
        self.directory, self.resource = directory, resource
        self._endpoint = f"{resource.replace('/', '-')}.sock"
        self._devices = list(devices)
        self._changed = asyncio.Condition()
        self._server: Any = None

    async def register(self) -> None:
        """Listen anew, and tell the kubelet.

        Raises:
            grpc.aio.AioRpcError: the kubelet does not answer on its socket.
        """
        await self.close()
        socket = self.directory / self._endpoint
        socket.unlink(missing_ok=True)
        server = grpc.aio.server()
        _SERVICES.add_DevicePluginServicer_to_server(self, server)
        server.add_insecure_port(f"unix:{socket}")
        await server.start()
        self._server = server
        async with grpc.aio.insecure_channel(f"unix:{self.directory / KUBELET_SOCKET}") as channel:
            request = _P.Registering(
                version=VERSION, endpoint=self._endpoint, resource_name=self.resource, options=_P.Options()
            )
            await _SERVICES.RegistrationStub(channel).Register(request, timeout=5)

    async def set_healthy(self, ids: set[str]) -> None:
        """These devices are healthy from now on, and the others are not."""
        async with self._changed:
            self._devices = [{**device, "healthy": device["id"] in ids} for device in self._devices]
            self._changed.notify_all()

    async def close(self) -> None:
        """Stop to answer."""
        if self._server is not None:
            await self._server.stop(None)
            self._server = None

    async def GetDevicePluginOptions(self, _request: Message, _context: Message) -> Message:
        return _P.Options()

    async def ListAndWatch(self, _request: Message, _context: Message) -> AsyncIterator[Message]:
        while True:
            yield _P.Devices(devices=[_device(each) for each in self._devices])
            async with self._changed:
                await self._changed.wait()

    async def Allocate(self, request: Message, _context: Message) -> Message:
        return _P.AllocatedAll(container_responses=[_P.Allocated() for _ in request.container_requests])


def _device(device: Json) -> Message:
    topology = _P.Topology(nodes=[_P.NumaNode(ID=numa) for numa in device["numa"]]) if device["numa"] else None
    return _P.Device(ID=device["id"], health="Healthy" if device["healthy"] else "Unhealthy", topology=topology)
