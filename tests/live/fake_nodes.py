"""Many nodes in one process: Node objects, reports by HTTP, and a naive admission of what is bound; no kubelet's files.

Reports go to the extender's loopback address. Each change of a node is reported a moment later, as an exporter does.
A pod that is deleted stops after a while. Its object is gone when its node has given back what it held.
"""

import asyncio
import contextlib
from collections.abc import Coroutine
from random import Random

import httpx
import orjson

from tests.drill import machines
from tests.live.api import MERGE_PATCH, ApiError, AsyncApi, Json
from tests.world.kubelet import Kubelet

REPORT_SECONDS = 0.2
"""From a change to its report."""
AT_ONCE = 8
STOP_SECONDS, GONE_SECONDS = (0.1, 2.0), (0.0, 1.0)
"""From a pod's deletion until its node has released what it held, and from there until its object is gone."""
SHAPE = 1
"""Of `machines.KINDS`: 16 CPUs on 2 NUMA nodes, policy single-numa-node."""


class FakeNodes:
    """All of them. `extender_url` None: nothing is reported."""

    def __init__(self, api: AsyncApi, count: int) -> None:
        self._api = api
        self.scenario = machines.scenario(SHAPE)
        self.names = [f"fake-{number:04}" for number in range(count)]
        self.extender_url: str | None = None
        self._client = httpx.AsyncClient(timeout=30, trust_env=False)
        self._kubelets: dict[str, Kubelet] = {}
        self._seen: set[str] = set()
        self._ending: set[str] = set()
        self._changed: set[str] = set()
        self._random = Random(count)
        self.refused: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []
        self._runs = 0

    async def register(self) -> None:
        """Create the Node objects."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def create(name: str) -> None:
            async with slots:
                await self._api.call("POST", "/api/v1/nodes", self._node(name))

        await asyncio.gather(*(create(name) for name in self.names))

    async def begin(self, extender_url: str | None) -> None:
        """Empty nodes; report each of them, and go on to follow the pods."""
        await self.end()
        self._runs += 1
        self.extender_url = extender_url
        self._kubelets = {
            name: Kubelet({**self.scenario, "node_name": name, "boot_id": f"boot-{self._runs}"}) for name in self.names
        }
        self._seen, self._changed, self._ending = set(), set(), set()
        await self._report(self.names)
        version = (await self._api.call("GET", "/api/v1/pods?limit=1"))["metadata"]["resourceVersion"]
        self._tasks = [asyncio.create_task(self._follow(version)), asyncio.create_task(self._report_changes())]

    async def end(self) -> None:
        """Stop to follow."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks = []

    async def close(self) -> None:
        """End for good."""
        await self.end()
        await self._client.aclose()
        await self._api.close()

    async def _follow(self, version: str) -> None:
        while True:
            with contextlib.suppress(httpx.TransportError, ApiError):
                async for event in self._api.watch("/api/v1/pods", resourceVersion=version):
                    pod = event["object"]
                    version = pod["metadata"]["resourceVersion"]
                    if event["type"] in {"ADDED", "MODIFIED"}:
                        self._take(pod)

    def _take(self, pod: Json) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
        if node not in self._kubelets:
            return
        if "deletionTimestamp" in pod["metadata"] and uid not in self._ending:
            self._ending.add(uid)
            self._begin(self._end(pod))
        if uid in self._seen:
            return
        self._seen.add(uid)
        verdict = self._kubelets[node].admit(pod)
        if not verdict["admit"]:
            self.refused.append(f"{pod['metadata']['name']} on {node}: {verdict['message']}")
            self._begin(self._fail(pod, verdict))
        self._changed.add(node)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._tasks.append(asyncio.create_task(work))

    async def _fail(self, pod: Json, verdict: Json) -> None:
        """Its status says that it was refused."""
        status = {"phase": "Failed", "reason": verdict["reason"], "message": f"Pod was rejected: {verdict['message']}"}
        with contextlib.suppress(ApiError):
            await self._api.call("PATCH", f"{_path(pod)}/status", {"status": status}, MERGE_PATCH)

    async def _end(self, pod: Json) -> None:
        """Its containers stop, its node releases what it held, and then its object goes, as with a kubelet."""
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        await asyncio.sleep(self._random.uniform(*STOP_SECONDS))
        if uid in self._kubelets[node].pods:
            self._kubelets[node].end(uid)
            self._changed.add(node)
        await asyncio.sleep(self._random.uniform(*GONE_SECONDS))
        with contextlib.suppress(ApiError):
            await self._api.call("DELETE", f"{_path(pod)}?gracePeriodSeconds=0")

    async def _report_changes(self) -> None:
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            changed, self._changed = self._changed, set()
            await self._report(sorted(changed))

    async def _report(self, names: list[str]) -> None:
        if self.extender_url is None:
            return
        for name in names:
            document = self._kubelets[name].report()
            answer = await self._client.put(
                f"{self.extender_url}/v1/nodes/{name}/report", content=orjson.dumps(document)
            )
            if answer.status_code not in {200, 409, 429}:
                raise RuntimeError(f"report of {name}: {answer.status_code} {answer.text[:200]}")
            if answer.status_code == 429:
                self._changed.add(name)

    def _node(self, name: str) -> Json:
        allocatable = machines.allocatable(self.scenario)
        amounts = {"cpu": f"{allocatable['cpu']}m", "memory": str(allocatable["memory"]), "pods": "110"}
        info = {
            "bootID": name, "machineID": name, "systemUUID": name, "kubeletVersion": self.scenario["version"],
            "kubeProxyVersion": "", "kernelVersion": "", "osImage": "", "containerRuntimeVersion": "",
            "operatingSystem": "linux", "architecture": "amd64",
        }  # fmt: skip
        return {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}},
            "status": {"capacity": amounts, "allocatable": amounts, "nodeInfo": info},
        }


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
