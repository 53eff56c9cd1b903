"""A kubelet as the restatement decides, that lives off the real API server.

It watches the pods of its node with its own certificate, admits them one after another, starts and ends them, and
publishes what became of them. Like the real one it is late: with what it hears, with what it says, and with giving back
what a finished pod held. After a restart it has forgotten everything but its checkpoints, and admits its first list of
pods while its sources are not ready: until then no manager collects what is stale, and no device plugin is registered.

Restated from the behaviour of kubelets 1.27 to 1.36: active pods (pkg/kubelet/kubelet_pods.go filterOutInactivePods),
collection of what is stale (removeStaleState of the CPU and memory manager, UpdateAllocatedDevices), the order of the
first list (HandlePodAdditions), resources fit (pkg/kubelet/lifecycle/predicate.go).
"""

import asyncio
import time
from collections.abc import Coroutine
from datetime import UTC, datetime
from random import Random

import httpx

from tests.live import startup
from tests.live.api import STRATEGIC_PATCH, ApiError, AsyncApi, Json
from tests.live.front import Files, Front
from tests.live.tally import USUAL, Lags, Tally
from tests.oracle.amounts import milli
from tests.oracle.kubelet import NaiveKubelet
from tests.oracle.pods import pod_total

FINISHED = ("Succeeded", "Failed")
RECONCILE_SECONDS = 10.0
"""Between two collections of the CPU manager that no admission causes (cpuManagerReconcilePeriod)."""
RETRY_SECONDS = 0.5
_AWAY = (httpx.TransportError, ApiError)


