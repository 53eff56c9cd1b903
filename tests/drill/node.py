"""One node: a kubelet that follows its pods, and an exporter that reports what the kubelet holds."""

import hashlib
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any, Protocol

import orjson

from tests.drill import machines
from tests.drill.api import Api, Event, Watcher
from tests.drill.demands import demand_of, is_met
from tests.drill.tally import Restart, Tally
from tests.drill.workload import requested
from tests.oracle.kubelet import NaiveKubelet
from tests.oracle.pods import Pod
from tests.world.kubelet import listed_pod, report_of_kubelet

Json = dict[str, Any]
HEARTBEAT_SECONDS = 30.0


class Extender(Protocol):
    """Where the exporter reports to."""

    async def call(self, method: str, path: str, body: bytes) -> tuple[int, bytes] | None:
        """Status and body; None: no answer."""


class Kubelet:
    """Admits, starts, ends pods; its status updates and its view of the API are late.

    While it is down, or the node boots, containers run on and nobody follows them. When it starts it serves
    podresources before it knows any pod: nothing is listed. A little later it has its first list: it counts no more
    the pods that the API server has as finished, and admits all others in the order of their creation, those that run
    on top of what the state files have of them. It can refuse a running pod so; that pod ends. Until the list is done
    its pod sources are not ready, and its managers release nothing that ended pods hold.
    """

    def __init__(
        self,
        number: int,
        api: Api,
        tally: Tally,
        mean_life: float,
        *,
        kinds: tuple[machines.Kind, ...] = machines.KINDS,
        name: str = "",
        changes: Json | None = None,
    ) -> None:
        """*kinds* `SPREADING`: every second node distributes CPUs with the fix `spread_by_topology`.

        *changes*: fields of the kubelet's configuration in which it differs from others of its kind.
        """
        spreads = kinds is machines.SPREADING
        self.name = name or f"node-{number}"
        self.group = f"group-{number % machines.GROUPS}"
        if changes:
            tally.mixed_groups.add(self.group)
        self.api, self.tally, self.mean_life = api, tally, mean_life
        self.timeline = api.timeline
        self.scenario = machines.scenario(number, kinds)
        self.scenario["kubelet"] |= changes or {}
        self.naive = NaiveKubelet(
            self.scenario["machine"],
            self.scenario["kubelet"],
            self.scenario["devices"],
            self.scenario["version"],
            {"spread_by_topology": True} if spreads and number % 2 else {},
            rng=Random(number),
        )
        self.on_change: Callable[[], None] = lambda: None
        self.minor = int(self.scenario["version"].split(".")[1])
        self.reads_pod_logs = number % 3 > 0
        self.boots = 1
        self.down = self.has_left = False
        self.reported_at = 0.0
        """When the extender took its first report; 0: it has none yet."""
        self.listens, self.listens_since = True, self.timeline.now
        self.restart = Restart()
        self._sources_are_ready = True
        self._seen: dict[str, Pod] = {}
        self._postponed: list[Callable[[], None]] = []
        self._known: set[str] = set()
        self._requests: dict[str, dict[str, int]] = {}
        self._watcher = Watcher(api, self._take, (0.005, 0.1))
        api.by_node[self.name] = [self._watcher]
        self.register()

    def register(self) -> None:
        """Create the Node object."""
        amounts = machines.quantities(machines.allocatable(self.scenario))
        self.api.register(self.name, self.scenario["version"], amounts, {machines.GROUP_LABEL: self.group})

    def leave(self) -> None:
        """The machine is gone for good, and what ran there with it."""
        self.down = self.has_left = True
        self._watcher.closed = True
        self.api.by_node[self.name] = []

    def is_assumed(self, uid: str) -> bool:
        """Whether the pod's binding was decided before the extender had a report of this node."""
        return self.reported_at == 0.0 or self.api.decided_at.get(uid, 0.0) < self.reported_at

    def extras(self) -> Json:
        """Parts of the report that only some nodes have."""
        return {}

    def stop(self) -> None:
        """The kubelet ends, or its node: it comes back."""
        if self.down:
            return
        self.down = True
        self.restart = Restart(stopped=self.timeline.now)
        self._serve(listens=False)
        self._watcher.closed = True
        self.api.by_node[self.name] = []
        boots = self.timeline.chance(0.1)
        self.boots += boots
        self.timeline.after(self.timeline.between(20, 60) if boots else self.timeline.between(0.5, 8), self._start_up)

    def _serve(self, *, listens: bool) -> None:
        """The exporter sees at once whether the kubelet listens."""
        self.listens, self.listens_since = listens, self.timeline.now
        self.on_change()

    def _start_up(self) -> None:
        if self.has_left:
            return
        self._sources_are_ready = False
        self.restart.started = self.timeline.now
        self._serve(listens=True)
        self.timeline.after(self.timeline.between(0.1, 2.0), self._come_back)

    def _come_back(self) -> None:
        """The first list. What ended pods hold stays theirs until all of it is admitted."""
        if self.has_left:
            return
        if not self.api.up:
            self.timeline.after(0.5, self._come_back)
            return
        self.down = False
        self._watcher = Watcher(self.api, self._take, (0.005, 0.1))
        self.api.by_node[self.name] = [self._watcher]
        mine = [pod for pod in self.api.pods.values() if pod["spec"].get("nodeName") == self.name]
        self.timeline.random.shuffle(mine)
        mine.sort(key=lambda pod: pod["metadata"]["creationTimestamp"])
        gone = self._known - {pod["metadata"]["uid"] for pod in mine}
        events = [("DELETED", {"metadata": {"uid": uid}, "spec": {"nodeName": self.name}}) for uid in sorted(gone)]
        for pod in mine:
            if pod["status"]["phase"] in ("Succeeded", "Failed"):
                self._torn_down(pod["metadata"]["uid"])
        self._take(events)
        running = frozenset(self.naive.active)
        stale = self._keep_stale(set())
        self.restart.first_list, self.restart.stale = self.timeline.now, len(stale)
        self._forget_what_is_only_in_memory()
        for pod in mine:
            if pod["metadata"]["uid"] in running:
                self._admit_again(pod["metadata"]["uid"], pod)
            self._take([("ADDED", pod)])
            self._keep_stale(stale)
        for uid in stale:
            del self.naive.active[uid]
        self._sources_are_ready = True
        self._seen = {uid: self._seen[uid] for uid in self._holders() | self.naive.active.keys()}
        postponed, self._postponed = self._postponed, []
        for action in postponed:
            action()
        self._changed()

    def _keep_stale(self, stale: set[str]) -> set[str]:
        """Keep what ended and refused pods hold from being collected, and add them to *stale*."""
        found = self._holders() - self.naive.active.keys()
        self.naive.active.update({uid: self._seen[uid] for uid in found})
        stale |= found
        return stale

    def _forget_what_is_only_in_memory(self) -> None:
        """What a kubelet process knows beside its state files."""
        self.naive.cpus.reuse.clear()
        self.naive.memory.reuse.clear()
        self.naive.devices.reuse.clear()
        self._requests.clear()

    def _admit_again(self, uid: str, pod: Json) -> None:
        """The first list has a pod that runs already. One whose deletion was asked for is not admitted again."""
        if "deletionTimestamp" in pod["metadata"]:
            self._requests[uid] = requested(pod)
            return
        verdict = self.naive.admit(pod)
        if verdict["admit"]:
            verdict = self._fits(uid, pod)
        if not verdict["admit"]:
            self.tally.refused_again[verdict["reason"]] += 1
            self._reject(uid, verdict)

    def _reject(self, uid: str, verdict: Json) -> None:
        status = {"phase": "Failed", "reason": verdict["reason"], "message": f"Pod was rejected: {verdict['message']}"}
        self._publish(uid, startTime="2026-01-01T00:00:00Z", **status)

    def _is_down(self, action: Callable[[], None]) -> bool:
        """Whether the kubelet cannot do it now; then it does when it is back."""
        if self.down:
            self._postponed.append(action)
        return self.down

    def listed(self) -> list[Json]:
        """What podresources lists, as an exporter joins it with UIDs: active pods, and before 1.34 finished ones."""
        lists_active_only = self.minor >= 34
        listed = [uid for uid in self._known if not lists_active_only or uid in self.naive.active]
        if not self._sources_are_ready:
            listed = []
        pods = [listed_pod(uid, counted=True if lists_active_only else None, name=uid) for uid in sorted(listed)]
        stale = self._holders().difference(listed)
        told = (False, "p") if self.reads_pod_logs else (None, "")
        return pods + [listed_pod(uid, counted=told[0], name=told[1]) for uid in sorted(stale)]

    def _holders(self) -> set[str]:
        """Pods that the state files have something of."""
        naive = self.naive
        return {*naive.cpus.entries, *naive.memory.blocks, *naive.devices.held}

    def _take(self, events: list[Event]) -> None:
        for kind, pod in events:
            if pod["spec"].get("nodeName") != self.name:
                continue
            uid = pod["metadata"]["uid"]
            if kind == "DELETED":
                self._known.discard(uid)
                self._requests.pop(uid, None)
                if uid in self.naive.active:
                    self.naive.remove(uid)
                    self._changed()
            elif uid not in self._known:
                self._known.add(uid)
                if pod["status"]["phase"] == "Pending" and "deletionTimestamp" not in pod["metadata"]:
                    self._admit(uid, pod)
            elif "deletionTimestamp" in pod["metadata"] and pod["status"]["phase"] not in ("Succeeded", "Failed"):
                self.timeline.after(self.timeline.between(0.1, 2.0), lambda uid=uid: self._stop(uid))  # type: ignore[misc]

    def _admit(self, uid: str, pod: Json) -> None:
        has_sudden_exit = bool(self.tally.running(self.name) & self._seen.keys() - self.naive.active.keys())
        if has_sudden_exit or self.restart.is_unforeseen(self.api.decided_at.get(uid, 0.0)):
            self.tally.unpredictable.add(uid)
        self._seen[uid] = Pod(pod, self.naive.rules)
        verdict = placed = self.naive.admit(pod)
        if verdict["admit"]:
            verdict = self._fits(uid, pod)
        self.tally.decided.add(uid)
        self.tally.assumed += self.is_assumed(uid)
        if not verdict["admit"]:
            reason = verdict["reason"]
            self.tally.refused[reason] += 1
            self.tally.refused_assumed += self.is_assumed(uid)
            is_other = self.group in self.tally.mixed_groups and self.is_assumed(uid)
            self.tally.unforeseen += is_other or self.restart.is_unforeseen(self.api.decided_at.get(uid, 0.0))
            self.tally.refusals.append(self._story(uid, f"{reason}: {verdict['message']}"))
            self._reject(uid, verdict)
            return
        self.tally.admitted += 1
        self._check_demand(uid, pod, placed)
        self._changed()
        self._publish(uid, startTime="2026-01-01T00:00:00Z", startedAt=self.timeline.now)
        self.timeline.after(self.timeline.between(0.05, 1.0), lambda: self._start(uid))
        life = self.timeline.random.expovariate(1 / self.mean_life)
        self.timeline.after(1.0 + life, lambda: self._end(uid))

    def _check_demand(self, uid: str, pod: Json, placed: Json) -> None:
        demand = demand_of(pod)
        self.tally.demanding += bool(demand)
        if demand and not is_met(pod, placed, self.scenario):
            if self.restart.is_unforeseen(self.api.decided_at.get(uid, 0.0)):
                self.tally.unforeseen_demand += 1
            else:
                self.tally.against_demand.append(self._story(uid, f"{demand} placed as {placed['containers']}"))

    def _story(self, uid: str, why: str) -> str:
        """What led to a refusal, in one line."""
        believed, decided = self.tally.believed(self.name), self.api.decided_at.get(uid, 0.0)
        return f"{self.timeline.now:.2f} {self.name} {uid} bound {decided:.2f}, {self.restart}; {believed}; {why}"

    def _fits(self, uid: str, pod: Json) -> Json:
        """The kubelet's predicate: the requests of all pods that it still counts, against its allocatable.

        Runs after the managers; what they gave the pod is collected later, because the pod is not active any more.
        """
        wanted = requested(pod)
        used: Counter[str] = Counter()
        for other in self.naive.active:
            used.update(self._requests.get(other, {}))
        for resource, capacity in machines.allocatable(self.scenario).items():
            if wanted.get(resource, 0) and used[resource] + wanted[resource] > capacity:
                self.naive.remove(uid)
                amounts = f"requested: {wanted[resource]}, used: {used[resource]}, capacity: {capacity}"
                message = f"Node didn't have enough resource: {resource}, {amounts}"
                return {"admit": False, "reason": f"OutOf{resource}", "message": message}
        self._requests[uid] = wanted
        return {"admit": True}

    def _start(self, uid: str) -> None:
        if self._is_down(lambda: self._start(uid)):
            return
        if uid in self.naive.active:
            self.naive.start(uid)
            self._changed()
            self._publish(uid, phase="Running")

    def _end(self, uid: str) -> None:
        """The pod's life is over: it succeeds, or somebody deletes it, gently or by force."""
        if uid not in self.naive.active or self._is_down(lambda: self._end(uid)):
            return
        if not self.tally.may_end(uid):
            self.timeline.after(1.0, lambda: self._end(uid))
            return
        how = self.timeline.random.random()
        if how < 0.5:
            self._publish(uid, phase="Succeeded")
            self.timeline.after(self.timeline.between(0.0, 1.5), lambda: self._torn_down(uid))
            self.timeline.after(self.timeline.between(5, 30), lambda: self._delete(uid, force=False))
        else:
            self._delete(uid, force=how > 0.95)

    def _delete(self, uid: str, *, force: bool) -> None:
        pod = self.api.pods.get(uid)
        finished = pod is not None and pod["status"]["phase"] in ("Succeeded", "Failed")
        if not self.api.up:
            self.timeline.after(1.0, lambda: self._delete(uid, force=force))
        else:
            self.api.delete(uid, force=force or finished)

    def _stop(self, uid: str) -> None:
        """The containers of a deleted pod have stopped: it counts no more, its phase says so, then its object goes."""
        if self._is_down(lambda: self._stop(uid)):
            return
        self._torn_down(uid)
        self._publish(uid, phase="Failed")
        self.timeline.after(self.timeline.between(0.1, 2.0), lambda: self._gone(uid))

    def _gone(self, uid: str) -> None:
        if not self.api.up:
            self.timeline.after(1.0, lambda: self._gone(uid))
        else:
            self.api.delete(uid, force=True)

    def _torn_down(self, uid: str) -> None:
        if self._is_down(lambda: self._torn_down(uid)):
            return
        self._requests.pop(uid, None)
        if uid in self.naive.active:
            self.naive.remove(uid)
            self._changed()

    def _publish(self, uid: str, **status: object) -> None:
        def write() -> None:
            if self._is_down(write):
                return
            if not self.api.up:
                self.timeline.after(0.5, write)
            else:
                self.api.patch(uid, **status)

        self.timeline.after(self.timeline.between(0.005, 0.05), write)

    def _changed(self) -> None:
        if self._sources_are_ready and self.timeline.chance(
            0.5
        ):  # the collection of what is stale comes sooner or later
            self.naive.cpus.collect(self.naive.active)
            self.naive.devices.collect(self.naive.active)
        self.on_change()


