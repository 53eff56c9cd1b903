"""A kubelet's own program on one node: its life, its device plugins, and what it says about its pods."""

import asyncio
import contextlib
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from random import Random

import grpc
import httpx

from tests.live.api import ApiError, AsyncApi, Json
from tests.live.processes import Program
from tests.live.tally import Lags, Tally
from tests.live.whole.plugins import KUBELET_SOCKET, DevicePlugin
from tests.live.whole.runtime import Message, Runtime

REJECTED = "Pod was rejected: "
"""So begins the message of a pod that the kubelet has refused. Nothing else says it."""
PAUSE_SECONDS = 0.1
WATCH_PAUSE_SECONDS = 0.5
UP_SECONDS = 60.0
"""From the start of the program until it is healthy."""


class WholeKubelet:
    """One kubelet. *healthz*: where it says that it is healthy. *api*: may read all pods; it is closed at the end.

    Of `lags` those of the runtime and of the plugins are chosen; the others are the kubelet's own.

    A pod counts as admitted when the runtime is asked for its sandbox, and as refused when its status says so. It was
    refused by a first list if it was bound before the kubelet was healthy after its last restart.
    """

    def __init__(
        self,
        name: str,
        program: Program,
        runtime: Runtime,
        plugins: Sequence[DevicePlugin],
        api: AsyncApi,
        healthz: str,
        tally: Tally,
        *,
        seed: int,
    ) -> None:
        self.name, self.program, self.runtime, self.tally = name, program, runtime, tally
        self._plugins, self._api, self._healthz = plugins, api, healthz
        self._random = Random(f"{seed} {name}")
        self._admitted: set[str] = set()
        self._refused: set[str] = set()
        self._bound_seen: dict[str, float] = {}
        self._stopped_at: float | None = None
        self._up_at = float("inf")
        self._registered = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._registering: asyncio.Task[None] | None = None
        runtime.on_sandbox = self._admit

    @property
    def mean_life(self) -> float:
        """Of the pods that start from now on, see `Runtime`."""
        return self.runtime.mean_life

    @mean_life.setter
    def mean_life(self, seconds: float) -> None:
        self.runtime.mean_life = seconds

    @property
    def lags(self) -> Lags:
        """Those of the runtime, see there; `plugins`: from the healthy kubelet to the registration of each."""
        return self.runtime.lags

    @lags.setter
    def lags(self, lags: Lags) -> None:
        self.runtime.lags = lags

    @property
    def placements(self) -> Mapping[str, Json]:
        """As the runtime was told, of the pods that have a sandbox."""
        found: dict[str, Json] = {uid: {"containers": {}} for uid in self._admitted}
        for given in self.runtime.given:
            found[given.uid]["containers"][given.container] = {"cpus": given.cpus}
        return found

    @property
    def has_devices(self) -> bool:
        """Whether all plugins have registered since its last start."""
        return self._registered.is_set()

    # -- the process --

    async def start(self) -> None:
        """Start for the first time; it may need a while to be healthy."""
        await self.runtime.start()
        self._begin()
        self._tasks = [asyncio.create_task(self._follow())]

    async def restart(self, seconds: float) -> None:
        """Killed, away for *seconds*, and back; until it is healthy. Containers run on, and may end meanwhile."""
        await self._halt()
        self._stopped_at, self._up_at = time.monotonic(), float("inf")
        await asyncio.sleep(seconds)
        self.tally.restarts += 1
        self._begin()
        async with asyncio.timeout(UP_SECONDS):
            while self._up_at == float("inf"):  # noqa: ASYNC110 - a task that can be cancelled sets it
                await asyncio.sleep(PAUSE_SECONDS)

    async def finish(self, uid: str) -> None:
        """The containers of a pod end by themselves."""
        self.runtime.finish(uid)

    async def close(self) -> None:
        """End for good."""
        await self._halt()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for plugin in self._plugins:
            await plugin.close()
        await self.runtime.close()
        await self._api.close()

    def _begin(self) -> None:
        self.program.start()
        self._registering = asyncio.create_task(self._come_up())

    async def _halt(self) -> None:
        if self._registering is not None:
            self._registering.cancel()
            await asyncio.gather(self._registering, return_exceptions=True)
        self._registered.clear()
        if self.program.is_running:
            await asyncio.to_thread(self.program.kill)

    async def _come_up(self) -> None:
        """Until it is healthy and its device plugins have seen it and registered."""
        async with httpx.AsyncClient(trust_env=False, timeout=2) as client:
            while True:
                with contextlib.suppress(httpx.TransportError):
                    if (await client.get(self._healthz)).is_success:
                        break
                await asyncio.sleep(PAUSE_SECONDS)
        self._up_at = time.monotonic()
        for plugin in self._plugins:
            await asyncio.sleep(self._random.uniform(*self.lags.plugins))
            await _register(plugin)
        self._registered.set()

    # -- what it says --

    def _admit(self, metadata: Message) -> None:
        if metadata.uid not in self._admitted:
            self._admitted.add(metadata.uid)
            self.tally.admitted += metadata.namespace == "default"

    async def _follow(self) -> None:
        """All pods of its node, until cancelled."""
        path = f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}"
        while True:
            with contextlib.suppress(httpx.TransportError, ApiError):
                listed = await self._api.call("GET", path)
                for pod in listed["items"]:
                    self._take(pod)
                version = listed["metadata"]["resourceVersion"]
                selector = f"spec.nodeName={self.name}"
                async for event in self._api.watch("/api/v1/pods", fieldSelector=selector, resourceVersion=version):
                    if event["type"] in {"ADDED", "MODIFIED"}:
                        self._take(event["object"])
            await asyncio.sleep(WATCH_PAUSE_SECONDS)

    def _take(self, pod: Json) -> None:
        uid, status = pod["metadata"]["uid"], pod["status"]
        bound_at = self._bound_seen.setdefault(uid, time.monotonic())
        if status.get("phase") != "Failed" or not status.get("message", "").startswith(REJECTED):
            return
        if uid in self._refused:
            return
        self._refused.add(uid)
        again = uid in self._admitted
        (self.tally.refused_again if again else self.tally.refused)[status["reason"]] += 1
        name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
        text = f"{datetime.now(UTC):%H:%M:%S.%f} {self.name} {name} {status['reason']}: {status['message']}"
        self.tally.refusals.append(text + (" (ran before the restart)" if again else ""))
        if not again and self._stopped_at is not None and bound_at < self._up_at:
            self.tally.refused_first[uid] = self._stopped_at


async def _register(plugin: DevicePlugin) -> None:
    """As soon as the kubelet listens for plugins."""
    while True:
        if (plugin.directory / KUBELET_SOCKET).is_socket():
            with contextlib.suppress(grpc.aio.AioRpcError):
                await plugin.register()
                return
        await asyncio.sleep(PAUSE_SECONDS)