class LiveKubelet:
    """One node. `mean_life`: seconds that a pod runs on average before it ends by itself; 0: pods run until deleted."""

    def __init__(
        self,
        name: str,
        scenario: Json,
        api: AsyncApi,
        files: Files,
        front: Front,
        tally: Tally,
        *,
        seed: int,
        mean_life: float = 0.0,
        lags: Lags = USUAL,
    ) -> None:
        self.name, self.scenario, self.mean_life, self.lags = name, scenario, mean_life, lags
        self.tally = tally
        self._api, self._files, self.front = api, files, front
        self._random = Random(f"{seed} {name}")
        self.naive = NaiveKubelet.of(scenario, Random(seed))
        self._allocatable = {"cpu": 0, "memory": 0}
        self._plugins = {resource: set(ids) for resource, ids in self.naive.devices.healthy.items()}
        self.pods: dict[str, Json] = {}
        self.placements: dict[str, Json] = {}
        self._admitted: set[str] = set()
        self._stopping: set[str] = set()
        self._started: set[str] = set()
        self._ended: set[str] = set()
        self._up = asyncio.Event()
        self._stopped_at = time.monotonic()
        self._tasks: set[asyncio.Task[None]] = set()
        self._service: list[asyncio.Task[None]] = []
        self._version = ""
        self.is_watching = False

    # -- the process --

    async def start(self, allocatable: dict[str, int]) -> None:
        """Start for the first time; *allocatable* in thousandths of CPUs, bytes and pieces."""
        self._allocatable = allocatable
        await self._begin()

    async def restart(self, seconds: float) -> None:
        """End, stay away for *seconds*, and come back; containers run on."""
        await self._halt()
        await asyncio.sleep(seconds)
        self.tally.restarts += 1
        self.naive.active.clear()
        self.naive.affinity.clear()
        self.pods.clear()
        self._stopping.clear()
        startup.unregister(self.naive)
        await self._begin()

    async def close(self) -> None:
        """End for good."""
        await self._halt()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._api.close()

    async def _halt(self) -> None:
        self._up.clear()
        self._stopped_at = time.monotonic()
        self.is_watching = False
        for task in self._service:
            task.cancel()
        await asyncio.gather(*self._service, return_exceptions=True)
        self._service = []
        await asyncio.to_thread(self.front.stop)

    async def _begin(self) -> None:
        self._changed()
        await asyncio.to_thread(self.front.start)
        pods = await self._list()
        await asyncio.sleep(self._between(self.lags.sync))
        with startup.sources_not_ready(self.naive, self._started):
            self._take_list(pods)
        self._changed()
        self._up.set()
        self._service = [asyncio.create_task(work) for work in (self._follow(), self._reconcile(), self._register())]

    async def _register(self) -> None:
        """Device plugins see the new kubelet and register."""
        await asyncio.sleep(self._between(self.lags.plugins))
        startup.register(self.naive, self._plugins)
        self._changed()

    async def _reconcile(self) -> None:
        while True:
            await asyncio.sleep(RECONCILE_SECONDS)
            self.naive.cpus.collect(self.naive.active)
            self._changed()

    # -- what it hears --

    async def _list(self) -> list[Json]:
        while True:
            try:
                answer = await self._api.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName%3D{self.name}")
            except _AWAY:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            self._version = answer["metadata"]["resourceVersion"]
            found: list[Json] = answer["items"]
            return found

    async def _follow(self) -> None:
        selector = f"spec.nodeName={self.name}"
        while True:
            try:
                events = self._api.watch("/api/v1/pods", fieldSelector=selector, resourceVersion=self._version)
                self.is_watching = True
                async for event in events:
                    self._version = event["object"]["metadata"]["resourceVersion"]
                    if event["type"] != "BOOKMARK":
                        if self._is_news(event["type"], event["object"]):
                            await asyncio.sleep(self._between(self.lags.sync))
                        self._take(event["type"], event["object"])
                        self._changed()
            except _AWAY as error:
                if isinstance(error, ApiError) and error.status == 410:
                    await self._catch_up()
                    continue
                await asyncio.sleep(RETRY_SECONDS)

    def _is_news(self, kind: str, pod: Json) -> bool:
        """Whether it is more than the echo of what this kubelet published."""
        metadata = pod["metadata"]
        is_leaving = "deletionTimestamp" in metadata and metadata["uid"] not in self._stopping
        return kind == "DELETED" or is_leaving or metadata["uid"] not in self.pods

    async def _catch_up(self) -> None:
        pods = await self._list()
        for uid in self.pods.keys() - {pod["metadata"]["uid"] for pod in pods}:
            self._take("DELETED", self.pods[uid])
        self._take_list(pods)
        self._changed()

    def _take_list(self, pods: list[Json]) -> None:
        """The API server lists pods by name; the kubelet takes the older ones first (HandlePodAdditions)."""
        for pod in sorted(pods, key=lambda pod: pod["metadata"]["creationTimestamp"]):
            self._take("ADDED", pod)

    def _take(self, kind: str, pod: Json) -> None:
        uid, is_known = pod["metadata"]["uid"], pod["metadata"]["uid"] in self.pods
        if kind == "DELETED":
            if self.pods.pop(uid, None) is not None:
                self.naive.remove(uid)
                self._files.forget_pod(pod)
            return
        self.pods[uid] = pod
        if not is_known and pod["status"].get("phase") not in FINISHED and uid not in self._ended:
            self._admit(uid, pod)
        if "deletionTimestamp" in pod["metadata"] and uid in self.naive.active and uid not in self._stopping:
            self._stopping.add(uid)
            self._spawn(self._stop(uid))

    # -- admission --

    def _admit(self, uid: str, pod: Json) -> None:
        verdict = self.naive.admit(pod)
        if verdict["admit"]:
            missing = self._missing(uid)
            if missing:
                self.naive.remove(uid)
                verdict = {"admit": False, "reason": missing[0], "message": missing[1]}
        again = uid in self._admitted
        if not verdict["admit"]:
            reason = verdict["reason"]
            (self.tally.refused_again if again else self.tally.refused)[reason] += 1
            name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
            text = f"{datetime.now(UTC):%H:%M:%S.%f} {self.name} {name} {reason}: {verdict['message']}"
            self.tally.refusals.append(text + (" (ran before the restart)" if again else ""))
            if not again and not self._up.is_set():
                self.tally.refused_first[uid] = self._stopped_at
            self._ended.add(uid)
            message = f"Pod was rejected: {verdict['message']}"
            self._spawn(self._publish(uid, {"phase": "Failed", "reason": reason, "message": message}))
            return
        if not again:
            self._admitted.add(uid)
            self.tally.admitted += pod["metadata"]["namespace"] == "default"
            self.placements[uid] = verdict
            self._spawn(self._run(uid))

    def _missing(self, uid: str) -> tuple[str, str] | None:
        """Reason and message if the requests of all active pods are more than what is allocatable."""
        for resource, capacity in self._allocatable.items():
            wanted = self._requested(uid, resource)
            used = sum(self._requested(other, resource) for other in self.naive.active if other != uid)
            if wanted and wanted + used > capacity:
                text = f"requested: {wanted}, used: {used}, capacity: {capacity}"
                return f"OutOf{resource}", f"Node didn't have enough resource: {resource}, {text}"
        return None

    def _requested(self, uid: str, resource: str) -> int:
        """Thousandths of CPUs, bytes or pieces."""
        amounts = []
        for container in self.naive.active[uid].containers:
            thousandths = milli(container.requests.get(resource, 0))
            amounts.append((container.kind, thousandths if resource == "cpu" else thousandths // 1000))
        return pod_total(amounts, sidecars=True)

    # -- the life of a pod; containers run on while the kubelet is away --

    async def _run(self, uid: str) -> None:
        await asyncio.sleep(self._between(self.lags.start))
        await self._up.wait()
        if uid not in self.naive.active:
            return
        self._started.add(uid)
        self._files.start_pod(self.pods[uid])
        self.naive.start(uid)
        self._changed()
        await self._publish(uid, _running(self.pods[uid]))
        if not self.mean_life:
            return
        await asyncio.sleep(self.mean_life * self._random.uniform(0.1, 1.9))
        await self.finish(uid)

    async def finish(self, uid: str) -> None:
        """The containers of a pod have ended by themselves: its end is published, and a moment later it is inactive."""
        await self._up.wait()
        if uid not in self.naive.active or uid in self._stopping:
            return
        self._ended.add(uid)
        await self._publish(uid, {"phase": "Succeeded"})
        await asyncio.sleep(self._between(self.lags.teardown))
        await self._up.wait()
        self._tear_down(uid)

    async def _stop(self, uid: str) -> None:
        """The containers of a deleted pod stop; then the pod is inactive, its end is published, and it is deleted."""
        await asyncio.sleep(self._between(self.lags.stop))
        await self._up.wait()
        pod = self.pods.get(uid)
        if pod is None:
            return
        self._ended.add(uid)
        self._tear_down(uid)
        await self._publish(uid, {"phase": "Succeeded"})
        await asyncio.sleep(self._between(self.lags.teardown))
        body = {"gracePeriodSeconds": 0, "preconditions": {"uid": uid}}
        await self._write("DELETE", _path(pod), body)

    def _tear_down(self, uid: str) -> None:
        self.naive.remove(uid)
        self._changed()

    async def _publish(self, uid: str, status: Json) -> None:
        await asyncio.sleep(self._between(self.lags.publish))
        await self._up.wait()
        pod = self.pods.get(uid)
        if pod is not None:
            await self._write("PATCH", f"{_path(pod)}/status", {"metadata": {"uid": uid}, "status": status})

    async def _write(self, method: str, path: str, document: Json) -> None:
        """Until it is written, or the pod is another one or gone."""
        while True:
            try:
                await self._api.call(method, path, document, STRATEGIC_PATCH if method == "PATCH" else None)
            except httpx.TransportError:
                await asyncio.sleep(RETRY_SECONDS)
            except ApiError as error:
                if error.status < 500 and error.status != 429:
                    return
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    # -- what it shows --

    def _changed(self) -> None:
        """Files and podresources from now on. Before 1.29 finished pods are listed as well."""
        minor = int(self.scenario["version"].split(".")[1])
        listed = [pod for uid, pod in self.pods.items() if minor < 29 or uid in self.naive.active]
        self._files.write(self.naive)
        self.front.show(self.naive, listed)

    def _between(self, span: tuple[float, float]) -> float:
        return self._random.uniform(*span)

    def _spawn(self, work: Coroutine[object, object, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _path(pod: Json) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _running(pod: Json) -> Json:
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    statuses = [
        {
            "name": container["name"],
            "image": container["image"],
            "imageID": "",
            "ready": True,
            "started": True,
            "restartCount": 0,
            "state": {"running": {"startedAt": now}},
            "allocatedResources": container.get("resources", {}).get("requests", {}),
        }
        for container in pod["spec"]["containers"]
    ]
    conditions = [
        {"type": kind, "status": "True", "lastTransitionTime": now}
        for kind in ("Initialized", "ContainersReady", "Ready")
    ]
    return {"phase": "Running", "startTime": now, "conditions": conditions, "containerStatuses": statuses}