class Exporter:
    """Reports after changes, with delays, losses and overtaking; heartbeats otherwise."""

    def __init__(self, kubelet: Kubelet, extender: Extender) -> None:
        self.kubelet, self.extender = kubelet, extender
        self.timeline = kubelet.timeline
        self.sequence = 0
        self.held: tuple[str, int, str] | None = None
        self.lost = 0
        self._scheduled = False
        self._starts = 0
        self._has_left = False
        self._boots = kubelet.boots
        kubelet.on_change = self.changed
        self.timeline.after(self.timeline.between(0, 1), self.changed)
        self.timeline.after(self.timeline.between(0, HEARTBEAT_SECONDS), self.beat)

    def changed(self) -> None:
        """Something is new: report soon."""
        if not self._scheduled:
            self._scheduled = True
            self.timeline.after(self.timeline.between(0.02, 0.4), self.report)

    def leave(self) -> None:
        """The process ends for good."""
        self._has_left, self._starts = True, self._starts + 1

    def restart(self) -> None:
        """The process ends; the next one knows nothing of it."""
        self._starts += 1
        self.held = None
        self._scheduled = False
        self.timeline.after(self.timeline.between(0.3, 3.0), self.changed)

    async def report(self) -> None:
        self._scheduled = False
        kubelet = self.kubelet
        if self._has_left:
            return
        if kubelet.down and self._boots != kubelet.boots and not kubelet.listens:  # the node is down
            self.timeline.after(self.timeline.between(1, 4), self.changed)
            return
        if self._boots != kubelet.boots:
            self._boots, self.sequence = kubelet.boots, 0
        self.sequence += 1
        sequence, boot, process = self.sequence, f"boot{self._boots}", self._starts
        document = report_of_kubelet(kubelet.name, kubelet.scenario, kubelet.naive, boot, sequence, kubelet.listed())
        document |= kubelet.extras() | {
            "observed_at": self.timeline.now,
            "podresources": {"available": kubelet.listens, "since": kubelet.listens_since},
            "pods": document["pods"] if kubelet.listens else None,
        }
        body = orjson.dumps(document)
        await self.timeline.sleep(self.timeline.between(0.002, 0.05) * (40 if self.timeline.chance(0.05) else 1))
        if self.timeline.chance(0.05):
            self.lost += 1
            answer = None
        else:
            answer = await self.extender.call("PUT", f"/v1/nodes/{kubelet.name}/report", body)
        if process != self._starts:
            return
        if answer is None:
            self.timeline.after(self.timeline.between(1, 4), self.changed)
            return
        status, said = answer
        assert status in (200, 409), said
        if status == 200:
            kubelet.reported_at = kubelet.reported_at or self.timeline.now
            self.held = (boot, sequence, hashlib.sha256(body).hexdigest())
            if not kubelet.restart.told and document["observed_at"] >= kubelet.restart.stopped:
                kubelet.restart.told = self.timeline.now

    async def beat(self) -> None:
        if self._has_left:
            return
        self.timeline.after(HEARTBEAT_SECONDS * self.timeline.between(0.9, 1.1), self.beat)
        if self.held is None:
            self.changed()
            return
        boot, sequence, digest = self.held
        beat = {"boot_id": boot, "sequence": sequence, "digest": digest, "observed_at": 0.0}
        path = f"/v1/nodes/{self.kubelet.name}/heartbeat"
        answer = await self.extender.call("POST", path, orjson.dumps(beat))
        if answer is not None and answer[0] in (404, 409):
            self.changed()
