"""A Service on loopback: connections to one port go to a pod that is in its endpoints.

Endpoints are what the control plane makes of them: every pod where the Service says `publishNotReadyAddresses`, else
those whose readiness probe succeeds, asked as the manifests say. An open connection stays with its pod.
"""

import asyncio
import contextlib
import random
from collections.abc import Sequence
from concurrent.futures import Future

import httpx

from tests.live.api import Json
from tests.live.installing import extender_container
from tests.live.node import Loop
from tests.live.scheduling import Extender
from tests.manifests.rendering import named
from tests.ports import reserve_port


class Service:
    """Passes bytes on. `url`: where it listens."""

    def __init__(self, objects: tuple[Json, ...], extenders: Sequence[Extender], loop: Loop) -> None:
        service = named(objects, "Service", "numa-extender")
        self.publishes_all: bool = service["spec"].get("publishNotReadyAddresses", False)
        probe = extender_container(objects)["readinessProbe"]
        self._path: str = probe["httpGet"]["path"]
        self._period: float = probe.get("periodSeconds", 10)
        self._failures: int = probe.get("failureThreshold", 3)
        self._extenders = extenders
        self._failed = dict.fromkeys((extender.name for extender in extenders), self._failures)
        self._loop = loop
        self._serving: Future[None] | None = None
        self._pipes: set[asyncio.Task[None]] = set()
        self.port = reserve_port()
        self.url = f"https://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen and probe."""
        self._serving = self._loop.submit(self._serve())

    def stop(self) -> None:
        """End all connections."""
        if self._serving is not None:
            self._serving.cancel()

    @property
    def ready(self) -> list[str]:
        """Names of the pods that are ready."""
        return [name for name, failed in self._failed.items() if failed < self._failures]

    def endpoints(self) -> list[Extender]:
        """Where a new connection may go."""
        return [each for each in self._extenders if self.publishes_all or each.name in self.ready]

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._accept, "127.0.0.1", self.port)
        async with server, httpx.AsyncClient(verify=False, timeout=1, trust_env=False) as client:
            try:
                while True:
                    await asyncio.gather(*(self._probe(client, extender) for extender in self._extenders))
                    await asyncio.sleep(self._period)
            finally:
                for pipe in self._pipes:
                    pipe.cancel()

    async def _probe(self, client: httpx.AsyncClient, extender: Extender) -> None:
        succeeded = False
        with contextlib.suppress(httpx.TransportError):
            succeeded = (await client.get(f"{extender.tls_url}{self._path}")).is_success
        self._failed[extender.name] = 0 if succeeded else self._failed[extender.name] + 1

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there = self.endpoints()
        try:
            assert there
            behind = await asyncio.open_connection("127.0.0.1", random.choice(there).tls_port)
        except (OSError, AssertionError):
            writer.close()
            return
        for source, sink in ((reader, behind[1]), (behind[0], writer)):
            task = asyncio.create_task(_pipe(source, sink))
            self._pipes.add(task)
            task.add_done_callback(self._pipes.discard)


async def _pipe(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    sink.close()
