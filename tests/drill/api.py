"""The API server: pods, bindings, and watches that tell of every change in order, when the server is up."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

from extender.scheduling.binder import BindFailure, Binding, BindOutcome, MaybeBound, NotBound, PodBound
from tests.drill.timeline import Timeline
from tests.drill.workload import BEGINNING

Json = dict[str, Any]
Event = tuple[str, Json]
"""ADDED, MODIFIED or DELETED, and the pod as it was then (nobody may change it)."""


class Watcher:
    """One reader of a log, with a delay of its own. *deliver* gets the events of one moment. *log* None: of pods."""

    def __init__(
        self,
        api: "Api",
        deliver: Callable[[list[Event]], None],
        delays: tuple[float, float],
        log: list[Event] | None = None,
    ) -> None:
        self.api, self.deliver, self.delays = api, deliver, delays
        self.log = api.log if log is None else log
        self.position = len(self.log)
        self.closed = False
        self._asleep = True

    def poke(self) -> None:
        if self._asleep and not self.closed:
            self._asleep = False
            timeline = self.api.timeline
            slow = 20 if timeline.chance(0.01) else 1
            timeline.after(timeline.between(*self.delays) * slow, self._read)

    def _read(self) -> None:
        self._asleep = True
        if self.closed or not self.api.up:
            return
        events = self.log[self.position :]
        self.position = len(self.log)
        if events:
            self.deliver(events)


class Api:
    """See the module."""

    def __init__(self, timeline: Timeline) -> None:
        self.timeline = timeline
        self.up = True
        self.pods: dict[str, Json] = {}
        self.nodes: dict[str, Json] = {}
        """The Node objects, as their kubelets publish them."""
        self.decided_at: dict[str, float] = {}
        """When each binding was decided: the request was on its way from then on."""
        self.log: list[Event] = []
        self.node_log: list[Event] = []
        self.by_node: dict[str, list[Watcher]] = {}
        self.everywhere: list[Watcher] = []
        self.of_nodes: list[Watcher] = []
        self._registered = 0

    def register(self, name: str, version: str, allocatable: Mapping[str, str], labels: Mapping[str, str]) -> None:
        """Create the Node object of a kubelet that has just started."""
        self._registered += 1
        created = datetime.fromtimestamp(BEGINNING + int(self.timeline.now), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        metadata = {"name": name, "uid": f"node-uid-{self._registered}", "creationTimestamp": created}
        status = {"allocatable": dict(allocatable), "nodeInfo": {"kubeletVersion": version}}
        self.write_node("ADDED", {"metadata": {**metadata, "labels": dict(labels)}, "spec": {}, "status": status})

    def write_node(self, kind: str, node: Json) -> None:
        """Make *node* the current version and tell everybody."""
        if kind == "DELETED":
            self.nodes.pop(node["metadata"]["name"], None)
        else:
            self.nodes[node["metadata"]["name"]] = node
        self.node_log.append((kind, node))
        if self.up:
            for watcher in self.of_nodes:
                watcher.poke()

    def write(self, kind: str, pod: Json) -> None:
        """Make *pod* the current version and tell everybody."""
        uid = pod["metadata"]["uid"]
        if kind == "DELETED":
            self.pods.pop(uid, None)
        else:
            self.pods[uid] = pod
        self.log.append((kind, pod))
        self._poke(pod["spec"].get("nodeName", ""))

    def patch(self, uid: str, **status: object) -> None:
        """Change the pod's status, if it still exists and is not over."""
        pod = self.pods.get(uid)
        if pod is not None and pod["status"]["phase"] not in ("Succeeded", "Failed"):
            self.write("MODIFIED", {**pod, "status": {**pod["status"], **status}})

    def delete(self, uid: str, *, force: bool) -> None:
        """Ask for deletion; *force* removes the object at once."""
        pod = self.pods.get(uid)
        if pod is None:
            return
        if force or not pod["spec"].get("nodeName"):
            self.write("DELETED", pod)
        elif "deletionTimestamp" not in pod["metadata"]:
            metadata = {**pod["metadata"], "deletionTimestamp": "2026-01-01T00:00:00Z"}
            self.write("MODIFIED", {**pod, "metadata": metadata})

    def preempt(self, uid: str) -> None:
        """Delete the pod as kube-scheduler does with a victim: a condition first, then a graceful deletion."""
        pod = self.pods.get(uid)
        if pod is not None and self.up:
            condition = {"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}
            self.patch(uid, conditions=[condition])
            self.delete(uid, force=False)

    def bind(self, uid: str, node: str) -> BindOutcome:
        """Carry a binding out, if the precondition holds."""
        pod = self.pods.get(uid)
        if pod is None:
            return NotBound("there is no such pod", BindFailure.NOT_FOUND)
        bound_to = pod["spec"].get("nodeName")
        if bound_to:
            return PodBound() if bound_to == node else NotBound(f"the pod is on node {bound_to}", BindFailure.CONFLICT)
        self.decided_at.setdefault(uid, self.timeline.now)
        self.write("MODIFIED", {**pod, "spec": {**pod["spec"], "nodeName": node}})
        return PodBound()

    def set_up(self, up: bool) -> None:  # noqa: FBT001
        self.up = up
        if up:
            for watchers in (self.everywhere, self.of_nodes, *self.by_node.values()):
                for watcher in watchers:
                    watcher.poke()

    def _poke(self, node: str) -> None:
        if self.up:
            for watcher in (*self.everywhere, *self.by_node.get(node, ())):
                watcher.poke()


class Binds:
    """`extender.scheduling.binder.BindingApi` over the simulated network: slow, and sometimes the reply is lost."""

    def __init__(self, api: Api) -> None:
        self.api = api

    async def bind(self, binding: Binding) -> BindOutcome:
        uid, node_name = binding.uid, binding.node_name
        api, timeline = self.api, self.api.timeline
        api.decided_at[uid] = timeline.now
        await timeline.sleep(timeline.between(0.002, 0.04))
        if not api.up:
            return NotBound("connection refused")
        if timeline.chance(0.002):  # the call is stuck somewhere: it arrives late, or never
            if timeline.chance(0.5):
                timeline.after(timeline.between(0.1, 3.0), lambda: self._arrive(uid, node_name))
            return MaybeBound("no reply in time")
        outcome = api.bind(uid, node_name)
        await timeline.sleep(timeline.between(0.001, 0.01))
        if not api.up or timeline.chance(0.003):
            return MaybeBound("the reply was lost")
        return outcome

    def _arrive(self, uid: str, node_name: str) -> None:
        if self.api.up:
            self.api.bind(uid, node_name)
