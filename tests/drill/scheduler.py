"""kube-scheduler as far as the extender sees it: one pod after the other, bindings in the background.

Mirrors kube-scheduler 1.36: `schedule_one.go` (findNodesThatFitPod, evaluateNominatedNode, handleBindingCycleError),
`framework/preemption` and `defaultpreemption` (see `tests.drill.preemption`), `backend/queue`.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import orjson

from tests.drill import preemption
from tests.drill.api import Api, Event, Watcher
from tests.drill.extender import SimExtender
from tests.drill.machines import allocatable
from tests.drill.node import Kubelet
from tests.drill.preemption import Amounts, Statuses, Victim
from tests.drill.workload import number_of, requested
from tests.reports import args_of
from tests.world.scheduler import binding_of

Json = dict[str, Any]
PARALLEL_BINDS = 15
SAMPLE = 100
"""Nodes shown to the extender: kube-scheduler looks for no more than this many feasible ones in small clusters."""
BACKOFF_SECONDS, MAX_BACKOFF_SECONDS = 1.0, 10.0


class Scheduler:
    """Filters by totals, asks the extender, takes the best node, and binds: through the extender (*gate*) or itself.

    Pods that fit nowhere preempt where that helps, and wait for an event; *flush_seconds*: for no longer than that
    (kube-scheduler: five minutes). `evicted`: the victims of each preemptor, with their nodes. `asks_filter`: whether
    the extender is asked which nodes fit; otherwise totals decide.
    """

    def __init__(
        self, api: Api, extender: SimExtender, kubelets: list[Kubelet], *, gate: bool, flush_seconds: float = 30.0
    ) -> None:
        self.api, self.extender, self.gate, self.flush_seconds = api, extender, gate, flush_seconds
        self.timeline = api.timeline
        self.asks_filter = True
        self.room = {k.name: dict(allocatable(k.scenario)) for k in kubelets}
        self.cordoned: set[str] = set()
        self.charged: dict[str, tuple[str, Amounts]] = {}
        self.queue: deque[str] = deque()
        self.attempts: Counter[str] = Counter()
        self.outcomes: Counter[str] = Counter()
        self.evicted: dict[str, list[tuple[str, str]]] = {}
        self.binding = 0
        self.bound = 0
        self.on_bound: Callable[[], None] = lambda: None
        self._pods: dict[str, Json] = {}
        self._nominated: dict[str, str] = {}
        self._parked: dict[str, float] = {}
        self._evicting: set[str] = set()
        self._events = 0
        self._watcher = Watcher(api, self._take, (0.001, 0.03))
        api.everywhere.append(self._watcher)
        api.of_nodes.append(Watcher(api, self._take_nodes, (0.001, 0.03), api.node_log))
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
        self._nominated.clear()
        self._parked.clear()
        self._evicting.clear()
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
                if pod["status"].get("nominatedNodeName"):
                    self._nominated[uid] = pod["status"]["nominatedNodeName"]
                self.submit(uid)

    def submit(self, uid: str) -> None:
        """A pod waits to be scheduled."""
        self._parked.pop(uid, None)
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
            uid = self.queue.popleft()
            pod = self.api.pods.get(uid)
            if pod is None or pod["spec"].get("nodeName") or uid in self.charged:
                continue
            if uid in self._evicting:
                self._parked[uid] = self.timeline.now
                continue
            nominated = self._nominated.get(uid)  # the scheduler's own memory is newer than the API's
            status = {k: v for k, v in pod["status"].items() if k != "nominatedNodeName"}
            return {**pod, "status": status | ({"nominatedNodeName": nominated} if nominated else {})}
        return None

    async def _schedule(self, pod: Json) -> None:
        uid, process, events = pod["metadata"]["uid"], self._starts, self._events
        self.attempts[uid] += 1
        statuses: Statuses = {}
        passed = await self._feasible(pod, statuses)
        if process != self._starts:
            return
        if passed is None:
            self._nominate(uid, None)
            self._again(uid, "filter failed")
            return
        if not passed:
            why = await self._preempt(pod, statuses)
            if process == self._starts:
                self._park(uid, why, events)
            return
        node = passed[0] if len(passed) == 1 else await self._best(pod, passed)
        if process != self._starts:
            return
        self._charge(pod, node)
        self.binding += 1
        self.timeline.after(self.timeline.between(0.0, 0.01), lambda: self._bind(pod, node))

    async def _feasible(self, pod: Json, statuses: Statuses) -> list[str] | None:
        """The nodes that pass; the nominated one alone, if it does. None: the extender gave an error or no answer."""
        nominated = pod["status"].get("nominatedNodeName")
        if nominated in self.room and self._fits(pod, nominated):
            passed = await self._filter(pod, [nominated], statuses)
            if passed:
                return passed
        fits = []
        for name in self.room:
            if name in self.cordoned:
                statuses[name] = preemption.UNRESOLVABLE
            elif self._fits(pod, name):
                fits.append(name)
            else:
                statuses[name] = preemption.RESOLVABLE
        return await self._filter(pod, fits, statuses) if fits else []

    def _fits(self, pod: Json, name: str, without: Iterable[str] = ()) -> bool:
        """Whether the totals of the node allow for the pod and for those nominated to it that are no less important."""
        if name not in self.room:
            return False
        room = Counter(self.room[name])
        for uid in without:
            room.update(self.charged[uid][1])
        for uid, node in self._nominated.items():
            other = self.api.pods.get(uid)
            if node != name or uid == pod["metadata"]["uid"] or uid in self.charged or other is None:
                continue
            if preemption.priority(other) >= preemption.priority(pod):
                room.subtract(requested(other))
        return all(room[resource] >= amount for resource, amount in requested(pod).items())

    async def _filter(self, pod: Json, names: list[str], statuses: Statuses) -> list[str] | None:
        self.timeline.random.shuffle(names)
        names = names[:SAMPLE]
        if not self.asks_filter:
            return names
        answer = await self._ask("filter", args_of(pod, *names))
        if answer is None or answer["Error"]:
            return None
        statuses.update(dict.fromkeys(answer["FailedNodes"], preemption.RESOLVABLE))
        statuses.update(dict.fromkeys(answer["FailedAndUnresolvableNodes"], preemption.UNRESOLVABLE))
        passed = set(answer["NodeNames"])  # the reply may have another order, and no story depends on it
        return [name for name in names if name in passed]

    async def _best(self, pod: Json, names: list[str]) -> str:
        answer = await self._ask("prioritize", args_of(pod, *names))
        if not isinstance(answer, list):
            return names[0]
        scores = {host["Host"]: host["Score"] for host in answer}
        return max(names, key=lambda name: scores[name])

    async def _preempt(self, pod: Json, statuses: Statuses) -> str:
        """Choose a node and evict its victims; returns what came of it."""
        uid = pod["metadata"]["uid"]
        why = "filter refused" if preemption.UNRESOLVABLE in statuses.values() else "no room by totals"
        nominated = self._nominated.get(uid, "")
        doomed = (preemption.is_being_preempted(v.pod, pod) for v in self._on_node(nominated))
        if statuses.get(nominated) != preemption.UNRESOLVABLE and any(doomed):
            return "victims are terminating"
        resolvable = [name for name, status in statuses.items() if status == preemption.RESOLVABLE]
        proposals = {
            name: victims
            for name in resolvable
            if (victims := preemption.victims(pod, self._on_node(name), partial(self._fits, pod, name)))
        }
        if not proposals:
            self._nominate(uid, None)
            return why
        body = {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": preemption.to_json(proposals)}
        answer = await self._ask("preempt", body)
        if answer is None:
            return "preempt failed"
        chosen = {
            name: [Victim(v["UID"], self._pods[v["UID"]]) for v in each["Pods"] if v["UID"] in self._pods]
            for name, each in answer["NodeNameToMetaVictims"].items()
        }
        if not chosen:
            return "no candidate for preemption"
        self._evict(pod, *preemption.choose(chosen))
        return "preempted others"

    def _evict(self, pod: Json, node: str, victims: list[Victim]) -> None:
        """Nominate the node, take less important nominations from it, and delete the victims in the background."""
        uid = pod["metadata"]["uid"]
        for other, name in list(self._nominated.items()):
            known = self.api.pods.get(other)
            if name == node and known is not None and preemption.priority(known) < preemption.priority(pod):
                self._nominate(other, None)
        self._nominate(uid, node)
        doomed = [victim.uid for victim in victims if "deletionTimestamp" not in victim.pod["metadata"]]
        self.evicted.setdefault(uid, []).extend((victim, node) for victim in doomed)
        self._evicting.add(uid)

        def delete() -> None:
            self._evicting.discard(uid)
            for victim in doomed:
                self.api.preempt(victim)

        self.timeline.after(self.timeline.between(0.005, 0.05), delete)

    def _on_node(self, name: str) -> list[Victim]:
        return [Victim(uid, self._pods[uid]) for uid, (node, _) in self.charged.items() if node == name]

    def _nominate(self, uid: str, node: str | None) -> None:
        """Remember it, and write it to the API a moment later."""
        if self._nominated.get(uid) == node:
            return
        if node is None:
            del self._nominated[uid]
        else:
            self._nominated[uid] = node
        self.timeline.after(
            self.timeline.between(0.002, 0.02), lambda: self.api.patch(uid, nominatedNodeName=self._nominated.get(uid))
        )

    async def _ask(self, verb: str, body: Json) -> Any:  # noqa: ANN401
        await self.timeline.sleep(self.timeline.between(0.0002, 0.002))
        answer = await self.extender.call("POST", f"/scheduler/{verb}", orjson.dumps(body))
        if answer is None:
            return None
        status, said = answer
        assert status == 200, said
        return orjson.loads(said)

    async def _bind(self, pod: Json, node: str) -> None:
        uid, process = pod["metadata"]["uid"], self._starts
        if self.gate:
            answer = await self._ask("bind", binding_of(pod, node))
            error = "no answer" if answer is None else answer["Error"]
        else:
            await self.timeline.sleep(self.timeline.between(0.002, 0.05))
            error = "connection refused" if not self.api.up else getattr(self.api.bind(uid, node), "reason", "")
        if process != self._starts:
            return
        self.binding -= 1
        if error:
            self._release(uid)
            self._nominate(uid, None)
            self._stir()
            self._again(uid, f"bind: {error.split(';')[0].split(': ')[-1][:60]}")
        else:
            self._nominated.pop(uid, None)
        self._wake()

    def _again(self, uid: str, why: str) -> None:
        """After an error: try the pod again after its back-off."""
        self.outcomes[why] += 1
        self.timeline.after(self._backoff(uid), lambda: self.submit(uid))

    def _park(self, uid: str, why: str, events: int) -> None:
        """The pod fits nowhere: it waits for an event after its back-off, or one that came while it was looked at."""
        self.outcomes[why] += 1
        ready = self._parked[uid] = self.timeline.now + self._backoff(uid)
        if events != self._events:
            self.timeline.after(ready - self.timeline.now, lambda: self._unpark(uid, ready))
        self.timeline.after(self.flush_seconds, lambda: self._unpark(uid, ready))

    def _unpark(self, uid: str, ready: float) -> None:
        if self._parked.get(uid) == ready:
            self.submit(uid)

    def _stir(self) -> None:
        """An event that may help pods that wait: extenders have no hints, so any event of a pod on a node does."""
        self._events += 1
        for uid, ready in list(self._parked.items()):
            delay = max(0.0, ready - self.timeline.now)
            self.timeline.after(delay, lambda uid=uid, ready=ready: self._unpark(uid, ready))  # type: ignore[misc]

    def _backoff(self, uid: str) -> float:
        seconds = BACKOFF_SECONDS * (1 << min(self.attempts[uid] - 1, 5))
        return min(MAX_BACKOFF_SECONDS, seconds) * self.timeline.between(0.9, 1.1)

    def _take(self, events: list[Event]) -> None:
        for kind, pod in events:
            uid, node = pod["metadata"]["uid"], pod["spec"].get("nodeName")
            if not node:
                if kind == "DELETED":
                    self._nominated.pop(uid, None)
                    self._parked.pop(uid, None)
                continue
            self._nominated.pop(uid, None)
            if kind == "DELETED" or pod["status"]["phase"] in ("Succeeded", "Failed"):
                self._release(uid)
            elif uid in self.charged:
                self._pods[uid] = pod
            elif uid in self.api.pods:
                self._charge(pod, node)
            self._stir()

    def _take_nodes(self, events: list[Event]) -> None:
        for kind, node in events:
            name = node["metadata"]["name"]
            self.cordoned.discard(name)
            if kind == "DELETED":
                self.room.pop(name, None)
                continue
            if node["spec"].get("unschedulable"):
                self.cordoned.add(name)
            if kind == "ADDED":
                amounts = node["status"]["allocatable"]
                self.room[name] = {resource: number_of(resource, amount) for resource, amount in amounts.items()}
                for _, wanted in (each for each in self.charged.values() if each[0] == name):
                    for resource, amount in wanted.items():
                        self.room[name][resource] -= amount
                self._stir()

    def _charge(self, pod: Json, node: str) -> None:
        uid, wanted = pod["metadata"]["uid"], requested(pod)
        self.charged[uid], self._pods[uid] = (node, wanted), pod
        for resource, amount in wanted.items() if node in self.room else ():
            self.room[node][resource] -= amount

    def _release(self, uid: str) -> None:
        node, wanted = self.charged.pop(uid, ("", {}))
        self._pods.pop(uid, None)
        for resource, amount in wanted.items() if node in self.room else ():
            self.room[node][resource] += amount
