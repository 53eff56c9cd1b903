"""kube-scheduler as far as the extender sees it: one pod after the other, bindings in the background."""

from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import orjson

from tests.drill.api import Api, Event, Watcher
from tests.drill.extender import SimExtender
from tests.drill.machines import allocatable
from tests.drill.node import Kubelet
from tests.drill.workload import requested

Json = dict[str, Any]
PARALLEL_BINDS = 15
SAMPLE = 100
"""Nodes shown to the extender: kube-scheduler looks for no more than this many feasible ones in small clusters."""


class Scheduler:
    """Filters by totals, asks the extender, takes the best node, and binds: through the extender (*gate*) or itself."""

    def __init__(self, api: Api, extender: SimExtender, kubelets: list[Kubelet], *, gate: bool) -> None:
        self.api, self.extender, self.gate = api, extender, gate
        self.timeline = api.timeline
        self.room = {k.name: dict(allocatable(k.scenario)) for k in kubelets}
        self.charged: dict[str, tuple[str, dict[str, int]]] = {}
        self.queue: deque[str] = deque()
        self.attempts: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.binding = 0
        self.bound = 0
        self.on_bound: Callable[[], None] = lambda: None
        self._watcher = Watcher(api, self._take, (0.001, 0.03))
        api.everywhere.append(self._watcher)
        self._idle = True
        self._starts = 0

    def restart(self) -> None:
        """The process ends, whatever it was doing; the next one lists nodes and pods."""
        self._starts += 1
        self._watcher.closed = True
        self.api.everywhere.remove(self._watcher)
        self.queue.clear()
        for uid in list(self.charged):
            self._release(uid)
        self.binding, self._idle = 0, True
        self.timeline.after(self.timeline.between(0.3, 3.0), self._list)

    def _list(self) -> None:
        if not self.api.up:
            self.timeline.after(0.5, self._list)
            return
        self._watcher = Watcher(self.api, self._take, (0.001, 0.03))
        self.api.everywhere.append(self._watcher)
        self._take([("ADDED", pod) for pod in self.api.pods.values()])
        for uid, pod in self.api.pods.items():
            if not pod["spec"].get("nodeName"):
                self.submit(uid)

    def submit(self, uid: str) -> None:
        """A pod waits to be scheduled."""
        self.queue.append(uid)
        self._wake()

    def _wake(self) -> None:
        if self._idle:
            self._idle = False
            self.timeline.after(0.0005, self._cycle)

    async def _cycle(self) -> None:
        """Schedule the first pod of the queue, then the next."""
        process = self._starts
        try:
            pod = self._next()
            if pod is not None:
                await self._schedule(pod)
        finally:
            if process == self._starts:
                self._idle = True
                if self.queue and self.binding < PARALLEL_BINDS:
                    self._wake()

    def _next(self) -> Json | None:
        while self.queue:
            pod = self.api.pods.get(self.queue.popleft())
            if pod is not None and not pod["spec"].get("nodeName") and pod["metadata"]["uid"] not in self.charged:
                return pod
        return None

    async def _schedule(self, pod: Json) -> None:
        uid, wanted = pod["metadata"]["uid"], requested(pod)
        self.attempts[uid] += 1
        fits = [
            name
            for name, room in self.room.items()
            if all(room.get(resource, 0) >= amount for resource, amount in wanted.items())
        ]
        if not fits:
            self._again(uid, "no room by totals")
            return
        process = self._starts
        passed = await self._filter(pod, fits)
        if process != self._starts:
            return
        if passed is None or not passed:
            self._again(uid, "filter failed" if passed is None else "filter refused")
            return
        node = passed[0] if len(passed) == 1 else await self._best(pod, passed)
        if process != self._starts:
            return
        self.charged[uid] = (node, wanted)
        for resource, amount in wanted.items():
            self.room[node][resource] -= amount
        self.binding += 1
        self.timeline.after(self.timeline.between(0.0, 0.01), lambda: self._bind(pod, node))

    async def _filter(self, pod: Json, names: list[str]) -> list[str] | None:
        self.timeline.random.shuffle(names)
        names = names[:SAMPLE]
        answer = await self._ask("filter", {"Pod": pod, "Nodes": None, "NodeNames": names})
        if answer is None or answer["Error"]:
            return None
        return list(answer["NodeNames"])

    async def _best(self, pod: Json, names: list[str]) -> str:
        answer = await self._ask("prioritize", {"Pod": pod, "Nodes": None, "NodeNames": names})
        if not isinstance(answer, list):
            return names[0]
        return str(max(answer, key=lambda host: host["Score"])["Host"])

    async def _ask(self, verb: str, body: Json) -> Any:  # noqa: ANN401
        await self.timeline.sleep(self.timeline.between(0.0002, 0.002))
        answer = await self.extender.call("POST", f"/scheduler/{verb}", orjson.dumps(body))
        if answer is None:
            return None
        status, said = answer
        assert status == 200, said
        return orjson.loads(said)

    async def _bind(self, pod: Json, node: str) -> None:
        metadata, process = pod["metadata"], self._starts
        uid = metadata["uid"]
        if self.gate:
            args = {
                "PodName": metadata["name"],
                "PodNamespace": metadata["namespace"],
                "PodUID": uid,
                "Node": node,
            }
            answer = await self._ask("bind", args)
            error = "no answer" if answer is None else answer["Error"]
        else:
            await self.timeline.sleep(self.timeline.between(0.002, 0.05))
            error = "connection refused" if not self.api.up else getattr(self.api.bind(uid, node), "reason", "")
        if process != self._starts:
            return
        self.binding -= 1
        if error:
            self._release(uid)
            self._again(uid, f"bind: {error.split(';')[0].split(': ')[-1][:60]}")
        self._wake()

    def _again(self, uid: str, why: str) -> None:
        """Try the pod again after a back-off, if it is still unbound then."""
        self.outcomes[why] += 1
        delay = min(10.0, 0.5 * 2 ** min(self.attempts[uid], 5)) * self.timeline.between(0.8, 1.2)
        self.timeline.after(delay, lambda: self.submit(uid))

    def _take(self, events: list[Event]) -> None:
        for kind, pod in events:
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if not node:
                continue
            if kind == "DELETED" or pod["status"]["phase"] in ("Succeeded", "Failed"):
                self._release(uid)
            elif uid not in self.charged and uid in self.api.pods:
                wanted = requested(pod)
                self.charged[uid] = (node, wanted)
                for resource, amount in wanted.items():
                    self.room[node][resource] -= amount

    def _release(self, uid: str) -> None:
        node, wanted = self.charged.pop(uid, ("", {}))
        for resource, amount in wanted.items():
            self.room[node][resource] += amount
